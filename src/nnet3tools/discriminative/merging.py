"""Merges discriminative examples into minibatches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnet3tools.chain.merging import (
    check_same,
    hash_of_sequences,
    merge_outputs,
    structure_of_sequences,
)
from nnet3tools.discriminative.example import NnetDiscriminativeExample
from nnet3tools.discriminative.supervision import DiscriminativeSupervision
from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import replace
from nnet3tools.fst.lattice_order import concatenated
from nnet3tools.training.example import NnetExample
from nnet3tools.training.merging import Mergeable, merge_examples


def merge_discriminative_examples(
    examples: Sequence[NnetDiscriminativeExample], compress_features: bool
) -> NnetDiscriminativeExample:
    """One example with the inputs of all, example by example, and their outputs frame by frame.

    DataError if the examples do not match, or one of them is already a minibatch.
    """
    outputs = merge_outputs([example.outputs for example in examples], merge_supervisions)
    inputs = [NnetExample(example.inputs) for example in examples]
    return NnetDiscriminativeExample(merge_examples(inputs, compress_features).io, outputs)


def merge_supervisions(parts: Sequence[DiscriminativeSupervision]) -> DiscriminativeSupervision:
    """One supervision of all parts' sequences; DataError unless lengths and weights agree."""
    first = parts[0]
    if len(parts) == 1:
        return first
    for part in parts:
        if part.num_sequences != 1:
            raise DataError("merging supervisions of which one is merged already")
        check_same("weights", first.weight, part.weight)
        check_same("lengths", first.frames_per_sequence, part.frames_per_sequence)
    return replace(
        first,
        num_sequences=len(parts),
        num_ali=np.concatenate([part.num_ali for part in parts]),
        den_lat=concatenated([part.den_lat for part in parts]),
    )


MERGEABLE_DISCRIMINATIVE: Mergeable[NnetDiscriminativeExample] = Mergeable(
    structure_of_sequences,
    hash_of_sequences,
    lambda example: example.size,
    merge_discriminative_examples,
)
"""How discriminative examples are merged."""

"""Merges discriminative examples into minibatches."""

from __future__ import annotations

from collections.abc import Sequence

from nnet3tools.chain.merging import hash_of_sequences, merge_rows, structure_of_sequences
from nnet3tools.discriminative.example import (
    NnetDiscriminativeExample,
    NnetDiscriminativeSupervision,
)
from nnet3tools.discriminative.supervision import merge_supervisions
from nnet3tools.errors import DataError
from nnet3tools.training.example import NnetExample
from nnet3tools.training.merging import Mergeable, merge_examples


def merge_discriminative_examples(
    examples: Sequence[NnetDiscriminativeExample], compress_features: bool
) -> NnetDiscriminativeExample:
    """One example with the inputs of all, example by example, and their outputs frame by frame.

    DataError if the examples do not match, or one of them is already a minibatch.
    """
    counts = {len(example.outputs) for example in examples}
    if len(counts) > 1:
        raise DataError(f"merging examples with different numbers of outputs, {sorted(counts)}")
    inputs = merge_examples(
        [NnetExample(example.inputs) for example in examples], compress_features
    )
    outputs = zip(*(example.outputs for example in examples), strict=True)
    return NnetDiscriminativeExample(inputs.io, [_merge_outputs(parts) for parts in outputs])


def _merge_outputs(parts: Sequence[NnetDiscriminativeSupervision]) -> NnetDiscriminativeSupervision:
    name, indexes, weights = merge_rows(parts)
    supervision = merge_supervisions([part.supervision for part in parts])
    return NnetDiscriminativeSupervision(name, indexes, supervision, weights)


MERGEABLE_DISCRIMINATIVE: Mergeable[NnetDiscriminativeExample] = Mergeable(
    lambda example: structure_of_sequences(example.inputs, example.outputs),
    lambda example: hash_of_sequences(example.inputs, example.outputs),
    lambda example: example.size,
    merge_discriminative_examples,
)
"""How discriminative examples are merged."""

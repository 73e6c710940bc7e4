"""Chain examples merged into minibatches."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np

from nnet3tools.chain.example import NnetChainExample, NnetChainSupervision
from nnet3tools.chain.supervision import Supervision
from nnet3tools.errors import DataError
from nnet3tools.fst.connect import breadth_first_sorted
from nnet3tools.fst.epsilon import concatenate, remove_epsilons
from nnet3tools.nnet.indexes import pack
from nnet3tools.training.example import NnetExample, hash_of_io, index_hash, string_hash
from nnet3tools.training.merging import Mergeable, merge_examples

__all__ = ["MERGEABLE_CHAIN", "merge_chain_examples", "merge_supervisions"]


def merge_chain_examples(
    examples: Sequence[NnetChainExample], compress_features: bool
) -> NnetChainExample:
    """One example of many: inputs example by example, outputs frame by frame.

    DataError if the examples do not fit together, or one is a merged one already.
    """
    inputs = merge_examples([NnetExample(e.inputs) for e in examples], compress_features).io
    counts = {len(example.outputs) for example in examples}
    if len(counts) > 1:
        raise DataError(f"merging examples with different numbers of outputs, {sorted(counts)}")
    outputs = zip(*(example.outputs for example in examples), strict=True)
    return NnetChainExample(inputs, [_merge_outputs(parts) for parts in outputs])


def _merge_outputs(parts: Sequence[NnetChainSupervision]) -> NnetChainSupervision:
    names = {part.name for part in parts}
    if len(names) > 1:
        raise DataError(f"merging examples whose outputs have different names, {sorted(names)}")
    (name,) = names
    if any((part.indexes[:, 0] != 0).any() for part in parts):
        raise DataError(f"merging examples of which one is merged already (output '{name}')")
    supervision = merge_supervisions([part.supervision for part in parts])
    indexes = np.concatenate([part.indexes for part in parts])
    indexes[:, 0] = np.repeat(np.arange(len(parts)), [len(part.indexes) for part in parts])
    if any(len(part.deriv_weights) != len(parts[0].deriv_weights) for part in parts):
        raise DataError(f"merging examples of which some lack derivative weights (output '{name}')")
    weights = np.stack([part.deriv_weights for part in parts], axis=1).ravel()
    in_order = indexes[np.argsort(pack(indexes), kind="stable")]
    return NnetChainSupervision(name, in_order, supervision, weights)


def merge_supervisions(parts: Sequence[Supervision]) -> Supervision:
    """One supervision of many; DataError unless they are of one kind, length, weight and model."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    for part in parts[1:]:
        if part.is_e2e != first.is_e2e:
            raise DataError("merging end-to-end supervisions with others")
        _check_same("lengths", first.frames_per_sequence, part.frames_per_sequence)
        _check_same("numbers of labels", first.label_dim, part.label_dim)
        if not first.is_e2e:
            _check_same("weights", first.weight, part.weight)
    num_sequences = sum(part.num_sequences for part in parts)
    if first.is_e2e:
        fsts = tuple(fst for part in parts for fst in part.e2e_fsts)
        return replace(first, num_sequences=num_sequences, e2e_fsts=fsts, alignment_pdfs=None)
    if any(part.alignment_pdfs is not None for part in parts):
        raise DataError("merging supervisions with alignments: only end-to-end ones may have them")
    merged = remove_epsilons(concatenate([part.fst for part in parts]))
    if not merged.num_states:
        raise DataError("merging supervisions whose FSTs accept nothing")
    return replace(first, num_sequences=num_sequences, fst=breadth_first_sorted(merged))


def _check_same(what: str, first: float, other: float) -> None:
    if first != other:
        raise DataError(f"merging supervisions of different {what}: {first:g} and {other:g}")


def _structure(example: NnetChainExample) -> Hashable:
    inputs = tuple((io.name, io.dim, io.indexes.tobytes()) for io in example.inputs)
    return inputs, tuple((output.name, output.indexes.tobytes()) for output in example.outputs)


def _structure_hash(example: NnetChainExample) -> int:
    """Kaldi's NnetChainExampleStructureHasher."""
    value = len(example.inputs) * 35099
    for io in example.inputs:
        value = value * 19157 + hash_of_io(io)
    for output in example.outputs:
        value = value * 17957 + string_hash(output.name) + index_hash(output.indexes)
    return value & 0xFFFFFFFFFFFFFFFF


MERGEABLE_CHAIN: Mergeable[NnetChainExample] = Mergeable(
    _structure, _structure_hash, lambda example: example.size, merge_chain_examples
)
"""Chain examples."""

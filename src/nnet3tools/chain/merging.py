"""Merges chain examples into minibatches."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np

from nnet3tools.chain.example import EncodedChainExample, NnetChainExample, NnetChainSupervision
from nnet3tools.chain.example_format import ACCEPTOR, DERIV_WEIGHTS, supervision_weight
from nnet3tools.chain.native.supervisor import Job, JobKind, native_supervisor
from nnet3tools.chain.sequences import SequenceExample, SequenceOutput
from nnet3tools.chain.supervision import Supervision
from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import replace
from nnet3tools.fst.compact_reader import acceptors_of_bytes
from nnet3tools.fst.connect import breadth_first_sorted
from nnet3tools.fst.epsilon import concatenate, remove_epsilons
from nnet3tools.fst.fst import Fst
from nnet3tools.io.encoded import EncodedRecord
from nnet3tools.nnet.indexes import pack
from nnet3tools.training.example import (
    NnetExample,
    index_hash,
    string_hash,
    structure_hash,
    structure_key,
)
from nnet3tools.training.merging import Mergeable, merge_runs, structure_by_layout
from nnet3tools.training.same_layout import merged_by_layout

_EMPTY = Fst.empty()


def merge_chain_examples(
    examples: Sequence[NnetChainExample | EncodedChainExample], compress_features: bool
) -> NnetChainExample:
    """One example with the inputs of all, example by example, and their outputs frame by frame.

    `compress_features`: compress inputs. DataError if examples do not match or one is a minibatch.
    """
    stride = int(_prototype(examples[0]).inputs[0].indexes[:, 0].max(initial=0)) + 1
    inputs = merge_runs(merged_by_layout(examples, attrgetter("inputs")), stride, compress_features)
    merged = _natively_merged(examples)
    outputs = list(_outputs(examples, merged is None))
    merge = functools.partial(merge_supervisions, merged=merged)
    return NnetChainExample(inputs, merge_outputs(outputs, merge))


def _natively_merged(examples: Sequence[NnetChainExample | EncodedChainExample]) -> Fst | None:
    """The merged acceptor of encoded examples, made by the C library; None if it cannot make it."""
    acceptors = [
        example.hole(ACCEPTOR)
        for example in examples
        if isinstance(example, EncodedRecord) and not example.layout.values["is_e2e"]
    ]
    if len(acceptors) < len(examples) or len(acceptors) < 2 or (native := _native()) is None:
        return None
    places = itertools.accumulate(map(len, acceptors[:-1]), initial=0)
    jobs = [Job(at, number, size=len(acceptors)) for number, at in enumerate(places)]
    *_, merged = native.make(JobKind.MERGED, b"".join(acceptors), jobs)
    return None if merged is None else acceptors_of_bytes([(merged, 0)])[0]


_native = functools.cache(functools.partial(native_supervisor, None))


def _outputs(
    examples: Sequence[NnetChainExample | EncodedChainExample], with_fsts: bool
) -> Iterator[list[NnetChainSupervision]]:
    """The outputs of each example, decoded; without `with_fsts`, with empty acceptors."""
    for is_encoded, run in itertools.groupby(examples, lambda e: isinstance(e, EncodedRecord)):
        if is_encoded:
            yield from ([output] for output in _decoded_outputs(list(run), with_fsts))  # type: ignore[arg-type]
        else:
            yield from (example.outputs for example in run)  # type: ignore[union-attr]


def _decoded_outputs(
    examples: Sequence[EncodedChainExample], with_fsts: bool
) -> list[NnetChainSupervision]:
    """The decoded output of each encoded example; all acceptors are decoded together."""
    places = [(e.data, e.holes[ACCEPTOR][0]) for e in examples]
    fsts = acceptors_of_bytes(places) if with_fsts else [_EMPTY] * len(places)
    found = []
    for example, fst in zip(examples, fsts, strict=True):
        (like,) = example.prototype().outputs
        values, (begin, end) = example.layout.values, example.holes[DERIV_WEIGHTS]
        weights = np.frombuffer(example.data, "<f4", (end - begin) // 4, begin)
        supervision = Supervision(
            *(supervision_weight(example), values["num_sequences"]),
            *(values["frames_per_sequence"], values["label_dim"]),
            *((_EMPTY, (fst,)) if values["is_e2e"] else (fst,)),
        )
        found.append(NnetChainSupervision(like.name, like.indexes, supervision, weights))
    return found


O = TypeVar("O", bound=SequenceOutput[Any])  # noqa: E741


def merge_outputs(
    outputs_of_all: Sequence[Sequence[O]], merge: Callable[[Sequence[Any]], Any]
) -> list[O]:
    """The outputs of examples merged frame by frame; `merge` merges a list of supervisions.

    `outputs_of_all[i]` are the outputs of example i. DataError unless all examples have the same
    outputs, of one sequence, and all or none of a name's outputs have derivative weights.
    """
    counts = {len(outputs) for outputs in outputs_of_all}
    if len(counts) > 1:
        raise DataError(f"merging examples with different numbers of outputs, {sorted(counts)}")
    return [_merged(parts, merge) for parts in zip(*outputs_of_all, strict=True)]


def _merged(parts: Sequence[O], merge: Callable[[Sequence[Any]], Any]) -> O:
    names = {part.name for part in parts}
    if len(names) > 1:
        raise DataError(f"merging examples whose outputs have different names, {sorted(names)}")
    (name,) = names
    different = {
        id(part.indexes): part.indexes for part in parts
    }  # Examples of one layout share one array.
    if any((indexes[:, 0] != 0).any() for indexes in different.values()):
        raise DataError(f"merging examples of which one is merged already (output '{name}')")
    indexes = np.concatenate([part.indexes for part in parts])
    indexes[:, 0] = np.repeat(np.arange(len(parts)), [len(part.indexes) for part in parts])
    if any(len(part.deriv_weights) != len(parts[0].deriv_weights) for part in parts):
        raise DataError(f"merging examples of which some lack derivative weights (output '{name}')")
    weights = np.stack([part.deriv_weights for part in parts], axis=1).ravel()
    indexes = indexes[np.argsort(pack(indexes), kind="stable")]
    supervision = merge([part.supervision for part in parts])
    return replace(parts[0], indexes=indexes, supervision=supervision, deriv_weights=weights)


def merge_supervisions(parts: Sequence[Supervision], merged: Fst | None = None) -> Supervision:
    """Return one supervision that has the sequences of all `parts`, in their order.

    DataError unless `frames_per_sequence` and `label_dim` are equal, and all parts are end-to-end
    or none is. Parts that are not end-to-end must also have equal `weight`, no `alignment_pdfs`,
    and a path through each `fst`; else DataError. `merged`, if given, is the acceptor of the result
    and takes the place of the parts' acceptors.
    """
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    for part in parts[1:]:
        if part.is_e2e != first.is_e2e:
            raise DataError("merging end-to-end supervisions with others")
        check_same("lengths", first.frames_per_sequence, part.frames_per_sequence)
        check_same("numbers of labels", first.label_dim, part.label_dim)
        if not first.is_e2e:
            check_same("weights", first.weight, part.weight)
    num_sequences = sum(part.num_sequences for part in parts)
    if first.is_e2e:
        fsts = tuple(fst for part in parts for fst in part.e2e_fsts)
        return replace(first, num_sequences=num_sequences, e2e_fsts=fsts, alignment_pdfs=None)
    if any(part.alignment_pdfs is not None for part in parts):
        raise DataError("merging supervisions with alignments: only end-to-end ones may have them")
    if merged is None:
        # The states are sorted below; here any numbering is right, and an ascending one is fastest.
        joined = remove_epsilons(concatenate([part.fst for part in parts], last_first=False))
        merged = breadth_first_sorted(joined)
    if not merged.num_states:
        raise DataError("merging supervisions whose FSTs accept nothing")
    return replace(first, num_sequences=num_sequences, fst=merged)


def check_same(what: str, first: float, other: float) -> None:
    """Raise DataError, naming the property `what` (a plural), if `first` and `other` differ."""
    if first != other:
        raise DataError(f"merging supervisions of different {what}: {first:g} and {other:g}")


def _prototype(example: NnetChainExample | EncodedChainExample) -> NnetChainExample:
    """The example itself, or an unencoded one with the same names, indexes and dimensions."""
    return example.prototype() if isinstance(example, EncodedRecord) else example


def structure_of_sequences(example: SequenceExample[Any]) -> Hashable:
    """A key that is equal for examples that can be merged into one minibatch."""
    of_outputs = tuple((output.name, output.indexes.tobytes()) for output in example.outputs)
    return structure_key(NnetExample(example.inputs)), of_outputs


def hash_of_sequences(example: SequenceExample[Any]) -> int:
    """Kaldi's hash of the structure of chain or discriminative examples (StructureHasher)."""
    value = structure_hash(NnetExample(example.inputs))
    for output in example.outputs:
        value = value * 17957 + string_hash(output.name) + index_hash(output.indexes)
    return value & 0xFFFFFFFFFFFFFFFF


MERGEABLE_CHAIN: Mergeable[NnetChainExample | EncodedChainExample] = Mergeable(
    structure_by_layout(structure_of_sequences),
    lambda example: hash_of_sequences(_prototype(example)),
    lambda example: _prototype(example).size,
    merge_chain_examples,
)
"""How chain examples are merged."""

"""Builds encoded chain examples in blocks: many acceptors by one call of the C library.

The bytes that examples of one shape share come from a template, one example of the shape that was
written in full. The rows of all examples of a shape are cut and compressed together.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nnet3tools.chain.example import EncodedChainExample, NnetChainExample, NnetChainSupervision
from nnet3tools.chain.example_format import CHAIN_LAYOUTS
from nnet3tools.chain.native.supervisor import Job, JobKind, NativeSupervisor
from nnet3tools.chain.sequences import output_indexes
from nnet3tools.chain.supervision import Supervision
from nnet3tools.errors import naming
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.fst.compact_reader import acceptors_of_bytes
from nnet3tools.fst.fst import Fst
from nnet3tools.io.compressed import compressed_bytes
from nnet3tools.io.general_matrix import GeneralMatrix, encoded_parts, row_range
from nnet3tools.training.example import NnetIo, frames_io

_BLOCK = 512
_MOST_BYTES = 1 << 23
"""The largest number of examples, and of bytes of their features, in a block."""


@dataclass(frozen=True, eq=False)
class ExamplePlan:
    """The input rows, the optional i-vector and the derivative weights of a chain example.

    Input rows are `num_rows` rows of `features` from `first_row` on, of which `left_context`
    rows are before the first output frame; row 0 stands for negative rows. `factor` is the
    frame subsampling factor; `deriv_weights` has one weight per output frame.
    """

    features: GeneralMatrix
    first_row: int
    num_rows: int
    left_context: int
    ivector: NnetIo | None
    factor: int
    deriv_weights: NDArray[np.float32]

    def example(self, supervision: Supervision, compress: bool) -> NnetChainExample:
        """The chain example of this plan with a supervision; with `compress`, compressed inputs."""
        rows = row_range(self.features, self.first_row, self.num_rows)
        inputs = [frames_io("input", -self.left_context, rows)]
        if self.ivector is not None:
            inputs.append(self.ivector)
        indexes = output_indexes(1, len(self.deriv_weights), 0, self.factor)
        output = NnetChainSupervision("output", indexes, supervision, self.deriv_weights)
        example = NnetChainExample(inputs, [output])
        return example.compressed() if compress else example


class Waiting(NamedTuple):
    """An example that waits until its block is made; a block's examples are made together.

    `fst` is the encoded FST from which the C library makes the acceptor, None if only Python can.
    `job` tells the library which frames of the FST the acceptor has, or how many; its `at` is set
    later. `num_bytes` is the size of the features. `plan` has the input rows, the i-vector and the
    weights, or is a function that returns them and draws the i-vector at random. `supervision()`
    makes the supervision in Python; it returns None, after a warning, if that is unusable.
    """

    key: str
    utterance: str
    fst: bytes | None
    job: Job
    weight: float
    label_dim: int
    num_bytes: int
    plan: ExamplePlan | Callable[[], ExamplePlan]
    supervision: Callable[[], Supervision | None]


class ExampleBlocks:
    """Makes chain examples from accepted items and calls `write(key, example)` in the same order.

    `native`, if not None, makes many acceptors at a time in C, from FSTs of the kind `kind`;
    otherwise Python makes each one. With `compress`, inputs are compressed.
    """

    def __init__(
        self,
        native: NativeSupervisor | None,
        kind: JobKind,
        compress: bool,
        write: Callable[[str, NnetChainExample | EncodedChainExample], None],
    ) -> None:
        self.native, self._kind, self._compress, self._write = native, kind, compress, write
        self._assembler = Assembler(compress, kind is JobKind.GRAPHS)
        self._waiting: list[Waiting] = []
        self._num_bytes = 0
        self.num_written = self.num_errors = 0
        """The number of examples written, and of those without a supervision."""

    def accept(self, item: Waiting) -> None:
        """Add an example; it is made at once if only Python can make its acceptor."""
        self._waiting.append(item)
        self._num_bytes += item.num_bytes
        is_full = len(self._waiting) >= _BLOCK or self._num_bytes > _MOST_BYTES
        if self.native is None or item.fst is None or is_full:
            self.finish()

    def finish(self) -> None:
        """Make and write all waiting examples."""
        waiting, self._waiting, self._num_bytes = self._waiting, [], 0
        planned: list[Planned] = []
        for item, acceptor in zip(waiting, self._acceptors(waiting), strict=True):
            supervision = None
            if acceptor is None and (supervision := item.supervision()) is None:
                self.num_errors += 1
                continue
            plan = item.plan() if callable(item.plan) else item.plan
            planned.append(Planned(item, plan, acceptor, supervision))
        for one, example in zip(planned, self._assembler.assembled(planned), strict=True):
            self._write(one.item.key, example or self._in_full(one))
        self.num_written += len(planned)

    def _acceptors(self, waiting: list[Waiting]) -> list[bytes | None]:
        """The encoded acceptor of each example; None if the C library cannot make it."""
        data, jobs, last = bytearray(), list[Job](), b""
        at = 0
        for item in waiting:
            if item.fst is not None and self.native is not None:
                if item.fst is not last:
                    last, at = item.fst, len(data)
                    data += last
                jobs.append(item.job._replace(at=at))
        made = iter(self.native.make(self._kind, bytes(data), jobs) if self.native else ())
        return [None if item.fst is None else next(made, None) for item in waiting]

    def _in_full(self, planned: Planned) -> NnetChainExample:
        """The example as a decoded object; if C made its acceptor, that is decoded, too."""
        supervision = planned.supervision
        if supervision is None:
            assert planned.acceptor is not None
            (fst,) = acceptors_of_bytes([(planned.acceptor, 0)])
            supervision = self._assembler.supervision(planned, fst)
        with naming(f"utterance '{planned.item.utterance}'"):
            return planned.plan.example(supervision, self._compress)


class Planned(NamedTuple):
    """An example to be built: C has made its `acceptor`, or else Python its `supervision`."""

    item: Waiting
    plan: ExamplePlan
    acceptor: bytes | None
    supervision: Supervision | None


class _Shape(NamedTuple):
    """The sizes that are equal in all examples that are built from one template."""

    num_rows: int
    left_context: int
    num_cols: int
    size_of_ivector: int
    num_frames: int
    label_dim: int

    @classmethod
    def of(cls, planned: Planned) -> _Shape | None:
        """The sizes of a planned example; None if one of its matrices is empty or not dense."""
        plan = planned.plan
        if not _is_dense(plan.features) or plan.num_rows <= 0:
            return None
        if plan.ivector is not None and not _is_dense(plan.ivector.features):
            return None
        size = 0 if plan.ivector is None else plan.ivector.dim
        return cls(
            *(plan.num_rows, plan.left_context, plan.features.shape[1], size),
            *(len(plan.deriv_weights), planned.item.label_dim),
        )


def _is_dense(matrix: GeneralMatrix) -> bool:
    return isinstance(matrix, np.ndarray) and matrix.size > 0


class Assembler:
    """Builds encoded chain examples of inputs and acceptors; `compress`: inputs are compressed."""

    def __init__(self, compress: bool, is_e2e: bool) -> None:
        self._compress, self._is_e2e = compress, is_e2e
        self._templates: dict[_Shape, EncodedChainExample | None] = {}

    def assembled(self, examples: Sequence[Planned]) -> list[EncodedChainExample | None]:
        """The encoded examples in order, with None for each example that cannot be encoded.

        An example is not encoded if it has no encoded acceptor, a matrix is not dense, a weight is
        negative, or a number is not finite.
        """
        groups: dict[_Shape, list[tuple[int, Planned]]] = {}
        for i, planned in enumerate(examples):
            if planned.acceptor is not None and (shape := _Shape.of(planned)) is not None:
                groups.setdefault(shape, []).append((i, planned))
        found: list[EncodedChainExample | None] = [None] * len(examples)
        for shape, group in groups.items():
            kept = list(itertools.compress(group, _are_sound([item.plan for _, item in group])))
            if not kept:
                continue
            if shape not in self._templates:
                self._templates[shape] = self._template(kept[0][1])
            if (template := self._templates[shape]) is None:
                continue
            assembled = self._of_template(template, [item for _, item in kept])
            for (i, _), example in zip(kept, assembled, strict=True):
                found[i] = example
        return found

    def _template(self, planned: Planned) -> EncodedChainExample | None:
        """An encoded example of the sizes of `planned`; None if its bytes have no fixed layout."""
        example = planned.plan.example(self.supervision(planned, Fst.linear([1])), self._compress)
        return CHAIN_LAYOUTS.encode(example)

    def supervision(self, planned: Planned, acceptor: Fst) -> Supervision:
        """The Supervision of `acceptor`; weight, frames and label dimension are `planned`'s."""
        fsts = (Fst.empty(), (acceptor,)) if self._is_e2e else (acceptor,)
        item, num_frames = planned.item, len(planned.plan.deriv_weights)
        return Supervision(item.weight, 1, num_frames, item.label_dim, *fsts)

    def _of_template(
        self, template: EncodedChainExample, group: Sequence[Planned]
    ) -> Iterator[EncodedChainExample]:
        """Encode the examples of a group, which all have the sizes and FST header of `template`.

        Bytes that are the same in all of them are copied from `template`.
        """
        plans = [planned.plan for planned in group]
        columns = [self._matrices(_rows(plans))]
        if plans[0].ivector is not None:
            columns.append(self._matrices(_ivectors(plans)))
        columns.append([struct.pack("<f", planned.item.weight) for planned in group])
        for planned, covered in zip(group, template.layout.filled(columns), strict=True):
            assert planned.acceptor is not None
            weights = planned.plan.deriv_weights.astype("<f4").tobytes()
            yield template.changed(covered, template.layout, planned.acceptor, weights)

    def _matrices(self, matrices: NDArray[np.float32]) -> list[bytes]:
        """The encoded bytes of each of N matrices (N, rows, columns)."""
        if self._compress:
            return compressed_bytes(matrices)
        return encoded_parts(matrices.reshape(-1, matrices.shape[2]), len(matrices))


def _are_sound(plans: Sequence[ExamplePlan]) -> NDArray[np.bool_]:
    """Flags (plans,): i-vector and weights are finite, weights >= 0. Plans have one shape."""
    weights = np.stack([plan.deriv_weights for plan in plans])
    sound = np.asarray((np.isfinite(weights) & (weights >= 0.0)).all(axis=1))
    if plans[0].ivector is not None:
        np.logical_and(sound, np.isfinite(_ivectors(plans)).all(axis=(1, 2)), out=sound)
    return sound


def _ivectors(plans: Sequence[ExamplePlan]) -> NDArray[np.float32]:
    ivectors = [plan.ivector.features for plan in plans if plan.ivector is not None]
    return np.stack([np.asarray(ivector, np.float32) for ivector in ivectors])


def _rows(plans: Sequence[ExamplePlan]) -> NDArray[np.float32]:
    """The input rows of N plans of one shape, (N, rows, columns)."""
    sources = {id(plan.features): plan.features for plan in plans}
    sizes = [len(np.asarray(features)) for features in sources.values()]
    begins = dict(zip(sources, itertools.accumulate(sizes[:-1], initial=0), strict=True))
    first = np.array([plan.first_row for plan in plans])
    begin = np.array([begins[id(plan.features)] for plan in plans])
    last = np.array([len(np.asarray(plan.features)) - 1 for plan in plans])
    rows = first[:, None] + np.arange(plans[0].num_rows)
    rows = np.clip(rows, 0, last[:, None]) + begin[:, None]
    together = np.concatenate([np.asarray(some, np.float32) for some in sources.values()])
    return together[rows]

"""Chain examples put together as bytes: many plans, with acceptors that come as bytes.

What examples of one shape have in common is found out once, by writing one of them and walking over
it; rows are cut and compressed together.
"""

from __future__ import annotations

import io
import itertools
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nnet3tools.chain.example_bytes import ChainExampleBytes, head_of
from nnet3tools.chain.example_plan import ExamplePlan
from nnet3tools.chain.supervision import Supervision
from nnet3tools.fst.fst import Fst
from nnet3tools.io.compressed import compressed_bytes
from nnet3tools.io.general_matrix import GeneralMatrix
from nnet3tools.io.stream import Writer
from nnet3tools.training.example_layout import Layout

__all__ = ["Assembler", "Planned"]

_END = b"</NnetChainSup> </Nnet3ChainEg> "


class Planned(NamedTuple):
    """An example to be put together."""

    plan: ExamplePlan
    weight: bytes
    """Of its supervision, a float32."""
    label_dim: int
    acceptor: bytes


class _Shape(NamedTuple):
    """What examples share that are put together at once."""

    num_rows: int
    left_context: int
    num_cols: int
    size_of_ivector: int
    num_frames: int
    label_dim: int

    @classmethod
    def of(cls, planned: Planned) -> _Shape | None:
        """The shape of an example; None if its matrices are of another kind, or empty."""
        plan = planned.plan
        if not _is_dense(plan.features) or plan.num_rows <= 0:
            return None
        if plan.ivector is not None and not _is_dense(plan.ivector.features):
            return None
        size = 0 if plan.ivector is None else plan.ivector.dim
        return cls(
            *(plan.num_rows, plan.left_context, plan.features.shape[1], size),
            *(len(plan.deriv_weights), planned.label_dim),
        )


def _is_dense(matrix: GeneralMatrix) -> bool:
    return isinstance(matrix, np.ndarray) and matrix.size > 0


class Assembler:
    """Puts examples of one kind of supervision together; `compress` compresses their inputs."""

    def __init__(self, compress: bool, is_e2e: bool) -> None:
        self._compress = compress
        self._start_of_tail = b"</Fsts> " * is_e2e + b"</Supervision> <DW2> FV \4"
        self._is_e2e = is_e2e
        self._heads: dict[_Shape, Layout | None] = {}

    def assembled(self, examples: Sequence[Planned | None]) -> list[ChainExampleBytes | None]:
        """The examples in order; None for those that are rare, which have to be written one by one.

        Matrices are not dense, weights negative, or something is not finite.
        """
        groups: dict[_Shape, list[tuple[int, Planned]]] = {}
        for i, planned in enumerate(examples):
            if planned is not None and (shape := _Shape.of(planned)) is not None:
                groups.setdefault(shape, []).append((i, planned))
        found: list[ChainExampleBytes | None] = [None] * len(examples)
        for shape, some in groups.items():
            kept = list(itertools.compress(some, _are_sound([item.plan for _, item in some])))
            if not kept:
                continue
            if shape not in self._heads:
                self._heads[shape] = self._head(kept[0][1])
            if (head := self._heads[shape]) is None:
                continue
            made = self._alike(head, [item for _, item in kept])
            for (i, _), example in zip(kept, made, strict=True):
                found[i] = example
        return found

    def _head(self, planned: Planned) -> Layout | None:
        """The layout of what is before the acceptor, but for what differs."""
        acceptor = Fst.linear([1])
        plan, frames = planned.plan, len(planned.plan.deriv_weights)
        of_kind = (Fst.empty(), (acceptor,)) if self._is_e2e else (acceptor,)
        supervision = Supervision(1.0, 1, frames, planned.label_dim, *of_kind)
        file = io.BytesIO()
        plan.example(supervision, self._compress).write(Writer(file))
        return head_of(file.getvalue())

    def _alike(self, head: Layout, some: Sequence[Planned]) -> Iterator[ChainExampleBytes]:
        """Examples of one shape."""
        plans = [planned.plan for planned in some]
        columns = [self._matrices(_rows(plans))]
        if plans[0].ivector is not None:
            columns.append(self._matrices(_ivectors(plans)))
        last = head.fixed[-1]
        for planned, *matrices in zip(some, *columns, strict=True):
            pieces = itertools.chain.from_iterable(zip(head.fixed, matrices, strict=False))
            before = b"".join([*pieces, head.fixed[-2], planned.weight, last])
            tail = self._tail(planned.plan.deriv_weights)
            end = len(before) + len(planned.acceptor)
            data = b"".join([before, planned.acceptor, tail])
            yield ChainExampleBytes(data, head, len(before), end)

    def _tail(self, weights: NDArray[np.float32]) -> bytes:
        size = struct.pack("<i", len(weights))
        return b"".join([self._start_of_tail, size, weights.astype("<f4").tobytes(), _END])

    def _matrices(self, matrices: NDArray[np.float32]) -> list[bytes]:
        """Matrices (N, rows, columns) as they stand in an example."""
        if self._compress:
            return compressed_bytes(matrices)
        head = b"FM " + struct.pack("<cici", b"\4", matrices.shape[1], b"\4", matrices.shape[2])
        return [head + matrix.tobytes() for matrix in matrices]


def _are_sound(plans: Sequence[ExamplePlan]) -> NDArray[np.bool_]:
    """Which of like plans have weights and i-vectors that examples may have, (N,)."""
    weights = np.stack([plan.deriv_weights for plan in plans])
    sound = np.asarray((np.isfinite(weights) & (weights >= 0.0)).all(axis=1))
    if plans[0].ivector is not None:
        np.logical_and(sound, np.isfinite(_ivectors(plans)).all(axis=(1, 2)), out=sound)
    return sound


def _ivectors(plans: Sequence[ExamplePlan]) -> NDArray[np.float32]:
    ivectors = [plan.ivector.features for plan in plans if plan.ivector is not None]
    return np.stack([np.asarray(ivector, np.float32) for ivector in ivectors])


def _rows(plans: Sequence[ExamplePlan]) -> NDArray[np.float32]:
    """The rows of each plan, (N, rows, columns)."""
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

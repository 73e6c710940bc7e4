"""Builds encoded chain examples from plans and encoded acceptors.

The bytes that examples of one shape share come from a template, one example of the shape that was
written in full. The rows of all examples of a shape are cut and compressed together.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nnet3tools.chain.encoded_examples import CHAIN_LAYOUTS, EncodedChainExample
from nnet3tools.chain.example_plan import ExamplePlan
from nnet3tools.chain.supervision import Supervision
from nnet3tools.fst.fst import Fst
from nnet3tools.io.compressed import compressed_bytes
from nnet3tools.io.encoded import EncodedRecord
from nnet3tools.io.general_matrix import GeneralMatrix


class Planned(NamedTuple):
    """The plan of a chain example and the parts of its supervision."""

    plan: ExamplePlan
    weight: float
    """The weight of the supervision."""
    label_dim: int
    acceptor: bytes


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
            *(len(plan.deriv_weights), planned.label_dim),
        )


def _is_dense(matrix: GeneralMatrix) -> bool:
    return isinstance(matrix, np.ndarray) and matrix.size > 0


class Assembler:
    """Builds encoded chain examples from plans; with `compress`, inputs are compressed."""

    def __init__(self, compress: bool, is_e2e: bool) -> None:
        self._compress, self._is_e2e = compress, is_e2e
        self._templates: dict[_Shape, EncodedChainExample | None] = {}

    def assembled(self, examples: Sequence[Planned | None]) -> list[EncodedChainExample | None]:
        """The encoded examples in order; None where the caller must write the example in full.

        An example is not encoded if a matrix is not dense, a weight is negative, or a number is not
        finite.
        """
        groups: dict[_Shape, list[tuple[int, Planned]]] = {}
        for i, planned in enumerate(examples):
            if planned is not None and (shape := _Shape.of(planned)) is not None:
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
        """An encoded example with the sizes of `planned`; None if such an example has no layout."""
        acceptor = Fst.linear([1])
        plan, frames = planned.plan, len(planned.plan.deriv_weights)
        of_kind = (Fst.empty(), (acceptor,)) if self._is_e2e else (acceptor,)
        supervision = Supervision(1.0, 1, frames, planned.label_dim, *of_kind)
        return CHAIN_LAYOUTS.encode(plan.example(supervision, self._compress))

    def _of_template(
        self, template: EncodedChainExample, group: Sequence[Planned]
    ) -> Iterator[EncodedChainExample]:
        """Encoded examples from plans with the template's sizes; fixed bytes are copied."""
        plans = [planned.plan for planned in group]
        columns = [self._matrices(_rows(plans))]
        if plans[0].ivector is not None:
            columns.append(self._matrices(_ivectors(plans)))
        *fixed, last = template.layout.fixed
        (_, end), (begin, stop) = template.holes
        between, after = template.data[end:begin], template.data[stop:]
        for planned, *matrices in zip(group, *columns, strict=True):
            holes = [*matrices, struct.pack("<f", planned.weight)]
            before = b"".join(
                [*itertools.chain.from_iterable(zip(fixed, holes, strict=True)), last]
            )
            weights = planned.plan.deriv_weights.astype("<f4").tobytes()
            data = b"".join([before, planned.acceptor, between, weights, after])
            end = len(before) + len(planned.acceptor)
            begin, stop = end + len(between), end + len(between) + len(weights)
            yield EncodedRecord(data, template.layout, ((len(before), end), (begin, stop)))

    def _matrices(self, matrices: NDArray[np.float32]) -> list[bytes]:
        """The encoded bytes of each of N matrices (N, rows, columns)."""
        if self._compress:
            return compressed_bytes(matrices)
        head = b"FM " + struct.pack("<cici", b"\4", matrices.shape[1], b"\4", matrices.shape[2])
        return [head + matrix.tobytes() for matrix in matrices]


def _are_sound(plans: Sequence[ExamplePlan]) -> NDArray[np.bool_]:
    """For each of N plans of one shape: whether i-vector and weights are finite, weights >= 0."""
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

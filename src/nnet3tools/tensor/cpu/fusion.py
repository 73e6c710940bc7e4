"""Fusion of elementwise jobs: values that one job writes and the next reads stay in registers.

Two jobs a and b, in this order, are joined if

1. both do a formula that reduces nothing, over operands of one full shape;
2. what b reads or writes shares memory with what a writes element for element, or not at all;
3. what b writes shares memory with what a reads element for element, or not at all: each element
   is read before it is written, but other elements may have been written earlier;
4. neither writes a number that the other looks up once for all elements;
5. together they have few operands: a processor has 16 or 32 registers.

Jobs between a and b keep their places. Job b may move before them if they share no memory with it
that either writes; otherwise a may move after them under the same condition. No job moves past a
job whose memory is unknown. All values are stored, except values that b overwrites, and computed by
the same instructions: results are those of separate jobs, bit for bit.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from nnet3tools.tensor.addresses import overlap
from nnet3tools.tensor.cpu.element import element_jobs
from nnet3tools.tensor.cpu.kernels import Formula, Job
from nnet3tools.tensor.formulas import Assignments, Expr, Placeholder, Type, cast, type_of_dtype
from nnet3tools.tensor.operands import is_number

_MOST_OPERANDS = 12
_LOOK_BACK = 6
"""The most jobs that a job moves past."""


def fused(jobs: Sequence[Job]) -> list[Job]:
    """Jobs (kernels with arguments) with the results of `jobs`; elementwise ones are joined."""
    done: list[Job] = []
    for job in jobs:
        if not _join_with_earlier(done, job):
            done.append(job)
    return done


def _join_with_earlier(done: list[Job], job: Job) -> bool:
    """Replace one job in `done` by its join with the later `job`; False if none can be joined."""
    if job.formula is None:
        return False
    between: list[Formula] = []
    for k in range(len(done) - 1, max(-1, len(done) - 2 - _LOOK_BACK), -1):
        earlier = done[k].formula
        if earlier is None:
            return False
        if _full_shape(earlier) == _full_shape(job.formula):
            comes_early = all(_are_independent(job.formula, other) for other in between)
            comes_late = all(_are_independent(earlier, other) for other in between)
            both = _joined(earlier, job.formula) if comes_early or comes_late else None
            if both is not None:
                del done[k]
                done.insert(k if comes_early else len(done), both)
                return True
        between.append(earlier)
    return False


def _are_independent(a: Formula, b: Formula) -> bool:
    """Whether two formulas give the same results in either order."""
    return not _clash(a, b, "same") and not _clash(b, a, "same")


def _clash(writer: Formula, other: Formula, *kinds: str) -> bool:
    """Whether two formulas must keep their order because `other` uses operands `writer` writes.

    They must if a written operand overlaps one of `other` partially or in a way named in `kinds`
    ("same": equal elements). A Number that `other` reads counts as a partial overlap.
    """
    for n in writer.assignments.targets:
        target = writer.operands[n - 1]
        for operand in other.operands:
            if isinstance(operand, np.ndarray):
                kind = overlap(target, operand)
                if kind == "partial" or kind in kinds:
                    return True
            elif is_number(operand) and overlap(target, operand.array):
                return True
    return False


def _full_shape(formula: Formula) -> tuple[int, ...]:
    return formula.operands[formula.assignments.targets[0] - 1].shape


def _joined(a: Formula, b: Formula) -> Job | None:
    """One job whose loop computes a and b; None if b needs all of a first, or operands are many."""
    if max(len(a.operands), len(b.operands)) > _MOST_OPERANDS or _clash(a, b) or _clash(b, a):
        return None
    operands: list[Any] = []
    first, second = _places(a.operands, operands), _places(b.operands, operands)
    if len(operands) > _MOST_OPERANDS:
        return None
    types = tuple(type_of_dtype(a.operands[n - 1].dtype) for n in a.assignments.targets)
    jobs = element_jobs(_both(a.assignments, first, types, b.assignments, second), operands)
    return jobs[0] if jobs else None


def _places(given: Sequence[Any], operands: list[Any]) -> tuple[int, ...]:
    """The positions in `operands`, from 1, of all `given`; missing operands are appended to it."""
    places = []
    for operand in given:
        place = next((i for i, other in enumerate(operands, 1) if _are_same(operand, other)), 0)
        if not place:
            operands.append(operand)
        places.append(place or len(operands))
    return tuple(places)


def _are_same(operand: Any, other: Any) -> bool:
    if isinstance(operand, np.ndarray) and isinstance(other, np.ndarray):
        return overlap(operand, other) == "same"
    return operand is other


@functools.lru_cache(maxsize=1024)
def _both(
    a: Assignments, a_places: tuple[int, ...], a_types: tuple[Type, ...],
    b: Assignments, b_places: tuple[int, ...],
) -> Assignments:  # fmt: skip
    """Assignments that do a, then b; b reads the value of a's item i rounded to a_types[i].

    Operand n of a is number a_places[n - 1] in the common list of operands; likewise for b.
    """
    first, second = _renumbered(a, a_places), _renumbered(b, b_places)
    stored: dict[Expr, Expr] = {
        target: cast(value, t) for (target, value), t in zip(first.items, a_types, strict=True)
    }
    later = tuple((target, value.substitute(stored)) for target, value in second.items)
    overwritten = {target for target, _ in later}
    kept = tuple((target, value) for target, value in first.items if target not in overwritten)
    return Assignments(kept + later)


def _renumbered(assignments: Assignments, places: tuple[int, ...]) -> Assignments:
    """The assignments with placeholder n replaced by placeholder places[n - 1]."""
    at = {Placeholder(n): Placeholder(place) for n, place in enumerate(places, 1)}
    values: dict[Expr, Expr] = {operand: place for operand, place in at.items()}
    return Assignments(tuple((at[t], value.substitute(values)) for t, value in assignments.items))

"""Schedules of the learning rate: factors that depend on the number of the update, from 1.

`WarmUp(4000) * InverseSquareRoot(4000)` is Marian's --lr-warmup 4000 with --lr-decay-inv-sqrt 4000.
"""

from __future__ import annotations

import math

from nnet3tools.expression.shapes import ExpressionError
from nnet3tools.fast_dataclasses import dataclass, fields


class Schedule:
    """A function from the number of an update, from 1, to a factor of the learning rate."""

    def __call__(self, update: int) -> float:
        raise NotImplementedError

    def __mul__(self, other: Schedule) -> Schedule:
        """The schedule whose factor is the product of both factors."""
        return _Product(self, other) if isinstance(other, Schedule) else NotImplemented


@dataclass(frozen=True)
class _Product(Schedule):
    first: Schedule
    second: Schedule

    def __call__(self, update: int) -> float:
        return self.first(update) * self.second(update)


@dataclass(frozen=True)
class _Over(Schedule):
    """Base of schedules that divide by a number of updates, which must be positive."""

    updates: int

    def __post_init__(self) -> None:
        if type(self.updates) is not int or self.updates < 1:
            raise ExpressionError(
                f"{type(self).__name__}: the number of updates must be a positive integer, "
                f"found {self.updates!r}"
            )
        for each in fields(self)[1:]:
            if not 0 <= (value := getattr(self, each.name)) < math.inf:
                raise ExpressionError(
                    f"{type(self).__name__}: {each.name} must be in [0, inf), found {value}"
                )


@dataclass(frozen=True)
class WarmUp(_Over):
    """A factor that grows linearly, from `first` before update 1 to 1 at update `updates`."""

    first: float = 0.0

    def __call__(self, update: int) -> float:
        return self.first + (1.0 - self.first) * min(1.0, update / self.updates)


@dataclass(frozen=True)
class InverseSquareRoot(_Over):
    """The factor sqrt(updates / update) from update `updates` on; it is 1 before."""

    def __call__(self, update: int) -> float:
        return math.sqrt(self.updates / max(update, self.updates))


@dataclass(frozen=True)
class Cosine(_Over):
    """A factor that falls from 1 to `last` along half a cosine wave in `updates` updates.

    The wave starts with 1 after `begin` updates, so that a WarmUp(begin) may precede.
    """

    last: float = 0.0
    begin: int = 0

    def __call__(self, update: int) -> float:
        part = min(1.0, max(0.0, (update - 1 - self.begin) / self.updates))
        return self.last + (1.0 - self.last) * 0.5 * (1.0 + math.cos(math.pi * part))

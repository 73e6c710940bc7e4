"""Changes of examples by copying: one frame, less context, weights, names of outputs."""

from functools import cached_property

import numpy as np

from nnet3tools import draws
from nnet3tools.errors import DataError, OptionError
from nnet3tools.fast_dataclasses import dataclass, field, replace
from nnet3tools.io import log
from nnet3tools.io.general_matrix import filter_rows, scale
from nnet3tools.nnet.indexes import BoolArray
from nnet3tools.number_text import parse_int
from nnet3tools.training.example import NnetExample, NnetIo

_UNSHIFTED = ("ivector",)
"""Inputs whose times are not frames."""


def shift_times(example: NnetExample, offset: int) -> NnetExample:
    """A copy of the example with `offset` added to every t except in i-vector inputs."""
    if offset == 0:
        return example
    step = np.array([0, offset, 0], np.int32)
    return NnetExample(
        [
            io if io.name in _UNSHIFTED else replace(io, indexes=io.indexes + step)
            for io in example.io
        ]
    )


def _change_output(example: NnetExample, key: str, **changes: object) -> NnetExample:
    if all(io.name != "output" for io in example.io):
        raise DataError(f"example '{key}' has no 'output'")
    return NnetExample(
        [replace(io, **changes) if io.name == "output" else io for io in example.io]  # type: ignore[arg-type]
    )


def rename_output(example: NnetExample, key: str, name: str) -> NnetExample:
    """A copy of example `key` whose 'output' is named `name`; DataError without 'output'."""
    return _change_output(example, key, name=name)


def scale_supervision(example: NnetExample, key: str, weight: float) -> NnetExample:
    """A copy of example `key` whose features of 'output' are multiplied by `weight`."""
    if weight == 1.0:
        return example
    outputs = [io for io in example.io if io.name == "output"]
    features = scale(outputs[0].features, weight) if outputs else None
    return _change_output(example, key, features=features)


@dataclass
class ContextCutter:
    """Keeps of 'input' only so many context frames around those of the supervision; -1: all."""

    left_context: int = -1
    right_context: int = -1
    _warned: frozenset[str] = frozenset()

    @property
    def does_nothing(self) -> bool:
        """Whether the cutter keeps all context."""
        return (self.left_context, self.right_context) == (-1, -1)

    def cut(self, ios: list[NnetIo], key: str, first: int, last: int) -> list[NnetIo]:
        """Cut 'input' to the times from `first` to `last` and their context; returns all inputs.

        Warns once for each side if 'input' has less context than requested; DataError without it.
        """
        first_input, last_input = _time_range(ios, "input", key)
        if self.left_context != -1:
            if first_input > first - self.left_context:
                self._warn("left", "initial", self.left_context, first - first_input)
            first_input = max(first_input, first - self.left_context)
        if self.right_context != -1:
            if last_input < last + self.right_context:
                self._warn("right", "final", self.right_context, last_input - last)
            last_input = min(last_input, last + self.right_context)
        return [
            _keep_times(io, key, first_input, last_input) if io.name == "input" else io
            for io in ios
        ]

    def _warn(self, side: str, end: str, wanted: int, found: int) -> None:
        if side not in self._warned:
            self._warned |= {side}
            log.warning(
                f"You requested --{side}-context={wanted}, but example only has {side}-context of "
                f"{found} (will warn only once; this may be harmless if using any "
                f"--*{side}-context-{end} options)"
            )


@dataclass
class FrameSelection:
    """Selects one labelled frame of each example and removes context around it.

    `frame` is "" (keep all), "random", or the t of the frame to keep. A context of -1 keeps all.
    `frame_shift` is added to every t, except those of i-vectors.
    """

    frame: str = ""
    left_context: int = -1
    right_context: int = -1
    frame_shift: int = 0
    _contexts: ContextCutter = field(init=False)

    def __post_init__(self) -> None:
        """Raise OptionError for a --frame that is neither empty, "random" nor a number."""
        self._contexts = ContextCutter(self.left_context, self.right_context)
        if self.frame not in ("", "random") and parse_int(self.frame) is None:
            raise OptionError(f"invalid --frame={self.frame[:80]}: expected a number or 'random'")

    @cached_property
    def does_nothing(self) -> bool:
        """Whether the selection keeps every example unchanged."""
        return self.frame == "" and self._contexts.does_nothing and self.frame_shift == 0

    def apply(self, example: NnetExample, key: str) -> NnetExample | None:
        """The selected part of an example; None if it has no frame with the selected t.

        DataError for a merged example, or one without 'input' or 'output'.
        """
        if self.does_nothing:
            return example
        if (frames := self.choose(self.bounds(example, key))) is None:
            return None
        return self.cut(example, key, frames)

    @staticmethod
    def bounds(example: NnetExample, key: str) -> tuple[int, ...]:
        """The t of the first and of the last frame of 'output'; DataError without 'output'."""
        if any((io.indexes[:, 0] != 0).any() for io in example.io):
            raise DataError(
                f"example '{key}' is a merged one: too late for frame selection or less context"
            )
        return _time_range(example.io, "output", key)

    def choose(self, bounds: tuple[int, ...]) -> tuple[int, ...] | None:
        """The first and the last t to keep of the range `bounds`; None to drop the example."""
        first, last = bounds
        if self.frame == "":
            return first, last
        frame = draws.rand_int(first, last) if self.frame == "random" else int(self.frame)
        return (frame, frame) if first <= frame <= last else None

    def cut(self, example: NnetExample, key: str, frames: tuple[int, ...]) -> NnetExample:
        """A copy of the example with only the frames first <= t <= last of 'output'.

        `frames` is (first, last). 'input' keeps these times and this selection's context of them.
        `frame_shift` is added to every t, except those of i-vectors. DataErrors name the `key`.
        """
        first, last = frames
        ios = [
            _keep_times(io, key, first, last) if io.name == "output" else io
            for io in self._contexts.cut(example.io, key, first, last)
        ]
        return shift_times(NnetExample(ios), self.frame_shift)


def _time_range(ios: list[NnetIo], name: str, key: str) -> tuple[int, int]:
    for io in ios:
        if io.name == name and len(io.indexes):
            times = io.indexes[:, 1]
            return int(times.min()), int(times.max())
    raise DataError(f"example '{key}' has no '{name}', which frame selection needs")


def _keep_times(io: NnetIo, key: str, first: int, last: int) -> NnetIo:
    times = io.indexes[:, 1]
    keep: BoolArray = (times >= first) & (times <= last)
    if keep.all():
        return io
    if not keep.any():
        raise DataError(f"frame selection leaves nothing of '{io.name}' in example '{key}'")
    return NnetIo(io.name, io.indexes[keep], filter_rows(io.features, keep))

"""Changes of chain examples by copying: shifts in time, less context, weights, new names."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from nnet3tools.chain.example import NnetChainExample, NnetChainSupervision
from nnet3tools.chain.example_format import CHAIN_LAYOUTS
from nnet3tools.chain.sequences import SequenceExample
from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass, replace
from nnet3tools.nnet.indexes import IndexArray
from nnet3tools.training.batched_changes import ChangesOfKind
from nnet3tools.training.example import NnetExample
from nnet3tools.training.selection import ContextCutter, shift_times


def _change_output(
    example: NnetChainExample,
    key: str,
    change: Callable[[NnetChainSupervision], NnetChainSupervision],
) -> NnetChainExample:
    if all(output.name != "output" for output in example.outputs):
        raise DataError(f"example '{key}' has no 'output'")
    outputs = [change(output) if output.name == "output" else output for output in example.outputs]
    return NnetChainExample(example.inputs, outputs)


def rename_output(example: NnetChainExample, key: str, name: str) -> NnetChainExample:
    """A copy of example `key` whose 'output' is named `name`; DataError without 'output'."""
    return _change_output(example, key, lambda output: replace(output, name=name))


def scale_supervision(example: NnetChainExample, key: str, weight: float) -> NnetChainExample:
    """A copy of example `key` with the supervision weight of 'output' multiplied by `weight`."""
    if weight == 1.0:
        return example

    def scaled(output: NnetChainSupervision) -> NnetChainSupervision:
        product = float(np.float32(output.supervision.weight) * np.float32(weight))
        return replace(output, supervision=replace(output.supervision, weight=product))

    return _change_output(example, key, scaled)


E = TypeVar("E", bound=SequenceExample[Any])


def shift_sequence_times(example: E, offset: int) -> E:
    """A copy of the example with `offset` added to every t of all inputs except i-vectors.

    Outputs move by the nearest multiple of the frame subsampling factor.
    """
    if offset == 0:
        return example
    outputs = [
        replace(output, indexes=_shifted(output.indexes, output.frame_skip, offset))
        for output in example.outputs
    ]
    return type(example)(shift_times(NnetExample(example.inputs), offset).io, outputs)


def _shifted(indexes: IndexArray, frame_skip: int, offset: int) -> IndexArray:
    """An output's indexes with t moved by the multiple of `frame_skip` nearest to `offset`."""
    step = frame_skip * math.floor(0.5 + offset / frame_skip)
    return indexes + np.array([0, step, 0], np.int32)


@dataclass
class ChainSelection:
    """Shifts examples in time by `frame_shift` and removes context.

    `contexts` says how many frames of input remain before and after the supervision's frames.
    """

    frame_shift: int
    contexts: ContextCutter

    @property
    def does_nothing(self) -> bool:
        """Whether the selection keeps every example unchanged."""
        return self.frame_shift == 0 and self.contexts.does_nothing

    def bounds(self, example: NnetChainExample, key: str) -> tuple[int, ...]:
        """The bounds of random choices for an example: none, as there is no choice to make."""
        return ()

    def choose(self, bounds: tuple[int, ...]) -> tuple[int, ...]:
        """The random choices within `bounds`: none, as there is no choice to make."""
        return ()

    def cut(self, example: NnetChainExample, key: str, chosen: tuple[int, ...]) -> NnetChainExample:
        """The result of `apply`; `chosen` is not used, because no choice is random."""
        return self.apply(example, key)

    def apply(self, example: NnetChainExample, key: str) -> NnetChainExample:
        """The example with its times shifted (`frame_shift`) and its input's context cut.

        DataError for a merged example if context is to be cut, or one without 'input' or 'output'.
        """
        example = shift_sequence_times(example, self.frame_shift)
        if self.contexts.does_nothing:
            return example
        indexes = [io.indexes for io in example.inputs]
        indexes += [output.indexes for output in example.outputs]
        if any((rows[:, 0] != 0).any() for rows in indexes):
            raise DataError(f"example '{key}' is a merged one: too late for less context")
        if (output := next((o for o in example.outputs if o.name == "output"), None)) is None:
            raise DataError(f"example '{key}' has no 'output', which less context needs")
        times = output.indexes[:, 1]
        inputs = self.contexts.cut(example.inputs, key, int(times.min()), int(times.max()))
        return NnetChainExample(inputs, example.outputs)


CHAIN_CHANGES: ChangesOfKind[NnetChainExample] = ChangesOfKind(
    CHAIN_LAYOUTS,
    lambda example: example.inputs,
    lambda example, inputs: NnetChainExample(inputs, example.outputs),
    scale_supervision,
    rename_output,
)

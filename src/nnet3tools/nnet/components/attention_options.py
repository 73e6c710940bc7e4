"""The configuration of RestrictedAttentionComponent: dimensions, window, and their file fields."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from nnet3tools.nnet.components.common import read_field, require, write_field

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = ["AttentionOptions"]

_FIELDS = (
    ("<NumHeads>", "num_heads", "int32"),
    ("<KeyDim>", "key_dim", "int32"),
    ("<ValueDim>", "value_dim", "int32"),
    ("<NumLeftInputs>", "num_left_inputs", "int32"),
    ("<NumRightInputs>", "num_right_inputs", "int32"),
    ("<TimeStride>", "time_stride", "int32"),
    ("<NumLeftInputsRequired>", "num_left_inputs_required", "int32"),
    ("<NumRightInputsRequired>", "num_right_inputs_required", "int32"),
    ("<OutputContext>", "output_context", "bool"),
    ("<KeyScale>", "key_scale", "float"),
)
"""File tokens, attributes and types, in the order of the file."""


@dataclass(frozen=True)
class AttentionOptions:
    """What Kaldi's config line sets (nnet-attention-component.h)."""

    num_heads: int
    key_dim: int
    value_dim: int
    num_left_inputs: int
    num_right_inputs: int
    time_stride: int
    """Times between the frames of a window."""
    num_left_inputs_required: int
    num_right_inputs_required: int
    """An output exists where these inputs do; the others of the window read as zero if absent."""
    output_context: bool
    """Whether the attention weights are appended to the output."""
    key_scale: float

    @property
    def context_dim(self) -> int:
        """Frames that an output looks at."""
        return self.num_left_inputs + 1 + self.num_right_inputs

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        """Take the options from a config line; ConfigError if they are impossible."""
        key_dim = line.get_int("key-dim")
        left, right = line.get_int("num-left-inputs"), line.get_int("num-right-inputs")
        left_required = line.get_int("num-left-inputs-required", -1)
        right_required = line.get_int("num-right-inputs-required", -1)
        scale = line.get_float("key-scale", -1.0)
        if scale < 0.0 and key_dim > 0:
            scale = 1.0 / math.sqrt(key_dim)
        options = cls(
            line.get_int("num-heads", 1),
            key_dim,
            line.get_int("value-dim"),
            left,
            right,
            line.get_int("time-stride", 1),
            left if left_required < 0 else left_required,
            right if right_required < 0 else right_required,
            line.get_bool("output-context", True),
            scale,
        )
        if (problem := options.problem()) is not None:
            raise line.error(problem)
        return options

    def problem(self) -> str | None:
        """What is wrong with the configuration, in words, or None."""
        if min(self.num_heads, self.key_dim, self.value_dim, self.time_stride) <= 0:
            return "num-heads, key-dim, value-dim and time-stride must be positive"
        left, right = self.num_left_inputs, self.num_right_inputs
        if left < 0 or right < 0 or left + right == 0:
            return "num-left-inputs and num-right-inputs must not be negative, nor both 0"
        if not 0 <= self.num_left_inputs_required <= left:
            return f"num-left-inputs-required must be in 0..{left}"
        if not 0 <= self.num_right_inputs_required <= right:
            return f"num-right-inputs-required must be in 0..{right}"
        if not 0.0 < self.key_scale <= 1.0:
            return f"key-scale must be in (0, 1], found {self.key_scale:g}"
        return None

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read the fields of a model file."""
        options = cls(*(read_field(reader, t, getattr(reader, f"read_{k}")) for t, _, k in _FIELDS))
        problem = options.problem()
        require(reader, problem is None, f"RestrictedAttentionComponent: {problem}")
        return options

    def write(self, writer: Writer) -> None:
        """Write the fields of a model file."""
        for token, name, kind in _FIELDS:
            value = getattr(self, name)
            write_field(writer, token, float(value) if kind == "float" else value)

    def info(self) -> str:
        """The options' part of nnet3-info's line."""
        return (
            f"num-heads={self.num_heads}, time-stride={self.time_stride}"
            f", key-dim={self.key_dim}, value-dim={self.value_dim}"
            f", num-left-inputs={self.num_left_inputs}, num-right-inputs={self.num_right_inputs}"
            f", context-dim={self.context_dim}"
            f", num-left-inputs-required={self.num_left_inputs_required}"
            f", num-right-inputs-required={self.num_right_inputs_required}"
            f", output-context={'true' if self.output_context else 'false'}"
            f", key-scale={self.key_scale:g}"
        )

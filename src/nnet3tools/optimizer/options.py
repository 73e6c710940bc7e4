"""Which optimizations to run: Kaldi's NnetOptimizeOptions, its names, defaults and file form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from nnet3tools.fast_dataclasses import fields
from nnet3tools.options import OptionGroup, option

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer

MIN_TIME, MAX_TIME = -(1 << 31), (1 << 31) - 1
"""Times that mean "no limit" (the ends of Kaldi's int32)."""


class OptimizeOptions(OptionGroup):
    """The options `--optimization.*` of compiling, in the order in which Kaldi writes them."""

    optimize: bool = option(
        True,
        "Set this to false to turn off all optimizations except, as in Kaldi, the limits of "
        "derivative times (off unless --optimization.min-deriv-time, --optimization.max-deriv-time "
        "or --optimization.max-deriv-time-relative is set) and memory compression (off with "
        "--optimization.memory-compression-level=0)",
    )
    consolidate_model_update: bool = option(
        True,
        "Set to false to disable optimization that consolidates the model-update phase of "
        "backprop (e.g. for recurrent architectures)",
    )
    propagate_in_place: bool = option(
        True, "Set to false to disable optimization that allows in-place propagation"
    )
    backprop_in_place: bool = option(
        True, "Set to false to disable optimization that allows in-place backprop"
    )
    optimize_row_ops: bool = option(
        True, "Set to false to disable certain optimizations that act on operations of type *Row*."
    )
    split_row_ops: bool = option(
        True,
        "Set to false to disable an optimization that may replace some operations of type "
        "CopyRowsMulti or AddRowsMulti with up to two simpler operations.",
    )
    extend_matrices: bool = option(
        True,
        "This optimization can reduce memory requirements for TDNNs when applied together with "
        "--convert-addition=true",
    )
    convert_addition: bool = option(
        True,
        "Set to false to disable the optimization that converts Add commands into Copy commands "
        "wherever possible.",
    )
    remove_assignments: bool = option(
        True, "Set to false to disable optimization that removes redundant assignments"
    )
    allow_left_merge: bool = option(
        True,
        "Set to false to disable left-merging of variables in remove-assignments (obscure option)",
    )
    allow_right_merge: bool = option(
        True,
        "Set to false to disable right-merging of variables in remove-assignments (obscure option)",
    )
    initialize_undefined: bool = option(
        True, "Set to false to disable optimization that avoids redundant zeroing"
    )
    move_sizing_commands: bool = option(
        True,
        "Set to false to disable optimization that moves matrix allocation and deallocation "
        "commands to conserve memory.",
    )
    allocate_from_other: bool = option(
        True,
        "Instead of deleting a matrix of a given size and then allocating a matrix of the same "
        "size, allow re-use of that memory",
    )
    min_deriv_time: int = option(
        MIN_TIME,
        "You can set this to the minimum t value that you want derivatives to be computed at when "
        "updating the model. This is an optimization that saves time in the backprop phase for "
        "recurrent frameworks",
    )
    max_deriv_time: int = option(
        MAX_TIME,
        "You can set this to the maximum t value that you want derivatives to be computed at when "
        "updating the model. This is an optimization that saves time in the backprop phase for "
        "recurrent frameworks",
    )
    max_deriv_time_relative: int = option(
        MAX_TIME,
        "An alternative mechanism for setting the --max-deriv-time, suitable for situations where "
        "the length of the egs is variable. If set, it is equivalent to setting the "
        "--max-deriv-time to this value plus the largest 't' value in any 'output' node of the "
        "computation request.",
    )
    snip_row_ops: bool = option(
        True,
        "Set this to false to disable an optimization that reduces the size of certain per-row "
        "operations",
    )
    memory_compression_level: int = option(
        1,
        "This is only relevant to training, not decoding. Set this to 0,1,2; higher levels are "
        "more aggressive at reducing memory by compressing quantities needed for backprop, "
        "potentially at the expense of speed and the accuracy of derivatives. 0 means no "
        "compression at all; 1 means compression that shouldn't affect results at all.",
    )

    @property
    def limits_deriv_times(self) -> bool:
        """Whether the options limit derivatives to a range of times."""
        limits = (self.max_deriv_time, self.max_deriv_time_relative)
        return self.min_deriv_time != MIN_TIME or limits != (MAX_TIME, MAX_TIME)

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """The options read in Kaldi's form; options that an older file lacks have defaults."""
        reader.expect_token("<NnetOptimizeOptions>")
        values: dict[str, bool | int] = {}
        for item in fields(cls):
            if reader.peek_token() == _token(item.name):
                reader.read_token()
                is_flag = isinstance(item.default, bool)
                values[item.name] = reader.read_bool() if is_flag else reader.read_int32()
        reader.expect_token("</NnetOptimizeOptions>")
        return cls(**values)  # type: ignore[arg-type]

    def write(self, writer: Writer) -> None:
        """Write the options in Kaldi's form."""
        writer.write_token("<NnetOptimizeOptions>")
        for item in fields(self):
            value = getattr(self, item.name)
            writer.write_token(_token(item.name))
            writer.write_bool(value) if isinstance(value, bool) else writer.write_int32(value)
        writer.write_token("</NnetOptimizeOptions>")


def _token(name: str) -> str:
    return f"<{''.join(part.capitalize() for part in name.split('_'))}>"

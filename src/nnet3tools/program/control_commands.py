"""Commands for memory, compression, input, output and control flow."""

from __future__ import annotations

import enum
from typing import ClassVar

from nnet3tools.nnet.nnet import Nnet
from nnet3tools.program.command import Command, command
from nnet3tools.program.computation import Computation
from nnet3tools.program.operands import (
    AccessMap,
    AccessType,
    Alpha,
    Names,
    Node,
    Position,
    Submatrix,
    Tables,
)

READ, WRITE, READ_WRITE = AccessType.READ, AccessType.WRITE, AccessType.READ_WRITE


class CompressionType(enum.IntEnum):
    """The formats of compressed matrices (Kaldi's CuCompressedMatrixType)."""

    INT8 = 1
    UINT8 = 2
    INT16 = 3
    UINT16 = 4


# -- memory


@command(0)
class AllocMatrix(Command):
    """A command that gives a matrix its memory, with undefined contents."""

    HAS_WORK = False
    submatrix: Submatrix

    TEXT = "{submatrix} = undefined({rows},{cols})"
    ALLOCATES: ClassVar[str | None] = "submatrix"
    WHOLE: ClassVar[tuple[str, ...]] = ("submatrix",)


@command(1)
class DeallocMatrix(Command):
    """A command that frees the memory of a matrix."""

    HAS_WORK = False
    submatrix: Submatrix

    TEXT = "{submatrix} = []"
    FREES: ClassVar[str | None] = "submatrix"
    WHOLE: ClassVar[tuple[str, ...]] = ("submatrix",)


@command(2)
class SwapMatrix(Command):
    """A command that moves the memory and contents of matrix `b` to matrix `a`, which has none."""

    HAS_WORK = False
    a: Submatrix
    b: Submatrix

    TEXT = "{a}.swap({b}) [dim = {rows} x {cols}]"
    ALLOCATES: ClassVar[str | None] = "a"
    FREES: ClassVar[str | None] = "b"
    WHOLE: ClassVar[tuple[str, ...]] = ("a", "b")

    def problem(self, tables: Tables) -> str:
        if tables.same(self.a, self.b):
            return "swap of a matrix with itself"
        return tables.size_problem(self.a, self.b)


@command(3)
class SetConst(Command):
    """A command that sets every element of a submatrix to `value`."""

    submatrix: Submatrix
    value: Alpha = 0.0

    TEXT = "{submatrix}.set({value}) [dim = {rows} x {cols}];"
    ACCESS: ClassVar[AccessMap] = {"submatrix": WRITE}


# -- compression


@command(16)
class CompressMatrix(Command):
    """A command that stores a matrix in a smaller format until DecompressMatrix.

    `format` is a CompressionType. `range` is the largest magnitude that can be stored (0: signs
    only). `truncate`: larger values may occur and are limited to the range.
    """

    submatrix: Submatrix
    format: int
    truncate: bool
    range: Alpha = 1.0

    ACCESS: ClassVar[AccessMap] = {"submatrix": READ_WRITE}
    WHOLE: ClassVar[tuple[str, ...]] = ("submatrix",)

    def problem(self, tables: Tables) -> str:
        if self.format not in CompressionType.__members__.values():
            return f"unknown compression format {self.format}"
        if not 0.0 <= self.range <= 1000.0:
            return f"compression range {self.range:g} is not in [0, 1000]"
        if self.range == 0.0 and self.format != CompressionType.UINT8:
            return "range 0 (keep the sign) is only for format uint8"
        return ""

    def flops(self, computation: Computation, nnet: Nnet) -> int:
        return computation.submatrices[self.submatrix].size

    def text(self, names: Names) -> str:
        known = self.format in CompressionType.__members__.values()
        format_name = CompressionType(self.format).name.lower() if known else str(self.format)
        return (
            f"CompressMatrix({names.submatrix(self.submatrix)}, {self.range:g}, {format_name}, "
            f"{'true' if self.truncate else 'false'})"
        )


@command(17)
class DecompressMatrix(Command):
    """A command that restores a compressed matrix."""

    submatrix: Submatrix

    TEXT = "DecompressMatrix({submatrix})"
    ACCESS: ClassVar[AccessMap] = {"submatrix": WRITE}
    WHOLE: ClassVar[tuple[str, ...]] = ("submatrix",)

    def flops(self, computation: Computation, nnet: Nnet) -> int:
        return computation.submatrices[self.submatrix].size


# -- the user


@command(18)
class AcceptInput(Command):
    """A command that gets a matrix from the user: features, or the derivative at an output."""

    HAS_WORK = False
    submatrix: Submatrix
    node: Node

    TEXT = "{submatrix} = user input [for node: '{node}']"
    ACCESS: ClassVar[AccessMap] = {"submatrix": WRITE}
    WHOLE: ClassVar[tuple[str, ...]] = ("submatrix",)

    def problem(self, tables: Tables) -> str:
        nnet, node = tables.nnet, self.node
        if not (nnet.is_input(node) or nnet.is_component(node) or nnet.is_output(node)):
            return f"node '{nnet.node_names[node]}' can be neither given nor asked for"
        if tables.cols(self.submatrix) != nnet.dim(node):
            return (
                f"node '{nnet.node_names[node]}' has dimension {nnet.dim(node)}, "
                f"the matrix {tables.cols(self.submatrix)}"
            )
        return ""


@command(19)
class ProvideOutput(Command):
    """A command that gives a matrix to the user: an output, or the derivative at an input."""

    HAS_WORK = False
    submatrix: Submatrix
    node: Node

    TEXT = "output {submatrix} to user [for node: '{node}']"
    ACCESS: ClassVar[AccessMap] = {"submatrix": READ}
    WHOLE: ClassVar[tuple[str, ...]] = ("submatrix",)
    problem = AcceptInput.problem


# -- nothing, and going on


@command(20)
class NoOperation(Command):
    """A placeholder without work for a command that a pass removes; the pass then deletes it."""

    HAS_WORK = False
    TEXT = "[no-op]"


@command(21)
class NoOperationPermanent(Command):
    """A command without work that no pass removes: it keeps forward or backward blocks nonempty."""

    HAS_WORK = False
    TEXT = "[no-op-permanent]"


@command(22)
class NoOperationMarker(Command):
    """A command that marks the end of a segment, such as the forward commands."""

    HAS_WORK = False
    TEXT = "# computation segment separator [e.g., begin backward commands]"


@command(23)
class NoOperationLabel(Command):
    """A command that marks the place to which GotoLabel jumps."""

    HAS_WORK = False
    TEXT = "[label for goto statement]"


@command(24)
class GotoLabel(Command):
    """The last command of a looped program, which jumps to the NoOperationLabel at `label`."""

    HAS_WORK = False
    TEXT = "goto c{label}"
    label: Position

    def problem(self, tables: Tables) -> str:
        commands = tables.computation.commands
        if not 0 <= self.label < len(commands) or not isinstance(
            commands[self.label], NoOperationLabel
        ):
            return f"there is no label at c{self.label}"
        return "" if commands[-1] is self else "a goto is not the last command"

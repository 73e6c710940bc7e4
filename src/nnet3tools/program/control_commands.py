"""Commands for memory, components, compression, input and output, and the order of things."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, ClassVar

from nnet3tools.nnet.components.base import Properties
from nnet3tools.program.command import (
    Access,
    AccessMap,
    AccessType,
    Alpha,
    Command,
    Component,
    Memo,
    Names,
    Node,
    Position,
    Precomputed,
    Submatrix,
    command,
)

if TYPE_CHECKING:
    from nnet3tools.nnet.nnet import Nnet
    from nnet3tools.program.computation import Computation

__all__ = [
    "AcceptInput",
    "AllocMatrix",
    "Backprop",
    "BackpropNoModelUpdate",
    "CompressMatrix",
    "CompressionType",
    "DeallocMatrix",
    "DecompressMatrix",
    "GotoLabel",
    "NoOperation",
    "NoOperationLabel",
    "NoOperationMarker",
    "NoOperationPermanent",
    "Propagate",
    "ProvideOutput",
    "SetConst",
    "SwapMatrix",
]

READ, WRITE, READ_WRITE = AccessType.READ, AccessType.WRITE, AccessType.READ_WRITE


class CompressionType(enum.IntEnum):
    """Kaldi's CuCompressedMatrixType."""

    INT8 = 1
    UINT8 = 2
    INT16 = 3
    UINT16 = 4


# -- memory


@command(0)
class AllocMatrix(Command):
    """Give a matrix its memory, contents undefined."""

    submatrix: Submatrix

    def text(self, names: Names) -> str:
        rows, cols = names.dim(self.submatrix)
        return f"{names.submatrix(self.submatrix)} = undefined({rows},{cols})"


@command(1)
class DeallocMatrix(Command):
    """Take a matrix's memory back."""

    submatrix: Submatrix

    def text(self, names: Names) -> str:
        return f"{names.submatrix(self.submatrix)} = []"


@command(2)
class SwapMatrix(Command):
    """Matrix `a`, empty until now, takes over the memory and contents of matrix `b`."""

    a: Submatrix
    b: Submatrix

    def text(self, names: Names) -> str:
        rows, cols = names.dim(self.a)
        a, b = names.submatrix(self.a), names.submatrix(self.b)
        return f"{a}.swap({b}) [dim = {rows} x {cols}]"


@command(3)
class SetConst(Command):
    """Set every element of a submatrix to `value`."""

    submatrix: Submatrix
    value: Alpha = 0.0

    ACCESS: ClassVar[AccessMap] = {"submatrix": WRITE}

    def text(self, names: Names) -> str:
        rows, cols = names.dim(self.submatrix)
        return f"{names.submatrix(self.submatrix)}.set({self.value:g}) [dim = {rows} x {cols}];"


# -- components


@command(4)
class Propagate(Command):
    """Run a component forward; `memo` > 0 keeps what it returns for the Backprop of that number."""

    component: Component
    precomputed: Precomputed
    input: Submatrix
    output: Submatrix
    memo: Memo = 0
    store_stats: bool = False

    def accesses(self, computation: Computation, nnet: Nnet) -> list[Access]:
        adds = nnet.component(self.component).properties & Properties.PROPAGATE_ADDS
        out = [Access(self.input, READ)] if self.input else []
        return [*out, Access(self.output, READ_WRITE if adds else WRITE)]

    def text(self, names: Names) -> str:
        return (
            f"{names.component(self.component)}.Propagate({_precomputed(self.precomputed)}, "
            f"{names.submatrix(self.input)}, &{names.submatrix(self.output)})"
        )


@command(5)
class Backprop(Command):
    """Run a component backward and update its parameters (or their gradient).

    0 stands for values that are not needed and for an input derivative that nobody wants.
    """

    component: Component
    precomputed: Precomputed
    in_value: Submatrix
    out_value: Submatrix
    out_deriv: Submatrix
    in_deriv: Submatrix
    memo: Memo = 0

    UPDATES: ClassVar[bool] = True

    def accesses(self, computation: Computation, nnet: Nnet) -> list[Access]:
        adds = nnet.component(self.component).properties & Properties.BACKPROP_ADDS
        operands = (
            Access(self.in_value, READ),
            Access(self.out_value, READ),
            Access(self.out_deriv, READ),
            Access(self.in_deriv, READ_WRITE if adds else WRITE),
        )
        return [access for access in operands if access.submatrix]

    def has_side_effects(self, computation: Computation, nnet: Nnet) -> bool:
        updatable = nnet.component(self.component).properties & Properties.UPDATABLE
        return self.UPDATES and bool(updatable)

    def text(self, names: Names) -> str:
        update = self.UPDATES and names.need_model_derivative
        in_deriv = f"&{names.submatrix(self.in_deriv)}" if self.in_deriv else "NULL"
        return (
            f"{names.component(self.component)}.Backprop({_precomputed(self.precomputed)}, "
            f"{names.submatrix(self.in_value)}, {names.submatrix(self.out_value)}, "
            f"{names.submatrix(self.out_deriv)}, "
            f"{'[component-pointer]' if update else 'NULL'}, {in_deriv})"
        )


@command(6)
class BackpropNoModelUpdate(Backprop):
    """As Backprop, but the parameters are left alone."""

    UPDATES: ClassVar[bool] = False


def _precomputed(index: int) -> str:
    return f"precomputed_indexes[{index}]" if index else "NULL"


# -- compression


@command(16)
class CompressMatrix(Command):
    """Keep a matrix in a smaller format until DecompressMatrix.

    `range` is the largest magnitude that survives (0: the sign only); `truncate` says that larger
    values may occur and are to be cut off.
    """

    submatrix: Submatrix
    format: int
    truncate: bool
    range: Alpha = 1.0

    ACCESS: ClassVar[AccessMap] = {"submatrix": READ_WRITE}

    def text(self, names: Names) -> str:
        known = self.format in CompressionType.__members__.values()
        format_name = CompressionType(self.format).name.lower() if known else str(self.format)
        return (
            f"CompressMatrix({names.submatrix(self.submatrix)}, {self.range:g}, {format_name}, "
            f"{'true' if self.truncate else 'false'})"
        )


@command(17)
class DecompressMatrix(Command):
    """Bring a compressed matrix back."""

    submatrix: Submatrix

    ACCESS: ClassVar[AccessMap] = {"submatrix": WRITE}

    def text(self, names: Names) -> str:
        return f"DecompressMatrix({names.submatrix(self.submatrix)})"


# -- the user


@command(18)
class AcceptInput(Command):
    """Take a matrix from the user: features, or the derivative at an output."""

    submatrix: Submatrix
    node: Node

    ACCESS: ClassVar[AccessMap] = {"submatrix": WRITE}

    def text(self, names: Names) -> str:
        matrix = names.submatrix(self.submatrix)
        return f"{matrix} = user input [for node: '{names.node(self.node)}']"


@command(19)
class ProvideOutput(Command):
    """Hand a matrix to the user: an output, or the derivative at an input."""

    submatrix: Submatrix
    node: Node

    ACCESS: ClassVar[AccessMap] = {"submatrix": READ}

    def text(self, names: Names) -> str:
        matrix = names.submatrix(self.submatrix)
        return f"output {matrix} to user [for node: '{names.node(self.node)}']"


# -- nothing, and going on


@command(20)
class NoOperation(Command):
    """Nothing; passes leave it where a command was and sweep it out at their end."""

    def text(self, names: Names) -> str:
        return "[no-op]"


@command(21)
class NoOperationPermanent(Command):
    """Nothing, but not swept out: a forward or backward block must not be empty."""

    def text(self, names: Names) -> str:
        return "[no-op-permanent]"


@command(22)
class NoOperationMarker(Command):
    """End of a segment, such as the forward commands."""

    def text(self, names: Names) -> str:
        return "# computation segment separator [e.g., begin backward commands]"


@command(23)
class NoOperationLabel(Command):
    """Where GotoLabel goes."""

    def text(self, names: Names) -> str:
        return "[label for goto statement]"


@command(24)
class GotoLabel(Command):
    """Go on at the NoOperationLabel at position `label`; the last command of a looped program."""

    label: Position

    def text(self, names: Names) -> str:
        return f"goto c{self.label}"

"""The base of a program's commands: named operands and their meanings.

A command class is declared once, in `commands`, by `@command(number)`. Its fields, in the order of
Kaldi's arg1..arg7, say by their declared type what each operand is (a submatrix, a list of row
indexes, a component), and `ACCESS` which submatrices are read or written. Printing, files,
analysis, checking, renumbering and lowering all derive from that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.fast_dataclasses import dataclass, field, fields
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.program.component_facts import ComponentTable
from nnet3tools.program.computation import Computation
from nnet3tools.program.groups import CommandGroup
from nnet3tools.program.operands import Access, Accesses, AccessMap, AccessType, Names, Tables

_NUM_ARGS = 7

C = TypeVar("C", bound="Command")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def _checked_as_frozen(cls: type[C]) -> type[C]:
    """Class decorator: makes a dataclass that is frozen only for type checkers.

    With `frozen`, making an object takes four times as long: 4 % of the time of compiling a
    program, not 1 %.
    """
    # Comparing and printing are Command's: made for each class, they are most of the import.
    return dataclass(slots=True, eq=False, repr=False)(cls)


@_checked_as_frozen
class Command:
    """A command of a program; subclasses are declared with `@command`.

    `stale` are further arguments in Kaldi's file, which Kaldi's passes leave behind when they
    replace a command. They have no meaning, and are kept so that files are written unchanged.
    """

    stale: tuple[int, ...] = field(default=(), kw_only=True, compare=False, repr=False)

    KIND: ClassVar[int]
    """Kaldi's CommandType."""
    NAME: ClassVar[str]
    """Kaldi's name, e.g. "kAllocMatrix"."""
    ARGS: ClassVar[tuple[str, ...]]
    """Fields that are arg1, arg2... of Kaldi's command."""
    ALPHA: ClassVar[str | None]
    """Field that is Kaldi's alpha."""
    OPERANDS: ClassVar[dict[str, str]]
    """Field -> kind of operand ("Submatrix", "Indexes"...)."""
    TEXT: ClassVar[str] = ""
    """Text as Kaldi prints it, operands in braces; {rows}, {cols}: size of the first submatrix."""
    ACCESS: ClassVar[AccessMap] = {}
    """Submatrix field -> access, unless that depends on other operands."""
    ALLOCATES: ClassVar[str | None] = None
    """Submatrix field whose matrix is allocated."""
    FREES: ClassVar[str | None] = None
    """Submatrix field whose matrix is freed."""
    WHOLE: ClassVar[tuple[str, ...]] = ()
    """Submatrix fields that must be whole matrices."""
    OPTIONAL: ClassVar[tuple[str, ...]] = ()
    """Submatrix fields that may be 0 (none)."""
    HAS_WORK: ClassVar[bool] = True
    """Whether the command has work at run time; allocations, inputs and markers have none."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash((self.KIND, self._values()))

    def __repr__(self) -> str:
        operands = zip(self.OPERANDS, self._values(), strict=True)
        return f"{type(self).__name__}({', '.join(f'{name}={v!r}' for name, v in operands)})"

    def _values(self) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in self.OPERANDS])

    # -- accesses

    @classmethod
    def accesses_of(
        cls, group: CommandGroup, computation: Computation, components: ComponentTable
    ) -> Iterator[Accesses]:
        """The reads and writes of submatrices (not allocations) by all commands in `group`."""
        for name, access in cls.ACCESS.items():
            yield Accesses(group.positions, group.column(name), access)

    def accesses(self, computation: Computation, components: ComponentTable) -> list[Access]:
        """The reads and writes of submatrices by this command."""
        cls = type(self)
        accesses = cls.accesses_of(CommandGroup(cls, [0], [self]), computation, components)
        return [
            Access(submatrix, AccessType(kind))
            for _, submatrices, kinds in accesses
            for submatrix, kind in np.broadcast(submatrices, kinds)
            if submatrix
        ]

    def flops(self, computation: Computation, nnet: Nnet) -> int:
        """The number of floating-point operations; moving numbers counts as none."""
        return 0

    def submatrices(self) -> list[int]:
        """The submatrices among the operands, including 0, but not those in index lists."""
        return [getattr(self, name) for name in operand_names(type(self), "Submatrix")]

    def problem(self, tables: Tables) -> str:
        """A text about a fault in sizes or aliasing of operands, known to be in range, or ""."""
        return ""

    # -- making another of it

    def replace(self, **changes: Any) -> Self:
        """A copy of the command with some operands changed."""
        values = [changes.pop(n) if n in changes else getattr(self, n) for n in self.OPERANDS]
        return type(self)(*values, **{"stale": self.stale, **changes})

    def turned_into(self, cls: type[Command]) -> Command:
        """A command of class `cls` with this one's operands; ProgramError if `cls` has others."""
        if (cls.ARGS, cls.ALPHA) != (self.ARGS, self.ALPHA):
            raise ProgramError(f"{self.NAME} and {cls.NAME} have not the same operands")
        return cls(*self._values(), stale=self.stale)

    def map_operands(self, kind: str, new: Callable[[int], int] | Sequence[int]) -> Self:
        """A copy with operands of a kind, as "Indexes", renumbered: old -> new(old) or new[old]."""
        names = operand_names(type(self), kind)
        if not names:
            return self
        renumber = new if callable(new) else new.__getitem__
        old = [getattr(self, name) for name in names]
        changed = [int(renumber(value)) for value in old]
        return self if changed == old else self.replace(**dict(zip(names, changed, strict=True)))

    def map_submatrices(self, new: Callable[[int], int] | Sequence[int]) -> Self:
        """The command with submatrices renumbered by `new`; 0 (none) stays 0."""
        renumber = new if callable(new) else new.__getitem__
        return self.map_operands("Submatrix", lambda s: renumber(s) if s > 0 else s)

    # -- files and text

    def to_args(self) -> tuple[float, list[int]]:
        """The operands as Kaldi's file has them: (alpha, [arg1 .. arg7])."""
        args = [int(getattr(self, name)) for name in self.ARGS]
        args.extend(self.stale)
        args.extend([-1] * (_NUM_ARGS - len(args)))
        return (1.0 if self.ALPHA is None else getattr(self, self.ALPHA)), args

    @classmethod
    def from_args(cls, alpha: float, args: Iterable[int]) -> Self:
        """A command of this class from alpha and arg1, arg2, ... of Kaldi's file."""
        given = list(args)
        own = len(cls.ARGS)
        given.extend([-1] * (own - len(given)))
        values: dict[str, Any] = dict(zip(cls.ARGS, given[:own], strict=True))
        for name in cls.ARGS:
            if cls.OPERANDS[name] == "bool":
                values[name] = values[name] == 1
        if cls.ALPHA is not None:
            values[cls.ALPHA] = alpha
        stale = given[own:]
        while stale and stale[-1] == -1:
            stale.pop()
        return cls(**values, stale=tuple(stale))

    def text(self, names: Names) -> str:
        """The command as Kaldi prints it, without number and newline; `names` has texts for it."""
        text_of: dict[str, Callable[[Any], str]] = {
            "Submatrix": names.submatrix,
            "Indexes": names.indexes,
            "IndexesMulti": names.indexes_multi,
            "IndexesRanges": names.indexes_ranges,
            "Precomputed": lambda index: f"precomputed_indexes[{index}]" if index else "NULL",
            "Component": names.component,
            "Node": names.node,
            "Alpha": "{:g}".format,
        }
        rows, cols = names.dim(next(iter(self.submatrices()), 0))
        texts = {
            name: text_of.get(kind, str)(getattr(self, name))
            for name, kind in self.OPERANDS.items()
            if f"{{{name}}}" in self.TEXT
        }
        return self.TEXT.format(**texts, rows=rows, cols=cols)


COMMANDS: dict[int, type[Command]] = {}
"""Kaldi's CommandType -> class."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def command(kind: int) -> Callable[[type[C]], type[C]]:
    """Class decorator: makes a dataclass of a command; `kind` is Kaldi's number of the command."""

    def decorate(cls: type[C]) -> type[C]:
        made = _checked_as_frozen(cls)
        declared = [f for f in fields(made) if f.name != "stale"]
        made.KIND, made.NAME = kind, f"k{cls.__name__}"
        made.OPERANDS = {f.name: str(f.type) for f in declared}
        made.ARGS = tuple(f.name for f in declared if f.type != "Alpha")
        made.ALPHA = next((f.name for f in declared if f.type == "Alpha"), None)
        if kind in COMMANDS:
            raise ProgramError(f"command number {kind} is declared twice")
        COMMANDS[kind] = made
        return made

    return decorate


_fields_cache: dict[tuple[type[Command], str], tuple[str, ...]] = {}


def operand_names(cls: type[Command], kind: str) -> tuple[str, ...]:
    """The names of the operands of one kind ("Submatrix", "Indexes", ...) of a command class."""
    key = (cls, kind)
    if (names := _fields_cache.get(key)) is None:
        names = tuple(name for name, operand in cls.OPERANDS.items() if operand == kind)
        _fields_cache[key] = names
    return names

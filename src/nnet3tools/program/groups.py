"""The commands of a program grouped by class, with their operands as arrays.

Programs of recurrent networks have tens of thousands of commands of a dozen classes. Analysis,
checker and passes therefore handle the commands of a class together.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nnet3tools.errors import ProgramError

if TYPE_CHECKING:
    from nnet3tools.program.command import Command

Ints = NDArray[np.int64]


class CommandGroup:
    """All commands of one class in a program, in order, with their operands as arrays."""

    __slots__ = ("_columns", "cls", "commands", "positions")

    def __init__(self, cls: type[Command], positions: ArrayLike, commands: list[Command]) -> None:
        self.cls = cls
        self.positions: Ints = np.asarray(positions, np.int64)
        """(commands,) position of each command in the program."""
        self.commands = commands
        self._columns: dict[str, Ints] = {}

    def __len__(self) -> int:
        return len(self.commands)

    def column(self, name: str) -> Ints:
        """(commands,) the values of the integer operand `name`."""
        if (found := self._columns.get(name)) is None:
            values = map(attrgetter(name), self.commands)
            found = self._columns[name] = np.fromiter(values, np.int64, len(self.commands))
        return found

    def alphas(self) -> NDArray[np.float64]:
        """(commands,) the values of the real-valued operand (alpha)."""
        if self.cls.ALPHA is None:
            raise ProgramError(f"{self.cls.NAME} has no alpha")
        values = map(attrgetter(self.cls.ALPHA), self.commands)
        return np.fromiter(values, np.float64, len(self.commands))

    def with_columns(self, columns: dict[str, Ints]) -> CommandGroup:
        """A copy of the group; columns[name][i] is the new value of operand `name` of command i."""
        made = list(_made_of_columns(self.cls, self.commands, columns))
        out = CommandGroup(self.cls, self.positions, made)
        out._columns = self._columns | columns
        return out


def group_commands(commands: Sequence[Command]) -> dict[type[Command], CommandGroup]:
    """All commands of a program by their class; classes are in the order of Kaldi's CommandType."""
    kinds = np.fromiter(map(attrgetter("KIND"), commands), np.int16, len(commands))
    positions = kinds.argsort(kind="stable")
    ordered = list(map(commands.__getitem__, positions.tolist()))
    bounds = itertools.pairwise([0, *np.bincount(kinds).cumsum().tolist()])
    of_kinds = [(ordered[start:end], positions[start:end]) for start, end in bounds if start < end]
    return {type(group[0]): CommandGroup(type(group[0]), at, group) for group, at in of_kinds}


def _made_of_columns(
    cls: type[Command], commands: Sequence[Command], changes: dict[str, Ints]
) -> Iterable[Command]:
    """Copies of commands of class `cls`; changes[name][i] is command i's new operand `name`."""
    if any(map(attrgetter("stale"), commands)):
        rows = zip(*(column.tolist() for column in changes.values()), strict=True)
        return [
            command.replace(**dict(zip(changes, row, strict=True)))
            for command, row in zip(commands, rows, strict=True)
        ]
    columns = [
        changes[name].tolist() if name in changes else map(attrgetter(name), commands)
        for name in cls.OPERANDS
    ]
    return map(cls, *columns)

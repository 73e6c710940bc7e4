"""Listings of the analysis of a program: its variables, and who accesses them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nnet3tools.nnet.nnet import Nnet
from nnet3tools.program.analysis import AccessTable, Analysis
from nnet3tools.program.computation import Computation
from nnet3tools.program.operands import AccessType
from nnet3tools.program.printing import ProgramNames, command_texts

_NAMES = {AccessType.READ: "read", AccessType.WRITE: "write", AccessType.READ_WRITE: "read/write"}


class Entry(NamedTuple):
    """One line of a listing, as text and as data."""

    text: str
    data: dict[str, Any]
    """The same facts for JSON."""


def list_variables(computation: Computation, nnet: Nnet) -> Iterator[Entry]:
    """The variables (blocks) of which each matrix consists, then those of each submatrix."""
    variables = Analysis(computation, nnet).variables
    names = ProgramNames(computation, nnet)
    for matrix, info in enumerate(computation.matrices[1:], start=1):
        blocks = {f"v{v}": variables.describe(v, computation) for v in variables.of_matrix(matrix)}
        text = ", ".join(f"{name} = {block}" for name, block in blocks.items())
        size = [info.num_rows, info.num_cols]
        yield Entry(
            f"m{matrix}({size[0]}, {size[1]}): {text}",
            {"matrix": matrix, "size": size, "variables": blocks},
        )
    for submatrix in range(1, len(computation.submatrices)):
        numbers = variables.of_submatrix(submatrix).tolist()
        block = names.submatrix(submatrix)
        yield Entry(
            f"submatrix {submatrix} = {block}: {_numbered('v', numbers)}",
            {"submatrix": submatrix, "block": block, "variables": numbers},
        )


def list_accesses(computation: Computation, nnet: Nnet) -> Iterator[Entry]:
    """What each command reads and writes, then the commands that access each block and matrix."""
    analysis = Analysis(computation, nnet)
    yield from _commands(computation, nnet, analysis)
    for variable in range(analysis.variables.num_variables):
        accesses = _of_item(analysis.variable_accesses, variable)
        block = analysis.variables.describe(variable, computation)
        yield Entry(
            f"v{variable} = {block}: {_access_text(accesses)}",
            {"variable": variable, "block": block, "accesses": accesses},
        )
    lives = analysis.lifetimes
    for matrix in range(1, len(computation.matrices)):
        accesses = _of_item(analysis.matrix_accesses, matrix)
        facts = {
            "is_input": bool(lives.is_input[matrix]),
            "is_output": bool(lives.is_output[matrix]),
            "allocate_command": int(lives.allocate_command[matrix]),
            "deallocate_command": int(lives.deallocate_command[matrix]),
        }
        text = " ".join(f"{name}={str(value).lower()}" for name, value in facts.items())
        yield Entry(
            f"m{matrix}: {text}: {_access_text(accesses)}",
            {"matrix": matrix, **facts, "accesses": accesses},
        )


def _commands(computation: Computation, nnet: Nnet, analysis: Analysis) -> Iterator[Entry]:
    """The variables and matrices that each command reads and writes (Kaldi's attributes)."""
    size = len(computation.commands)
    variables = _by_command(analysis.variable_accesses, size)
    matrices = _by_command(analysis.matrix_accesses, size)
    for number, text in enumerate(command_texts(computation, nnet)):
        attributes = {
            f"{what}_{_NAMES[kind]}": [i for i, type_ in accesses if type_ & kind]
            for what, accesses in (("variables", variables[number]), ("matrices", matrices[number]))
            for kind in (AccessType.READ, AccessType.WRITE)
        }
        reads, writes = attributes["variables_read"], attributes["variables_write"]
        yield Entry(
            f"{text}\n    reads {_numbered('v', reads)}; writes {_numbered('v', writes)}",
            {"command": number, "text": text, **attributes},
        )


def _by_command(table: AccessTable, num_commands: int) -> list[list[tuple[int, int]]]:
    """For each command, the pairs (item, access type) of its accesses."""
    items = np.repeat(np.arange(len(table.offsets) - 1), np.diff(table.offsets))
    order = np.argsort(table.commands, kind="stable")
    pairs: NDArray[np.int64] = np.stack([items, table.types], axis=1)[order]
    ends = np.cumsum(np.bincount(table.commands, minlength=num_commands))
    return [[(i, kind) for i, kind in part.tolist()] for part in np.split(pairs, ends[:-1])]


def _of_item(table: AccessTable, item: int) -> list[list[Any]]:
    """For variable or matrix `item`, lists [command, "read", "write" or "read/write"], in order."""
    commands, types = table.of_item(item)
    return [
        [command, _NAMES[AccessType(kind)]]
        for command, kind in zip(commands.tolist(), types.tolist(), strict=True)
    ]


def _access_text(accesses: Sequence[Sequence[Any]]) -> str:
    return ", ".join(f"c{command} {kind}" for command, kind in accesses) or "no access"


def _numbered(letter: str, numbers: Sequence[int]) -> str:
    return " ".join(f"{letter}{number}" for number in numbers) or "nothing"

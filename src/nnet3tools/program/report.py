"""Figures of a program that has not run: commands by kind, memory, operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.program.commands import NoOperationMarker
from nnet3tools.program.computation import Computation
from nnet3tools.program.lifetimes import Life, matrix_lives, matrix_subject, memory_use
from nnet3tools.program.printing import command_text


class KindTotals(NamedTuple):
    """The number and the operations of all commands of one kind, such as MatrixCopy."""

    kind: str
    number: int
    flops: int


@dataclass(frozen=True)
class ProgramReport:
    """Figures about one program for one network; costly figures are computed at first use."""

    computation: Computation
    nnet: Nnet

    @cached_property
    def memory(self) -> NDArray[np.int64]:
        """(commands,) bytes of matrices alive after each command."""
        return memory_use(self.computation)

    @cached_property
    def lives(self) -> list[Life]:
        """The ranges of commands during which each matrix takes memory."""
        return matrix_lives(self.computation)

    @cached_property
    def flops(self) -> NDArray[np.int64]:
        """(commands,) floating-point operations, without component statistics."""
        commands = self.computation.commands
        return np.array([c.flops(self.computation, self.nnet) for c in commands], np.int64)

    @cached_property
    def peak_command(self) -> int:
        """The first command after which the most bytes are alive; -1 without commands."""
        return int(self.memory.argmax()) if len(self.memory) else -1

    @property
    def peak_bytes(self) -> int:
        """The largest number of bytes of matrices that are alive at once."""
        return int(self.memory.max(initial=0))

    @cached_property
    def segment_ends(self) -> list[int]:
        """The commands that end segments (forward, backward, ...), then the number of commands."""
        commands = self.computation.commands
        markers = [c for c, cmd in enumerate(commands) if isinstance(cmd, NoOperationMarker)]
        return [*markers, len(commands)]

    def kinds(self) -> list[KindTotals]:
        """Totals for each kind of command: most operations first, then most commands first."""
        names = [command.NAME.removeprefix("k") for command in self.computation.commands]
        totals: dict[str, list[int]] = {}
        for name, flops in zip(names, self.flops.tolist(), strict=True):
            entry = totals.setdefault(name, [0, 0])
            entry[0] += 1
            entry[1] += flops
        rows = [KindTotals(name, *entry) for name, entry in totals.items()]
        return sorted(rows, key=lambda row: (-row.flops, -row.number, row.kind))

    def alive_at(self, command: int) -> list[Life]:
        """The matrices alive after a command, largest first."""
        alive = [life for life in self.lives if life.first <= command <= life.last]
        return sorted(alive, key=lambda life: (-life.num_bytes, life.matrix))

    def text(
        self,
        arenas: Mapping[str, int] | None = None,
        max_matrices: int = 20,
        gpu_need: Mapping[str, int] | None = None,
    ) -> str:
        """The text of the report, with at most `max_matrices` of the matrices alive at the peak.

        `arenas` are the bytes that the executor's memory plan takes, by device; `gpu_need`
        the bytes of GPU memory by purpose (executor/memory_need.py).
        """
        lines = [*self._size_lines(), "", *self._kind_lines(), ""]
        lines += self._memory_lines(arenas or {})
        lines += _need_lines(gpu_need or {})
        lines += self._peak_lines(max_matrices)
        return "".join(f"{line}\n" for line in lines)

    def _size_lines(self) -> list[str]:
        c = self.computation
        ends = self.segment_ends
        parts = np.diff([0, *ends]).tolist()
        flops = [int(part.sum()) for part in np.split(self.flops, ends[:-1])]
        lines = [
            f"commands: {len(c.commands)}"
            + (f" (in {len(parts)} segments: {', '.join(map(str, parts))})" if parts[1:] else ""),
            f"matrices: {len(c.matrices) - 1}",
            f"submatrices: {len(c.submatrices) - 1}",
            f"need-model-derivative: {'true' if c.need_model_derivative else 'false'}",
            f"flops: {sum(flops)} ({flops_text(sum(flops))})"
            + (f", by segment {', '.join(map(flops_text, flops))}" if flops[1:] else ""),
        ]
        return lines

    def _kind_lines(self) -> list[str]:
        total = max(1, int(self.flops.sum()))
        rows = [
            (row.kind, str(row.number), flops_text(row.flops), f"{100 * row.flops / total:.1f}%")
            for row in self.kinds()
        ]
        return _table(("command", "number", "operations", "share"), rows, left=1)

    def _memory_lines(self, arenas: Mapping[str, int]) -> list[str]:
        c = self.peak_command
        if c < 0:
            return ["peak-bytes: 0"]
        return [
            f"peak-bytes: {self.peak_bytes} ({bytes_text(self.peak_bytes)})",
            f"peak-at: {command_text(self.computation, self.nnet, c)}",
            *(
                f"arena-bytes-{device}: {size} ({bytes_text(size)})"
                for device, size in arenas.items()
            ),
        ]

    def _peak_lines(self, max_matrices: int) -> list[str]:
        alive = self.alive_at(self.peak_command)
        rows = []
        for life in alive[:max_matrices]:
            num_rows, num_cols, _ = self.computation.matrices[life.matrix]
            rows.append(
                (
                    f"m{life.matrix}",
                    f"{num_rows}x{num_cols}",
                    str(life.num_bytes),
                    f"{100 * life.num_bytes / max(1, self.peak_bytes):.1f}%",
                    f"  {matrix_subject(self.computation, self.nnet, life.matrix)}",
                )
            )
        if not rows:
            return []
        lines = [f"held by {len(alive)} matrices:"]
        lines += _table(("matrix", "size", "bytes", "share", "  what"), rows, left=1)
        if len(alive) > max_matrices:
            rest = alive[max_matrices:]
            lines.append(f"... and {len(rest)} more of {sum(x.num_bytes for x in rest)} bytes")
        return lines


def _need_lines(need: Mapping[str, int]) -> list[str]:
    if not need:
        return []
    total = sum(need.values())
    return [
        f"gpu-bytes: {total} ({bytes_text(total)}; and what CUDA itself takes)",
        *(f"  {what}: {size} ({bytes_text(size)})" for what, size in need.items()),
    ]


def bytes_text(number: int) -> str:
    """A number of bytes as text, such as "28.0 MiB"."""
    value, unit = float(number), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"


def flops_text(number: int) -> str:
    """A number of operations as text, such as "1.52 GFLOP"."""
    value, unit = float(number), ""
    for larger in "kMGTP":
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.3g} {unit}FLOP"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Text lines of a table; the first `left` columns and the last are flush left, others right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    last = len(head) - 1

    def line(cells: Sequence[str]) -> str:
        parts = [
            cell.ljust(width) if i < left or (i == last and cell[:1] == " ") else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  " + "  ".join(parts).rstrip()

    return [line(head), *map(line, rows)]

"""Lines of the table of benchmarks/run; folders, programs and turns of its parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from processes import ROOT, Timing, ours, timed

TARGET_BESIDE_BEFORE = 1.03
"""Time of a program at most, over the time of the same program of another checkout."""


@dataclass(frozen=True)
class Row:
    """One line of the table: seconds (or MB), and MB beside them where they were measured."""

    work: str
    reference: str
    """Whom ours is compared with."""
    ours: float
    theirs: float | None
    target: float
    """Ours over theirs at most; or, without a reference, ours at most."""
    allowance: float = 0.0
    """What ours may take beside that."""
    ours_megabytes: float | None = None
    theirs_megabytes: float | None = None
    unit: str = "s"
    """Of `ours`, `theirs` and the allowance."""

    @property
    def is_missed(self) -> bool | None:
        """Whether the target is missed; None if there is no target or no measurement."""
        if self.reference == "":
            return self.ours > self.target
        return (
            None if self.theirs is None else self.ours > self.target * self.theirs + self.allowance
        )

    def text(self) -> str:
        """The line in Markdown."""
        ratio = f"{self.ours / self.theirs:.2f}" if self.theirs else ""
        bound = f"{self.target:g}"
        if self.allowance or not self.reference:
            bound += f" + {self.allowance:g} {self.unit}" if self.reference else f" {self.unit}"
        verdict = {None: "", True: "missed", False: "met"}[self.is_missed]
        cells = (
            self.work, _number(self.ours), self.reference, _number(self.theirs), ratio,
            bound, verdict,
            _number(self.ours_megabytes, 0), _number(self.theirs_megabytes, 0),
        )  # fmt: skip
        return f"| {' | '.join(cells)} |"


HEAD = """| work | ours | beside | theirs | ratio | target | | ours, MB | theirs, MB |
|---|---|---|---|---|---|---|---|---|"""


def _number(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}f}"


@dataclass(frozen=True)
class Setting:
    """Folders of the data and of the programs to compare with, and the number of rounds."""

    folder: Path
    kaldi: Path | None
    torch: str
    rounds: int
    before: Path | None = None
    """Another checkout of this project. If given, programs are compared with its programs."""
    onnxruntime: str = ""
    networks: Sequence[str] = ("tdnn", "tdnnf", "lstm")
    """Those that are trained and computed."""
    slower: float = float("inf")
    """A ratio to `before`; beyond it, a program is measured again, as chance slows one moment."""

    def beside_reference(
        self, work: str, words: list[str], target: float, allowance: float = 0.0, threads: int = 1
    ) -> Row:
        """A program in turns with the same program of `before`, or else with Kaldi's."""
        program, *rest = words
        commands = [(ours(program, *rest), ROOT)]
        name = "Kaldi"
        if self.before is not None:
            name, target, allowance = "before", TARGET_BESIDE_BEFORE, 0.0
            commands.append((ours(program, *rest), self.before))
        elif self.kaldi is not None and (self.kaldi / program).exists():
            commands.append(([str(self.kaldi / program), *rest], ROOT))
        ours_best, *others = self._in_turns(commands, threads)
        took = [t.user if threads == 1 else t.elapsed for t in (ours_best, *others)]
        theirs = (took[1], others[0].megabytes) if others else (None, None)
        sizes = ours_best.megabytes, theirs[1]
        return Row(work, name, took[0], theirs[0], target, allowance, *sizes)

    def _in_turns(self, commands: Sequence[tuple[list[str], Path]], threads: int) -> list[Timing]:
        """The best of each command's runs; more of them if ours is `slower` than `before`."""
        runs: list[list[Timing]] = []
        for _ in range(1 if self.before is None else 3):
            runs += [
                [timed(command, self.folder, threads, checkout) for command, checkout in commands]
                for _ in range(self.rounds)
            ]
            best = [least(column, threads) for column in zip(*runs, strict=True)]
            took = [t.user if threads == 1 else t.elapsed for t in best]
            if took[0] <= self.slower * took[-1]:
                break
        return best


def least(timings: Sequence[Timing], threads: int = 1) -> Timing:
    """The best of some runs: by user time on one thread, by elapsed time on more."""
    return min(timings, key=lambda t: t.user if threads == 1 else t.elapsed)

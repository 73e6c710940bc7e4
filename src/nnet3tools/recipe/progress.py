"""Messages while a training runs: a line that changes at a terminal, else plain lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from nnet3tools.cli.progress import duration
from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.io import log
from nnet3tools.recipe.plan import Stage
from nnet3tools.recipe.report.log_file import read_log
from nnet3tools.recipe.schedules import Iterations


@dataclass
class Progress:
    """Logs the progress of training; `log_of` maps the name of a log to its path."""

    log_of: Callable[[str], str]
    num_epochs: float
    schedule: Iterations | None = None
    _began: float = 0.0
    _spent: float = 0.0
    _trained: int = 0
    """Archives trained on in this run, which took `_spent` seconds."""
    _latest: str = ""
    _at_terminal: bool = field(default_factory=lambda: sys.stderr.isatty())

    def begin(self, stage: Stage) -> None:
        """Log that a stage begins."""
        self._began = time.monotonic()
        if stage.iteration is None or self.schedule is None:
            log.log(f"Stage {stage.number}: {stage.name}")
            return
        s, n = self.schedule, stage.iteration
        fraction = s.fraction(n)
        line = (
            f"Iter: {n}/{s.count - 1}   Jobs: {s.num_jobs(n)}   "
            f"Epoch: {fraction * self.num_epochs:.2f}/{self.num_epochs:.1f} "
            f"({100 * fraction:.1f}% complete)   lr: {s.learning_rate(n):.6f}"
        )
        if self._at_terminal:
            log.show_status(f"{line}   {self._latest}".rstrip())
        else:
            log.log(line)

    def end(self, stage: Stage) -> None:
        """Log that a stage has ended; for an iteration, also the objectives of its diagnostics."""
        if stage.iteration is None or self.schedule is None:
            return
        took = time.monotonic() - self._began
        n, jobs = stage.iteration, self.schedule.num_jobs(stage.iteration)
        self._spent += took
        self._trained += jobs
        left = self.schedule.num_archives_to_process - self.schedule.processed(n + 1)
        seconds_left = max(0, left) * self._spent / self._trained
        parts = []
        for name in ("train", "valid"):
            judged = read_log(self.log_of(f"compute_prob_{name}.{n}"))
            if judged is not None and judged.objectives:
                parts.append(f"{name} {[*judged.objectives.values()][-1]:g}")
        logs = [read_log(self.log_of(f"train.{n}.{job + 1}")) for job in range(jobs)]
        frames = sum(log.num_frames / max(len(log.objectives), 1) for log in logs if log)
        parts.append(f"{frames / max(took, 1e-3):.0f} frames/s")
        self._latest = ", ".join([*parts, f"{duration(seconds_left)} left"])
        if not self._at_terminal:
            log.log(f"Iteration {n}: {self._latest}")

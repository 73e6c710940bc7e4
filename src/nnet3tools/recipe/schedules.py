"""Values that change during training: learning rates, jobs, dropout; models to combine."""

from __future__ import annotations

import math
import re

from nnet3tools.errors import OptionError, TextError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.number_text import parse_int


@dataclass(frozen=True)
class Iterations:
    """The training schedule: the number of iterations, and jobs and learning rate of each.

    The examples are in `num_archives` archives. Training makes `num_epochs` passes over them, and
    each pass uses an archive `frames_per_eg` times.
    """

    num_archives: int
    frames_per_eg: int
    num_epochs: float
    num_jobs_initial: int
    num_jobs_final: int
    num_jobs_step: int
    initial_lrate: float
    final_lrate: float

    @property
    def num_archives_expanded(self) -> int:
        """The number of archives read in one pass; repeated reads of an archive count each time."""
        return self.num_archives * self.frames_per_eg

    @property
    def num_archives_to_process(self) -> int:
        """The number of archives read in all passes."""
        return int(self.num_epochs * self.num_archives_expanded)

    @property
    def count(self) -> int:
        """The number of iterations."""
        jobs = self.num_jobs_initial + self.num_jobs_final
        return int(self.num_archives_to_process * 2 / jobs)

    def num_jobs(self, iteration: int) -> int:
        """The number of jobs in an iteration, like Kaldi's get_current_num_jobs."""
        difference = self.num_jobs_final - self.num_jobs_initial
        ideal = float(self.num_jobs_initial) + difference * float(iteration) / self.count
        if ideal < self.num_jobs_step:
            return int(0.5 + ideal)
        return int(0.5 + ideal / self.num_jobs_step) * self.num_jobs_step

    def processed(self, iteration: int) -> int:
        """The number of archives processed before an iteration begins."""
        return sum(self.num_jobs(i) for i in range(iteration))

    def fraction(self, iteration: int) -> float:
        """The fraction of the whole training's data that was processed before an iteration."""
        return self.processed(iteration) / self.num_archives_to_process

    def learning_rate(self, iteration: int) -> float:
        """The learning rate of an iteration's jobs; it falls exponentially with the data seen."""
        if iteration + 1 >= self.count:
            rate = self.final_lrate
        else:
            falls = math.log(float(self.final_lrate) / self.initial_lrate)
            # The order of operations is that of Kaldi's script, for equal rounding.
            done = self.processed(iteration) * falls / self.num_archives_to_process
            rate = self.initial_lrate * math.exp(done)
        return self.num_jobs(iteration) * rate


def models_to_combine(iterations: Iterations, most: int) -> list[int]:
    """The numbers of up to `most` models to combine, as by Kaldi's get_model_combine_iters."""
    count = iterations.count
    an_epoch = float(iterations.num_archives_expanded) / iterations.num_jobs_final
    wanted = min(int(an_epoch / 2) + 1, int(count / 2))
    if wanted > most:
        chosen = set(range(count - wanted + 1, count + 1, int(float(wanted) / most)))
    else:
        chosen = set(range(count - min(most, count // 2) + 1, count + 1))
    return sorted(chosen | {count})


# -- dropout


@dataclass(frozen=True)
class DropoutFunction:
    """A dropout schedule for components whose names match `pattern`.

    It is given by points (fraction of data processed, dropout proportion).
    """

    pattern: str
    points: tuple[tuple[float, float], ...]

    def value(self, fraction: float) -> float:
        """The dropout at `fraction`: linear between points; of points at one fraction, the last."""
        if fraction == 0:
            return self.points[0][1]
        before = max(i for i, (x, _) in enumerate(self.points) if x <= fraction)
        x, y = self.points[before]
        if before == len(self.points) - 1:
            return y
        next_x, next_y = self.points[before + 1]
        return (fraction - x) * (next_y - y) / (next_x - x) + y


def parse_dropout_schedule(text: str) -> list[DropoutFunction]:
    """Parse the option --trainer.dropout-schedule; OptionError if it is malformed."""
    if not text:
        return []
    from nnet3tools.grammars.schedules import read_dropout_schedule

    try:
        functions = read_dropout_schedule(text)
    except TextError as error:
        raise OptionError(str(error)) from None
    return [DropoutFunction(pattern, tuple(points)) for pattern, points in functions]


def dropout_edits(schedule: str, fraction: float) -> str:
    """The --edits option of nnet3-copy that sets the dropout at `fraction`; "" with no schedule."""
    return ";".join(
        f"set-dropout-proportion name={f.pattern} proportion={f.value(min(fraction, 1.0))}"
        for f in parse_dropout_schedule(schedule)
    )


# -- sizes


def halved_minibatch_size(rule: str) -> str:
    """The minibatch-size rule with each size halved, at least 1: 128=64:128 becomes 128=32:64."""
    return re.sub(r"\d+(?![\d=])", lambda size: str(max(1, int(size[0]) // 2)), rule)


def chunk_widths(text: str) -> list[int]:
    """The widths in --egs.chunk-width, the preferred one first; OptionError if malformed."""
    widths = [parse_int(part) or 0 for part in text.split(",")]
    if any(width < 1 and width != -1 for width in widths):
        raise OptionError(f"--egs.chunk-width={text}: expected positive integers, such as 20,15")
    return widths

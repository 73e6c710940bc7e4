"""The history of a training directory, from its log files: iterations, curves, models, stages."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.io.checked import MISTAKES
from nnet3tools.io.files import MAX_CONFIG, read_file
from nnet3tools.recipe.report.log_file import LogFile, read_log
from nnet3tools.recipe.report.network import NetworkFacts, read_network

Curve = list[tuple[float, float]]
"""Points (iteration, value), in the order of iterations."""

_LEAST_WHOLE_SECONDS = 4
"""A duration in whole seconds above this gives a rate with an error below 20 %."""
_MODEL_LOGS = ("progress", "full_info", "info", "init", "init_model", "add_first_layer")
"""Stages whose logs contain the output of nnet3-info, logs of later models first."""


_TABLE_HEAD = "%Iter\tduration\ttrain_objective\tvalid_objective\tdifference"


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


@dataclass(frozen=True)
class StageTime:
    """The total time of all jobs of a stage, and the number of failed jobs."""

    stage: str
    num_jobs: int
    num_failed: int
    seconds: float


@dataclass
class History:
    """The facts from all log files of a training directory."""

    folder: Path
    logs: list[LogFile] = field(default_factory=list)

    def of_stage(self, stage: str) -> list[LogFile]:
        """The logs of a stage that belong to iterations, sorted by iteration."""
        found = [log for log in self.logs if log.stage == stage and log.iteration is not None]
        return sorted(found, key=lambda log: [int(mark) for mark in log.marks if mark.isdigit()])

    @property
    def num_iterations(self) -> int:
        """The number of iterations that have begun to train."""
        return max((log.iteration or 0 for log in self.of_stage("train")), default=-1) + 1

    # -- curves

    def diagnostics(self, part: str, quantity: str) -> dict[str, Curve]:
        """Curves by output name of a `quantity` of the diagnostics on the data `part`.

        `quantity` is "objectives" or "accuracies", `part` is "train" or "valid". Point i is the
        model before iteration i; the final model follows the last iteration.
        """
        curves: dict[str, Curve] = {}
        for log in [*self.of_stage(f"compute_prob_{part}"), *self.final(part)]:
            at = self.num_iterations if log.iteration is None else log.iteration
            for output, value in getattr(log, quantity).items():
                curves.setdefault(output, []).append((at, value))
        return curves

    def final(self, part: str) -> list[LogFile]:
        """The logs that evaluate the final model on the data `part` before priors are adjusted."""
        found = [log for log in self.logs if log.stage == f"compute_prob_{part}"]
        return [log for log in found if log.marks in (("final",), ("combined",))][:1]

    def by_iteration(self) -> dict[int, list[LogFile]]:
        """The logs of the stage "train" by iteration, in the order of iterations."""
        found: dict[int, list[LogFile]] = {}
        for log in self.of_stage("train"):
            found.setdefault(log.iteration or 0, []).append(log)
        return found

    def training_objectives(self) -> dict[str, Curve]:
        """Curves by output of the training objective, averaged over the jobs of an iteration.

        Each point is halfway between the models before and after its iteration.
        """
        curves: dict[str, Curve] = {}
        for i, logs in self.by_iteration().items():
            for output in dict.fromkeys(output for log in logs for output in log.objectives):
                values = [log.objectives[output] for log in logs if output in log.objectives]
                curves.setdefault(output, []).append((i + 0.5, _mean(values)))
        return curves

    def learning_rates(self) -> tuple[Curve, Curve]:
        """Curves of the learning rate of jobs, and of this rate divided by the number of jobs."""
        given: Curve = []
        divided: Curve = []
        for i, logs in self.by_iteration().items():
            if rates := [log.learning_rate for log in logs if log.learning_rate is not None]:
                given.append((i, rates[-1]))
                divided.append((i, rates[-1] / len(rates)))
        return given, divided

    def dropout(self) -> dict[str, Curve]:
        """Curves of the dropout proportion, by pattern of component names."""
        curves: dict[str, dict[float, float]] = {}
        for log in self.of_stage("train"):
            for pattern, proportion in log.dropout.items():
                curves.setdefault(pattern, {})[log.iteration or 0] = proportion
        return {pattern: sorted(curve.items()) for pattern, curve in curves.items()}

    def frame_rates(self) -> Curve:
        """A curve of the frames per second that all jobs of an iteration process in total."""
        curve: Curve = []
        for i, logs in self.by_iteration().items():
            frames, seconds = 0.0, 0.0
            for log in logs:
                least = 0.0 if log.is_timed_exactly else _LEAST_WHOLE_SECONDS
                if log.seconds and log.seconds > least and log.num_frames:
                    frames, seconds = frames + log.num_frames, max(seconds, log.seconds)
            if frames:
                curve.append((i, frames / seconds))
        return curve

    def changes(self, kind: str) -> dict[str, Curve]:
        """Curves by component of numbers in nnet3-show-progress logs under the heading `kind`."""
        curves: dict[str, Curve] = {}
        for log in self.of_stage("progress"):
            for name, value in log.per_component.get(kind, {}).items():
                curves.setdefault(name, []).append((log.iteration or 0, value))
        return curves

    def max_changes(self) -> tuple[dict[str, Curve], Curve]:
        """Percentages of minibatches limited by max-change: curves by component, and overall.

        Each point is the mean over jobs; a log without a figure counts as 0.
        """
        jobs = {
            i: ended
            for i, logs in self.by_iteration().items()
            if (ended := [log for log in logs if log.seconds is not None])
        }
        trained = [log for logs in jobs.values() for log in logs]
        each: dict[str, Curve] = {
            name: [(i, _mean([x.max_changes.get(name, 0.0) for x in xs])) for i, xs in jobs.items()]
            for name in dict.fromkeys(name for log in trained for name in log.max_changes)
        }
        return each, [(i, _mean([x.global_max_change for x in logs])) for i, logs in jobs.items()]

    # -- tables

    def accuracy_table(self, quantity: str) -> str:
        """The text of Kaldi's accuracy.report: a line per iteration with seconds and accuracies.

        The seconds are those of the longest job; the accuracies, of training and validation data.
        With `quantity` "plain_objectives" (chain models have no accuracies), they are objectives.
        """
        train, valid = (
            {
                log.iteration or 0: getattr(log, quantity)["output"]
                for log in self.of_stage(f"compute_prob_{part}")
                if "output" in getattr(log, quantity)
            }
            for part in ("train", "valid")
        )
        seconds = {
            i: max(log.seconds or 0.0 for log in logs) for i, logs in self.by_iteration().items()
        }
        lines = [
            f"{i}\t{seconds[i]}\t{train[i]:g}\t{valid[i]:g}\t{valid[i] - train[i]:g}"
            for i in sorted(seconds.keys() & train.keys() & valid.keys())
        ]
        total = datetime.timedelta(seconds=sum(seconds.values()))
        return "\n".join([_TABLE_HEAD, *lines, f"Total training time is {total}\n"])

    # -- models

    def models(self) -> list[tuple[int, NetworkFacts]]:
        """Pairs (iteration, network) from the logs of nnet3-info."""
        of_stage = self.of_stage("progress")
        return [(log.iteration or 0, log.network) for log in of_stage if log.network]

    def model(self) -> NetworkFacts:
        """The newest network that nnet3-info logged; else the network of the config files."""
        for stage in _MODEL_LOGS:
            found = {
                x.iteration or 0: x.network for x in self.logs if x.stage == stage if x.network
            }
            if found:
                return found[max(found)]
        for name in ("final.config", "ref.config"):
            try:
                text = read_file(self.folder / "configs" / name, MAX_CONFIG)
            except DataError:
                continue
            return read_network(text.decode("utf-8", "replace").split("\n"))
        return read_network([])

    # -- time

    def stages(self) -> list[StageTime]:
        """The times of the stages, longest first."""
        groups: dict[str, list[LogFile]] = {}
        for log in self.logs:
            groups.setdefault(log.stage, []).append(log)
        times = [
            StageTime(
                stage,
                len(logs),
                sum(log.failed for log in logs),
                sum(log.seconds or 0.0 for log in logs),
            )
            for stage, logs in groups.items()
        ]
        return sorted(times, key=lambda time: (-time.seconds, time.stage))

    def span(self) -> tuple[float, float] | None:
        """The time of the first job's start and the last job's end; None if the logs lack both."""
        begun = [log for log in self.logs if log.started is not None]
        if not begun:
            return None
        starts = [log.started or 0.0 for log in begun]
        return min(starts), max((log.started or 0.0) + (log.seconds or 0.0) for log in begun)


def read_history(folder: Path) -> History:
    """Read the history of a training directory from its logs and the logs of its examples."""
    logs: list[LogFile] = []
    for place in (folder / "log", folder / "egs" / "log"):
        try:
            names = sorted(entry.name for entry in os.scandir(place) if entry.is_file())
        except MISTAKES:
            continue
        found = (read_log(str(place / name)) for name in names)
        logs += [log for log in found if log is not None]
    return History(folder, logs)

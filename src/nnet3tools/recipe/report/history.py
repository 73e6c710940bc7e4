"""A training directory as its log files tell it: iterations, curves, components, stages."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from nnet3tools.recipe.report.log_file import LogFile, read_log
from nnet3tools.recipe.report.network import NetworkFacts, read_network

__all__ = ["Curve", "History", "StageTime", "read_history"]

Curve = list[tuple[float, float]]
"""Points (iteration, value), by iteration."""

_MODEL_LOGS = ("progress", "full_info", "info", "init", "init_model", "add_first_layer")
"""Stages whose logs hold what nnet3-info prints, of a later model first."""


@dataclass(frozen=True)
class StageTime:
    """What the jobs of one stage took together."""

    stage: str
    num_jobs: int
    num_failed: int
    seconds: float


@dataclass
class History:
    """The log files of a directory."""

    folder: Path
    logs: list[LogFile] = field(default_factory=list)

    def of_stage(self, stage: str) -> list[LogFile]:
        """The logs of a stage that have an iteration, in its order."""
        found = [log for log in self.logs if log.stage == stage and log.iteration is not None]
        return sorted(found, key=lambda log: [int(mark) for mark in log.marks if mark.isdigit()])

    @property
    def num_iterations(self) -> int:
        """Iterations whose training has begun."""
        return max((log.iteration or 0 for log in self.of_stage("train")), default=-1) + 1

    # -- curves

    def diagnostics(self, part: str, quantity: str) -> dict[str, Curve]:
        """By output: `quantity` ("objectives", "accuracies") of `part` ("train", "valid").

        The models are those before each iteration; the final one comes after the last.
        """
        curves: dict[str, Curve] = {}
        for log in [*self.of_stage(f"compute_prob_{part}"), *self.final(part)]:
            at = self.num_iterations if log.iteration is None else log.iteration
            for output, value in getattr(log, quantity).items():
                curves.setdefault(output, []).append((at, value))
        return curves

    def final(self, part: str) -> list[LogFile]:
        """The diagnostics of the final model, if there are any; before priors are adjusted."""
        found = [log for log in self.logs if log.stage == f"compute_prob_{part}"]
        return [log for log in found if log.marks in (("final",), ("combined",))][:1]

    def training_objectives(self) -> dict[str, Curve]:
        """By output: the objective while training, averaged over an iteration's jobs.

        It stands half way between the models before and after.
        """
        sums: dict[str, dict[int, list[float]]] = {}
        for log in self.of_stage("train"):
            for output, value in log.objectives.items():
                sums.setdefault(output, {}).setdefault(log.iteration or 0, []).append(value)
        return {
            output: [(i + 0.5, sum(values) / len(values)) for i, values in by_iteration.items()]
            for output, by_iteration in sums.items()
        }

    def learning_rates(self) -> tuple[Curve, Curve]:
        """What the jobs are given, and that divided by their number, the effective one."""
        rates: dict[int, float] = {}
        num_jobs: dict[int, int] = {}
        for log in self.of_stage("train"):
            if log.learning_rate is not None:
                rates[log.iteration or 0] = log.learning_rate
                num_jobs[log.iteration or 0] = num_jobs.get(log.iteration or 0, 0) + 1
        given = sorted(rates.items())
        return [*given], [(i, rate / num_jobs[i]) for i, rate in given]

    def frame_rates(self) -> Curve:
        """Frames a second of all jobs of an iteration together."""
        frames: dict[int, float] = {}
        seconds: dict[int, float] = {}
        for log in self.of_stage("train"):
            if log.seconds and log.num_frames:
                i = log.iteration or 0
                frames[i] = frames.get(i, 0.0) + log.num_frames
                seconds[i] = max(seconds.get(i, 0.0), log.seconds)
        return [(i, frames[i] / seconds[i]) for i in sorted(frames)]

    def changes(self, kind: str) -> dict[str, Curve]:
        """By component: `kind` of nnet3-show-progress, in the network's order."""
        curves: dict[str, Curve] = {}
        for log in self.of_stage("progress"):
            for name, value in log.per_component.get(kind, {}).items():
                curves.setdefault(name, []).append((log.iteration or 0, value))
        return curves

    def max_changes(self) -> tuple[dict[str, Curve], Curve]:
        """Percent of minibatches with max-change enforced: by component, and the global one.

        The programs log what is not zero only; jobs are averaged.
        """
        trained = [log for log in self.of_stage("train") if log.seconds is not None]
        jobs: dict[int, list[LogFile]] = {}
        for log in trained:
            jobs.setdefault(log.iteration or 0, []).append(log)
        names = dict.fromkeys(name for log in trained for name in log.max_changes)
        each: dict[str, Curve] = {
            name: [
                (i, sum(log.max_changes.get(name, 0.0) for log in logs) / len(logs))
                for i, logs in jobs.items()
            ]
            for name in names
        }
        whole = [
            (i, sum(x.global_max_change for x in logs) / len(logs)) for i, logs in jobs.items()
        ]
        return each, [*whole]

    # -- models

    def models(self) -> list[tuple[int, NetworkFacts]]:
        """What nnet3-info said after each iteration."""
        of_stage = self.of_stage("progress")
        return [(log.iteration or 0, log.network) for log in of_stage if log.network]

    def model(self) -> NetworkFacts:
        """What nnet3-info said of the newest model that it looked at; else what the config says."""
        for stage in _MODEL_LOGS:
            found = {
                x.iteration or 0: x.network for x in self.logs if x.stage == stage if x.network
            }
            if found:
                return found[max(found)]
        for name in ("final.config", "ref.config"):
            try:
                text = (self.folder / "configs" / name).read_text("utf-8", "replace")
            except OSError:
                continue
            return read_network(text.split("\n"))
        return read_network([])

    # -- time

    def stages(self) -> list[StageTime]:
        """The stages by the time they took, longest first."""
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
        """When the first job began and the last one ended, as far as logs tell."""
        begun = [log for log in self.logs if log.started is not None]
        if not begun:
            return None
        starts = [log.started or 0.0 for log in begun]
        return min(starts), max((log.started or 0.0) + (log.seconds or 0.0) for log in begun)


def read_history(folder: Path) -> History:
    """The history of a training directory: its own logs and those of its examples."""
    logs: list[LogFile] = []
    for place in (folder / "log", folder / "egs" / "log"):
        try:
            names = sorted(entry.name for entry in os.scandir(place) if entry.is_file())
        except OSError:
            continue
        found = (read_log(str(place / name)) for name in names)
        logs += [log for log in found if log is not None]
    return History(folder, logs)

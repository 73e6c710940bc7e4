"""accuracy.report: a table of the accuracies of all iterations, in the form of Kaldi's scripts."""

from __future__ import annotations

import datetime
from pathlib import Path

from nnet3tools.recipe.plan import WriteText
from nnet3tools.recipe.report.history import History, read_history

_TITLE = "%Iter\tduration\ttrain_objective\tvalid_objective\tdifference"


def accuracy_table(history: History, quantity: str = "accuracies", output: str = "output") -> str:
    """The text of Kaldi's accuracy.report: a line per iteration with seconds and accuracies.

    The seconds are those of the longest job; the accuracies are those of training and validation
    data. With `quantity` "plain_objectives", the table has objectives, because chain models have no
    accuracies.
    """
    seconds: dict[int, float] = {}
    for log in history.of_stage("train"):
        at = log.iteration or 0
        seconds[at] = max(seconds.get(at, 0.0), log.seconds or 0.0)
    train, valid = (
        {
            log.iteration or 0: getattr(log, quantity)[output]
            for log in history.of_stage(f"compute_prob_{part}")
            if output in getattr(log, quantity)
        }
        for part in ("train", "valid")
    )
    lines = [
        f"{i}\t{seconds[i]}\t{train[i]:g}\t{valid[i]:g}\t{valid[i] - train[i]:g}"
        for i in sorted(seconds.keys() & train.keys() & valid.keys())
    ]
    total = datetime.timedelta(seconds=sum(seconds.values()))
    return "\n".join([_TITLE, *lines, f"Total training time is {total}\n"])


def write_accuracy_report(folder: Path, name: str, quantity: str = "accuracies") -> None:
    """Write the accuracy table of a training directory to the directory's file `name`."""
    WriteText(folder / name, accuracy_table(read_history(folder), quantity)).do()

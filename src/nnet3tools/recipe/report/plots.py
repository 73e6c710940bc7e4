"""The curves of a training directory as PNG pictures, by matplotlib (extra "recipe")."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from nnet3tools.errors import OptionError, install_command
from nnet3tools.io.whole_file import whole_file
from nnet3tools.recipe.report.history import Curve, History, read_history

__all__ = ["write_pictures"]

_COLORS = ("#4a7fc1", "#dd7f35", "#2f9e77", "#7d6bb0", "#c0392b", "#8a8f95")
_STYLES = ("-", "--", ":", "-.")

Plot = tuple[str, dict[str, Curve], bool]
"""A title, curves by name, and whether their values are on a logarithmic scale."""


def write_pictures(folder: Path) -> list[Path]:
    """Write `report.objective.png` and the like into a training directory; returns what there is.

    OptionError if matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise OptionError(
            f"pictures need matplotlib, which is not installed: {install_command('recipe')}"
        ) from None
    written = []
    for name, plots in _pictures(read_history(folder)).items():
        shown = [plot for plot in plots if any(plot[1].values())]
        if not shown:
            continue
        figure = Figure(figsize=(7.0, 3.6 * len(shown)), dpi=110, layout="constrained")
        for axes, plot in zip(figure.subplots(len(shown), squeeze=False)[:, 0], shown, strict=True):
            _draw(axes, plot)
        target = folder / f"report.{name}.png"
        packed = io.BytesIO()
        figure.savefig(packed, format="png")
        with whole_file(str(target)) as file:
            file.write(packed.getvalue())
        written.append(target)
    return written


def _pictures(history: History) -> dict[str, list[Plot]]:
    """The plots of each picture."""
    limited, whole = history.max_changes()
    given, effective = history.learning_rates()
    rates = {"effective": effective} | ({"given to a job": given} if given != effective else {})
    return {
        "objective": [("Objective per frame", _diagnostics(history, "objectives"), False)],
        "accuracy": [("Accuracy per frame", _diagnostics(history, "accuracies"), False)],
        "learning_rate": [("Learning rate", rates, False)],
        "changes": [
            ("Relative parameter change", history.changes("Relative parameter differences"), True),
            ("Minibatches with max-change enforced, %", {**limited, "(global)": whole}, False),
        ],
    }


def _diagnostics(history: History, quantity: str) -> dict[str, Curve]:
    """Curves of train and valid, without the model before training, which lies far out."""
    curves = {}
    for part in ("train", "valid"):
        for output, curve in history.diagnostics(part, quantity).items():
            name = part if output == "output" else f"{part}, {output}"
            curves[name] = curve[1:] if len(curve) > 3 else curve
    return curves


def _draw(axes: Any, plot: Plot) -> None:
    title, curves, log = plot
    axes.set_title(_plain(title), loc="left", fontsize=11)
    for k, (name, curve) in enumerate(curves.items()):
        style = _STYLES[k // len(_COLORS) % len(_STYLES)]
        points = [point for point in curve if point[1] > 0] if log else curve
        axes.plot(
            [i for i, _ in points],
            [value for _, value in points],
            style,
            color=_COLORS[k % len(_COLORS)],
            label=_plain(name),
            marker="." if len(points) < 60 else "",
        )
    if log:
        axes.set_yscale("log")
    axes.set_xlabel("iteration")
    axes.grid(color="#e3e3de")
    axes.spines[["top", "right"]].set_visible(False)
    if len(curves) > 1:
        axes.legend(fontsize=8, frameon=False, ncols=1 + len(curves) // 12)


def _plain(text: str) -> str:
    """Text in which matplotlib finds neither formulas nor characters that no font has."""
    return "".join(c if c.isprintable() else "?" for c in text).replace("$", r"\$").lstrip("_")

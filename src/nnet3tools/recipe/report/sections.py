"""The sections of a training report, as HTML text."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from pathlib import Path

from nnet3tools.cli.progress import duration
from nnet3tools.errors import DataError
from nnet3tools.io.files import MAX_CONFIG, read_file
from nnet3tools.recipe.report.charts import (
    Band,
    Line,
    bar,
    cells,
    line_chart,
    readable,
    scrolling,
    spark_line,
    table,
    text_of,
)
from nnet3tools.recipe.report.history import Curve, History
from nnet3tools.recipe.report.network import NetworkFacts, Nonlinearity, percentile, share_below
from nnet3tools.recipe.report.network_picture import network_picture

_HARDLY = 0.05
_LARGEST_DERIVATIVE = {"Sigmoid": 0.25, "sigmoid": 0.25}
_NAMES = {"objectives": "Objective per frame", "accuracies": "Accuracy per frame"}


def sections(history: History) -> list[str]:
    """The HTML text of each section of the report, in order; empty sections are left out."""
    network = history.model()
    parts = [
        ("", _figures(history, network)),
        ("Curves", _grid(_curves(history))),
        ("Components", _components(history, network)),
        ("Time by stage", _stages(history)),
        ("Nonlinearities", _nonlinearities(history)),
        ("Network", scrolling(network_picture(network))),
        ("Commands", _commands(history)),
    ]
    return [
        f'<section class="{title.split()[0].lower() if title else "figures"}">'
        f"{f'<h2>{title}</h2>' if title else ''}{text}</section>"
        for title, text in parts
        if text
    ]


def _grid(charts: Iterable[str]) -> str:
    kept = "".join(charts)
    return f'<div class="grid-of-charts">{kept}</div>' if kept else ""


# -- figures


def _figures(history: History, network: NetworkFacts) -> str:
    rows = [("iterations", str(history.num_iterations))]
    for key in ("num-parameters", "left-context", "right-context"):
        if key in network.numbers:
            rows.append((key.removeprefix("num-").replace("-", " "), network.numbers[key]))
    for quantity, name in (("objectives", "objective"), ("accuracies", "accuracy")):
        curves = {part: history.diagnostics(part, quantity) for part in ("train", "valid")}
        for output in sorted(curves["valid"]):
            newest = (f"{part} {_last(of.get(output, [])) or '?'}" for part, of in curves.items())
            rows.append((name if output == "output" else f"{output}: {name}", ", ".join(newest)))
    if span := history.span():
        rows.append(("from start to end", duration(span[1] - span[0])))
    shown = (f"<div><dt>{text_of(k)}</dt><dd>{text_of(v)}</dd></div>" for k, v in rows)
    return f"<dl>{''.join(shown)}</dl>"


# -- curves


def _curves(history: History) -> Iterable[str]:
    x_end = float(history.num_iterations)
    for quantity, title in _NAMES.items():
        train = history.diagnostics("train", quantity)
        valid = history.diagnostics("valid", quantity)
        running = history.training_objectives() if quantity == "objectives" else {}
        for output in sorted({*train, *valid, *running}):
            lines = [
                Line("train", train.get(output, []), "s0"),
                Line("valid", valid.get(output, []), "s1"),
                Line("while training", running.get(output, []), "s2 dashed"),
            ]
            shown = [line for line in lines if line.points]
            name = title if output == "output" else f"{title} of {output}"
            yield line_chart(name, shown, x_end=x_end, settled=min(x_end / 20 + 1, x_end))
    given, effective = history.learning_rates()
    rates = [Line("effective", effective, "s0")]
    if given != effective:
        rates.append(Line("as given to each job", given, "s2"))
    yield line_chart("Learning rate", rates, zero=True, x_end=x_end)
    dropout = [
        Line(pattern, curve, f"s{i % 3}")
        for i, (pattern, curve) in enumerate(history.dropout().items())
    ]
    yield line_chart("Dropout proportion", dropout, zero=True, x_end=x_end)
    yield line_chart(
        "Frames per second", [Line("frames/s", history.frame_rates())], zero=True, x_end=x_end
    )


# -- components


def _components(history: History, network: NetworkFacts) -> str:
    relative = history.changes("Relative parameter differences")
    norms = history.changes("Norms of parameter matrices")
    limited, whole = history.max_changes()
    names = [*relative, *(name for name in limited if name not in relative)]
    if not names:
        return ""
    values = [v for curve in relative.values() for _, v in curve if v > 0] or [1.0]
    low, high = min(values), max(values)
    x_end = float(history.num_iterations)
    head = (
        "<tr><th>component</th><th>learning rate</th><th>norm</th>"
        '<th colspan="2">relative change</th>'
        '<th colspan="3">max-change: limit, how often met</th></tr>'
    )
    rows = [head]
    for name in names:
        fields = network.components[name].fields if name in network.components else {}
        change, share = relative.get(name, []), limited.get(name, [])
        shown = [
            text_of(fields.get("learning-rate", "")),
            _last(norms.get(name, [])),
            spark_line(change, low, high, x_end, log=True),
            _last(change),
            text_of(fields.get("max-change", "")),
            spark_line(share, 0, 100, x_end),
            f"{_last(share) or '0'} %",
        ]
        rows.append(f"<tr><th>{text_of(name)}</th>{cells(shown)}</tr>")
    note = (
        "<p>Relative change: the norm of what an iteration changed, as a share of the parameters' "
        f"norm, on one logarithmic scale from {readable(low)} to {readable(high)}. Max-change: in "
        "how many percent of the minibatches the component's limit was met, from 0 to 100; the "
        f"limit of the whole network was met in {_last(whole) or '0'} % of the last "
        "iteration's.</p>"
    )
    return scrolling(f"<table>{''.join(rows)}</table>") + note


def _last(curve: Curve) -> str:
    return readable(curve[-1][1]) if curve else ""


# -- nonlinearities


def _nonlinearities(history: History) -> str:
    found: dict[str, list[tuple[int, Nonlinearity]]] = {}
    kinds: dict[str, str] = {}
    for iteration, network in history.models():
        for component in network.components.values():
            for nonlinearity in component.nonlinearities:
                found.setdefault(nonlinearity.name, []).append((iteration, nonlinearity))
                kinds[nonlinearity.name] = component.type
    x_end = float(history.num_iterations)
    charts = _grid(_saturation(name, kinds[name], found[name], x_end) for name in found)
    if not charts:
        return ""
    return (
        "<p>The average derivative of the units: the line is the median, nine tenths of the units "
        "lie in the band. A unit counts as off (of a rectifier) or saturated if its average is "
        f"below {_HARDLY * 100:g} % of the largest derivative that there is.</p>" + charts
    )


def _saturation(
    name: str, component_type: str, history: list[tuple[int, Nonlinearity]], x_end: float
) -> str:
    def curve(percent: int) -> Curve:
        return [(i, percentile(n.derivs, percent)) for i, n in history]

    gate = name.rpartition("_")[2]
    largest = _LARGEST_DERIVATIVE.get(gate, _LARGEST_DERIVATIVE.get(component_type[:7], 1.0))
    _, newest = history[-1]
    share = 100 * share_below(newest.derivs, _HARDLY * largest)
    state = "off" if component_type.startswith("Rectified") else "saturated"
    title = f"{name}: {share:.0f} % {state}"
    if newest.self_repaired is not None:
        title += f", {100 * newest.self_repaired:.3g} % self-repaired"
    band = Band(curve(5), curve(95))
    return line_chart(
        title, [Line("median", curve(50))], band, zero=True, x_end=x_end, y_end=largest
    )


# -- time and commands


def _stages(history: History) -> str:
    stages = history.stages()
    total = sum(stage.seconds for stage in stages)
    rows = []
    for stage in stages:
        failed = f", <b>{stage.num_failed} failed</b>" if stage.num_failed else ""
        jobs = f"{stage.num_jobs} job{'s' if stage.num_jobs > 1 else ''}{failed}"
        name = cells([text_of(stage.stage)], "th")
        rows.append(name + cells([jobs, duration(stage.seconds)]) + bar(stage.seconds, total))
    return scrolling(table("stages", rows)) if rows else ""


def _commands(history: History) -> str:
    """HTML with the recorded command of the training driver, and the last job's command."""
    train = history.of_stage("train")
    commands = [_driver_command(history.folder), *(log.command for log in train[-1:])]
    return "".join(f"<pre>{text_of(command)}</pre>" for command in commands if command)


def _driver_command(folder: Path) -> str:
    """The driver's command line with options that change results; "" if none is recorded."""
    try:
        record = json.loads(read_file(folder / "experiment.json", MAX_CONFIG))
        options = [f"--{name}={value}" for name, value in record["options"].items() if value]
        return " ".join(dict.fromkeys([str(record["program"]), *map(shlex.quote, options)]))
    except (DataError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""

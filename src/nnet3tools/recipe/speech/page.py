"""report.html of a recognizer: word errors, both trainings, confusions, the worst utterances."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from nnet3tools.io import log
from nnet3tools.io.table import RandomAccessTableReader
from nnet3tools.io.wave import WAVE, write_wave
from nnet3tools.io.whole_file import whole_file
from nnet3tools.io.writer import Writer
from nnet3tools.recipe.progress import duration
from nnet3tools.recipe.report.charts import Line, line_chart, text_of
from nnet3tools.recipe.report.history import read_history
from nnet3tools.recipe.report.page import html_page
from nnet3tools.recipe.speech.scoring import Scores, WordPair
from nnet3tools.recipe.speech.setup import (
    CHAIN,
    DECODE,
    FLAT,
    HELD_OUT,
    TEST,
    WORK,
    Setup,
    read_table,
    write_lines,
)

_NUM_CONFUSIONS, _NUM_WORST = 20, 10
_SOUND = Path("report")
_TITLES = {HELD_OUT: "held-out part", TEST: "test data"}
_MODELS = {
    FLAT: "First model: monophones, end-to-end LF-MMI from a flat start",
    CHAIN: "Second model: left biphones, trained on alignments of the first",
}
_STAGES = {
    "data": "checks",
    "features": "features",
    "lang": "dictionary, language model",
    "graphs": "graphs of transcripts",
    "flat": "first model",
    "align": "alignments",
    "said": "pronunciations",
    "chain": "second model",
    "graph": "decoding graph",
    "scales": "scales",
    "scores": "word errors",
}


def write_page(setup: Setup) -> None:
    """Score what has been decoded, write RESULTS and report.html, and log the word errors."""
    found = {data: scores for data in _TITLES if (scores := scores_of(data)) is not None}
    for data, scores in found.items():
        log.log(f"Word errors of the {_TITLES[data]}: {scores.percent:.2f} % "
                f"({scores.num_errors} of {scores.num_words} words)")  # fmt: skip
    write_lines(WORK / "results", (f"{data.name} {s.text}" for data, s in found.items()))
    parts = [_summary(setup, found), _section("Training", f'<div class="wide">{_curves()}</div>')]
    parts += [_scores_section(data, scores) for data, scores in found.items()]
    parts.append(_section("Time by stage", _times()))
    style = (resources.files("nnet3tools.recipe.report") / "page" / "words.css").read_text("utf-8")
    name = text_of(Path.cwd().name)
    text = html_page(f"{name}: recognizer", name, "\n".join(parts), style, "'self' file:")
    with whole_file("report.html") as file:
        file.write(text.encode("utf-8"))


def scores_of(data: Path) -> Scores | None:
    """The scores of a decoded data directory; None if it has not been decoded."""
    text = DECODE / f"{data.name}.txt"
    return Scores.of(read_table(data / "text"), read_table(text)) if text.exists() else None


def _section(title: str, text: str) -> str:
    return f"<section><h2>{title}</h2>{text}</section>"


def _row(cells: Iterable[object], tag: str = "td") -> str:
    return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"


def _summary(setup: Setup, found: dict[Path, Scores]) -> str:
    heads = ("", "word errors", "errors", "wrong word", "missed", "too many", "utterances right")
    rows = []
    for data, scores in found.items():
        missed = sum(n for (_, heard), n in scores.confusions.items() if not heard)
        added = sum(n for (said, _), n in scores.confusions.items() if not said)
        total = scores.num_errors
        right = f"{sum(n == 0 for n in scores.errors.values())} of {len(scores.errors)}"
        rate = f"{scores.percent:.2f} %"
        rows.append(
            _row((_TITLES[data], rate, total, total - missed - added, missed, added, right))
        )
    table = f'<table class="kinds">{_row(heads, "th")}{"".join(rows)}</table>'
    facts = setup.facts
    note = (
        f"Trained on {facts.num_utterances} utterances ({duration(facts.num_seconds)} of sound, "
        f"{facts.rate} Hz), size {setup.size.name}, seed {setup.options.seed}. The held-out part "
        "was kept out of training and chose the scale of the language model."
    )
    return (
        f'<section class="figures"><div class="scrolling" tabindex="0">{table}</div>'
        f"<p>{note}</p></section>"
    )


def _curves() -> str:
    """The objective by iteration of both trainings."""
    charts = []
    for folder, title in _MODELS.items():
        history = read_history(folder)
        lines = [
            Line("train", history.diagnostics("train", "objectives").get("output", []), "s0"),
            Line("valid", history.diagnostics("valid", "objectives").get("output", []), "s1"),
            Line("while training", history.training_objectives().get("output", []), "s2"),
        ]
        end = float(history.num_iterations)
        chart = line_chart("Objective per frame", lines, x_end=end, settled=min(end / 20 + 1, end))
        link = f'<p><a href="{folder}/report.html">All about this training</a></p>'
        charts.append(f"<div><h3>{title}</h3>{chart}{link}</div>")
    return "".join(charts)


def _scores_section(data: Path, scores: Scores) -> str:
    parts = [_confusions(scores)] if scores.confusions else ["<p>No errors.</p>"]
    if worst := scores.worst(_NUM_WORST):
        parts.append("<h3>Most errors: said above, heard below</h3>")
        sounds = _copy_sounds(data, worst)
        for key in worst:
            count = scores.errors[key]
            parts.append(
                f'<div class="key">{text_of(key)}, {count} error{"s" * (count != 1)}</div>'
            )
            if key in sounds:
                place = text_of(sounds[key].as_posix())
                parts.append(f'<audio controls preload="none" src="{place}"></audio>')
            parts.append(f'<div class="words">{_words(scores.pairs[key])}</div>')
    return _section(f"Errors of the {_TITLES[data]}", "".join(parts))


def _confusions(scores: Scores) -> str:
    found = scores.confusions.most_common(_NUM_CONFUSIONS)
    most = found[0][1]
    rows = [
        f"<tr><td>{n}</td><td>{_shown(said)} &rarr; {_shown(heard)}</td>"
        f'<td class="bar"><i style="width:{100 * n / most:.0f}%"></i></td></tr>'
        for (said, heard), n in found
    ]
    return f'<h3>Said &rarr; heard</h3><table class="confusions">{"".join(rows)}</table>'


def _shown(word: str) -> str:
    return text_of(word) or "&mdash;"


def _words(pairs: list[WordPair]) -> str:
    return "".join(
        f"<span{' class=wrong' if said != heard else ''}>"
        f"<i>{_shown(said)}</i><b>{_shown(heard)}</b></span>"
        for said, heard in pairs
    )


def _copy_sounds(data: Path, keys: list[str]) -> dict[str, Path]:
    """Write the sound of utterances to report/; returns the files by utterance."""
    _SOUND.mkdir(exist_ok=True)
    files = {}
    with RandomAccessTableReader(f"scp:{data}/wav.scp", WAVE) as table:
        for number, key in enumerate(keys, start=1):
            if (wave := table.get(key)) is not None:
                files[key] = _SOUND / f"{data.name}.{number}.wav"
                with whole_file(str(files[key])) as file:
                    write_wave(Writer(file), wave)
    return files


def _times() -> str:
    times = json.loads((WORK / "stages.json").read_text())
    most = max(times.values(), default=1.0)
    rows = [
        f"<tr><th>{_STAGES.get(name, text_of(name))}</th><td>{duration(seconds)}</td>"
        f'<td class="bar"><i style="width:{100 * seconds / most:.1f}%"></i></td></tr>'
        for name, seconds in times.items()
    ]
    return f'<table class="stages">{"".join(rows)}</table>'

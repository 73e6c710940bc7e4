"""report.html of a recognizer: word errors, both trainings, confusions, the worst utterances."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

from nnet3tools.cli.progress import duration
from nnet3tools.io import log
from nnet3tools.io.files import read_text
from nnet3tools.io.table import RandomAccessTableReader
from nnet3tools.io.wave import WAVE, write_wave
from nnet3tools.io.whole_file import whole_file
from nnet3tools.io.writer import Writer
from nnet3tools.recipe.plan import WriteText, write_lines
from nnet3tools.recipe.report.charts import Line, bar, cells, line_chart, scrolling, table, text_of
from nnet3tools.recipe.report.history import read_history
from nnet3tools.recipe.report.page import html_page
from nnet3tools.recipe.speech.scoring import Scores, WordPair
from nnet3tools.recipe.speech.setup import (
    CHAIN,
    DECODE,
    FLAT,
    HELD_OUT,
    STAGE_TIMES,
    TEST,
    WORK,
    Setup,
    read_table,
)

_NUM_CONFUSIONS, _NUM_WORST = 20, 10
_SOUND = Path("report")
_TITLES = {HELD_OUT: "held-out part", TEST: "test data"}
_MODELS = {
    FLAT: "First model: monophones, end-to-end LF-MMI from a flat start",
    CHAIN: "Second model: left biphones, trained on alignments of the first",
}


def write_page(setup: Setup) -> None:
    """Score the decoded text, write work/results and report.html, and log the word errors."""
    found = {}
    for data, title in _TITLES.items():
        if (text := DECODE / f"{data.name}.txt").exists():
            scores = found[data] = Scores.of(read_table(data / "text"), read_table(text))
            log.log(f"Word errors of the {title}: {scores.percent:.2f} % "
                    f"({scores.num_errors} of {scores.num_words} words)")  # fmt: skip
    results = (f"{d.name} {s.percent:.2f} {s.num_errors} {s.num_words}" for d, s in found.items())
    write_lines(WORK / "results", results)
    sections = {
        "": _summary(setup, found),
        "Training": f'<div class="wide">{_curves()}</div>',
        **{f"Errors of the {_TITLES[d]}": _errors(d, scores) for d, scores in found.items()},
        "Time by stage": _times(),
    }
    body = [
        f"<section><h2>{title}</h2>{text}</section>"
        if title
        else f'<section class="figures">{text}</section>'
        for title, text in sections.items()
    ]
    style = (resources.files("nnet3tools.recipe.report") / "page" / "words.css").read_text("utf-8")
    name = text_of(Path.cwd().name)
    page = html_page(f"{name}: recognizer", name, "\n".join(body), style, "'self' file:")
    WriteText(Path("report.html"), page).do()


def _summary(setup: Setup, found: dict[Path, Scores]) -> str:
    heads = ("", "word errors", "errors", "wrong word", "missed", "too many", "utterances right")
    rows = [cells(heads, "th")]
    for data, scores in found.items():
        missed = sum(n for (_, heard), n in scores.confusions.items() if not heard)
        added = sum(n for (said, _), n in scores.confusions.items() if not said)
        wrong = scores.num_errors - missed - added
        right = f"{sum(n == 0 for n in scores.errors.values())} of {len(scores.errors)}"
        rate = f"{scores.percent:.2f} %"
        rows.append(cells((_TITLES[data], rate, scores.num_errors, wrong, missed, added, right)))
    facts = setup.facts
    return (
        f"{scrolling(table('kinds', rows))}"
        f"<p>Trained on {facts.num_utterances} utterances ({duration(facts.num_seconds)} of "
        f"sound, {facts.rate} Hz), size {setup.size.name}, seed {setup.options.seed}. The held-out "
        "part was kept out of training and chose the scale of the language model.</p>"
    )


def _curves() -> str:
    """HTML with the objective by iteration of both models' training."""
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


def _errors(data: Path, scores: Scores) -> str:
    """HTML of the most frequent confusions, and the worst utterances with their sound."""
    found = scores.confusions.most_common(_NUM_CONFUSIONS)
    if not found:
        return "<p>No errors.</p>"
    rows = (
        cells((n, f"{_shown(said)} &rarr; {_shown(heard)}")) + bar(n, found[0][1])
        for (said, heard), n in found
    )
    parts = ["<h3>Said &rarr; heard</h3>", table("confusions", rows)]
    parts.append("<h3>Most errors: said above, heard below</h3>")
    worst = scores.worst(_NUM_WORST)
    sounds = _copy_sounds(data, worst)
    for key in worst:
        count = scores.errors[key]
        parts.append(f'<div class="key">{text_of(key)}, {count} error{"s" * (count != 1)}</div>')
        if key in sounds:
            parts.append(f'<audio controls preload="none" src="{sounds[key]}"></audio>')
        parts.append(f'<div class="words">{_words(scores.pairs[key])}</div>')
    return "".join(parts)


def _shown(word: str) -> str:
    return text_of(word) or "&mdash;"


def _words(pairs: list[WordPair]) -> str:
    return "".join(
        f"<span{' class=wrong' if said != heard else ''}>"
        f"<i>{_shown(said)}</i><b>{_shown(heard)}</b></span>"
        for said, heard in pairs
    )


def _copy_sounds(data: Path, keys: list[str]) -> dict[str, Path]:
    """Copy the sound of the utterances `keys` to the folder report; returns the files by key."""
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
    times: dict[str, float] = json.loads(read_text(str(STAGE_TIMES)))
    most = max(times.values(), default=1.0)
    return table(
        "stages", (cells((title, duration(s))) + bar(s, most) for title, s in times.items())
    )

"""Training of a recognizer from start to end: the stages in order, resuming, time estimates."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from nnet3tools.errors import OptionError
from nnet3tools.fast_dataclasses import dataclass, replace
from nnet3tools.io import log
from nnet3tools.io.checked import exists
from nnet3tools.io.files import read_text
from nnet3tools.recipe.driver import Driver
from nnet3tools.recipe.plan import Stage, Step, WriteText
from nnet3tools.recipe.progress import duration
from nnet3tools.recipe.record import check_recorded, option_values, working_in, write_recorded
from nnet3tools.recipe.speech import copies, stages
from nnet3tools.recipe.speech.options import RUN_NAMES, RecognizerTrainingOptions
from nnet3tools.recipe.speech.preparation import check_unchanged, prepare_data
from nnet3tools.recipe.speech.setup import FOLDERS, STAGE_TIMES, WORK, Facts, Setup
from nnet3tools.recipe.speech.sizes import size_for
from nnet3tools.recipe.train import make_runner

PROGRAM = "nnet3-train-recognizer"
CHECKS = "checks of the data"
_FACTS, _RECORD = WORK / "facts.json", WORK / "experiment.json"
_PRIOR_SECONDS = 30.0
"""Weight of the estimates against the time that the finished stages took."""
_HINT = "expected the same, or another output directory"


@dataclass(frozen=True)
class _Part:
    """A stage of the recognizer's training; the file work/done/`name` marks its end."""

    name: str
    title: str
    steps: Callable[[Setup], list[Step]]

    @property
    def mark(self) -> Path:
        """The path of the file whose existence shows that the stage has ended."""
        return WORK / "done" / self.name


STAGES = (
    _Part("features", "features of copies of the sound", copies.copies_at_allowed_lengths),
    _Part("lang", "dictionary and language model", stages.lang_steps),
    _Part("graphs", "phone language model, graphs of transcripts", stages.flat_start_steps),
    _Part("flat", "first model, from a flat start", stages.first_training),
    _Part("align", "alignments by the first model", stages.alignment_steps),
    _Part("said", "probabilities of pronunciations", stages.pronunciation_steps),
    _Part("chain", "second model", stages.second_training),
    _Part("graph", "decoding graph", stages.graph_steps),
    _Part("scales", "scale of the language model, on the held-out part", stages.scale_steps),
    _Part("scores", "word errors and report", stages.scoring_steps),
)


def train_recognizer(options: RecognizerTrainingOptions, data: str, lexicon: str, out: str) -> None:
    """Train on `data` (folder or manifest) with `lexicon` (or "none"); write the folder `out`."""
    _check(options)
    options = replace(
        options,
        arpa=_absolute(options.arpa),
        extra_text=_absolute(options.extra_text),
        test=_absolute(options.test),
        run=replace(options.run, cmd=_absolute_command(options.run.cmd)),
    )
    data, lexicon = _absolute(data), lexicon if lexicon == "none" else _absolute(lexicon)
    Path(out).mkdir(parents=True, exist_ok=True)
    with working_in(Path(out)):
        base = os.getcwd()
        os.chdir(out)
        setup = _prepared(options, data, lexicon, base)
        _run_stages(setup)
        command = f"nnet3-decode {shlex.quote(str(Path.cwd()))} FILE.wav"
        log.log(f"Wrote {Path.cwd()}: {command}; see report.html there")


def _check(options: RecognizerTrainingOptions) -> None:
    size_for(options.size, 1.0)
    if not 1 <= options.lm_order <= 4:
        raise OptionError(f"--lm-order={options.lm_order}: expected 1 to 4")
    if not 0.0 < options.held_out_share <= 0.5:
        raise OptionError(f"--held-out-share={options.held_out_share:g}: expected up to 0.5")
    if options.check.max_seconds <= 0.0:
        raise OptionError(
            f"--max-seconds={options.check.max_seconds:g}: expected a positive number"
        )
    for name, path in (("arpa", options.arpa), ("extra-text", options.extra_text)):
        if path and not Path(path).is_file():
            raise OptionError(f"--{name}={path}: there is no such file")


def _absolute(path: str) -> str:
    """The absolute path, needed because the program changes to the output directory."""
    return os.path.abspath(path) if path else ""


def _absolute_command(command: str) -> str:
    """The --cmd option with an absolute path of its script, if the script is a file."""
    first, blank, rest = command.partition(" ")
    return _absolute(first) + blank + rest if exists(first) else command


def _prepared(options: RecognizerTrainingOptions, data: str, lexicon: str, base: str) -> Setup:
    """Do stage 1 (`prepare_data` with these arguments) unless it is done; return the Setup."""
    values = {"DATA": data, "LEXICON": lexicon, **option_values(options, (*RUN_NAMES, "num-shown"))}
    record = {"program": PROGRAM, "options": values, "network": []}
    check_recorded(_RECORD, record, _HINT)
    if _FACTS.exists():
        check_unchanged(_HINT)
    else:
        log.log(f"Stage 1 of {len(STAGES) + 1}: {CHECKS}")
        began = time.monotonic()
        found = prepare_data(options, data, lexicon, base)
        write_recorded(_RECORD, record)
        write_recorded(_FACTS, asdict(found))
        _add_time(CHECKS, time.monotonic() - began)
    facts = Facts(**json.loads(read_text(str(_FACTS))))
    return Setup(options, facts, size_for(facts.size, 0.0))


def _run_stages(setup: Setup) -> None:
    """Run all stages that have not ended; log estimates of the stage's and the remaining time."""
    left = [part for part in STAGES if not part.mark.exists()]
    if left:
        _announce(setup)
    for folder in FOLDERS:
        folder.mkdir(parents=True, exist_ok=True)
    expected = setup.size.stage_seconds(setup.facts.num_seconds)
    for place, part in enumerate(left):
        times = _stage_times()
        known = [other for other in STAGES if other.title in times]
        factor = sum(times[other.title] for other in known) + _PRIOR_SECONDS
        factor /= sum(expected[other.name] for other in known) + _PRIOR_SECONDS
        total = factor * sum(expected[other.name] for other in left[place:])
        number = STAGES.index(part) + 2
        log.log(
            f"Stage {number} of {len(STAGES) + 1}: {part.title} (about "
            f"{duration(factor * expected[part.name])}; all that is left: {duration(total)})"
        )
        began = time.monotonic()
        stage = Stage(number, part.title, (*part.steps(setup), WriteText(part.mark, "")))
        runner = make_runner(setup.options.run, setup.num_parts, setup.wants_gpu)
        try:
            Driver(runner, lambda stage: None, again=False).run(stage)
        finally:
            runner.close()
            _add_time(part.title, time.monotonic() - began)


def _announce(setup: Setup) -> None:
    facts, free = setup.facts, shutil.disk_usage(".").free
    need = setup.size.bytes_needed(facts.num_seconds, facts.rate)
    log.log(
        f"Training on {facts.num_utterances} utterances, {duration(facts.num_seconds)} of "
        f"sound: size {setup.size.name}. Needs about {need / 1e6:.0f} MB of disk, "
        f"{free / 1e6:.0f} MB are free. Paths in messages are in {Path.cwd()}"
    )
    if free < need:
        log.warning(f"the disk of {Path.cwd()} may be too small")


def _stage_times() -> dict[str, float]:
    """The seconds that each finished stage took, by title."""
    return json.loads(read_text(str(STAGE_TIMES))) if STAGE_TIMES.exists() else {}


def _add_time(title: str, seconds: float) -> None:
    """Add seconds to the recorded time of the stage `title`."""
    times = _stage_times()
    times[title] = times.get(title, 0.0) + seconds
    write_recorded(STAGE_TIMES, times)

"""Options, facts about the data, paths and jobs that the stages of a training share.

All paths are relative to the recognizer's directory, in which the program works.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.recipe.data_dir import read_lines
from nnet3tools.recipe.jobs import Job, pipe_text
from nnet3tools.recipe.plan import Jobs, Later, Step
from nnet3tools.recipe.speech.options import RecognizerTrainingOptions
from nnet3tools.recipe.speech.sizes import Size

WORK = Path("work")
TRAIN, HELD_OUT, TEST = (WORK / "data" / name for name in ("train", "held_out", "test"))
COPIES, SPEEDS = WORK / "data" / "copies", WORK / "data" / "speeds"
DICT, SAID, LANG, LM = (WORK / name for name in ("dict", "dict_said", "lang", "lm"))
FLAT_TREE, FLAT, TREE, CHAIN = (WORK / name for name in ("flat_tree", "flat", "tree", "chain"))
DECODE, FINAL_LANG, GRAPH = WORK / "decode", Path("lang"), Path("graph")
PHONES_SAID, STAGE_TIMES = TREE / "phones_said.txt", WORK / "stages.json"
FOLDERS = (COPIES / "parts", SPEEDS / "parts", LM, FLAT_TREE, TREE, DECODE)
"""Folders that the steps of stages expect."""
SUBSAMPLING = 3
CMVN_OPTIONS = "--norm-vars=false"
_FRAMES_PER_PART = 150_000


@dataclass(frozen=True)
class Facts:
    """Properties of the user's training data; `size` is a row name of the table of model sizes."""

    rate: int
    num_utterances: int
    """Utterances of the training part."""
    num_seconds: float
    """Seconds of sound of the training part."""
    unknown_word: str
    size: str


@dataclass(frozen=True)
class Setup:
    """The options, data properties and model size of a recognizer's training."""

    options: RecognizerTrainingOptions
    facts: Facts
    size: Size

    def num_frames(self, num_samples: int) -> int:
        """The number of frames (25 ms, every 10 ms) of a sound, as with --snip-edges=true."""
        rate = self.facts.rate
        return max(0, 1 + (num_samples - rate // 40) // (rate // 100))

    def num_samples(self, num_frames: int) -> int:
        """The smallest number of samples of a sound with `num_frames` frames."""
        rate = self.facts.rate
        return (num_frames - 1) * (rate // 100) + rate // 40

    @property
    def num_parts(self) -> int:
        """The number of parts into which features, graphs and alignments are divided."""
        frames = self.size.copied_frames(self.facts.num_seconds)[0]
        return max(1, min(64, self.facts.num_utterances, math.ceil(frames / _FRAMES_PER_PART)))

    @property
    def parts(self) -> range:
        """Numbers, from 1, of the parts that features, graphs and alignments are divided into."""
        return range(1, self.num_parts + 1)

    @property
    def second_data(self) -> Path:
        """The data directory of the second model: SPEEDS or, without speeds, the first's COPIES."""
        return SPEEDS if self.size.speeds else COPIES

    @property
    def wants_gpu(self) -> bool:
        """Whether a GPU was requested; alignment jobs use one only on request."""
        return self.options.run.use_gpu in ("yes", "true", "wait")


def job(log: str, *programs: tuple[str, ...], home: str = "egs.1", wants_gpu: bool = False) -> Job:
    """Make a job of one pipeline of programs; its log is work/log/`log`.log.

    Jobs with equal `home` run in the same worker process.
    """
    return Job(f"{WORK}/log/{log}.log", (programs,), home, wants_gpu)


def step(log: str, *programs: tuple[str, ...], out: Path) -> Jobs:
    """A step of one job: a pipeline of `programs` (words) makes `out`; log: work/log/`log`.log."""
    return Jobs((job(log, *programs),), (out,))


def action(function: Callable[[], object]) -> Later:
    """Make a step that calls `function` when it is reached, and adds no further steps."""

    def steps() -> list[Step]:
        function()
        return []

    return Later(steps)


def part_file(folder: Path, name: str, part: int) -> Path:
    """The path of the file `name` for one part of a data directory."""
    return folder / "parts" / f"{name}.{part}"


def read_table(path: Path) -> dict[str, list[str]]:
    """Read a text table: key -> the other words of its line."""
    rows = (line.split() for line in read_lines(path))
    return {row[0]: row[1:] for row in rows if row}


def features(script: Path, stats: Path) -> str:
    """Rspecifier of the features of `script` after apply-cmvn-online by stats/global_cmvn.stats."""
    options = (*CMVN_OPTIONS.split(), str(stats / "global_cmvn.stats"))
    return "ark,s,cs:" + pipe_text(("apply-cmvn-online", *options, f"scp:{script}", "ark:-"))

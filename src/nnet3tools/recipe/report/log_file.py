"""Facts of one log file of a training directory: stage, time, numbers.

The files are those of Kaldi's scripts (`train.5.1.log`, `progress.5.log`, ...): run.pl or a similar
command writes the command and times, the programs write the lines between. A log may come from any
source and end anywhere, so lines in another form are skipped.
"""

from __future__ import annotations

import datetime
import functools
import os
import re
from collections.abc import Iterator

from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.io.checked import MISTAKES
from nnet3tools.recipe.report.network import NetworkFacts, number_or_none, read_network

_NAME = re.compile(r"(?P<stage>.+?)(?P<marks>(?:\.(?:\d{1,9}|final|combined))*)\.log")
_OVERALL = re.compile(
    r"Overall (average objective function|[\w-]{1,40}) for '([^']{1,200})' is "
    r"(\S{1,40}(?: \+ \S{1,40}){0,3})(?: = (\S{1,40}))?(?: per frame,)? over (\S{1,40})"
)
_PER_COMPONENT = re.compile(
    r"(Parameter differences|Relative parameter differences|Norms of parameter matrices)"
    r".{0,40}? are \[ ([^][]*) \]"
)
_MAX_CHANGE = re.compile(r"For (\S{1,200}), per-component max-change was enforced (\S+) % of")
_GLOBAL_MAX_CHANGE = re.compile(r"The global max-change was enforced (\S+) % of")
_LEARNING_RATE = re.compile(r"--learning-rate=(\S{1,40})")
_TIME = re.compile(r"Accounting: time=(\S{1,20})(?:.{0,80} seconds=(\S{1,20}))?")
_DROPOUT = re.compile(r"set-dropout-proportion name=(\S{1,200}) proportion=([^\s;'\"]{1,40})")
_STATUS = re.compile(r"# (?:Ended \(code (-?\d+)\)|Finished at .{1,60} with status (-?\d+))")
_INFO = (
    *("component ", "component-node ", "input-node ", "output-node ", "dim-range-node "),
    *("left-context: ", "right-context: ", "num-parameters: "),
)
_BEGIN = re.compile(rb"\n(?:#|%s)" % "|".join(_INFO).encode())
_WITHIN = (b"Overall ", b" max-change was enforced ", b" are [ ")
_NO_COMMAND = ("# Started at", "# Running on", "# Accounting", "# Ended", "# Finished")
_MAX_BYTES = 1 << 26


@dataclass
class LogFile:
    """The facts that a report needs from one log file.

    Numbers are by output in `objectives` and `accuracies`, by component in `max_changes`, by kind
    and component in `per_component`, and by pattern of component names in `dropout`.
    """

    stage: str
    """The file name without its numbers: "train", "compute_prob_valid", "get_egs"."""
    marks: tuple[str, ...] = ()
    """The numbers and words after the stage: ("5", "1"), ("final",)."""
    command: str = ""
    started: float | None = None
    """Seconds since 1970, by the clock of the machine that wrote the log."""
    seconds: float | None = None
    """Duration of the job; None if it has not ended."""
    is_timed_exactly: bool = False
    """Whether `seconds` is exact; Kaldi's run.pl writes whole seconds."""
    failed: bool = False
    learning_rate: float | None = None
    """The learning rate in the command."""
    dropout: dict[str, float] = field(default_factory=dict)
    """The dropout proportions in the command's edits."""
    num_frames: float = 0.0
    """The number of frames trained on."""
    global_max_change: float = 0.0
    """Percent of minibatches in which the global max-change was enforced."""
    objectives: dict[str, float] = field(default_factory=dict)
    """For each output, the objective per frame, including regularization terms."""
    plain_objectives: dict[str, float] = field(default_factory=dict)
    """For each output, the objective per frame without regularization terms."""
    accuracies: dict[str, float] = field(default_factory=dict)
    max_changes: dict[str, float] = field(default_factory=dict)
    """Percent of minibatches in which a component's max-change was enforced."""
    per_component: dict[str, dict[str, float]] = field(default_factory=dict)
    """"Parameter differences", "Relative ..." and "Norms ..." of nnet3-show-progress."""
    network: NetworkFacts | None = None
    """The network that nnet3-info printed."""

    @property
    def iteration(self) -> int | None:
        """The iteration, which is the first number in the file name; None if there is none."""
        return int(self.marks[0]) if self.marks and self.marks[0].isdigit() else None


def read_log(path: str) -> LogFile | None:
    """Read the facts of a log file; None if it is no log by its name, or cannot be read.

    An unchanged file is read only once per process, as a report follows every iteration.
    """
    try:
        status = os.stat(path)
        return _read(path, status.st_mtime_ns, status.st_size)
    except MISTAKES:
        return None


@functools.lru_cache(maxsize=1 << 15)
def _read(path: str, mtime: int, size: int) -> LogFile | None:
    if (match := _NAME.fullmatch(os.path.basename(path))) is None:
        return None
    marks = tuple(mark for mark in match["marks"].split(".") if mark)
    out = LogFile(match["stage"], marks)
    with open(path, "rb") as file:
        data = file.read(_MAX_BYTES)
    info = []
    for line in _lines_with_facts(data):
        if line.startswith(_INFO):
            info.append(line)
        else:
            _take_line(out, line)
    if info:
        out.network = read_network(info)
    if found := _LEARNING_RATE.search(out.command):
        out.learning_rate = number_or_none(found[1].rstrip("'\""))
    for pattern, text in _DROPOUT.findall(out.command):
        if (proportion := number_or_none(text)) is not None:
            out.dropout[pattern] = proportion
    return out


def _lines_with_facts(data: bytes) -> Iterator[str]:
    """Yield the lines of a log that may hold facts; 1 GB takes 3 s, taking all lines takes 13 s."""
    begins = {0, *(found.start() + 1 for found in _BEGIN.finditer(data))}
    for text in _WITHIN:
        at = data.find(text)
        while at >= 0:
            begins.add(data.rfind(b"\n", 0, at) + 1)
            at = data.find(text, (data.find(b"\n", at) + 1) or len(data))
    for begin in sorted(begins):
        end = data.find(b"\n", begin)
        yield data[begin : len(data) if end < 0 else end].decode("utf-8", "replace")


def _take_line(out: LogFile, line: str) -> None:
    if line.startswith("#"):
        _take_run_pl_line(out, line)
    elif "Overall " in line:
        _take_overall(out, line)
    elif " max-change was enforced " in line:
        _take_max_change(out, line)
    elif " are [ " in line and (found := _PER_COMPONENT.search(line)):
        out.per_component[found[1]] = dict(_pairs(found[2]))


def _take_run_pl_line(out: LogFile, line: str) -> None:
    """Parse a line that run.pl writes around a job; store time, status or command in `out`."""
    if line.startswith("# Started at "):
        out.started = _parse_date(line.removeprefix("# Started at "))
    elif found := _TIME.search(line):
        out.seconds = number_or_none(found[2] or found[1])
        out.is_timed_exactly = found[2] is not None
    elif found := _STATUS.match(line):
        out.failed = (found[1] or found[2]) != "0"
    elif not out.command and not line.startswith(_NO_COMMAND):
        out.command = line[1:].strip()


def _take_overall(out: LogFile, line: str) -> None:
    if (found := _OVERALL.search(line)) is None:
        return
    kind, name, value, total, frames = found.groups()
    if (number := number_or_none(total or value)) is None:
        return
    (out.accuracies if kind == "accuracy" else out.objectives)[name] = number
    plain = number_or_none(value.split()[0])
    if kind != "accuracy" and plain is not None:
        out.plain_objectives[name] = plain
    if kind.startswith("average"):
        out.num_frames += number_or_none(frames.rstrip(".")) or 0.0


def _take_max_change(out: LogFile, line: str) -> None:
    if found := _MAX_CHANGE.search(line):
        if (percent := number_or_none(found[2])) is not None:
            out.max_changes[found[1]] = percent
    elif found := _GLOBAL_MAX_CHANGE.search(line):
        out.global_max_change = number_or_none(found[1]) or 0.0


def _pairs(text: str) -> Iterator[tuple[str, float]]:
    """Yield the pairs (name, number) of a text `name:number name:number`."""
    for word in text.split():
        name, _, value = word.rpartition(":")
        if (number := number_or_none(value)) is not None:
            yield name, number


def _parse_date(text: str) -> float | None:
    """Seconds since 1970 of "Sun Nov 22 05:02:29 UTC 2026", zone ignored; None if malformed."""
    words = text.split()
    try:
        moment = datetime.datetime.strptime(" ".join([*words[1:4], words[-1]]), "%b %d %H:%M:%S %Y")
    except (ValueError, IndexError):
        return None
    return moment.replace(tzinfo=datetime.UTC).timestamp()

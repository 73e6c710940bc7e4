"""Faults of data: collected while data is read and checked, and reported in one list."""

from __future__ import annotations

import codecs
import enum

from nnet3tools.errors import DataError, quoted
from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.io import log
from nnet3tools.io.files import read_file


class Severity(enum.Enum):
    """The effect of a fault on the training; for example, an utterance is left out."""

    ERROR = "error"
    """Training does not start."""
    LEFT_OUT = "left out"
    """The utterance is left out."""
    WARNING = "warning"
    """The utterance is used."""
    NOTE = "note"
    """Information about all of the data."""


class Fault(enum.Enum):
    """The kinds of faults, each with severity, title, and the expected input."""

    MALFORMED = (Severity.ERROR, "malformed line", "the fields that the header or format names")
    NOT_UTF8 = (Severity.ERROR, "text that is not UTF-8", "UTF-8 (convert it with iconv)")
    DUPLICATE = (Severity.ERROR, "duplicate id", "one line for each utterance")
    MISSING_SOUND = (Severity.ERROR, "missing sound", "an existing sound file")
    UNREADABLE_SOUND = (Severity.ERROR, "unreadable sound", "WAV, FLAC, Ogg or MP3")
    EMPTY_SOUND = (Severity.ERROR, "empty sound", "at least one sample")
    BAD_SEGMENT = (Severity.ERROR, "wrong segment", "start and end within the recording")
    MOSTLY_UNKNOWN = (Severity.ERROR, "mostly unknown words", "transcripts in the lexicon's words")
    BAD_ARPA = (Severity.ERROR, "no language model", "a model in ARPA form")
    NO_UTTERANCES = (Severity.ERROR, "no utterances", "at least one that can be used")
    EMPTY_TRANSCRIPT = (Severity.LEFT_OUT, "empty transcript", "at least one word")
    NO_TRANSCRIPT = (Severity.LEFT_OUT, "sound without transcript", "a line in text")
    NO_SOUND = (Severity.LEFT_OUT, "transcript without sound", "a line in wav.scp or segments")
    SILENT = (Severity.LEFT_OUT, "silent sound", "a peak above -60 dB of full scale")
    TOO_SHORT = (Severity.LEFT_OUT, "too short for its words", "a longer sound, or fewer words")
    TOO_LONG = (Severity.LEFT_OUT, "too long", "a shorter utterance (cut it with a segments file)")
    UNKNOWN_WORD = (Severity.WARNING, "word not in the lexicon", "a pronunciation")
    CLIPPED = (Severity.WARNING, "clipped sound", "a lower recording level")
    LOW_RATE = (Severity.WARNING, "low sampling rate", "the rate of the training or more")
    RATES_DIFFER = (Severity.NOTE, "sampling rates differ", "all sound is resampled")
    CHANNELS = (Severity.NOTE, "several channels", "the first one is used, as nnet3-decode does")
    SPEAKERS_UNKNOWN = (Severity.NOTE, "speakers unknown", "each utterance counts as a speaker")
    LM_WORDS = (
        Severity.NOTE,
        "words of only one of lexicon and language model",
        "they cannot be recognized",
    )
    PUNCTUATION = (Severity.NOTE, "punctuation removed", "")
    COLUMNS = (Severity.NOTE, "columns used", "")

    def __init__(self, severity: Severity, title: str, expected: str) -> None:
        self.severity, self.title, self.expected = severity, title, expected


@dataclass(frozen=True)
class Finding:
    """A fault of a file, line or utterance: the place and the problem."""

    where: str
    found: str


@dataclass
class FaultList:
    """Collects the faults of a user's data; the report lists up to `most_shown` of each kind."""

    most_shown: int = 10
    findings: dict[Fault, list[Finding]] = field(default_factory=dict)

    def add(self, fault: Fault, where: str, found: str) -> None:
        """Record a fault at `where` (file, line or utterance), described by `found`."""
        self.findings.setdefault(fault, []).append(Finding(where, found))

    @property
    def num_errors(self) -> int:
        """The number of faults that stop the training."""
        return sum(len(f) for kind, f in self.findings.items() if kind.severity is Severity.ERROR)

    def lines(self) -> list[str]:
        """The lines of the report: kinds of faults in the order of `Fault`, each with examples."""
        return [line for fault in Fault if fault in self.findings for line in self._of(fault)]

    def _of(self, fault: Fault) -> list[str]:
        findings = self.findings[fault]
        head = f"{fault.severity.value}: {fault.title}"
        if fault.severity is Severity.NOTE:
            remark = f"; {fault.expected}" if fault.expected else ""
            return [f"{head}: {finding.where}: {finding.found}{remark}" for finding in findings]
        shown = [f"  {finding.where}: {finding.found}" for finding in findings[: self.most_shown]]
        if (more := len(findings) - len(shown)) > 0:
            shown.append(f"  and {more} more")
        return [f"{head} ({len(findings)}); expected {fault.expected}", *shown]

    def report(self) -> None:
        """Write the report to standard error; DataError if it contains errors."""
        for line in self.lines():
            log.write(line)
        if self.num_errors:
            errors = "an error" if self.num_errors == 1 else f"{self.num_errors} errors"
            raise DataError(f"the data has {errors}: see the list above")


def read_text(path: str, faults: FaultList) -> list[str]:
    """The lines of a UTF-8 file, without a byte order mark and without carriage returns.

    Lines that are not UTF-8, or have zero bytes, are added to `faults` and are blank in the result.
    DataError if the file cannot be read, or is UTF-16.
    """
    data = read_file(path).removeprefix(codecs.BOM_UTF8)
    if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) or b"\0" in data[:4]:
        raise DataError(f"'{path}' is UTF-16 or binary: expected UTF-8 (convert it with iconv)")
    lines = []
    for number, line in enumerate(data.split(b"\n"), start=1):
        text = line.decode("utf-8", "replace").rstrip("\r")
        if "\0" in text:
            faults.add(Fault.MALFORMED, f"{path}:{number}", "a zero byte")
        elif "\ufffd" in text and text.encode() not in (line, line.rstrip(b"\r")):
            faults.add(Fault.NOT_UTF8, f"{path}:{number}", quoted(text))
        else:
            lines.append(text)
            continue
        lines.append("")
    return lines

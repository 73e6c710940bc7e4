"""Kaldi's data directories: utterances, their split by speakers, and random subsets.

Splits and subsets equal those of Kaldi's split_scp.pl and shuffle_list.pl, for the same examples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from nnet3tools.errors import DataError, OptionError, quoted
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io.files import number_in, read_file
from nnet3tools.number_text import parse_double, parse_int

N = TypeVar("N", int, float)


def read_lines(path: Path) -> list[str]:
    """The lines of a text file; DataError if it cannot be read."""
    return read_file(path).decode("utf-8", "surrogateescape").splitlines()


def read_map(path: Path) -> dict[str, str]:
    """Read lines of two words, such as utt2spk: first word -> second; DataError for other lines."""
    found: dict[str, str] = {}
    for number, line in enumerate(read_lines(path), start=1):
        words = line.split()
        if len(words) != 2:
            raise DataError(f"{path}: line {number}: expected two words, found '{line[:60]}'")
        found[words[0]] = words[1]
    return found


def read_number_map(path: Path, parse: Callable[[str], N | None]) -> dict[str, N]:
    """Read a word and a number per line; DataError if `parse` returns None for a number."""
    found = {}
    for word, text in read_map(path).items():
        if (number := parse(text)) is None:
            raise DataError(f"{path}: expected a number after '{word}', found {quoted(text)}")
        found[word] = number
    return found


def amount_or_none(text: str) -> float | None:
    """The finite number of 0 or more that the text holds; None for other text."""
    value = parse_double(text)
    return value if value is not None and 0.0 <= value < math.inf else None


def number_of_jobs(folder: Path) -> int:
    """The number in the file num_jobs of a folder of alignments; DataError if it has none."""
    path = folder / "num_jobs"
    if not path.is_file():
        raise DataError(f"there is no '{path}' (the number N of the files *.1.gz to *.N.gz there)")
    return number_in(str(path))


def filter_lines(lines: Iterable[str], keep: Iterable[str]) -> list[str]:
    """The lines whose first word is in `keep`."""
    wanted = set(keep)
    return [line for line in lines if line.strip() and line.split(None, 1)[0] in wanted]


def perl_shuffled(items: list[str]) -> list[str]:
    """A copy of the list, shuffled like Kaldi's shuffle_list.pl, which uses Perl's rand()."""
    state = 0x330E
    keyed = []
    for item in items:
        state = (state * 0x5DEECE66D + 0xB) & ((1 << 48) - 1)
        keyed.append((format(state / (1 << 48), ".15g"), item))
    return [item for _, item in sorted(keyed, key=lambda pair: pair[0])]


def split_by_speaker(utt2spk: dict[str, str], num_parts: int) -> list[list[str]]:
    """Split utterances into `num_parts` lists of similar size, as split_scp.pl --utt2spk does."""
    of_speaker: dict[str, list[str]] = {}
    for utterance, speaker in utt2spk.items():
        of_speaker.setdefault(speaker, []).append(utterance)
    speakers = list(of_speaker)
    if len(speakers) < num_parts:
        raise OptionError(
            f"--egs.opts: --nj {num_parts} is more than the {len(speakers)} speakers of the data"
        )
    parts: list[list[str]] = [[] for _ in range(num_parts)]
    for i, speaker in enumerate(speakers):
        parts[i * num_parts // len(speakers)].append(speaker)
    _balance(parts, {speaker: len(utterances) for speaker, utterances in of_speaker.items()})
    return [[u for speaker in part for u in of_speaker[speaker]] for part in parts]


def _balance(parts: list[list[str]], sizes: dict[str, int]) -> None:
    """Move speakers between the parts, in place, until the parts have similar utterance counts.

    `sizes` has the number of utterances of each speaker.
    """
    counts = [sum(sizes[speaker] for speaker in part) for part in parts]
    changed = True
    while changed:
        changed = False
        for i, part in enumerate(parts):
            if i + 1 < len(parts) and part:
                size = sizes[part[-1]]
                gap = counts[i + 1] - counts[i]
                if abs(gap + 2 * size) < abs(gap):
                    parts[i + 1].insert(0, part.pop())
                    counts[i], counts[i + 1] = counts[i] - size, counts[i + 1] + size
                    changed = True
            if i > 0 and part:
                size = sizes[part[0]]
                gap = counts[i] - counts[i - 1]
                if abs(gap - 2 * size) < abs(gap):
                    parts[i - 1].append(part.pop(0))
                    counts[i - 1], counts[i] = counts[i - 1] + size, counts[i] - size
                    changed = True


@dataclass(frozen=True)
class DataDir:
    """A data directory: feats.scp, utt2spk, cmvn.scp and perhaps utt2uniq."""

    path: Path

    def file(self, name: str) -> Path:
        """The path of a file in the directory; DataError if it is missing."""
        path = self.path / name
        if not path.is_file():
            raise DataError(f"--feat-dir={self.path}: there is no file '{path}'")
        return path

    def lines(self, name: str) -> list[str]:
        """Read the lines of the file `name` in the directory."""
        return read_lines(self.file(name))

    def utt2spk(self) -> dict[str, str]:
        """The speaker of each utterance, in the order of the file utt2spk."""
        return read_map(self.file("utt2spk"))

    def held_out(
        self, num_valid: int, num_train: int, least: int | None = None
    ) -> tuple[list[str], list[str]]:
        """Choose `num_valid` utterances for validation and, for diagnostics, `num_train` others.

        With a file utt2uniq, all copies of a validation recording are in the first list. DataError
        if there are fewer than `least` utterances, by default 4 * `num_valid` + 1.
        """
        utterances = list(self.utt2spk())
        self._require_utterances(
            utterances, num_valid, 4 * num_valid + 1 if least is None else least
        )
        valid = perl_shuffled(utterances)[:num_valid]
        if (self.path / "utt2uniq").is_file():
            valid = self._with_variants(valid)
        held = set(valid)
        others = [utterance for utterance in utterances if utterance not in held]
        return sorted(valid), sorted(perl_shuffled(others)[:num_train])

    def held_out_recordings(self, count: int) -> tuple[list[str], list[str]]:
        """Choose `count` validation and `count` training utterances, as chain/get_egs.sh does.

        With utt2uniq, no recording has copies in both sets. DataError for too few utterances.
        """
        utterances = list(self.utt2spk())
        self._require_utterances(utterances, count, 2 * count)
        if not (self.path / "utt2uniq").is_file():
            return self.held_out(count, count, least=0)
        variants: dict[str, list[str]] = {}
        for utterance, recording in read_map(self.path / "utt2uniq").items():
            variants.setdefault(recording, []).append(utterance)
        valid: list[str] = []
        for line in perl_shuffled(
            [f"{name} {' '.join(found)}" for name, found in variants.items()]
        ):
            valid += line.split()[1:]
            if len(valid) >= count:
                break
        held = set(valid)
        others = [utterance for utterance in utterances if utterance not in held]
        self._require_utterances(others, count, count)
        return sorted(valid), sorted(perl_shuffled(others)[:count])

    def _require_utterances(self, found: list[str], count: int, least: int) -> None:
        if len(found) < least:
            raise DataError(
                f"{self.path}: {len(found)} utterances are too few for subsets of {count}: "
                f"expected at least {least}, or fewer by --egs.opts='--num-utts-subset N'"
            )

    def _with_variants(self, chosen: list[str]) -> list[str]:
        unique = read_map(self.path / "utt2uniq")
        if missing := [utterance for utterance in chosen if utterance not in unique]:
            raise DataError(f"{self.path / 'utt2uniq'}: no line for utterance '{missing[0]}'")
        wanted = {unique[utterance] for utterance in chosen}
        return [utterance for utterance, recording in unique.items() if recording in wanted]

    def num_frames(self) -> int:
        """The number of frames: from utt2dur and frame_shift, else utt2num_frames, else counted."""
        durations, shift = self.path / "utt2dur", self.path / "frame_shift"
        if durations.is_file() and shift.is_file():
            total = sum(read_number_map(durations, amount_or_none).values())
            if not (seconds := amount_or_none(" ".join(read_lines(shift)))):
                raise DataError(f"{shift}: expected the seconds between frames")
            return round(total / seconds)
        lengths = self.path / "utt2num_frames"
        if lengths.is_file():
            return sum(read_number_map(lengths, parse_int).values())
        return _count_frames(self.file("feats.scp"))

    def feature_dim(self) -> int:
        """The number of columns of the features."""
        return first_matrix_dim(self.file("feats.scp"))


def first_matrix_dim(script: Path) -> int:
    """The number of columns of a script file's first matrix; DataError if there is none."""
    from nnet3tools.io.holders import GENERAL_MATRIX
    from nnet3tools.io.table import SequentialTableReader

    with SequentialTableReader(f"scp:{script}", GENERAL_MATRIX) as matrices:
        for _, matrix in matrices:
            return matrix.shape[1]
    raise DataError(f"{script}: expected at least one matrix")


def _count_frames(script: Path) -> int:
    from nnet3tools.io.holders import GENERAL_MATRIX
    from nnet3tools.io.table import SequentialTableReader

    with SequentialTableReader(f"scp:{script}", GENERAL_MATRIX) as matrices:
        return sum(matrix.shape[0] for _, matrix in matrices)

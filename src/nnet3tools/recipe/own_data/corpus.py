"""The user's data: a Kaldi data directory with sound, or a manifest of sound files."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator

from nnet3tools.errors import DataError, quoted
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.features.segments import parse_segment
from nnet3tools.io.checked import exists
from nnet3tools.io.files import split_offset
from nnet3tools.recipe.own_data.faults import Fault, FaultList, read_text
from nnet3tools.recipe.own_data.manifest import MANIFEST_KINDS, read_manifest
from nnet3tools.recipe.own_data.recordings import SoundSource, Utterance

_KALDI_FILES = ("wav.scp", "segments", "text", "utt2spk")


@dataclass(frozen=True)
class Corpus:
    """All utterances of a user's data, sorted by id, and the text files that it may consist of."""

    name: str
    utterances: tuple[Utterance, ...]
    files: tuple[str, ...]
    has_speakers: bool
    """Whether the data names its speakers; otherwise each utterance is its own speaker."""


def read_corpus(data: str, faults: FaultList, base: str = "") -> Corpus:
    """Read a Kaldi data directory, or a TSV, CSV or JSON-lines manifest of sound files.

    `data` may also be a folder with one manifest. Faults of single lines are added to `faults`, and
    their utterances are left out. Relative names and pipes in wav.scp start from the folder `base`,
    by default the current one. DataError if `data` cannot be read at all.
    """
    if not exists(data):
        raise DataError(f"'{data}' does not exist: expected a Kaldi data directory or a manifest")
    if exists(os.path.join(data, "wav.scp")):
        found = _read_kaldi_data(data, faults, os.path.abspath(base))
        files = tuple(os.path.join(data, name) for name in _KALDI_FILES)
    else:
        files = (_manifest_of(data),)
        found = read_manifest(files[0], faults)
    utterances = tuple(sorted(found, key=lambda utterance: utterance.name))
    has_speakers = any(utterance.speaker != utterance.name for utterance in utterances)
    if utterances and not has_speakers:
        faults.add(Fault.SPEAKERS_UNKNOWN, data, f"{len(utterances)} utterances without speaker")
    return Corpus(data, utterances, files, has_speakers)


def _manifest_of(data: str) -> str:
    """The path `data` if it is a file, else the only manifest in the folder; or DataError."""
    if not os.path.isdir(data):
        return data
    found = sorted(name for name in os.listdir(data) if name.lower().endswith(MANIFEST_KINDS))
    if len(found) != 1:
        names = ", ".join(f"'{name}'" for name in found[:10])
        raise DataError(
            f"'{data}': expected wav.scp and text (a Kaldi data directory) or one manifest "
            f"({', '.join(MANIFEST_KINDS)}), found {names or 'neither'}"
        )
    return os.path.join(data, found[0])


# -- Kaldi data directories


def _read_kaldi_data(folder: str, faults: FaultList, base: str) -> list[Utterance]:
    """Read a Kaldi data directory; wrong lines are reported in `faults` and skipped.

    Relative names in wav.scp start from the folder `base`.
    """
    recordings = {
        key: SoundSource(_resolved(rest, base, folder), from_wav_scp=True)
        for key, rest, _ in _lines(folder, "wav.scp", faults)
    }
    sounds = _segments(folder, recordings, faults)
    speakers = {}
    for key, rest, place in _lines(folder, "utt2spk", faults, is_optional=True):
        if len(rest.split()) == 1:
            speakers[key] = rest
        else:
            faults.add(Fault.MALFORMED, place, f"{quoted(rest, 40)} as a speaker")
    utterances = []
    for key, text, place in _lines(folder, "text", faults, has_values=False):
        if (sound := sounds.pop(key, None)) is None:
            faults.add(Fault.NO_SOUND, place, f"'{key}'")
            continue
        utterances.append(Utterance(key, speakers.get(key, key), tuple(text.split()), sound, place))
    for key in sounds:
        faults.add(Fault.NO_TRANSCRIPT, os.path.join(folder, "text"), f"no line for '{key}'")
    return utterances


def _segments(
    folder: str, recordings: dict[str, SoundSource], faults: FaultList
) -> dict[str, SoundSource]:
    """The sound by utterance: the parts in the file segments or, without it, `recordings`."""
    if not exists(os.path.join(folder, "segments")):
        return recordings
    sounds = {}
    for key, rest, place in _lines(folder, "segments", faults):
        try:
            segment = parse_segment(f"{key} {rest}")
        except DataError as error:
            faults.add(Fault.MALFORMED, place, str(error))
            continue
        if (recording := recordings.get(segment.recording)) is None:
            found = f"recording '{segment.recording}' is not in wav.scp"
            faults.add(Fault.BAD_SEGMENT, place, found)
            continue
        channel = max(segment.channel, 0)
        sounds[key] = SoundSource(recording.name, True, segment.start, segment.end, channel)
    return sounds


def _lines(
    folder: str, name: str, faults: FaultList, is_optional: bool = False, has_values: bool = True
) -> Iterator[tuple[str, str, str]]:
    """Yield (key, rest of the line, "FILE:LINE") of each line; repeated keys are faults.

    A file with `is_optional` may be missing. With `has_values`, a line without rest is a fault.
    """
    path = os.path.join(folder, name)
    if is_optional and not exists(path):
        return
    seen: dict[str, int] = {}
    for number, line in enumerate(read_text(path, faults), start=1):
        place = f"{path}:{number}"
        key, _, rest = line.strip().replace("\t", " ").partition(" ")
        if not key:
            continue
        if has_values and not rest:
            faults.add(Fault.MALFORMED, place, f"{quoted(key, 40)} and nothing else")
        elif key in seen:
            faults.add(Fault.DUPLICATE, place, f"'{key}', as in line {seen[key]}")
        else:
            seen[key] = number
            yield key, rest.strip(), place


def _resolved(name: str, base: str, folder: str) -> str:
    """A path or pipe of wav.scp, relative to `base`; relative to `folder` if only that exists."""
    if name.endswith("|"):
        return f"cd {shlex.quote(base)} && {name}"
    path, beside = os.path.join(base, name), os.path.join(os.path.abspath(folder), name)
    is_beside = not exists(split_offset(path)[0]) and exists(beside)
    return beside if is_beside else path

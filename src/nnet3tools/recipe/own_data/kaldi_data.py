"""Kaldi data directories with sound: wav.scp, segments, text and utt2spk."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator

from nnet3tools.errors import DataError, quoted
from nnet3tools.features.segments import parse_segment
from nnet3tools.io.files import split_offset
from nnet3tools.recipe.own_data.faults import Fault, FaultList
from nnet3tools.recipe.own_data.utterances import SoundSource, Utterance


def read_kaldi_data(folder: str, faults: FaultList, base: str) -> list[Utterance]:
    """Read a data directory; wrong lines are added to `faults` and left out.

    Relative names and pipes in wav.scp start from the folder `base`. DataError if wav.scp or text
    is missing.
    """
    recordings = {
        key: SoundSource(_resolved(rest, base, folder), from_wav_scp=True)
        for key, rest, _ in _lines(folder, "wav.scp", faults)
    }
    sounds = _segments(folder, recordings, faults)
    speakers = {}
    if os.path.exists(os.path.join(folder, "utt2spk")):
        for key, rest, place in _lines(folder, "utt2spk", faults):
            if len(rest.split()) != 1:
                faults.add(Fault.MALFORMED, place, f"{quoted(rest, 40) or 'nothing'} as a speaker")
            else:
                speakers[key] = rest
    utterances = []
    for key, text, place in _lines(folder, "text", faults, may_be_empty=True):
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
    """The sounds by utterance: the recordings, or their parts if there is a file segments."""
    if not os.path.exists(os.path.join(folder, "segments")):
        return recordings
    sounds = {}
    for key, rest, place in _lines(folder, "segments", faults):
        try:
            segment = parse_segment(f"{key} {rest}")
        except DataError as error:
            faults.add(Fault.MALFORMED, place, str(error))
            continue
        if (recording := recordings.get(segment.recording)) is None:
            faults.add(
                Fault.BAD_SEGMENT, place, f"recording '{segment.recording}' is not in wav.scp"
            )
            continue
        channel = max(segment.channel, 0)
        sounds[key] = SoundSource(recording.name, True, segment.start, segment.end, channel)
    return sounds


def _lines(
    folder: str, name: str, faults: FaultList, may_be_empty: bool = False
) -> Iterator[tuple[str, str, str]]:
    """Yield key, rest of the line, and place of each line; keys are different words."""
    path = os.path.join(folder, name)
    try:
        with open(path, "rb") as file:
            lines = (
                file.read().decode("utf-8", "surrogateescape").removeprefix("\ufeff").split("\n")
            )
    except OSError as error:
        raise DataError(f"cannot read '{path}': {error.strerror}") from None
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        place = f"{path}:{number}"
        key, *rest = line.split(maxsplit=1)[:2] or [""]
        if not key:
            continue
        if any("\ud800" <= char <= "\udfff" for char in line):
            faults.add(Fault.NOT_UTF8, place, quoted(line.encode("utf-8", "replace").decode()))
        elif "\0" in line or not (rest or may_be_empty):
            faults.add(Fault.MALFORMED, place, quoted(line.strip(), 40))
        elif key in seen:
            faults.add(Fault.DUPLICATE, place, f"'{key}', as in line {seen[key]}")
        else:
            seen[key] = number
            yield key, "".join(rest).strip(), place


def _resolved(name: str, base: str, folder: str) -> str:
    """A name in wav.scp: relative to `base` as in Kaldi, or else to the data directory `folder`."""
    if name.endswith("|"):
        return f"cd {shlex.quote(base)} && {name}"
    path, beside = os.path.join(base, name), os.path.join(os.path.abspath(folder), name)
    is_beside = not os.path.exists(split_offset(path)[0]) and os.path.exists(beside)
    return beside if is_beside else path

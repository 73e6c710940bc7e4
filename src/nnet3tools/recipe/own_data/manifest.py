"""Manifests: tables of sound files and transcripts in TSV, CSV or JSON lines."""

from __future__ import annotations

import csv
import json
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

from nnet3tools.errors import DataError, quoted
from nnet3tools.fast_dataclasses import replace
from nnet3tools.io.checked import exists
from nnet3tools.number_text import parse_double
from nnet3tools.recipe.own_data.faults import Fault, FaultList, read_text
from nnet3tools.recipe.own_data.recordings import SoundSource, Utterance

MANIFEST_KINDS = (".tsv", ".csv", ".jsonl", ".ndjson", ".json")
COLUMN_NAMES = {
    "sound": (
        *("path", "audio", "audio_filepath", "file_name", "file", "filename", "audio_path"),
        *("audio_file", "wav", "wav_filename", "sound"),
    ),
    "text": ("text", "sentence", "transcript", "transcription"),
    "speaker": ("speaker", "speaker_id", "client_id", "spk", "spk_id"),
    "id": ("id", "utterance", "utterance_id", "utt_id", "utt", "key"),
    "start": ("start", "offset"),
    "end": ("end",),
    "duration": ("duration",),
}
"""Names of columns for each field, the preferred ones first: Common Voice's, Hugging Face's, NeMo's
and other usual ones. Capital letters do not matter."""
_LONGEST_SPEAKER = 32
_FOLDERS = ("", "clips", "wavs", "audio")
"""Subfolders of the manifest's folder in which sound files are looked for."""


Fields = dict[str, str]
"""The fields of a line as text, with the keys of `COLUMN_NAMES`; absent ones are missing."""


class _BadLineError(Exception):
    """Error: a manifest line cannot be used; has the kind of fault and a description."""

    def __init__(self, fault: Fault, found: str) -> None:
        super().__init__(found)
        self.fault, self.found = fault, found


def read_manifest(path: str, faults: FaultList) -> list[Utterance]:
    """Read a manifest; wrong lines are reported in `faults` and skipped."""
    if not path.lower().endswith(MANIFEST_KINDS):
        kinds = ", ".join(MANIFEST_KINDS)
        raise DataError(f"'{path}': expected a Kaldi data directory or a manifest ({kinds})")
    lines = read_text(path, faults)
    is_table = path.lower().endswith((".tsv", ".csv"))
    rows: list[tuple[int, Fields]] = []
    used: dict[str, str] = {}
    for number, values in (_table if is_table else _objects)(path, lines, faults):
        columns = _columns(values)
        try:
            fields = {field: _as_text(name, values[name]) for field, name in columns.items()}
        except _BadLineError as bad:
            faults.add(bad.fault, f"{path}:{number}", bad.found)
            continue
        rows.append((number, fields))
        used = columns | used
    if used:
        shown = ", ".join(f"{field}: '{used[field]}'" for field in COLUMN_NAMES if field in used)
        faults.add(Fault.COLUMNS, path, shown)
    return _utterances(path, rows, faults)


def _columns(names: Container[str]) -> dict[str, str]:
    """Map known fields, such as "text", to their columns among `names` (header or JSON keys)."""
    found = {
        field: next((n for n in known if n in names), "") for field, known in COLUMN_NAMES.items()
    }
    return {field: name for field, name in found.items() if name}


def _table(path: str, lines: list[str], faults: FaultList) -> Iterator[tuple[int, Fields]]:
    """Yield (line number, fields) of each row of a TSV or CSV file; wrong rows go to `faults`."""
    is_tsv = path.lower().endswith(".tsv")
    # Common Voice's TSV files have quotation marks as they are.
    rows = csv.reader(
        (f"{line}\n" for line in lines),
        delimiter="\t" if is_tsv else max(",;\t", key=lines[0].count),
        quoting=csv.QUOTE_NONE if is_tsv else csv.QUOTE_MINIMAL,
        strict=True,
    )
    header = [name.strip().lower() for name in next(rows, [])]
    columns = _columns(header)
    for field in ("sound", "text"):
        if field not in columns:
            names = ", ".join(COLUMN_NAMES[field])
            raise DataError(
                f"{path}:1: expected a header with a column for the {field} ({names}), found "
                f"{quoted(lines[0].strip(), 100) or 'nothing'}"
            )
    if twice := [name for name, count in Counter(header).items() if name and count > 1]:
        raise DataError(f"{path}:1: expected different columns, found '{twice[0]}' twice")
    while True:
        number = rows.line_num + 1
        try:
            values = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            faults.add(Fault.MALFORMED, f"{path}:{number}", str(error))
            continue
        if len(values) == len(header):
            yield number, dict(zip(header, values, strict=True))
        elif values:
            found = f"{len(values)} fields, the header has {len(header)}"
            faults.add(Fault.MALFORMED, f"{path}:{number}", found)


def _objects(
    path: str, lines: list[str], faults: FaultList
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, fields) of each line, a JSON object; wrong lines go to `faults`."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            faults.add(Fault.MALFORMED, f"{path}:{number}", f"no JSON: {str(error)[:80]}")
            continue
        if isinstance(values, dict):
            yield number, {key.lower(): value for key, value in values.items()}
        else:
            found = f"{quoted(line.strip(), 40)}, not an object {{...}}"
            faults.add(Fault.MALFORMED, f"{path}:{number}", found)


def _as_text(key: str, value: Any) -> str:
    """Convert the JSON value of `key` to text; Hugging Face's {"path": ...} becomes the path."""
    if isinstance(value, dict):
        value = value.get("path")
    text = "" if value is None else str(value)
    if isinstance(value, list | bool):
        raise _BadLineError(Fault.MALFORMED, f"{text:.40} as '{key}'")
    if "\0" in text:
        raise _BadLineError(Fault.MALFORMED, "a zero byte")
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise _BadLineError(Fault.NOT_UTF8, quoted(text.encode("utf-8", "replace").decode()))
    return text


def _utterances(path: str, rows: list[tuple[int, Fields]], faults: FaultList) -> list[Utterance]:
    """Convert rows, (line number, fields), to utterances; wrong or repeated rows go to `faults`.

    A row is repeated if an earlier one has the same speaker and id or, without an id, sound.
    """
    stems = _stems([fields.get("sound", "") for _, fields in rows])
    speakers = _short_names(fields.get("speaker", "") for _, fields in rows)
    found: dict[str, Utterance] = {}
    lines: dict[tuple[str, SoundSource | str], int] = {}
    numbers: Counter[str] = Counter()
    for (number, fields), stem in zip(rows, stems, strict=True):
        place = f"{path}:{number}"
        try:
            utterance = _utterance(fields, stem, speakers, place)
            identity = utterance.speaker, fields.get("id", "").strip() or utterance.sound
            if (line := lines.setdefault(identity, number)) != number:
                raise _BadLineError(Fault.DUPLICATE, f"'{utterance.name}', as in line {line}")
            name = utterance.name
            while utterance.name in found:  # other characters of the ids have become the same ones
                numbers[name] += 1
                utterance = replace(utterance, name=f"{name}-{numbers[name] + 1}")
            found[utterance.name] = utterance
        except _BadLineError as bad:
            faults.add(bad.fault, place, bad.found)
    return list(found.values())


def _utterance(fields: Fields, stem: str, speakers: Mapping[str, str], place: str) -> Utterance:
    """Convert the fields of a row to an utterance.

    `stem` is the id that its sound's name gives, `speakers` maps speakers' names to table keys, and
    `place` is the file and line for messages.
    """
    fields = dict.fromkeys(COLUMN_NAMES, "") | fields
    if not fields["sound"].strip():
        raise _BadLineError(Fault.MALFORMED, "no sound file")
    start, end = _seconds(fields["start"], 0.0), _seconds(fields["end"], -1.0)
    if not fields["end"] and fields["start"] and fields["duration"]:
        end = start + _seconds(fields["duration"], 0.0)
    if not 0.0 <= start < (end if end >= 0.0 else start + 1.0):
        raise _BadLineError(Fault.BAD_SEGMENT, f"from {start:g} s to {end:g} s")
    is_part = start > 0.0 or end >= 0.0
    times = f"-{round(start * 100):06}-{round(max(end, 0) * 100):06}" if is_part else ""
    name = _as_key(fields["id"]) if fields["id"].strip() else stem + times
    speaker = speakers[fields["speaker"]] if fields["speaker"].strip() else name
    if not name.startswith(speaker):
        name = f"{speaker}-{name}"  # as Kaldi wants it: sorted by utterance is sorted by speaker
    folder = os.path.dirname(place.rpartition(":")[0])
    sound = SoundSource(_resolved(fields["sound"], folder), False, start, end)
    return Utterance(name, speaker, tuple(fields["text"].split()), sound, place)


def _seconds(text: str, default: float) -> float:
    if not text.strip():
        return default
    if (value := parse_double(text)) is None or not 0.0 <= value < 1e6:
        raise _BadLineError(Fault.MALFORMED, f"{quoted(text)} as a time in seconds")
    return value


def _resolved(sound: str, folder: str) -> str:
    """The path of a sound file named in a manifest; relative names start from `folder`."""
    paths = [os.path.join(folder, part, sound) for part in _FOLDERS]
    return next((path for path in paths if exists(path)), paths[0])


def _stems(sounds: list[str]) -> list[str]:
    """Utterance names from paths: without folders, unless names would be equal."""
    names = [os.path.splitext(os.path.basename(sound))[0] for sound in sounds]
    paths = {name: sound for name, sound in zip(names, sounds, strict=True)}
    if any(paths[name] != sound for name, sound in zip(names, sounds, strict=True)):
        names = [os.path.splitext(os.path.normpath(sound))[0].lstrip("/.") for sound in sounds]
    return [_as_key(name) for name in names]


def _as_key(text: str) -> str:
    """Make a key of Kaldi's tables: characters but letters, digits, _, . and - become _."""
    return re.sub(r"[^\w.-]+", "_", unicodedata.normalize("NFC", text)).lstrip("-") or "_"


def _short_names(names: Iterable[str]) -> dict[str, str]:
    """A unique short key of Kaldi's tables for each name; long names are cut."""
    found: dict[str, str] = {}
    taken: Counter[str] = Counter()
    for name in sorted(set(names)):
        short = key = _as_key(name)[:_LONGEST_SPEAKER]
        while key in taken:
            taken[short] += 1
            key = f"{short}-{taken[short]}"
        taken[key] = 1
        found[name] = key
    return found

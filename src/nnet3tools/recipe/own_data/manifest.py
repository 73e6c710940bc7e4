"""Manifests: tables of sound files and transcripts in TSV, CSV or JSON lines."""

from __future__ import annotations

import csv
import io
import json
import os
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from nnet3tools.errors import DataError, quoted
from nnet3tools.recipe.own_data.faults import Fault, FaultList
from nnet3tools.recipe.own_data.utterances import SoundSource, Utterance, as_key, short_names

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
_FOLDERS = ("", "clips", "wavs", "audio")
"""Subfolders of the manifest's folder in which sound files are looked for."""


@dataclass(frozen=True)
class _Row:
    """The fields of a line, as text, with the keys of `COLUMN_NAMES`; absent fields are missing."""

    number: int
    fields: dict[str, str]


class _BadLineError(Exception):
    """A line that is left out: the kind of fault, and what was found."""

    def __init__(self, fault: Fault, found: str) -> None:
        super().__init__(found)
        self.fault, self.found = fault, found


def read_manifest(path: str, faults: FaultList) -> list[Utterance]:
    """Read a manifest; wrong lines are added to `faults` and left out.

    DataError if the file cannot be read, or if its header lacks the sound or the text.
    """
    if not path.lower().endswith(MANIFEST_KINDS):
        kinds = ", ".join(MANIFEST_KINDS)
        raise DataError(f"'{path}': expected a Kaldi data directory or a manifest ({kinds})")
    try:
        with open(path, "rb") as file:
            text = file.read().decode("utf-8-sig", "surrogateescape")
    except OSError as error:
        raise DataError(f"cannot read '{path}': {error.strerror}") from None
    if text[:2] in ("\udcff\udcfe", "\udcfe\udcff") or "\0" in text[:4]:
        raise DataError(f"'{path}' is UTF-16 or binary: expected UTF-8 (convert it with iconv)")
    columns: dict[str, str] = {}
    is_table = path.lower().endswith((".tsv", ".csv"))
    read_rows = _table_rows if is_table else _json_rows
    rows = list(read_rows(path, text, columns, faults))
    if rows:
        used = ", ".join(f"{field}: '{name}'" for field, name in columns.items())
        faults.add(Fault.COLUMNS, path, used)
    return _utterances(path, rows, faults)


def _columns(names: Container[str]) -> dict[str, str]:
    """The columns of the fields among the names of a header or of a JSON object."""
    found = {
        field: next((n for n in known if n in names), "") for field, known in COLUMN_NAMES.items()
    }
    return {field: name for field, name in found.items() if name}


def _table_rows(path: str, text: str, columns: dict[str, str], faults: FaultList) -> Iterator[_Row]:
    """Yield the rows of a TSV file, or of a CSV file with commas, semicolons or tabs.

    The columns that are used are added to `columns`.
    """
    head = text.split("\n", 1)[0]
    is_tsv = path.lower().endswith(".tsv")
    delimiter = "\t" if is_tsv else max(",;\t", key=head.count)
    # Common Voice's TSV files have quotation marks as they are.
    lines = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=delimiter,
        quoting=csv.QUOTE_NONE if is_tsv else csv.QUOTE_MINIMAL,
        strict=True,
    )
    header = [name.strip().lower() for name in next(lines, [])]
    columns |= _columns(header)
    for field in ("sound", "text"):
        if field not in columns:
            names = ", ".join(COLUMN_NAMES[field])
            raise DataError(
                f"{path}:1: expected a header with a column for the {field} ({names}), found "
                f"{quoted(head.strip(), 100) or 'nothing'}"
            )
    if twice := [name for name, count in Counter(header).items() if name and count > 1]:
        raise DataError(f"{path}:1: expected different columns, found '{twice[0]}' twice")
    places = {field: header.index(name) for field, name in columns.items()}
    while True:
        number = lines.line_num + 1
        try:
            values = next(lines)
        except StopIteration:
            return
        except csv.Error as error:
            faults.add(Fault.MALFORMED, f"{path}:{number}", str(error))
            continue
        if len(values) == len(header):
            yield _Row(number, {f: values[place] for f, place in places.items()})
        elif values:
            found = f"{len(values)} fields, the header has {len(header)}"
            faults.add(Fault.MALFORMED, f"{path}:{number}", found)


def _json_rows(path: str, text: str, columns: dict[str, str], faults: FaultList) -> Iterator[_Row]:
    """Yield the objects of a file with one JSON object in each line; adds to `columns`."""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
            if not isinstance(values, dict):
                raise _BadLineError(
                    Fault.MALFORMED, f"{quoted(line.strip(), 40)}, not an object {{...}}"
                )
            values = {key.lower(): value for key, value in values.items()}
            used = _columns(values)
            yield _Row(
                number, {field: _as_text(name, values[name]) for field, name in used.items()}
            )
            columns |= {field: name for field, name in used.items() if field not in columns}
        except _BadLineError as bad:
            faults.add(bad.fault, f"{path}:{number}", bad.found)
        except (ValueError, RecursionError) as error:
            faults.add(Fault.MALFORMED, f"{path}:{number}", f"no JSON: {str(error)[:80]}")


def _as_text(key: str, value: Any) -> str:
    """A JSON value as text; Hugging Face's {"path": ...} is its path."""
    if isinstance(value, dict):
        value = value.get("path")
    if isinstance(value, list | bool):
        raise _BadLineError(Fault.MALFORMED, f"{value!r:.40} as '{key}'")
    return "" if value is None else str(value)


def _utterances(path: str, rows: list[_Row], faults: FaultList) -> list[Utterance]:
    """The utterances of rows; each needs an id of its own, or a sound or part of its own."""
    stems = _stems([row.fields.get("sound", "") for row in rows])
    speakers = short_names(row.fields.get("speaker", "") for row in rows)
    found: dict[str, Utterance] = {}
    lines: dict[tuple[str, SoundSource | str], int] = {}
    numbers: Counter[str] = Counter()
    for row, stem in zip(rows, stems, strict=True):
        place = f"{path}:{row.number}"
        try:
            utterance = _utterance(row, stem, speakers, os.path.dirname(path), place)
            identity = utterance.speaker, row.fields.get("id", "").strip() or utterance.sound
            if (line := lines.setdefault(identity, row.number)) != row.number:
                raise _BadLineError(Fault.DUPLICATE, f"'{utterance.name}', as in line {line}")
            name = utterance.name
            while utterance.name in found:  # other characters of the ids have become the same ones
                numbers[name] += 1
                utterance = replace(utterance, name=f"{name}-{numbers[name] + 1}")
            found[utterance.name] = utterance
        except _BadLineError as bad:
            faults.add(bad.fault, place, bad.found)
    return list(found.values())


def _utterance(
    row: _Row, stem: str, speakers: Mapping[str, str], folder: str, place: str
) -> Utterance:
    """The utterance of a row; `stem` is the name of its sound, `folder` that of the manifest."""
    fields = {field: row.fields.get(field, "") for field in COLUMN_NAMES}
    for value in fields.values():
        if "\0" in value:
            raise _BadLineError(Fault.MALFORMED, "a zero byte")
        if any("\ud800" <= char <= "\udfff" for char in value):
            raise _BadLineError(Fault.NOT_UTF8, quoted(value.encode("utf-8", "replace").decode()))
    if not fields["sound"].strip():
        raise _BadLineError(Fault.MALFORMED, "no sound file")
    start, end = _seconds(fields["start"], 0.0), _seconds(fields["end"], -1.0)
    if not fields["end"] and fields["start"] and fields["duration"]:
        end = start + _seconds(fields["duration"], 0.0)
    if not 0.0 <= start < (end if end >= 0.0 else start + 1.0):
        raise _BadLineError(Fault.BAD_SEGMENT, f"from {start:g} s to {end:g} s")
    is_part = start > 0.0 or end >= 0.0
    times = f"-{round(start * 100):06}-{round(max(end, 0) * 100):06}" if is_part else ""
    name = as_key(fields["id"]) if fields["id"].strip() else stem + times
    speaker = speakers[fields["speaker"]] if fields["speaker"].strip() else name
    if not name.startswith(speaker):
        name = f"{speaker}-{name}"  # as Kaldi wants it: sorted by utterance is sorted by speaker
    sound = SoundSource(_resolved(fields["sound"], folder), False, start, end)
    return Utterance(name, speaker, tuple(fields["text"].split()), sound, place)


def _seconds(text: str, default: float) -> float:
    if not text.strip():
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0.0 <= value < 1e6:
        raise _BadLineError(Fault.MALFORMED, f"{quoted(text)} as a time in seconds")
    return value


def _resolved(sound: str, folder: str) -> str:
    """The path of a sound file that a manifest in `folder` names."""
    paths = [os.path.join(folder, part, sound) for part in _FOLDERS]
    return next((path for path in paths if os.path.exists(path)), paths[0])


def _stems(sounds: list[str]) -> list[str]:
    """Names of utterances from paths: without folders if the paths then still differ."""
    names = [os.path.splitext(os.path.basename(sound))[0] for sound in sounds]
    paths = {name: sound for name, sound in zip(names, sounds, strict=True)}
    if any(paths[name] != sound for name, sound in zip(names, sounds, strict=True)):
        names = [os.path.splitext(os.path.normpath(sound))[0].lstrip("/.") for sound in sounds]
    return [as_key(name) for name in names]

"""The user's data: a Kaldi data directory, or a manifest of sound files."""

from __future__ import annotations

import os
from dataclasses import dataclass

from nnet3tools.errors import DataError
from nnet3tools.recipe.own_data.faults import Fault, FaultList
from nnet3tools.recipe.own_data.kaldi_data import KALDI_FILES, read_kaldi_data
from nnet3tools.recipe.own_data.manifest import MANIFEST_KINDS, read_manifest
from nnet3tools.recipe.own_data.utterances import Utterance


@dataclass(frozen=True)
class Corpus:
    """The utterances of some data, sorted by id."""

    name: str
    utterances: tuple[Utterance, ...]
    files: tuple[str, ...]
    """The text files that the data was read from; optional ones may be missing."""
    has_speakers: bool
    """Whether the data names its speakers; otherwise each utterance is its own speaker."""


def read_corpus(data: str, faults: FaultList, base: str = "") -> Corpus:
    """Read a Kaldi data directory, or a TSV, CSV or JSON-lines manifest of sound files.

    `data` may also be a folder with one manifest. Faults of single lines are added to `faults`, and
    their utterances are left out. Relative names and pipes in wav.scp start from the folder `base`,
    by default the current one. DataError if `data` cannot be read at all.
    """
    if not os.path.exists(data):
        raise DataError(f"'{data}' does not exist: expected a Kaldi data directory or a manifest")
    if os.path.isfile(os.path.join(data, "wav.scp")):
        found = read_kaldi_data(data, faults, os.path.abspath(base))
        files = tuple(os.path.join(data, name) for name in KALDI_FILES)
    else:
        files = (_manifest_of(data),)
        found = read_manifest(files[0], faults)
    utterances = tuple(sorted(found, key=lambda utterance: utterance.name))
    has_speakers = any(utterance.speaker != utterance.name for utterance in utterances)
    if utterances and not has_speakers:
        faults.add(Fault.SPEAKERS_UNKNOWN, data, f"{len(utterances)} utterances without speaker")
    return Corpus(data, utterances, files, has_speakers)


def _manifest_of(data: str) -> str:
    """The path itself if it is a file, or the only manifest in a folder; DataError otherwise."""
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

"""Features of copies of the training sound: at allowed lengths, or at several speeds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nnet3tools.errors import DataError
from nnet3tools.features.resample import allowed_lengths, lengths_of_copies
from nnet3tools.lang.lang_dir import byte_order
from nnet3tools.recipe.data_dir import amount_or_none, filter_lines, read_lines, read_number_map
from nnet3tools.recipe.jobs import Job
from nnet3tools.recipe.plan import Jobs, Step, write_lines
from nnet3tools.recipe.speech.setup import (
    COPIES,
    SPEEDS,
    TRAIN,
    Setup,
    action,
    job,
    part_file,
    read_table,
    step,
)

CopySizes = Callable[[int], list[tuple[str, int]]]
"""The name suffix and the number of samples of each copy of a sound with so many samples."""


def copies_at_allowed_lengths(setup: Setup) -> list[Step]:
    """Steps that make the first model's data: copies of utterances, resampled to fixed lengths."""
    seconds = read_number_map(TRAIN / "utt2dur", amount_or_none).values()
    ends = (setup.num_frames(int(s * setup.facts.rate)) for s in (min(seconds), max(seconds)))
    lengths = allowed_lengths(*ends)

    def sizes(num_samples: int) -> list[tuple[str, int]]:
        frames = setup.num_frames(num_samples)
        chosen = lengths_of_copies(frames, lengths, setup.size.num_copies)
        return [(f"-pv{n}", setup.num_samples(length)) for n, length in enumerate(chosen, start=1)]

    write = action(lambda: write_lines(COPIES / "allowed_lengths.txt", map(str, lengths)))
    return [write, *_copies(setup, COPIES, sizes)]


def copies_at_speeds(setup: Setup) -> list[Step]:
    """Steps that make data for the second model: copies of each utterance at several speeds."""

    def sizes(num_samples: int) -> list[tuple[str, int]]:
        return [(f"-sp{s:g}", round(num_samples / s)) for s in setup.size.speeds]

    return _copies(setup, SPEEDS, sizes)


def _copies(setup: Setup, folder: Path, sizes: CopySizes) -> list[Step]:
    jobs = tuple(_features_job(folder, part) for part in setup.parts)
    scripts = tuple(part_file(folder, "feats.scp", part) for part in setup.parts)
    stats = f"ark,scp:{folder}/cmvn.ark,{folder}/cmvn.scp"
    cmvn = ("compute-cmvn-stats", f"scp:{folder}/feats.scp", stats)
    return [
        action(lambda: _write_data(setup, folder, sizes)),
        Jobs(jobs, scripts),
        action(lambda: _collect(setup, folder)),
        step(f"cmvn.{folder.name}", cmvn, out=folder / "cmvn.scp"),
    ]


def _features_job(folder: Path, part: int) -> Job:
    copies, sound = (part_file(folder, name, part) for name in ("copies", "wav.scp"))
    perturb = ("wav-perturb-speed", str(copies), f"scp:{sound}", "ark:-")
    mfcc = ("compute-mfcc-feats", "--config=mfcc.conf", "ark:-", "ark:-")
    out = f"ark,scp:{folder}/feats.{part}.ark,{part_file(folder, 'feats.scp', part)}"
    copy = ("copy-feats", "--compress=true", "ark:-", out)
    return job(f"mfcc.{folder.name}.{part}", perturb, mfcc, copy, home=f"egs.{part}")


def _write_data(setup: Setup, folder: Path, sizes: CopySizes) -> None:
    """Write the files of a data directory of copies; for each part of the data wav.scp and a list.

    `sizes` maps an utterance's number of samples to its copies: (suffix of the key, samples).
    """
    words, durations = (
        read_table(TRAIN / "text"),
        read_number_map(TRAIN / "utt2dur", amount_or_none),
    )
    keys = sorted(words, key=byte_order)
    copies: dict[str, list[tuple[str, int]]] = {}
    for key in keys:
        num_samples = round(durations[key] * setup.facts.rate)
        copies[key] = [(key + suffix, size) for suffix, size in sizes(num_samples)]
    scripts = read_lines(TRAIN / "wav.scp")
    for part in setup.parts:
        chosen = _part_of(setup, keys, part)
        write_lines(part_file(folder, "wav.scp", part), filter_lines(scripts, chosen))
        lines = (f"{copy} {key} {size}" for key in chosen for copy, size in copies[key])
        write_lines(part_file(folder, "copies", part), lines)
    rows = [(copy, key, size) for key in keys for copy, size in copies[key]]
    rows.sort(key=lambda row: byte_order(row[0]))
    write_lines(folder / "text", (" ".join([copy, *words[key]]) for copy, key, _ in rows))
    write_lines(folder / "utt2spk", (f"{copy} {copy}" for copy, _, _ in rows))
    write_lines(folder / "utt2uniq", (f"{copy} {key}" for copy, key, _ in rows))
    frames = (f"{copy} {setup.num_frames(size)}" for copy, _, size in rows)
    write_lines(folder / "utt2num_frames", frames)


def _part_of(setup: Setup, items: list[str], part: int) -> list[str]:
    """Part number `part`, counted from 1, of `items` split into parts of equal size."""
    first, last = (len(items) * number // setup.num_parts for number in (part - 1, part))
    return items[first:last]


def _collect(setup: Setup, folder: Path) -> None:
    """Join all parts' feats.scp in `folder`; write each part's text and sorted.scp, by key."""
    scripts = [
        line for part in setup.parts for line in read_lines(part_file(folder, "feats.scp", part))
    ]
    if not scripts:
        raise DataError(f"{folder}: no features could be computed")
    scripts.sort(key=byte_order)
    write_lines(folder / "feats.scp", scripts)
    text = read_lines(folder / "text")
    for part in setup.parts:
        lines = _part_of(setup, text, part)
        write_lines(part_file(folder, "text", part), lines)
        keys = (line.split(None, 1)[0] for line in lines)
        write_lines(part_file(folder, "sorted.scp", part), filter_lines(scripts, keys))

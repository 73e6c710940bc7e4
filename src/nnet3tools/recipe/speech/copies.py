"""Features of copies of the training sound: at allowed lengths, or at several speeds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nnet3tools.errors import DataError
from nnet3tools.features.perturbation import allowed_lengths, lengths_of_copies
from nnet3tools.recipe.data_dir import read_lines, read_map
from nnet3tools.recipe.jobs import Job
from nnet3tools.recipe.plan import Concatenate, Jobs, Step
from nnet3tools.recipe.speech.setup import (
    COPIES,
    SPEEDS,
    TRAIN,
    Setup,
    action,
    by_bytes,
    job,
    read_table,
    step,
    write_lines,
)

CopySizes = Callable[[int], list[tuple[str, int]]]
"""The name suffix and the number of samples of each copy of a sound with so many samples."""


def copies_at_allowed_lengths(setup: Setup) -> list[Step]:
    """Steps that make the flat start's data: several utterances of each allowed length."""
    rate = setup.facts.rate
    ends = [setup.num_frames(int(s * rate)) for s in (setup.facts.shortest, setup.facts.longest)]
    lengths = allowed_lengths(*ends)

    def sizes(num_samples: int) -> list[tuple[str, int]]:
        frames = setup.num_frames(num_samples)
        chosen = lengths_of_copies(frames, lengths, setup.size.num_copies)
        return [(f"-pv{n}", setup.num_samples(length)) for n, length in enumerate(chosen, start=1)]

    write = action(lambda: write_lines(COPIES / "allowed_lengths.txt", map(str, lengths)))
    return [write, *_copies(setup, COPIES, sizes)]


def copies_at_speeds(setup: Setup) -> list[Step]:
    """Steps that make the second model's data at the speeds of the table of sizes."""

    def sizes(num_samples: int) -> list[tuple[str, int]]:
        return [(f"-sp{s:g}", round(num_samples / s)) for s in setup.size.speeds]

    return _copies(setup, SPEEDS, sizes)


def part_file(folder: Path, name: str, part: int) -> Path:
    """The path of a file of one part of a data directory."""
    return folder / "parts" / f"{name}.{part}"


def part_numbers(setup: Setup) -> range:
    """The numbers of the parts, from 1."""
    return range(1, setup.num_parts + 1)


def _copies(setup: Setup, folder: Path, sizes: CopySizes) -> list[Step]:
    jobs = [_features_job(folder, part) for part in part_numbers(setup)]
    scripts = tuple(part_file(folder, "feats.scp", part) for part in part_numbers(setup))
    stats = f"ark,scp:{folder}/cmvn.ark,{folder}/cmvn.scp"
    cmvn = ("compute-cmvn-stats", f"scp:{folder}/feats.scp", stats)
    return [
        action(lambda: _write_data(setup, folder, sizes)),
        Jobs(tuple(jobs), scripts),
        Concatenate(folder / "feats.unsorted", scripts, "no features could be computed"),
        action(lambda: _sort(folder / "feats.unsorted", folder / "feats.scp")),
        step(f"cmvn.{folder.name}", cmvn, out=folder / "cmvn.scp"),
    ]


def _features_job(folder: Path, part: int) -> Job:
    perturb = (
        "wav-perturb-speed",
        str(part_file(folder, "copies", part)),
        f"scp:{part_file(folder, 'wav.scp', part)}",
        "ark:-",
    )
    mfcc = ("compute-mfcc-feats", "--config=mfcc.conf", "ark:-", "ark:-")
    ark, scp = folder / f"feats.{part}.ark", part_file(folder, "feats.scp", part)
    copy = ("copy-feats", "--compress=true", "ark:-", f"ark,scp:{ark},{scp}")
    return job(f"mfcc.{folder.name}.{part}", perturb, mfcc, copy, home=f"egs.{part}")


def _write_data(setup: Setup, folder: Path, sizes: CopySizes) -> None:
    """Write the text files of a data directory of copies, and the parts of its sound."""
    scripts = dict(line.split(None, 1) for line in read_lines(TRAIN / "wav.scp"))
    words, durations = read_table(TRAIN / "text"), read_map(TRAIN / "utt2dur")
    if missing := sorted(set(words) - set(durations)):
        raise DataError(f"{TRAIN}/utt2dur: there is no line for '{missing[0]}'")
    rows: list[tuple[str, str, int]] = []
    for key in sorted(words, key=by_bytes):
        num_samples = round(float(durations[key]) * setup.facts.rate)
        rows += [(key + suffix, key, size) for suffix, size in sizes(num_samples)]
    for part in part_numbers(setup):
        first, last = (len(words) * n // setup.num_parts for n in (part - 1, part))
        keys = sorted(words, key=by_bytes)[first:last]
        wanted = set(keys)
        write_lines(part_file(folder, "wav.scp", part), (f"{k} {scripts[k]}" for k in keys))
        of_part = (f"{copy} {key} {size}" for copy, key, size in rows if key in wanted)
        write_lines(part_file(folder, "copies", part), of_part)
    rows.sort(key=lambda row: by_bytes(row[0]))
    write_lines(folder / "text", (" ".join([copy, *words[key]]) for copy, key, _ in rows))
    write_lines(folder / "utt2spk", (f"{copy} {copy}" for copy, _, _ in rows))
    write_lines(folder / "utt2uniq", (f"{copy} {key}" for copy, key, _ in rows))
    frames = (f"{copy} {setup.num_frames(size)}" for copy, _, size in rows)
    write_lines(folder / "utt2num_frames", frames)


def _sort(source: Path, target: Path) -> None:
    write_lines(target, sorted(read_lines(source), key=by_bytes))


def features_of(folder: Path) -> list[Step]:
    """Steps that compute the features of a data directory without copies."""
    mfcc = ("compute-mfcc-feats", "--config=mfcc.conf", f"scp:{folder}/wav.scp", "ark:-")
    out = f"ark,scp:{folder}/feats.ark,{folder}/feats.scp"
    copy = ("copy-feats", "--compress=true", "ark:-", out)
    return [step(f"mfcc.{folder.name}", mfcc, copy, out=folder / "feats.scp")]

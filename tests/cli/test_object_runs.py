"""Programs that convert the small objects of a buffer together: as one by one, errors included."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nnet3tools.io.holders import INT32_VECTOR, POSTERIOR, Holder
from nnet3tools.io.posterior import Posterior
from nnet3tools.nnet.hmm.alignment import phone_ends
from support.programs import write_table
from support.shell import Shell
from support.two_models import NEW, NEW_TREE, OLD, alignment, save

RNG = np.random.default_rng(3)
BAD = 99


def some_objects(holder: Holder) -> dict[str, np.ndarray | Posterior]:
    """Alignments of 0 to 5 phones, some reversed; or posteriors, some uneven or without frames."""
    found: dict[str, np.ndarray | Posterior] = {}
    for i in range(40):
        if holder is INT32_VECTOR:
            phones, lengths = RNG.integers(1, 4, size=(2, i % 6)).tolist()
            ids = alignment(phones, lengths)
            found[f"u{i}"] = ids[::-1].copy() if i % 3 == 0 else ids
        else:
            counts = np.full(i % 5, i % 3) if i % 4 else RNG.integers(0, 3, size=i % 5)
            ids = RNG.integers(1, OLD.num_transition_ids + 1, size=counts.sum())
            found[f"u{i}"] = Posterior.from_counts(counts, ids, RNG.integers(-1, 3, len(ids)) / 4)
    return found


PROGRAMS: list[tuple[Holder, tuple[str, ...]]] = [
    (INT32_VECTOR, ("copy-int-vector", "IN", "OUT")),
    (INT32_VECTOR, ("ali-to-pdf", "old", "IN", "OUT")),
    (INT32_VECTOR, ("ali-to-phones", "old", "IN", "OUT")),
    (INT32_VECTOR, ("ali-to-phones", "--per-frame=true", "old", "IN", "OUT")),
    (INT32_VECTOR, ("ali-to-phones", "--write-lengths=true", "old", "IN", "OUT")),
    (INT32_VECTOR, ("ali-to-post", "IN", "OUT")),
    (INT32_VECTOR, ("convert-ali", "old", "new", "tree", "IN", "OUT")),
    (POSTERIOR, ("post-to-pdf-post", "old", "IN", "OUT")),
    (POSTERIOR, ("post-to-smat", "--dim=20", "IN", "OUT")),
]


@pytest.mark.parametrize(
    ("holder", "words"), PROGRAMS, ids=lambda x: x[0] if type(x) is tuple else ""
)
def test_objects_together_give_the_bytes_of_each_alone(
    shell: Shell, holder: Holder, words: tuple[str, ...]
) -> None:
    for name, item in (("old", OLD), ("new", NEW), ("tree", NEW_TREE)):
        save(name, item)
    items = some_objects(holder)
    table = shell.write("all", holder, items)

    def output(rspecifier: str, wspecifier: str, path: str) -> bytes:
        shell(*[{"IN": rspecifier, "OUT": wspecifier}.get(word, word) for word in words])
        return Path(path).read_bytes()

    together = output(table, "ark:out", "out")
    alone = [
        output(shell.write("one", holder, {key: value}), "ark:out1", "out1")
        for key, value in items.items()
    ]
    assert together == b"".join(alone)
    assert output(table, "ark,scp:out2,scp", "out2") == together
    write_table("ark,t:text", items, holder)
    assert output(table, "ark,t:out3", "out3") == output("ark,t:text", "ark,t:out4", "out4")
    assert output("ark,t:text", "ark:out5", "out5") == together


@pytest.mark.parametrize(("holder", "words"), PROGRAMS[1:3] + PROGRAMS[-2:])
def test_an_error_names_its_object_and_those_before_it_are_written(
    shell: Shell, holder: Holder, words: tuple[str, ...]
) -> None:
    save("old", OLD)
    items = some_objects(holder)
    before = shell.write("before", holder, dict(list(items.items())[:20]))
    bad = np.array([1, BAD], np.int32)
    items["u20"] = bad if holder is INT32_VECTOR else Posterior.from_counts([2], bad, [1, 1])
    table = shell.write("all", holder, items)

    def piped(rspecifier: str) -> subprocess.CompletedProcess[bytes]:
        given = [{"IN": rspecifier, "OUT": "ark:-"}.get(word, word) for word in words]
        return subprocess.run([sys.executable, "-m", "nnet3tools", *given], capture_output=True)

    failed = piped(table)
    assert failed.returncode != 0
    assert b"key 'u20'" in failed.stderr
    assert f"{BAD}".encode() in failed.stderr
    assert failed.stdout == piped(before).stdout


def test_phones_end_where_they_end_in_each_alignment_alone() -> None:
    alignments = list(map(np.asarray, some_objects(INT32_VECTOR).values()))
    joined, ends = np.concatenate(alignments), np.cumsum([len(ids) for ids in alignments])
    alone = [phone_ends(OLD.transitions(), ids) for ids in alignments]
    starts = ends - [len(ids) for ids in alignments]
    expected = np.concatenate([found + start for found, start in zip(alone, starts, strict=True)])
    assert phone_ends(OLD.transitions(), joined, ends).tolist() == expected.tolist()

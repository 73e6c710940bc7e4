"""Examples for timing the programs that handle them, and a trainer that does nothing but read.

    python benchmarks/examples.py read RSPECIFIER

prints how many examples a second nnet3-train's reader takes from minibatches, each checked as
training checks it. benchmarks/run makes the data and runs all programs in turns with Kaldi's.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from processes import ROOT, ours, timed
from train import NETWORKS, make

NUM_EXAMPLES = 105_000
_COPIES = 35
"""The 60 utterances under so many names have that many examples."""

CUT = [
    *NETWORKS[0].egs_options.split(),
    *("--num-pdfs=200", "ark:many-feats.ark", "ark:many-post.ark"),
]
"""The options and inputs of nnet3-get-egs."""

COMMANDS = {
    "copy": ["nnet3-copy-egs", "ark:many.egs", "ark:/dev/null"],
    "copy a frame": ["nnet3-copy-egs", "--frame=random", "ark:many.egs", "ark:/dev/null"],
    "copy less context": [
        *("nnet3-copy-egs", "--left-context=5", "--right-context=5"),
        *("ark:many.egs", "ark:/dev/null"),
    ],
    "shuffle": ["nnet3-shuffle-egs", "ark:many.egs", "ark:/dev/null"],
    "shuffle in a buffer": [
        *("nnet3-shuffle-egs", "--buffer-size=5000", "ark:many.egs", "ark:/dev/null"),
    ],
    "choose": ["nnet3-subset-egs", "--n=1000", "ark:many.egs", "ark:/dev/null"],
    "merge": ["nnet3-merge-egs", "--minibatch-size=64", "ark:many.egs", "ark:/dev/null"],
    "merge, compressed": [
        *("nnet3-merge-egs", "--minibatch-size=64", "--compress=true"),
        *("ark:many.egs", "ark:/dev/null"),
    ],
    "make": ["nnet3-get-egs", *CUT, "ark:/dev/null"],
}
"""What is done with the examples -> program and arguments."""


def make_many(folder: Path) -> None:
    """Make features, posteriors and examples in a folder, unless they are there."""
    if (folder / "many.egs").exists():
        return
    make(NETWORKS[0], folder)
    sys.path.insert(0, str(ROOT / "src"))
    from nnet3tools.io.holders import MATRIX, POSTERIOR, Holder
    from nnet3tools.io.table import SequentialTableReader, TableWriter

    kinds: list[tuple[str, str, Holder[Any]]] = [
        ("feats.txt", "many-feats.ark", MATRIX),
        ("post.txt", "many-post.ark", POSTERIOR),
    ]
    for source, target, holder in kinds:
        entries = list(SequentialTableReader(f"ark:{folder / source}", holder))
        with TableWriter(f"ark:{folder / target}", holder) as writer:
            for copy in range(_COPIES):
                for key, value in entries:
                    writer.write(f"{key}-{copy:02}", value)
    timed(ours("nnet3-get-egs", *CUT, "ark:many.egs"), folder)


def seconds_to_deliver(folder: Path) -> float:
    """Elapsed seconds of nnet3-merge-egs into a trainer that does nothing."""
    merge = " ".join(ours("nnet3-merge-egs", "--minibatch-size=64", "ark:many.egs", "ark:-"))
    pipe = f"ark:PYTHONPATH={ROOT / 'src'} {merge} 2>/dev/null |"
    done = subprocess.run(
        [sys.executable, __file__, "read", pipe],
        cwd=folder,
        env=dict(os.environ, PYTHONPATH=str(ROOT / "src"), OMP_NUM_THREADS="1"),
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return float(done.stdout.split()[0])


def read(rspecifier: str) -> None:
    """Read minibatches as nnet3-train does, and print seconds, examples, and how many a second."""
    from nnet3tools.training.example import NnetExample, for_each_example

    count = 0

    def work(key: str, example: NnetExample) -> None:
        nonlocal count
        example.check_finite()
        count += int(key.rpartition("-")[2])

    began = time.perf_counter()
    for_each_example(rspecifier, work)
    elapsed = time.perf_counter() - began
    print(f"{elapsed:.2f} s: {count} examples, {count / elapsed:.0f} a second")


if __name__ == "__main__":
    if sys.argv[1:2] != ["read"] or len(sys.argv) != 3:
        sys.exit(__doc__)
    read(sys.argv[2])

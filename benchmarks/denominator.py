#!/usr/bin/env python3
"""LF-MMI's objective alone, over the minibatches of an archive, with random outputs.

    OMP_NUM_THREADS=1 python benchmarks/denominator.py DEN_FST NUM_PDFS MINIBATCHES [KALDI]

prints user seconds, the least of some turns, of the denominator's forward and backward pass, and of
the whole objective. KALDI is what denominator.cc was compiled to: its pass over the same sizes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from nnet3tools.chain.den_graph import load_denominator_graph
from nnet3tools.chain.minibatch import CHAIN_MINIBATCH
from nnet3tools.chain.objective import compute_chain_objective
from nnet3tools.chain.options import ChainTrainingOptions
from nnet3tools.io.table import SequentialTableReader
from nnet3tools.tensor.kernel_policy import run_compiled
from nnet3tools.tensor.operators.leaky_hmm import leaky_hmm

TURNS = 4
OPTIONS = ChainTrainingOptions(l2_regularize=0.00005, leaky_hmm_coefficient=0.1)


def seconds(work: Callable[..., object], *arguments: Any) -> float:
    """Of this process, all of its threads."""
    began = time.process_time()
    work(*arguments)
    return time.process_time() - began


def main(den_fst: str, num_pdfs: int, archive: str, kaldi: str | None) -> None:
    graph = load_denominator_graph(den_fst, num_pdfs)
    with SequentialTableReader(f"ark:{archive}", CHAIN_MINIBATCH) as examples:
        supervisions = [e.supervisions[0].chain.supervision for _, e in examples]
    rng = np.random.default_rng(0)
    found: dict[str, list[float]] = {"denominator": [], "objective": [], "Kaldi's denominator": []}
    for _ in range(TURNS):
        totals = [0.0, 0.0]
        for s in supervisions:
            y = (2 * rng.standard_normal((s.num_frames, num_pdfs))).astype(np.float32)
            results, deriv = np.zeros(3), np.zeros_like(y)
            rest = graph.hmm, s.num_sequences, OPTIONS.leaky_hmm_coefficient, deriv, -1.0
            totals[0] += seconds(run_compiled, leaky_hmm, results, y, *rest)
            totals[1] += seconds(compute_chain_objective, OPTIONS, graph, s, y, deriv)
        found["denominator"].append(totals[0])
        found["objective"].append(totals[1])
        if kaldi is not None:
            with tempfile.NamedTemporaryFile("w", suffix=".txt") as sizes:
                for s in supervisions:
                    print(s.num_sequences, s.frames_per_sequence, file=sizes)
                sizes.flush()
                words = [kaldi, den_fst, str(num_pdfs), sizes.name]
                said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
            found["Kaldi's denominator"].append(float(said))
    for what, times in found.items():
        if times:
            print(f"{what}: {min(times):.3f} s")


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4] if len(sys.argv) == 5 else None)

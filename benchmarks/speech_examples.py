"""Chain examples, end-to-end ones and those of speakers, for timing the programs that handle them.

benchmarks/run makes them of random phones and features, some 13,000 chunks, and runs all programs
in turns with Kaldi's.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from processes import ROOT, ours, timed

if TYPE_CHECKING:
    from nnet3tools.fst.fst import Fst
    from nnet3tools.nnet.hmm.transition_model import TransitionModel

_UTTERANCES, _PHONES, _SPEAKERS = 2000, 30, 100
_END_TO_END = 2
"""Every so many utterances one is given end to end."""

_TOPOLOGY = f"""<Topology> <TopologyEntry>
<ForPhones> {" ".join(map(str, range(1, _PHONES + 1)))} </ForPhones>
<State> 0 <ForwardPdfClass> 0 <SelfLoopPdfClass> 1 <Transition> 0 0.5 <Transition> 1 0.5 </State>
<State> 1 </State> </TopologyEntry> </Topology>
"""
_FACTOR = "--frame-subsampling-factor=3"
_CUT = ("--left-context=10", "--right-context=10", "--num-frames=24,18", _FACTOR)
_E2E_LENGTHS = ",".join(map(str, range(84, 240, 6)))
_E2E = ("--left-context=10", "--right-context=10", f"--num-frames={_E2E_LENGTHS}", _FACTOR)

SPEECH_COMMANDS = {
    "chain, make": [
        *("nnet3-chain-get-egs", *_CUT, "ark:speech.ark", "ark,s,cs:sup.ark", "ark:/dev/null"),
    ],
    "chain, make with normalization FST": [
        *("nnet3-chain-get-egs", *_CUT, "normalization.fst"),
        *("ark:speech.ark", "ark,s,cs:sup.ark", "ark:/dev/null"),
    ],
    "chain, normalize": [
        *("nnet3-chain-normalize-egs", "normalization.fst", "ark:raw.cegs", "ark:/dev/null"),
    ],
    "chain, make end to end": [
        *("nnet3-chain-e2e-get-egs", *_E2E, "normalization.fst"),
        *("ark,s,cs:speech.ark", "ark:graphs.ark", "trans.mdl", "ark:/dev/null"),
    ],
    "chain, copy": ["nnet3-chain-copy-egs", "ark:all.cegs", "ark:/dev/null"],
    "chain, copy shifted": [
        *("nnet3-chain-copy-egs", "--frame-shift=1", "ark:all.cegs", "ark:/dev/null"),
    ],
    "chain, copy less context": [
        *("nnet3-chain-copy-egs", "--left-context=5", "--right-context=5"),
        *("ark:all.cegs", "ark:/dev/null"),
    ],
    "chain, shuffle": ["nnet3-chain-shuffle-egs", "ark:all.cegs", "ark:/dev/null"],
    "chain, choose": ["nnet3-chain-subset-egs", "--n=1000", "ark:all.cegs", "ark:/dev/null"],
    "chain, merge": [
        *("nnet3-chain-merge-egs", "--minibatch-size=64", "ark:all.cegs", "ark:/dev/null"),
    ],
    "chain, merge end to end": [
        *("nnet3-chain-merge-egs", "--minibatch-size=16", "ark:e2e.cegs", "ark:/dev/null"),
    ],
    "speakers, make": [
        *("nnet3-xvector-get-egs", f"--num-pdfs={_SPEAKERS}", "ranges"),
        *("ark:speech.ark", "ark:/dev/null"),
    ],
}
"""What is done with the examples -> program and arguments."""


def make_speech(folder: Path) -> None:
    """Write features, supervisions, graphs and examples into a folder, unless it has them."""
    if (folder / "e2e.cegs").exists():
        return
    sys.path.insert(0, str(ROOT / "src"))
    (folder / "topo").write_text(_TOPOLOGY)
    timed(ours("gmm-init-mono", "topo", "40", "mono.mdl", "tree"), folder)
    timed(ours("copy-transition-model", "mono.mdl", "trans.mdl"), folder)
    _write_utterances(folder)
    for program, *words in (
        ("chain-est-phone-lm", "--num-extra-lm-states=50", "ark:phones.ark", "lm.fst"),
        ("chain-make-den-fst", "tree", "trans.mdl", "lm.fst", "den.fst", "normalization.fst"),
        (
            *("chain-get-supervision", _FACTOR, "--left-tolerance=5", "--right-tolerance=5"),
            *("tree", "trans.mdl", "ark:ali.ark", "ark:sup.ark"),
        ),
        (*SPEECH_COMMANDS["chain, make"][:-1], "ark:raw.cegs"),
        (*SPEECH_COMMANDS["chain, make with normalization FST"][:-1], "ark:all.cegs"),
        (*SPEECH_COMMANDS["chain, make end to end"][:-1], "ark:e2e.cegs"),
    ):
        timed(ours(program, *words), folder)


def _write_utterances(folder: Path) -> None:
    """Phones and their lengths, features, graphs of some utterances, chunks of speakers."""
    from nnet3tools.fst.files import FST
    from nnet3tools.io.holders import INT32_PAIR_VECTOR, INT32_VECTOR, MATRIX
    from nnet3tools.io.table import TableWriter
    from nnet3tools.nnet.hmm.transition_model import TransitionModel

    model, rng = TransitionModel.load(str(folder / "trans.mdl")), np.random.default_rng(0)
    with (
        TableWriter(f"ark:{folder}/ali.ark", INT32_PAIR_VECTOR) as alignments,
        TableWriter(f"ark:{folder}/phones.ark", INT32_VECTOR) as sequences,
        TableWriter(f"ark:{folder}/speech.ark", MATRIX) as features,
        TableWriter(f"ark:{folder}/graphs.ark", FST) as graphs,
        open(folder / "ranges", "w") as ranges,
    ):
        for i in range(_UTTERANCES):
            key, phones = f"u{i:04}", _phones(rng)
            durations = rng.integers(4, 13, len(phones))
            num_frames = int(durations.sum())
            alignments.write(key, np.stack([phones, durations], axis=1).astype(np.int32))
            sequences.write(key, phones)
            features.write(key, rng.standard_normal((num_frames, 40)).astype(np.float32))
            if i % _END_TO_END == 0:
                graphs.write(key, _graph(phones, model))
            for n in range(2):
                ranges.write(f"{key} 0 0 {n * 10} 80 {i % _SPEAKERS}\n")


def _phones(rng: np.random.Generator) -> np.ndarray:
    """A sequence in which some phones follow others more often."""
    steps = rng.choice([1, 2, 7, 11], p=[0.5, 0.3, 0.15, 0.05], size=19)
    return ((rng.integers(_PHONES) + np.cumsum(steps)) % _PHONES + 1).astype(np.int32)


def _graph(phones: np.ndarray, model: TransitionModel) -> Fst:
    """The graph of a sequence: each phone's first frame, and any number of others."""
    from nnet3tools.fst.fst import NOT_FINAL, Fst

    ids = model.transitions()
    entering = {int(ids.phones[t]): t for t in np.flatnonzero(~ids.is_self_loop).tolist() if t}
    staying = {int(ids.phones[t]): t for t in np.flatnonzero(ids.is_self_loop).tolist() if t}
    arcs: list[list] = [[] for _ in range(len(phones) + 1)]
    for i, phone in enumerate(phones.tolist()):
        arcs[i].append((entering[phone], phone, 0.7, i + 1))
        arcs[i + 1].append((staying[phone], 0, 0.7, i + 1))
    return Fst.from_lists(0, [NOT_FINAL] * len(phones) + [0.0], arcs)

"""All programs that Kaldi has, too, on large inputs, in turns with Kaldi's.

    python benchmarks/all_programs.py --kaldi DIR --dir DIR [--rounds N] [PROGRAM]...

The inputs are those of `benchmarks/run --only examples`, kept in --dir, and a few made of them.
Printed are user and elapsed seconds and MB of both programs on one thread, and "slow" if ours
takes more than 1.5 times Kaldi's user time + 0.15 s.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from examples import COMMANDS, make_many
from processes import ROOT, ours, timed
from rows import least
from speech_examples import SPEECH_COMMANDS, make_speech

INPUTS = """
matrix-sum-rows ark:many-feats.ark ark:sums.ark
ali-to-post ark:ids.ark ark:ids-post.ark
compute-cmvn-stats ark:many-feats.ark ark:cmvn.ark
nnet3-acc-lda-stats lda.raw ark:many.egs lda.acc
copy-feats --compress=true ark:many-feats.ark ark:packed.ark
copy-feats ark:many-feats.ark ark,t:feats-text.ark
copy-feats ark:feats.txt ark:feats.ark
nnet3-merge-egs --minibatch-size=64 ark:many.egs ark:merged.egs
nnet3-chain-merge-egs --minibatch-size=64 ark:all.cegs ark:merged.cegs
nnet3-train --use-gpu=no tdnn.raw ark:tdnn.egs tdnn.out
nnet3-am-init tree topo tdnn.raw tdnn.mdl
"""

PROGRAMS = """
ali-to-pdf trans.mdl ark:ids.ark ark:/dev/null
ali-to-phones --write-lengths=true trans.mdl ark:ids.ark ark:/dev/null
ali-to-post ark:ids.ark ark:/dev/null
convert-ali trans.mdl trans.mdl tree ark:ids.ark ark:/dev/null
post-to-pdf-post trans.mdl ark:ids-post.ark ark:/dev/null
post-to-smat --dim=200 ark:many-post.ark ark:/dev/null
post-to-tacc trans.mdl ark:ids-post.ark /dev/null
copy-int-vector ark:ids.ark ark:/dev/null
copy-vector ark:sums.ark ark:/dev/null
copy-matrix ark:many-feats.ark ark:/dev/null
copy-feats ark:many-feats.ark ark:/dev/null
copy-feats --compress=true ark:many-feats.ark ark:/dev/null
copy-feats ark:packed.ark ark:/dev/null
copy-feats ark:feats-text.ark ark:/dev/null
copy-feats ark:many-feats.ark ark,t:/dev/null
compute-cmvn-stats ark:many-feats.ark ark:/dev/null
apply-cmvn ark:cmvn.ark ark:many-feats.ark ark:/dev/null
apply-cmvn-sliding ark:many-feats.ark ark:/dev/null
modify-cmvn-stats 0:1 ark:cmvn.ark ark:/dev/null
feat-to-dim ark:many-feats.ark ark,t:/dev/null
feat-to-len ark:many-feats.ark ark,t:/dev/null
matrix-dim ark:many-feats.ark
matrix-sum ark:many-feats.ark ark:many-feats.ark ark:/dev/null
matrix-sum-rows ark:many-feats.ark ark:/dev/null
paste-feats ark:many-feats.ark ark:many-feats.ark ark:/dev/null
select-feats 0-9,20 ark:many-feats.ark ark:/dev/null
shift-feats --shift=1 ark:many-feats.ark ark:/dev/null
splice-feats ark:many-feats.ark ark:/dev/null
subsample-feats --n=3 ark:many-feats.ark ark:/dev/null
subset-feats --n=1000 ark:many-feats.ark ark:/dev/null
transform-feats transform ark:many-feats.ark ark:/dev/null
vector-sum ark:sums.ark ark:sums.ark ark:/dev/null
ivector-mean ark:spk2utt ark:sums.ark ark:/dev/null
nnet3-acc-lda-stats lda.raw ark:many.egs /dev/null
nnet-get-feature-transform /dev/null lda.acc
nnet3-copy tdnn.raw /dev/null
nnet3-am-copy tdnn.mdl /dev/null
nnet3-average tdnn.raw tdnn.out tdnn.raw tdnn.out /dev/null
nnet3-combine tdnn.raw tdnn.out ark:tdnn.egs /dev/null
nnet3-info tdnn.raw
nnet3-show-progress tdnn.raw tdnn.out
nnet3-compute-prob tdnn.out ark:tdnn.egs
nnet3-compute-from-egs tdnn.out ark:tdnn.egs ark:/dev/null
nnet3-compute tdnn.out ark:feats.ark ark:/dev/null
nnet3-copy-egs ark:merged.egs ark:/dev/null
nnet3-chain-copy-egs ark:merged.cegs ark:/dev/null
nnet3-get-egs-dense-targets --num-targets=40 ark:many-feats.ark ark:many-feats.ark ark:/dev/null
chain-est-phone-lm --num-extra-lm-states=500 ark:phones.ark /dev/null
chain-make-den-fst tree trans.mdl lm.fst /dev/null /dev/null
chain-get-supervision --frame-subsampling-factor=3 tree trans.mdl ark:ali.ark ark:/dev/null
fstcopy ark:graphs.ark ark:/dev/null
"""

_MOST, _ALLOWANCE = 1.5, 0.15


def make_inputs(folder: Path) -> None:
    """Write what the programs read into a folder, unless it is there."""
    make_many(folder)
    make_speech(folder)
    if (folder / "tdnn.mdl").exists():
        return
    from nnet3tools.io.holders import INT32_PAIR_VECTOR, INT32_VECTOR, MATRIX
    from nnet3tools.io.table import SequentialTableReader, TableWriter
    from nnet3tools.nnet.hmm.transition_model import TransitionModel

    ids = TransitionModel.load(str(folder / "trans.mdl")).transitions()
    first = np.zeros((2, int(ids.phones.max()) + 1), np.int32)
    for number in reversed(range(1, len(ids.phones))):
        first[int(ids.is_self_loop[number]), ids.phones[number]] = number
    with TableWriter(f"ark:{folder}/ids.ark", INT32_VECTOR) as writer:
        for key, pairs in SequentialTableReader(f"ark:{folder}/ali.ark", INT32_PAIR_VECTOR):
            phones, begins = np.repeat(pairs[:, 0], pairs[:, 1]), np.cumsum(pairs[:, 1])[:-1]
            path = first[1, phones]
            path[[0, *begins]] = first[0, pairs[:, 0]]
            for copy in range(10):
                writer.write(f"{key}-{copy}", path)
    output = "output-node name=output input=Append(Offset(input, -1), input)"
    (folder / "lda.config").write_text(f"input-node name=input dim=40\n{output}\n")
    keys = [key for key, _ in SequentialTableReader(f"ark:{folder}/many-feats.ark", MATRIX)]
    (folder / "spk2utt").write_text("".join(f"{key} {key}\n" for key in keys))
    rows = np.random.default_rng(0).standard_normal((40, 41))
    np.savetxt(folder / "transform", rows, header="[", footer="]", comments=" ")
    timed(ours("nnet3-init", "lda.config", "lda.raw"), folder)
    for line in INPUTS.strip().splitlines():
        timed(ours(*line.split()), folder)


def main() -> None:
    """Measure, and print the table as the runs go."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kaldi", type=lambda text: Path(text).resolve(), required=True)
    parser.add_argument("--dir", type=lambda text: Path(text).resolve(), required=True)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT / "src"))
    options.dir.mkdir(parents=True, exist_ok=True)
    make_inputs(options.dir)
    commands = [line.split() for line in PROGRAMS.strip().splitlines()]
    commands += [*COMMANDS.values(), *SPEECH_COMMANDS.values()]
    print("| program | ours: user, elapsed s, MB | Kaldi's | user time / Kaldi's | |")
    print("|---|---|---|---|---|")
    for words in commands:
        theirs = options.kaldi / words[0]
        if (options.programs and words[0] not in options.programs) or not theirs.exists():
            continue
        pair = (ours(*words), [str(theirs), *words[1:]])
        runs = [[timed(command, options.dir) for command in pair] for _ in range(options.rounds)]
        best = [least(column) for column in zip(*runs, strict=True)]
        cells = [f"{t.user:.2f}, {t.elapsed:.2f}, {t.megabytes:.0f}" for t in best]
        slow = best[0].user > _MOST * best[1].user + _ALLOWANCE
        ratio = best[0].user / max(best[1].user, 0.001)
        verdict = "slow" if slow else ""
        print(
            f"| {' '.join(words)[:90]} | {' | '.join(cells)} | {ratio:.2f} | {verdict} |",
            flush=True,
        )


if __name__ == "__main__":
    main()

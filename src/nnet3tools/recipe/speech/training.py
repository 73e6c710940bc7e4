"""Training of the networks of both models by nnet3-train-chain-e2e and nnet3-train-chain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nnet3tools.cli.options import CommandLine
from nnet3tools.number_text import parse_int
from nnet3tools.recipe.chain_options import E2eOptions, LatticeChainOptions
from nnet3tools.recipe.data_dir import read_map, read_number_map
from nnet3tools.recipe.jobs import pipe_text
from nnet3tools.recipe.plan import Later, Step, WriteText
from nnet3tools.recipe.speech.options import RUN_NAMES
from nnet3tools.recipe.speech.setup import CMVN_OPTIONS, FLAT, SUBSAMPLING, Setup, action, step
from nnet3tools.recipe.speech.sizes import NUM_CEPSTRA, Size

_MODELS_AVERAGED = 3
"""The models after the last passes, but none of the first half, are averaged.

Kaldi's combination computes batch-norm statistics on the examples for combination. Those of 60
recordings are so few that it made all words wrong.
"""
_CHUNK_WIDTHS, _SHORT_WIDTHS = (150, 102, 66), (48, 39, 30, 21, 12)
_KEPT_OUT = 24
"""One of so many utterances is kept out of training, for diagnostics."""


def training(setup: Setup, folder: Path, data: Path, tree: Path) -> list[Step]:
    """Steps that make the network in `folder` and train it on the data directory `data`.

    `tree` is the folder of the tree, and of alignments or graphs.
    """
    return [
        Later(lambda: _network_steps(setup, folder, tree)),
        action(lambda: _train(setup, folder, data, tree)),
        Later(lambda: [_average(setup, folder, data)]),
    ]


def _network_steps(setup: Setup, folder: Path, tree: Path) -> list[Step]:
    """Steps that write the configs, and the network with random values (--seed), to `folder`."""
    from nnet3tools.nnet.hmm.tree import ContextDependency

    num_pdfs = ContextDependency.load(str(tree / "tree")).num_pdfs
    configs, network = folder / "configs", folder / "configs" / "network.xconfig"
    text = xconfig(setup.size, num_pdfs, folder != FLAT, configs)
    convert = ("nnet3-xconfig-to-configs", f"--xconfig-file={network}", f"--config-dir={configs}")
    srand = f"--srand={-2 - setup.options.seed}"
    init = ("nnet3-init", srand, f"{configs}/final.config", f"{folder}/first.raw")
    return [
        WriteText(network, text),
        step(f"configs.{folder.name}", convert, out=configs / "final.config"),
        step(f"init.{folder.name}", init, out=folder / "first.raw"),
    ]


def xconfig(size: Size, num_pdfs: int, is_second: bool, configs: Path) -> str:
    """The xconfig text of a TDNN-F; the second model has a cross-entropy output and SpecAugment.

    SpecAugment is optional. The matrix that it needs is written to the folder `configs`.
    """
    l2 = size.l2[is_second]
    regularized = f"l2-regularize={l2:g}"
    lines = [f"input dim={NUM_CEPSTRA} name=input"]
    if is_second and size.has_spec_augment:
        lines.append(
            f"idct-layer name=idct input=input dim={NUM_CEPSTRA} cepstral-lifter=22 "
            f"affine-transform-file={configs}/idct.mat"
        )
        lines.append("batchnorm-component name=bands input=idct")
        lines.append("spec-augment-layer name=augmented time-zeroed-proportion=0.2")
    first = f"relu-batchnorm-layer name=tdnn1 input=Append(-1,0,1) {regularized} dim={size.dim}"
    lines.append(first)
    lines += [
        f"tdnnf-layer name=tdnnf{number} {regularized} bypass-scale=0.66 dim={size.dim} "
        f"bottleneck-dim={size.bottleneck_dim} time-stride={stride}"
        for number, stride in enumerate(size.strides, start=2)
    ]
    small = min(size.dim // 2, 256)
    linear = f"linear-component name=prefinal-l {regularized} orthonormal-constraint=-1.0"
    lines.append(f"{linear} dim={small}")
    outputs = [("chain", "output", "include-log-softmax=false")]
    if is_second:
        outputs.append(("xent", "output-xent", "learning-rate-factor=5.0"))
    for name, output, options in outputs:
        lines.append(
            f"prefinal-layer name=prefinal-{name} input=prefinal-l {regularized} "
            f"big-dim={size.dim} small-dim={small}"
        )
        lines.append(
            f"output-layer name={output} input=prefinal-{name} l2-regularize={l2 / 2:g} "
            f"{options} dim={num_pdfs}"
        )
    return "".join(f"{line}\n" for line in lines)


def _average(setup: Setup, folder: Path, data: Path) -> Step:
    """The step that writes averaged.mdl to `folder`, the mean of the models of the last passes."""
    num_passes, _, interval = _schedule(setup, data, folder == FLAT)
    found = (parse_int(path.stem, 0) for path in folder.glob("[0-9]*.mdl"))
    numbers = sorted(number for number in found if number is not None)
    last, kept = numbers[-1], [n for n in numbers[:-1] if n and n % interval == 0]
    others = min(_MODELS_AVERAGED, num_passes // 2) - 1
    chosen = [*(kept[-others:] if others > 0 else []), last]
    copies = (("nnet3-am-copy", "--raw=true", f"{folder}/{n}.mdl", "-") for n in chosen)
    models = map(pipe_text, copies)
    out = folder / "averaged.mdl"
    into = ("nnet3-am-copy", "--set-raw-nnet=-", f"{folder}/{last}.mdl", str(out))
    return step(f"average.{folder.name}", ("nnet3-average", *models, "-"), into, out=out)


def _train(setup: Setup, folder: Path, data: Path, tree: Path) -> None:
    from nnet3tools.recipe.train import train

    is_e2e = folder == FLAT
    name = "nnet3-train-chain-e2e" if is_e2e else "nnet3-train-chain"
    kind: Any = E2eOptions if is_e2e else LatticeChainOptions
    line: CommandLine[Any] = CommandLine(name, "", kind, 0, values_apart=True)
    options, _ = line.parse(["--print-args=false", *_words(setup, folder, data, tree)])
    train(name, options)


def _words(setup: Setup, folder: Path, data: Path, tree: Path) -> list[str]:
    """Words of the command that trains in `folder` on `data`; `tree` has alignments or graphs."""
    size, run, is_e2e = setup.size, setup.options.run, folder == FLAT
    num_passes, (first_jobs, last_jobs), interval = _schedule(setup, data, is_e2e)
    recordings = read_map(data / "utt2uniq")
    num_copies = max(1, len(recordings) // max(1, len(set(recordings.values()))))
    kept_out = max(2, len(recordings) // (_KEPT_OUT * num_copies))
    if not is_e2e:  # it counts copies, not recordings
        kept_out *= num_copies
    egs = f"--num-utts-subset {kept_out} --online-cmvn true"
    words = {
        "dir": folder,
        "feat-dir": data,
        "tree-dir": tree,
        "feat.cmvn-opts": CMVN_OPTIONS,
        "feat.mfcc-config": "mfcc.conf",
        "egs.opts": f"{egs} --nj {setup.num_parts}" if is_e2e else egs,
        "chain.frame-subsampling-factor": SUBSAMPLING,
        "chain.l2-regularize": 0.00005,
        "chain.leaky-hmm-coefficient": 0.1,
        "chain.apply-deriv-weights": "false",
        "trainer.input-model": folder / "first.raw",
        # A little more than a whole number of passes, so that rounding does not lose one.
        "trainer.num-epochs": f"{(num_passes + 0.01) / SUBSAMPLING:.6g}",
        "trainer.frames-per-iter": size.frames_per_iter,
        "trainer.num-chunk-per-minibatch": size.minibatches[not is_e2e],
        "trainer.srand": 1000 * setup.options.seed,
        "trainer.optimization.initial-effective-lrate": size.learning_rates[0],
        "trainer.optimization.final-effective-lrate": size.learning_rates[1],
        "trainer.optimization.num-jobs-initial": first_jobs,
        "trainer.optimization.num-jobs-final": last_jobs,
        "trainer.optimization.do-final-combination": "false",
        "cleanup.preserve-model-interval": interval,
    }
    if not is_e2e:
        # Shorter chunk widths are added until one is not longer than the shortest utterance.
        shortest = min(read_number_map(data / "utt2num_frames", parse_int).values())
        widths = [*_CHUNK_WIDTHS]
        for width in _SHORT_WIDTHS:
            if widths[-1] > shortest:
                widths.append(width)
        words |= {
            "egs.chunk-width": ",".join(map(str, widths)),
            "chain.xent-regularize": 0.1,
            "chain.lm-opts": "--num-extra-lm-states=500",
            # Alignments have a frame for each output of the network.
            "chain.alignment-subsampling-factor": 1,
            "chain.left-tolerance": 1,
            "chain.right-tolerance": 2,
        }
    words |= {name: getattr(run, name.replace("-", "_")) for name in RUN_NAMES}
    return [f"--{name}={value}" for name, value in words.items()]


def _schedule(setup: Setup, data: Path, is_e2e: bool) -> tuple[int, tuple[int, int], int]:
    """The schedule for `data`: passes, (first, last) number of jobs, iterations per pass."""
    size = setup.size
    num_frames = sum(read_number_map(data / "utt2num_frames", parse_int).values())
    num_archives = num_frames // size.frames_per_iter + 1
    most = num_archives * SUBSAMPLING
    jobs = min(size.num_jobs[0], most), min(size.num_jobs[1], most)
    return size.num_passes(not is_e2e, num_frames), jobs, max(1, num_archives // jobs[1])

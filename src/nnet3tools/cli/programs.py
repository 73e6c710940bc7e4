"""The list of programs. setup.py runs this file by itself.

Programs of one family are functions of one module. Each other module `nnet3_*.py` in this folder
and in recipe/programs/, and each other module in chain/, data/, decoding/, discriminative/ and
lang/, is one program with the function `main`.
"""

import importlib
import os
from typing import Any

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

_FAMILIES = {
    "cli.am_models": "nnet3-am-init nnet3-am-adjust-priors nnet3-am-train-transitions",
    "cli.chain.combining": "nnet3-chain-combine nnet3-chain-combine2",
    "cli.chain.graphs": (
        "chain-est-phone-lm chain-make-den-fst chain-make-num-fst-e2e chain-get-supervision"
    ),
    "cli.chain.training": "nnet3-chain-train nnet3-chain-train2",
    "cli.data.alignments": (
        "ali-to-pdf ali-to-phones ali-to-post convert-ali post-to-pdf-post post-to-smat "
        "post-to-tacc"
    ),
    "cli.data.copies": (
        "copy-feats copy-matrix copy-vector copy-int-vector copy-transition-model wav-copy fstcopy"
    ),
    "cli.data.feature_files": "concat-feats feat-to-dim feat-to-len paste-feats transform-feats",
    "cli.data.frame_selection": (
        "select-feats select-voiced-frames shift-feats splice-feats subsample-feats subset-feats"
    ),
    "cli.data.normalization": "apply-cmvn apply-cmvn-online apply-cmvn-sliding modify-cmvn-stats",
    "cli.data.sound": "compute-fbank-feats compute-mfcc-feats wav-perturb-speed wav-to-duration",
    "cli.data.sums": "matrix-dim matrix-sum matrix-sum-rows vector-sum",
    "cli.decoding.latgen": "nnet3-latgen-faster nnet3-latgen-faster-batch",
    "cli.decoding.lattice_paths": "lattice-best-path lattice-mbr-decode lattice-to-nbest",
    "cli.decoding.lattices": "lattice-add-penalty lattice-align-phones lattice-copy lattice-scale",
    "cli.egs_programs": (
        "nnet3-copy-egs nnet3-merge-egs nnet3-shuffle-egs nnet3-subset-egs nnet3-chain-copy-egs "
        "nnet3-chain-merge-egs nnet3-chain-shuffle-egs nnet3-chain-subset-egs "
        "nnet3-discriminative-copy-egs nnet3-discriminative-merge-egs "
        "nnet3-discriminative-shuffle-egs nnet3-discriminative-subset-egs"
    ),
    "cli.example_generation": "nnet3-get-egs nnet3-get-egs-dense-targets",
    "cli.information": "am-info tree-info cuda-compiled nnet3-info nnet3-am-info",
    "cli.lang.flat_start": "gmm-init-mono gmm-init-biphone",
    "cli.lda": (
        "nnet3-acc-lda-stats nnet3-chain-acc-lda-stats nnet-get-feature-transform sum-lda-accs"
    ),
    "cli.model_changes": "nnet3-copy nnet3-am-copy",
    "cli.nnet3_compute": "nnet3-compute nnet3-compute-batch",
    "recipe.programs.training": (
        "nnet3-train-dnn nnet3-train-rnn nnet3-train-raw-dnn nnet3-train-raw-rnn "
        "nnet3-train-chain nnet3-train-chain-e2e"
    ),
}
"""Module -> its programs, which are functions with the names of the programs."""

_FOLDERS = {
    "cli": "nnet3_",
    "cli/chain": "",
    "cli/data": "",
    "cli/decoding": "",
    "cli/discriminative": "",
    "cli/lang": "",
    "recipe/programs": "nnet3_",
}
"""Folder -> how the names of its modules with one program begin."""


def _entry_points() -> dict[str, tuple[str, str]]:
    """Module and function of each program, by its name.

    pathlib is not used because its import takes 5 ms.
    """
    found = {
        name: (f"nnet3tools.{module}", name.replace("-", "_"))
        for module, names in _FAMILIES.items()
        for name in names.split()
    }
    for folder, prefix in _FOLDERS.items():
        for file in os.listdir(os.path.join(_ROOT, folder)):
            name, suffix = os.path.splitext(file)
            module = f"{folder.replace('/', '.')}.{name}"
            is_program = name.startswith(prefix) and name[0] != "_" and module not in _FAMILIES
            if suffix == ".py" and is_program:
                found[name.replace("_", "-")] = (f"nnet3tools.{module}", "main")
    return found


_ENTRY_POINTS = _entry_points()
PROGRAMS = tuple(sorted(_ENTRY_POINTS))


def entry_point_of(program: str) -> tuple[str, str]:
    """The module and the function name of a program."""
    return _ENTRY_POINTS[program]


def main_of(program: str) -> Any:
    """The function that runs a program; imports its module."""
    module, name = entry_point_of(program)
    return getattr(importlib.import_module(module), name)

"""The programs there are; each is `main` in the module of its name."""

from __future__ import annotations

__all__ = ["PROGRAMS", "module_of"]

PROGRAMS = (
    "nnet3-am-adjust-priors",
    "nnet3-am-copy",
    "nnet3-am-info",
    "nnet3-am-init",
    "nnet3-average",
    "nnet3-compile",
    "nnet3-computation-info",
    "nnet3-compute",
    "nnet3-compute-batch",
    "nnet3-compute-from-egs",
    "nnet3-compute-prob",
    "nnet3-copy",
    "nnet3-copy-egs",
    "nnet3-get-egs",
    "nnet3-get-egs-dense-targets",
    "nnet3-info",
    "nnet3-init",
    "nnet3-merge-egs",
    "nnet3-show-progress",
    "nnet3-shuffle-egs",
    "nnet3-subset-egs",
    "nnet3-train",
    "nnet3-xvector-compute",
    "nnet3-xvector-get-egs",
)


def module_of(program: str) -> str:
    """The module whose `main` a program is."""
    return "nnet3tools.cli." + program.replace("-", "_")

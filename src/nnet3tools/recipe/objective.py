"""The interface of objectives: the programs that train and evaluate, and their examples.

The driver uses an objective through this interface only; chain models have another class.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nnet3tools.recipe.jobs import pipe_text

__all__ = [
    "FRAME_NAMES",
    "ExampleNames",
    "ExampleOrder",
    "FrameObjective",
    "Objective",
    "merged_diagnostics",
    "merged_examples",
]


@dataclass(frozen=True)
class ExampleNames:
    """Names of files of examples (egs.1.ark, combine.egs) and of the programs for them."""

    files: str = "egs"
    programs: str = "nnet3-"

    def archive(self, number: int | str, kind: str = "ark") -> str:
        """The name of a training archive, or of its script file."""
        return f"{self.files}.{number}.{kind}"

    def subset(self, name: str) -> str:
        """The name of an archive of examples for diagnostics or combination."""
        return f"{name}.{self.files}"

    def program(self, what: str) -> str:
        """The name of a program such as "copy-egs", with its prefix."""
        return self.programs + what


FRAME_NAMES = ExampleNames()


@dataclass(frozen=True)
class ExampleOrder:
    """The examples of a training job, their order, and the rule of minibatch sizes.

    `shift` is the frame that is used of each example, or the number of frames to shift by.
    """

    archive: int
    minibatch_size: str
    buffer_size: int
    srand: int
    shift: int | None = None
    augmentation: str = ""


class Objective(Protocol):
    """The programs of an objective."""

    @property
    def names(self) -> ExampleNames:
        """The names of its files of examples and of the programs for them."""

    def training_examples(self, egs: Path, order: ExampleOrder, is_multitask: bool) -> str:
        """The rspecifier of the minibatches of an archive."""

    def diagnostic_examples(self, egs: Path, name: str, sizes: str, is_multitask: bool) -> str:
        """The rspecifier of minibatches of "valid_diagnostic", "train_diagnostic" or "combine"."""

    def train(
        self, options: tuple[str, ...], model: str, examples: str, out: str
    ) -> tuple[str, ...]:
        """The command that trains."""

    def compute_prob(self, options: tuple[str, ...], model: str, examples: str) -> tuple[str, ...]:
        """The command that evaluates a model."""

    def combine(
        self, options: tuple[str, ...], models: tuple[str, ...], examples: str, out: str
    ) -> tuple[str, ...]:
        """The command that combines models."""


@dataclass(frozen=True)
class FrameObjective:
    """Targets of frames: cross-entropy or squared error."""

    names: ExampleNames = FRAME_NAMES

    def training_examples(self, egs: Path, order: ExampleOrder, is_multitask: bool) -> str:
        """The rspecifier of one frame of each example, shuffled and merged."""
        varied = f"nnet3-egs-augment-image {order.augmentation} ark:- ark:-"
        between = (varied,) if order.augmentation else ()
        return merged_examples(self.names, egs, order, "--frame", is_multitask, between)

    def diagnostic_examples(self, egs: Path, name: str, sizes: str, is_multitask: bool) -> str:
        """The rspecifier of copied and merged examples."""
        return merged_diagnostics(self.names, egs, name, sizes, is_multitask)

    def train(
        self, options: tuple[str, ...], model: str, examples: str, out: str
    ) -> tuple[str, ...]:
        """The words of nnet3-train."""
        return ("nnet3-train", *options, model, examples, out)

    def compute_prob(self, options: tuple[str, ...], model: str, examples: str) -> tuple[str, ...]:
        """The words of nnet3-compute-prob."""
        return ("nnet3-compute-prob", *options, model, examples)

    def combine(
        self, options: tuple[str, ...], models: tuple[str, ...], examples: str, out: str
    ) -> tuple[str, ...]:
        """The words of nnet3-combine."""
        return ("nnet3-combine", *options, *models, examples, out)


def merged_examples(
    names: ExampleNames,
    egs: Path,
    order: ExampleOrder,
    shift_option: str,
    is_multitask: bool,
    between: tuple[str, ...] = (),
) -> str:
    """The rspecifier of an archive's examples, copied at a shift, shuffled and merged.

    `between` are programs that change the examples before they are merged.
    """
    shift = "" if order.shift is None else f"{shift_option}={order.shift}"
    kind = "scp" if is_multitask else "ark"
    extra = _multitask_options(egs, f"{names.files}.", f".{order.archive}") if is_multitask else ""
    source = f"{kind}:{egs}/{names.archive(order.archive, kind)}"
    shuffling = f"--buffer-size={order.buffer_size} --srand={order.srand}"
    return "ark,bg:" + pipe_text(
        f"{names.program('copy-egs')} {shift} {extra} {source} ark:-",
        f"{names.program('shuffle-egs')} {shuffling} ark:- ark:-",
        *between,
        f"{names.program('merge-egs')} --minibatch-size={order.minibatch_size} ark:- ark:-",
    )


def merged_diagnostics(
    names: ExampleNames, egs: Path, name: str, sizes: str, is_multitask: bool
) -> str:
    """The rspecifier of a subset's examples, copied and merged."""
    source = f"scp:{egs}/{name}.scp" if is_multitask else f"ark:{egs}/{names.subset(name)}"
    extra = _multitask_options(egs, f"{name}.", "") if is_multitask else ""
    return "ark,bg:" + pipe_text(
        f"{names.program('copy-egs')} {extra} {source} ark:-",
        f"{names.program('merge-egs')} --minibatch-size={sizes} ark:- ark:-",
    )


def _multitask_options(egs: Path, prefix: str, suffix: str) -> str:
    """Options of nnet3-copy-egs for examples of several tasks: names of outputs, and weights."""
    found = []
    for option, name in (("outputs", "output"), ("weights", "weight")):
        path = f"{egs}/{prefix}{name}{suffix}.ark"
        if os.path.isfile(path):
            found.append(f"--{option}=ark:{path}")
    return " ".join(found)

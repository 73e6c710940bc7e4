"""Objectives: the programs that train and evaluate, and the examples that they read."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from nnet3tools.recipe.jobs import pipe_text


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


@dataclass(frozen=True)
class Objective(ABC):
    """The programs of an objective."""

    names: ExampleNames = FRAME_NAMES
    """The names of files of examples, and of the programs for them."""
    shift_option: ClassVar[str] = "--frame"
    """The option of the program that copies examples, with the value `ExampleOrder.shift`."""

    @abstractmethod
    def train(
        self, options: tuple[str, ...], model: str, examples: str, out: str
    ) -> tuple[str, ...]:
        """The command that trains."""

    @abstractmethod
    def compute_prob(self, options: tuple[str, ...], model: str, examples: str) -> tuple[str, ...]:
        """The command that evaluates a model."""

    @abstractmethod
    def combine(
        self, options: tuple[str, ...], models: tuple[str, ...], examples: str, out: str
    ) -> tuple[str, ...]:
        """The command that combines models."""

    def training_examples(self, egs: Path, order: ExampleOrder, is_multitask: bool) -> str:
        """The rspecifier of an archive's examples: copied at a shift, shuffled, varied, merged."""
        names = self.names
        shift = "" if order.shift is None else f"{self.shift_option}={order.shift}"
        source = f"ark:{egs}/{names.archive(order.archive)}"
        if is_multitask:
            outputs = _multitask_options(egs, f"{names.files}.", f".{order.archive}")
            source = f"{outputs} scp:{egs}/{names.archive(order.archive, 'scp')}"
        shuffling = f"--buffer-size={order.buffer_size} --srand={order.srand}"
        varied = f"nnet3-egs-augment-image {order.augmentation} ark:- ark:-"
        return "ark,bg:" + pipe_text(
            f"{names.program('copy-egs')} {shift} {source} ark:-",
            f"{names.program('shuffle-egs')} {shuffling} ark:- ark:-",
            *((varied,) if order.augmentation else ()),
            f"{names.program('merge-egs')} --minibatch-size={order.minibatch_size} ark:- ark:-",
        )

    def diagnostic_examples(self, egs: Path, name: str, sizes: str, is_multitask: bool) -> str:
        """The rspecifier of "valid_diagnostic", "train_diagnostic" or "combine", merged."""
        source = f"ark:{egs}/{self.names.subset(name)}"
        if is_multitask:
            source = f"{_multitask_options(egs, f'{name}.', '')} scp:{egs}/{name}.scp"
        return "ark,bg:" + pipe_text(
            f"{self.names.program('copy-egs')} {source} ark:-",
            f"{self.names.program('merge-egs')} --minibatch-size={sizes} ark:- ark:-",
        )


class FrameObjective(Objective):
    """Targets of frames: cross-entropy or squared error."""

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


def _multitask_options(egs: Path, prefix: str, suffix: str) -> str:
    """Options of nnet3-copy-egs for examples of several tasks: names of outputs, and weights."""
    found = []
    for option, name in (("outputs", "output"), ("weights", "weight")):
        path = f"{egs}/{prefix}{name}{suffix}.ark"
        if os.path.isfile(path):
            found.append(f"--{option}=ark:{path}")
    return " ".join(found)

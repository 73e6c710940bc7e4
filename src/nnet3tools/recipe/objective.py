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
    """Names of example files (egs.1.ark, combine.egs) and of the programs that handle them."""

    files: str = "egs"
    programs: str = "nnet3-"

    def archive(self, number: int | str, kind: str = "ark") -> str:
        """The file name of training archive `number`, or of its script file (`kind` "scp")."""
        return f"{self.files}.{number}.{kind}"

    def subset(self, name: str) -> str:
        """The file name of the examples `name` for diagnostics or combination."""
        return f"{name}.{self.files}"

    def program(self, what: str) -> str:
        """The full name of a program; `what` is the name without prefix, such as "copy-egs"."""
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
    """Builds the commands that train, evaluate and combine models by one objective."""

    names: ExampleNames = FRAME_NAMES
    """The names of files of examples, and of the programs for them."""
    shift_option: ClassVar[str] = "--frame"
    """The option of the program that copies examples, with the value `ExampleOrder.shift`."""

    @abstractmethod
    def train(
        self, options: tuple[str, ...], model: str, examples: str, out: str
    ) -> tuple[str, ...]:
        """The words of the command that trains `model` and writes the result to `out`."""

    @abstractmethod
    def compute_prob(self, options: tuple[str, ...], model: str, examples: str) -> tuple[str, ...]:
        """The words of the command that evaluates `model` on examples."""

    @abstractmethod
    def combine(
        self, options: tuple[str, ...], models: tuple[str, ...], examples: str, out: str
    ) -> tuple[str, ...]:
        """The words of the command that combines `models` into the model `out`."""

    def training_examples(self, egs: Path, order: ExampleOrder, is_multitask: bool) -> str:
        """The rspecifier of a job's examples: a pipe that copies, shuffles, varies, merges."""
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
        """The rspecifier of the subset `name`, such as "combine", merged by the rule `sizes`."""
        source = f"ark:{egs}/{self.names.subset(name)}"
        if is_multitask:
            source = f"{_multitask_options(egs, f'{name}.', '')} scp:{egs}/{name}.scp"
        return "ark,bg:" + pipe_text(
            f"{self.names.program('copy-egs')} {source} ark:-",
            f"{self.names.program('merge-egs')} --minibatch-size={sizes} ark:- ark:-",
        )


class FrameObjective(Objective):
    """Commands for frame-level objectives: cross-entropy or squared error."""

    def train(
        self, options: tuple[str, ...], model: str, examples: str, out: str
    ) -> tuple[str, ...]:
        """The words of the nnet3-train command that writes the model `out`."""
        return ("nnet3-train", *options, model, examples, out)

    def compute_prob(self, options: tuple[str, ...], model: str, examples: str) -> tuple[str, ...]:
        """The words of the nnet3-compute-prob command for a model and examples."""
        return ("nnet3-compute-prob", *options, model, examples)

    def combine(
        self, options: tuple[str, ...], models: tuple[str, ...], examples: str, out: str
    ) -> tuple[str, ...]:
        """The words of the nnet3-combine command that writes the model `out`."""
        return ("nnet3-combine", *options, *models, examples, out)


def _multitask_options(egs: Path, prefix: str, suffix: str) -> str:
    """The options of nnet3-copy-egs that rename outputs and weight examples of several tasks."""
    found = []
    for option, name in (("outputs", "output"), ("weights", "weight")):
        path = f"{egs}/{prefix}{name}{suffix}.ark"
        if os.path.isfile(path):
            found.append(f"--{option}=ark:{path}")
    return " ".join(found)

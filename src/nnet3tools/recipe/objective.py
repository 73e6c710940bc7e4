"""Objectives: the programs that train and evaluate, and the examples that they read."""

from __future__ import annotations

from pathlib import Path

from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io.checked import exists
from nnet3tools.recipe.jobs import pipe_text


@dataclass(frozen=True)
class ExampleOrder:
    """The examples that a training job reads: the number of the archive, and how to read it.

    `shift` is the frame to use of each example or, for chain examples, the frames to shift by.
    `buffer_size`, `srand`: for shuffling. `augmentation` has options of nnet3-egs-augment-image.
    """

    archive: int
    minibatch_size: str
    buffer_size: int
    srand: int
    shift: int
    augmentation: tuple[str, ...] = ()


@dataclass(frozen=True)
class Objective:
    """Names, programs and options that depend on the objective and the kind of examples."""

    minibatch_size: str
    """The value of --minibatch-size for training jobs."""
    combination_sizes: str
    """The value of --minibatch-size for combining models."""
    passes_per_archive: int
    """How often an epoch reads each archive: once, or once per frame or shift of its examples."""
    shift_option: str = ""
    """The option of the program that copies examples, with a value for each pass; "" for none."""
    jobs_per_archive: int = 1
    """Training jobs that may read an archive at once."""
    extra_context: int = 0
    """Frames that shifts of examples need on each side besides the network's context."""
    backstitch_growth: int = 0
    """Iterations until backstitch has its full scale."""
    reported_quantity: str = "accuracies"
    """The quantity of log files that accuracy.report shows."""
    files: str = "egs"
    """The part of file names that stands for examples: egs.1.ark, combine.egs."""
    programs: str = "nnet3-"
    """The beginning of the names of programs."""
    graph: tuple[str, ...] = ()
    """The denominator graph among the arguments of programs, if there is one."""
    train_options: tuple[str, ...] = ()
    """The objective's options of the training program, before those of the iteration."""
    last_train_options: tuple[str, ...] = ()
    """The user's options of the training program, after those of the iteration."""
    prob_options: tuple[str, ...] = ()
    """The objective's options of the program that evaluates models."""
    combine_options: tuple[str, ...] = ()
    """The objective's options of the program that combines models."""

    def archive(self, number: int | str, kind: str = "ark") -> str:
        """The file name of training archive `number`, or of its index for `kind` "scp"."""
        return f"{self.files}.{number}.{kind}"

    def subset(self, name: str) -> str:
        """The file name of the subset of examples `name`, for diagnostics or combination."""
        return f"{name}.{self.files}"

    def program(self, what: str) -> str:
        """The program name: `what`, such as "copy-egs", with the prefix of the objective."""
        return self.programs + what

    def train(
        self, options: tuple[str, ...], model: str, examples: str, out: str
    ) -> tuple[str, ...]:
        """The words of the command that trains `model` on `examples` and writes the model `out`."""
        given = (*self.train_options, *options, *self.last_train_options)
        return (self.program("train"), *given, model, *self.graph, examples, out)

    def compute_prob(self, options: tuple[str, ...], model: str, examples: str) -> tuple[str, ...]:
        """The words of the command that evaluates `model` on examples."""
        given = (*self.prob_options, *options)
        return (self.program("compute-prob"), *given, model, *self.graph, examples)

    def combine(
        self, options: tuple[str, ...], models: tuple[str, ...], examples: str, out: str
    ) -> tuple[str, ...]:
        """Words of the command that combines `models` into `out`, judged on table `examples`."""
        given = (*self.combine_options, *options)
        return (self.program("combine"), *given, *self.graph, *models, examples, out)

    def training_examples(self, egs: Path, order: ExampleOrder, is_multitask: bool) -> str:
        """The rspecifier of a job's examples in `egs`: a pipe that copies, shuffles and merges."""
        shift = (f"{self.shift_option}={order.shift}",) if self.shift_option else ()
        source: tuple[str, ...] = (f"ark:{egs}/{self.archive(order.archive)}",)
        if is_multitask:
            outputs = _multitask_options(egs, f"{self.files}.", f".{order.archive}")
            source = (*outputs, f"scp:{egs}/{self.archive(order.archive, 'scp')}")
        shuffling = (f"--buffer-size={order.buffer_size}", f"--srand={order.srand}")
        varied = ("nnet3-egs-augment-image", *order.augmentation, "ark:-", "ark:-")
        return "ark,bg:" + pipe_text(
            (self.program("copy-egs"), *shift, *source, "ark:-"),
            (self.program("shuffle-egs"), *shuffling, "ark:-", "ark:-"),
            *((varied,) if order.augmentation else ()),
            self._merge(order.minibatch_size),
        )

    def diagnostic_examples(self, egs: Path, name: str, sizes: str, is_multitask: bool) -> str:
        """The rspecifier of subset `name` ("combine" etc.) in `egs`, merged by the rule `sizes`."""
        source: tuple[str, ...] = (f"ark:{egs}/{self.subset(name)}",)
        if is_multitask:
            source = (*_multitask_options(egs, f"{name}.", ""), f"scp:{egs}/{name}.scp")
        return "ark,bg:" + pipe_text(
            (self.program("copy-egs"), *source, "ark:-"), self._merge(sizes)
        )

    def _merge(self, sizes: str) -> tuple[str, ...]:
        """The words of the command that merges examples in a pipe by the rule `sizes`."""
        return (self.program("merge-egs"), f"--minibatch-size={sizes}", "ark:-", "ark:-")


def _multitask_options(egs: Path, prefix: str, suffix: str) -> list[str]:
    """Options of nnet3-copy-egs that rename outputs and weight the examples of each task.

    They name the files PREFIXoutputSUFFIX.ark and PREFIXweightSUFFIX.ark in `egs` that exist.
    """
    found = []
    for option, name in (("outputs", "output"), ("weights", "weight")):
        path = f"{egs}/{prefix}{name}{suffix}.ark"
        if exists(path):
            found.append(f"--{option}=ark:{path}")
    return found

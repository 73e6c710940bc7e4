"""Training from Python: examples from arrays, minibatches, and the trainer."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from nnet3tools.api.arrays import float_matrix, numbers
from nnet3tools.api.random_numbers import RandomNumbers
from nnet3tools.errors import DataError, EmptyError
from nnet3tools.io.posterior import Posterior
from nnet3tools.nnet.finite import check_nnet_finite
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.training.example import EXAMPLE, ExampleTally, NnetExample, for_each_of_kind
from nnet3tools.training.generation import MatrixTargets, PosteriorTargets, examples_of_utterance
from nnet3tools.training.merging import MERGEABLE_FRAMES, ExampleMerger
from nnet3tools.training.minibatch_rules import ExampleMergingOptions
from nnet3tools.training.reporting import ratio
from nnet3tools.training.same_layout import DecodableExample
from nnet3tools.training.splitting import ExampleGenerationOptions, UtteranceSplitter
from nnet3tools.training.trainer import NnetTrainer, NnetTrainerOptions


def make_examples(
    features: ArrayLike,
    targets: ArrayLike | Posterior,
    num_targets: int,
    *,
    left_context: int = 0,
    right_context: int = 0,
    num_frames: int | str = 1,
    frame_subsampling_factor: int = 1,
    compress: bool = True,
) -> list[NnetExample]:
    """The training examples of one utterance, as nnet3-get-egs makes them.

    `features` have shape (frames, dim). `targets` are the class of each frame (integers below
    `num_targets`), a Posterior, or a matrix (frames, num_targets) for a linear or quadratic
    objective; there is one target per `frame_subsampling_factor` frames. An example has targets for
    `num_frames` frames (or text as of --num-frames, such as "40,25,50") and the contexts given,
    which should be those of `Nnet.context`. DataError if shapes do not fit.
    """
    matrix = float_matrix("features", features)
    if not isinstance(targets, Posterior):
        targets = numbers("targets", targets)
    found: MatrixTargets | PosteriorTargets
    if isinstance(targets, np.ndarray) and targets.ndim == 2:
        found = MatrixTargets("", float_matrix("targets", targets), num_targets)
    else:
        if isinstance(targets, np.ndarray):
            if targets.ndim != 1 or targets.dtype.kind not in "iu":
                raise DataError(f"expected integers (frames,), found {targets.dtype} targets")
            ones = np.ones(len(targets))
            targets = Posterior.from_counts(ones.astype(int), targets, ones)
        found = PosteriorTargets("", targets, num_targets)
    options = ExampleGenerationOptions(
        left_context,
        right_context,
        num_frames=str(num_frames),
        frame_subsampling_factor=frame_subsampling_factor,
    )
    splitter = UtteranceSplitter(options)
    if not splitter.lengths_match("", len(matrix), len(found), 0):
        raise DataError(f"{len(matrix)} frames of features have {len(found)} targets")
    with RandomNumbers(0):
        _, groups = examples_of_utterance("", matrix, found, splitter, compress)
    examples = {place: group.example(i) for group in groups for i, place in enumerate(group.places)}
    return [examples[i] for i in range(len(examples))]


def merge_examples(
    examples: Iterable[NnetExample], minibatch_size: int | str = 64
) -> list[NnetExample]:
    """Minibatches of examples, in their order, as nnet3-merge-egs makes them.

    `minibatch_size` is a number or one of Kaldi's rules, such as "64,32" (32 where fewer than 64
    are left). Examples at the end that fill no minibatch are left out.
    """
    minibatches: list[NnetExample] = []

    def write(_: str, minibatch: DecodableExample) -> None:
        assert isinstance(minibatch, NnetExample)  # so are the examples
        minibatches.append(minibatch)

    options = ExampleMergingOptions(minibatch_size=str(minibatch_size))
    merger = ExampleMerger(MERGEABLE_FRAMES, options, write)
    for example in examples:
        merger.accept(example)
    merger.finish()
    return minibatches


class Trainer:
    """Trains a network in place by stochastic gradient descent, as nnet3-train.

    With equal `seed`, options and examples the results are equal. Trainers of one process do not
    influence each other; in several threads they take turns.
    """

    def __init__(
        self, nnet: Nnet, options: NnetTrainerOptions | None = None, *, seed: int = 0
    ) -> None:
        """Prepare to train with --srand=`seed` and options such as TrainerOptions(momentum=0.9)."""
        check_nnet_finite(nnet, "the network")
        self.nnet = nnet
        self._random = RandomNumbers(seed)
        with self._random:
            self._trainer = NnetTrainer(options or NnetTrainerOptions(), nnet)

    def train(self, minibatches: str | Iterable[NnetExample]) -> dict[str, float]:
        """Train on minibatches; returns their mean objective per frame by output name.

        `minibatches` are an rspecifier, such as "ark:nnet3-merge-egs ark:1.egs ark:- |", or
        examples from `merge_examples`. Examples with NaN or infinity are left out with a warning.
        EmptyError if there are no examples, DataError if they do not fit, DivergedError or
        DataError if the network is no longer finite.
        """
        name = minibatches if isinstance(minibatches, str) else "minibatches"
        before = self._sums()
        with self._random:
            if isinstance(minibatches, str):
                for_each_of_kind(EXAMPLE, minibatches, self._train_on)
            else:
                tally = ExampleTally(name)
                tally.work(((str(i), e) for i, e in enumerate(minibatches)), self._train_on)
                tally.report()
        self._trainer.require_finite()
        sums = {key: value - before.get(key, 0.0) for key, value in self._sums().items()}
        means = {key: float(ratio(*value)) for key, value in sums.items() if value[1]}
        if not means:
            raise EmptyError(f"{name}: no examples to train on")
        return means

    def _train_on(self, key: str, minibatch: NnetExample) -> None:
        self._trainer.train(minibatch)

    def _sums(self) -> dict[str, np.ndarray]:
        """By output name, the array [objective, weight], summed over all minibatches so far."""
        totals = self._trainer.totals
        return {
            k: np.array([float(t.all.objective), float(t.all.weight)]) for k, t in totals.items()
        }

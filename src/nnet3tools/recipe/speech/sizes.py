"""The table of sizes: what suits an amount of training sound, and the time and disk it needs."""

from __future__ import annotations

import math

from nnet3tools.errors import OptionError
from nnet3tools.fast_dataclasses import dataclass

FRAMES_PER_HOUR = 360_000
NUM_CEPSTRA = 40


@dataclass(frozen=True)
class Size:
    """A row of the table of model sizes, for an amount of sound (reasons: docs/own-data.md).

    Pairs are for the first and the second model, but `learning_rates` and `num_jobs` are for
    the beginning and the end of each training.
    """

    name: str
    most_hours: float
    """The hours of training sound, without copies, up to which --size=auto takes this row."""
    dim: int
    bottleneck_dim: int
    strides: tuple[int, ...]
    """The time stride of each TDNN-F layer, in input frames."""
    num_copies: int
    """Copies of each utterance at allowed lengths, for the flat start."""
    speeds: tuple[float, ...]
    """Speeds of the second model's data; empty: it is trained on the copies of the flat start."""
    has_spec_augment: bool
    """Whether the second model is trained with SpecAugment."""
    passes: tuple[int, int]
    """Passes over all copies of the flat start and of the second model, at least."""
    learning_rates: tuple[float, float]
    """The first and the last learning rate of both trainings."""
    l2: tuple[float, float]
    """l2-regularize of the layers of the flat start and of the second model."""
    min_biphone_count: int
    """Occurrences in the transcripts from which a left biphone has its own pdfs."""
    minibatches: tuple[str, str]
    """Rules of minibatch sizes; those of the flat start are by length in frames."""
    num_jobs: tuple[int, int]
    """Training jobs at the beginning and at the end."""
    frames_per_iter: int
    """Frames in an archive of examples."""

    @property
    def num_parameters(self) -> int:
        """The approximate number of parameters of one network."""
        layer = 5 * self.dim * self.bottleneck_dim
        return len(self.strides) * layer + (3 * NUM_CEPSTRA + 1000) * self.dim

    def copied_frames(self, num_seconds: float) -> tuple[int, int]:
        """The number of frames, with all copies, in the first and the second model's training data.

        `num_seconds` is the duration of the training sound.
        """
        frames = round(num_seconds * FRAMES_PER_HOUR / 3600)
        first = frames * self.num_copies
        return first, frames * len(self.speeds) if self.speeds else first

    def num_passes(self, model: int, num_frames: int) -> int:
        """The training passes of model 0 (flat start) or 1 over its frames; more for small data."""
        for_small_data = min(_MOST_PASSES[model], math.ceil(_LEAST_FRAMES / max(num_frames, 1)))
        return max(self.passes[model], for_small_data)

    def stage_seconds(self, num_seconds: float) -> dict[str, float]:
        """The expected seconds of each stage, by title, for `num_seconds` of training sound."""
        frames = self.copied_frames(num_seconds)
        trained = []
        for model in (0, 1):
            passes = self.num_passes(model, frames[model])
            computed = frames[model] * passes * self.num_parameters * _FRAME_AND_PARAMETER
            iterations = passes * (frames[model] // self.frames_per_iter + 1)
            trained.append(5.0 + (computed + iterations * _ITERATION) / max(self.num_jobs))
        features = 1.0 + frames[0] * 8e-6
        short = dict.fromkeys(("lang", "said", "graph", "scales", "scores"), 1.0)
        return short | {
            "features": features,
            "graphs": 1.0 + frames[0] * 5e-6,
            "flat": trained[0],
            "align": 1.0 + frames[1] * 8e-6 + (features if self.speeds else 0.0),
            "chain": trained[1],
        }

    def bytes_needed(self, num_seconds: float, rate: int) -> int:
        """The approximate peak bytes of the output directory for `num_seconds` at `rate` Hz."""
        first, second = self.copied_frames(num_seconds)
        features = NUM_CEPSTRA * (first + (second if self.speeds else 0))
        # Examples are there twice while they are shuffled; graphs and supervisions are as large.
        examples = 4 * NUM_CEPSTRA * max(first, second)
        models = 4 * self.num_parameters * _MODELS_KEPT * 2
        return round(2 * rate * num_seconds + features + examples + models)


_FRAME_AND_PARAMETER = 4.5e-11
"""Seconds of one core for a frame and a parameter in training: AN4's 12 M frames and 0.57 M
parameters took 337 s."""
_ITERATION = 2.0
"""Seconds of an iteration besides: start, diagnostics, report."""
_MODELS_KEPT = 25

_LEAST_FRAMES, _MOST_PASSES = 1_000_000, (24, 12)
"""Training goes on until it has seen so many frames, or made so many passes: of the first model,
and of the second, which learns very small data by heart (after 24 passes over 60 recordings it made
7 errors in 30 words of other voices, after 12 passes 5)."""
_STRIDES = (1, 1, 0, 3, 3, 3, 3)
_CPU_LENGTHS = "80=1:32/150=1:20/300=1:12/700=1:6/1500=1:3/3000=1:1"
_GPU_LENGTHS = "80=1:128/150=1:64/300=1:48/700=1:24/1500=1:12/3000=1:6"
_SPEEDS = (0.9, 1.0, 1.1)

SIZES = (
    Size(
        "tiny", 0.25, 64, 16, _STRIDES, 4, (), False, (2, 2), (0.004, 0.0008), (0.01, 0.02),
        60, (_CPU_LENGTHS, "1:24"), (1, 1), 400_000,
    ),
    Size(
        "small", 3.0, 256, 64, _STRIDES, 4, (), False, (10, 6), (0.002, 0.0002), (0.01, 0.02),
        120, (_CPU_LENGTHS, "1:24"), (1, 1), 400_000,
    ),
    Size(
        "medium", 20.0, 512, 96, (1, 1, 1, 0, *[3] * 5), 2, _SPEEDS, True, (12, 18),
        (0.001, 0.0001), (0.01, 0.02), 200, (_GPU_LENGTHS, "1:64"), (1, 2), 1_000_000,
    ),
    Size(
        "large", 200.0, 1024, 128, (1, 1, 1, 0, *[3] * 8), 2, _SPEEDS, True, (6, 12),
        (0.0005, 0.00005), (0.005, 0.01), 500, (_GPU_LENGTHS, "1:128"), (2, 4), 1_500_000,
    ),
    Size(
        "huge", math.inf, 1536, 160, (1, 1, 1, 0, *[3] * 12), 1, _SPEEDS, True, (3, 6),
        (0.00025, 0.000025), (0.002, 0.008), 1000, (_GPU_LENGTHS, "1:128"), (3, 8), 1_500_000,
    ),
)  # fmt: skip


def size_for(name: str, hours: float) -> Size:
    """The Size called `name` or, for "auto", that for `hours` of sound; OptionError if none."""
    for size in SIZES:
        if size.name == name or (name == "auto" and hours <= size.most_hours):
            return size
    names = ", ".join(size.name for size in SIZES)
    raise OptionError(f"--size={name}: expected auto or one of {names}")

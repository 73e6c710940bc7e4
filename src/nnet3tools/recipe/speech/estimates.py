"""Estimates, before a training, of its time and of the disk that it needs."""

from __future__ import annotations

from nnet3tools.recipe.speech.networks import NUM_CEPSTRA
from nnet3tools.recipe.speech.setup import Setup
from nnet3tools.recipe.speech.sizes import Size

_FRAME_AND_PARAMETER = 4.5e-11
"""Seconds of one core for a frame and a parameter in training: AN4's 12 M frames and 0.57 M
parameters took 337 s."""
_ITERATION = 1.0
_MODELS_KEPT = 25


def num_parameters(size: Size) -> int:
    """About the number of parameters of a network of this size."""
    layer = 5 * size.dim * size.bottleneck_dim
    return len(size.strides) * layer + (3 * NUM_CEPSTRA + 1000) * size.dim


def _copied_frames(setup: Setup) -> tuple[int, int]:
    """The frames of the data of both models, with all copies."""
    frames, size = setup.train_frames, setup.size
    first = frames * size.num_copies
    return first, frames * len(size.speeds) if size.speeds else first


def stage_seconds(setup: Setup) -> dict[str, float]:
    """The expected seconds of each stage, on the cores of one machine."""
    size, frames = setup.size, _copied_frames(setup)
    trained = []
    for model in (0, 1):
        passes = size.num_passes(model, frames[model])
        computed = frames[model] * passes * num_parameters(size) * _FRAME_AND_PARAMETER
        iterations = passes * (frames[model] / size.frames_per_iter + 1)
        trained.append(5.0 + (computed + iterations * _ITERATION) / max(size.num_jobs))
    features = 3.0 + frames[0] * 8e-6
    return {
        "features": features,
        "lang": 3.0,
        "graphs": 3.0 + frames[0] * 5e-6,
        "flat": trained[0],
        "align": 3.0 + frames[1] * 8e-6 + (features if size.speeds else 0.0),
        "said": 3.0,
        "chain": trained[1],
        "graph": 3.0,
        "scales": 3.0 + setup.train_frames * 2e-6,
        "scores": 5.0 + setup.train_frames * 2e-6,
    }


def bytes_needed(setup: Setup) -> int:
    """About the largest number of bytes in the output directory during the training."""
    sound = 2 * setup.facts.rate * setup.facts.num_seconds
    first, second = _copied_frames(setup)
    features = NUM_CEPSTRA * (first + (second if setup.size.speeds else 0))
    # Examples are there twice while they are shuffled; graphs and supervisions are as large.
    examples = 4 * NUM_CEPSTRA * max(first, second)
    models = 4 * num_parameters(setup.size) * _MODELS_KEPT * 2
    return round(sound + features + examples + models)

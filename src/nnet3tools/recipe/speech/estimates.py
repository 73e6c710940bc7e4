"""Estimates, before a training, of its time and of the disk that it needs."""

from __future__ import annotations

from nnet3tools.recipe.speech.setup import Setup
from nnet3tools.recipe.speech.sizes import NUM_CEPSTRA

_FRAME_AND_PARAMETER = 4.5e-11
"""Seconds of one core for a frame and a parameter in training: AN4's 12 M frames and 0.57 M
parameters took 337 s."""
_ITERATION = 1.0
_MODELS_KEPT = 25


def stage_seconds(setup: Setup) -> dict[str, float]:
    """The expected seconds of each stage, on the cores of one machine."""
    size, frames = setup.size, setup.size.copied_frames(setup.facts.num_seconds)
    trained = []
    for model in (0, 1):
        passes = size.num_passes(model, frames[model])
        computed = frames[model] * passes * size.num_parameters * _FRAME_AND_PARAMETER
        iterations = passes * (frames[model] / size.frames_per_iter + 1)
        trained.append(5.0 + (computed + iterations * _ITERATION) / max(size.num_jobs))
    features = 3.0 + frames[0] * 8e-6
    short = dict.fromkeys(("lang", "said", "graph", "scales", "scores"), 3.0)
    return short | {
        "features": features,
        "graphs": 3.0 + frames[0] * 5e-6,
        "flat": trained[0],
        "align": 3.0 + frames[1] * 8e-6 + (features if size.speeds else 0.0),
        "chain": trained[1],
    }


def bytes_needed(setup: Setup) -> int:
    """About the largest number of bytes in the output directory during the training."""
    sound = 2 * setup.facts.rate * setup.facts.num_seconds
    first, second = setup.size.copied_frames(setup.facts.num_seconds)
    features = NUM_CEPSTRA * (first + (second if setup.size.speeds else 0))
    # Examples are there twice while they are shuffled; graphs and supervisions are as large.
    examples = 4 * NUM_CEPSTRA * max(first, second)
    models = 4 * setup.size.num_parameters * _MODELS_KEPT * 2
    return round(sound + features + examples + models)

"""The global random generator, Kaldi's: single numbers as in `draws`, and arrays of them.

For an equal --srand, shuffles, samples and (on the CPU) initial parameters repeat Kaldi's.
"""

from __future__ import annotations

import numpy as np

from nnet3tools.draws import (
    RAND_MAX,
    get_state,
    last_seeding,
    rand,
    rand_int,
    seed,
    set_state,
    with_prob,
)
from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.registry import operator


def rand_uniform() -> np.float32:
    """A random number, uniform in (0, 1), from the global generator; Kaldi's RandUniform."""
    return np.float32((rand() + 1.0) / (RAND_MAX + 2.0))


@operator()
def uniform(out: Array) -> None:
    """Fill out with numbers uniform in (0, 1], row by row, from a stream seeded by one `rand`."""
    out[...] = np.random.default_rng(rand()).uniform(size=out.shape)


@operator()
def normal(out: Array) -> None:
    """Fill out with standard normal numbers from a stream seeded by one `rand`."""
    out[...] = np.random.default_rng(rand()).normal(size=out.shape)

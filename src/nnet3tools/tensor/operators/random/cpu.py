"""Kaldi's uniform numbers by a compiled kernel: the same bits as plain.py."""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.cpu.choice import are_native
from nnet3tools.tensor.cpu.jobs import run_if_made
from nnet3tools.tensor.cpu.kernels import kernels_of_file
from nnet3tools.tensor.operators.random.plain import compiled_draw

_BLOCK = 1 << 12
"""Numbers in a step of the kernel's job."""
KERNEL = kernels_of_file(__file__)["uniform"]


def draw_uniform(out: np.ndarray, state: int) -> bool:
    """Fill a float32 vector with Kaldi's uniform numbers by a compiled kernel.

    `state` is the first state of rand_r. Returns whether it was done: not if the kernel is not
    compiled yet; the next compilation will include it.
    """
    if not are_native():
        return False
    steps = -(-len(out) // _BLOCK)
    return run_if_made(KERNEL.job(steps, len(out), out=out, count=len(out), state=state))


compiled_draw.append(draw_uniform)

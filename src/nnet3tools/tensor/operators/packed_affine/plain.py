"""The C kernel for calls outside of recordings on a CPU, which give the bytes of a replay."""

from __future__ import annotations

from functools import partial

from nnet3tools.tensor.cpu.jobs import bind_kernel
from nnet3tools.tensor.operators.packed_affine import packed_affine
from nnet3tools.tensor.registry import implements

implements("packed_affine", "numpy", ("float32",), binder=True)(partial(bind_kernel, packed_affine))

"""Packed products on CUDA are refused, like those of integers."""

from __future__ import annotations

from nnet3tools.tensor.operators.integer_affine.cuda import refuse
from nnet3tools.tensor.registry import implements

implements("packed_affine", "cupy", types=("float32",))(refuse)

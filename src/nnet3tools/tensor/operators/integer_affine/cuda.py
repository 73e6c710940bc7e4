"""Integer products on CUDA are refused."""

from __future__ import annotations

from typing import Any

from nnet3tools.errors import UserError
from nnet3tools.tensor.registry import implements


@implements("quantize_rows", "cupy", types=("uint8", "int16"))
@implements("integer_affine", "cupy", types=("float32",))
def refuse(*operands: Any, **options: Any) -> None:
    """Raise UserError: products with integer weights run on a CPU only."""
    raise UserError(
        "a quantized network runs on a CPU only: use --use-gpu=no, or nnet3-copy --dequantize=true"
    )

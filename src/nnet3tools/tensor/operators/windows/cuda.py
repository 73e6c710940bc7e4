"""Windows on CUDA: formulas over strided views."""

from __future__ import annotations

from nnet3tools.tensor.aggregate import aggregate
from nnet3tools.tensor.call import in_turn
from nnet3tools.tensor.cuda.device import Array
from nnet3tools.tensor.cuda.launches import Step
from nnet3tools.tensor.element import element
from nnet3tools.tensor.operators.windows import windows_of
from nnet3tools.tensor.registry import implements

_window_dots = aggregate("_1 * _2", "sum", axis=3)
_weighted_windows = aggregate("_1 * _2", "sum", axis=2)
_add_product = element("_1 += _2 * _3 * _4")


@implements("window_dots", "cupy", binder=True)
def bind_window_dots(out: Array, a: Array, b: Array, shift: int, alpha: float = 1.0) -> Step:
    """A callable that runs `window_dots`: one reduction of a view with each window's K rows."""
    windows = windows_of(b, len(a), out.shape[2], shift)
    return _window_dots.bind(out, a[:, :, None, :], windows, alpha=alpha)


@implements("add_weighted_windows", "cupy", binder=True)
def bind_add_weighted_windows(
    out: Array, b: Array, weights: Array, shift: int, alpha: float = 1.0
) -> Step:
    """A callable that runs `add_weighted_windows` on these arrays: one reduction on the GPU."""
    windows = windows_of(b, len(out), weights.shape[2], shift)
    return _weighted_windows.bind(out, weights[..., None], windows, alpha=alpha, beta=1.0)


@implements("add_to_windows", "cupy", binder=True)
def bind_add_to_windows(b: Array, a: Array, weights: Array, shift: int, alpha: float = 1.0) -> Step:
    """A callable that runs `add_to_windows`: a formula for each of the K rows of a window."""
    targets = (b[k * shift : k * shift + len(a)] for k in range(weights.shape[2]))
    return in_turn(
        _add_product.bind(target, a, weights[:, :, k : k + 1], float(alpha))
        for k, target in enumerate(targets)
    )

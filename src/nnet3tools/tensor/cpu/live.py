"""Compiled kernels at the first run: for operators of many steps, which no recording waits for.

LF-MMI's acceptors differ in each minibatch, so that its work is never recorded on a CPU. Of NumPy's
time, which is that of a few calls a frame, kernels take a sixth (32 sequences) to a fourteenth (12)
for the denominator of benchmarks/, a third for its numerators.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from nnet3tools.tensor.cpu.choice import are_native
from nnet3tools.tensor.registry import Operator, device_of

__all__ = ["run_compiled"]


def run_compiled(operator: Operator, *operands: Any) -> None:
    """What `operator(*operands)` does, on a CPU by compiled kernels if there are any."""
    do = partial(operator, *operands)
    if device_of(operands[0]) == "numpy" and are_native():
        _series(operator, operands, do)()
    else:
        do()


def _series(
    operator: Operator, operands: tuple[Any, ...], do: Callable[[], Any]
) -> Callable[[], None]:
    # slow to import, and not needed with --cpu-kernels=numpy
    from nnet3tools.tensor.cpu.calls import jobs_of
    from nnet3tools.tensor.cpu.jobs import Series
    from nnet3tools.tensor.recording import Origin

    return Series([(jobs_of(Origin(operator, operands, {})), do)])

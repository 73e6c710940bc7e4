"""--use-gpu: which device a program computes on."""

from __future__ import annotations

import importlib.util
from typing import Any

from nnet3tools.cli.option_specs import option
from nnet3tools.errors import OptionError, UserError
from nnet3tools.io import log

__all__ = ["choose_device", "use_gpu_option"]

_CHOICES = ("yes", "no", "optional", "wait")


class _NotGiven(str):
    """A default that can be told from the same text on the command line."""


def use_gpu_option(default: str) -> str:
    """The field `use_gpu: str = use_gpu_option("yes")`, with Kaldi's default for the program."""
    return option(_NotGiven(default), "yes|no|optional|wait, only has effect if there is a GPU")


def choose_device(use_gpu: str) -> Any:
    """An empty array on the chosen device, to be passed as `like`.

    `yes` and `wait`, if they were asked for, need a usable GPU (else UserError); `optional`, and a
    program's own default, fall back to the CPU with a warning.
    """
    if use_gpu not in _CHOICES:
        raise OptionError(f"--use-gpu={use_gpu}: expected {'|'.join(_CHOICES)}")
    import numpy as np

    if use_gpu == "no":
        return np.empty(0, np.float32)
    problem, array = _try_gpu()
    if not problem:
        return array
    if use_gpu == "optional" or isinstance(use_gpu, _NotGiven):
        log.warning(f"no usable GPU ({problem}); computing on the CPU")
        return np.empty(0, np.float32)
    raise UserError(f"--use-gpu={use_gpu}: no usable GPU ({problem})")


def _try_gpu() -> tuple[str, Any]:
    """What is wrong with the GPU ("" if nothing), and an empty array on it."""
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed", None
    if importlib.util.find_spec("nnet3tools.tensor.cupy_backend") is None:
        return "this version has no CuPy backend", None
    try:
        import cupy

        if cupy.cuda.runtime.getDeviceCount() == 0:
            return "CUDA sees no device", None
        return "", cupy.empty(0, cupy.float32)
    except Exception as error:  # CuPy raises what its driver gives it
        return " ".join(str(error).split()) or type(error).__name__, None

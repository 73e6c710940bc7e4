"""The --cuda-* options of Kaldi's programs (cu-device.h, cu-allocator.h) and what they do here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nnet3tools.cli.gpu import math_if_possible
from nnet3tools.errors import OptionError
from nnet3tools.options import option

__all__ = ["CudaAllocatorOptions", "CudaDeviceOptions"]

_LEAST, _MOST = 0.05, 0.99
"""Proportions of a GPU's memory that Kaldi's allocator takes."""


class _Default(float):
    """A default that can be told from the same number on the command line."""


@dataclass(frozen=True)
class CudaDeviceOptions:
    """What Kaldi's CuDevice registers: two of the choices of --gpu-math by other names."""

    cuda_use_tensor_cores: bool = option(
        False,
        "Enable FP16 tensor math. This is higher performance but less accuracy. This is only "
        "recommended for inference. The same as --gpu-math=fp16.",
    )
    cuda_use_tf32_compute: bool = option(
        False,
        "Enable TF32 tensor math. This is higher performance and keeps the same dynamic range as "
        "FP32 with slightly lower precision. This is recommended for training over FP16. The same "
        "as --gpu-math=tf32, but for older GPUs, which go on with fp32.",
    )

    def math(self, gpu_math: str) -> str:
        """How products are done, `gpu_math` being what --gpu-math says.

        As in Kaldi tensor cores come before TF32. OptionError if --gpu-math says something else.
        """
        if not (self.cuda_use_tensor_cores or self.cuda_use_tf32_compute):
            return gpu_math
        name = "cuda-use-tensor-cores" if self.cuda_use_tensor_cores else "cuda-use-tf32-compute"
        asked = "fp16" if self.cuda_use_tensor_cores else "tf32"
        if gpu_math not in ("fp32", asked):
            raise OptionError(
                f"--gpu-math={gpu_math} and --{name}=true (which is --gpu-math={asked}) contradict "
                "each other: expected one of them"
            )
        return asked if asked == gpu_math else math_if_possible(asked)


@dataclass(frozen=True)
class CudaAllocatorOptions:
    """What Kaldi's CuAllocator registers, for CuPy's pool of memory."""

    cuda_cache_memory: bool = option(
        True,
        "True if you want to use the caching allocator.  Set this to false only if you want to use "
        "compute-sanitizer or cuda-gdb; it will be slower.",
    )
    cuda_memory_proportion: float = option(
        _Default(0.5),
        "Proportion of the GPU device memory that the allocator should allocate at the start; "
        "nothing is allocated ahead unless this is given.",
    )

    def apply(self, device: Any) -> None:
        """Set up the memory of a device, given by an empty array on it; none of the host's."""
        if type(device).__module__ == "numpy":
            return
        from nnet3tools.tensor.cuda import pools

        if not self.cuda_cache_memory:
            pools.use_none()
        elif not isinstance(self.cuda_memory_proportion, _Default):
            if not _LEAST <= self.cuda_memory_proportion < _MOST:
                raise OptionError(
                    f"--cuda-memory-proportion={self.cuda_memory_proportion:g}: expected at least "
                    f"{_LEAST:g} and less than {_MOST:g}"
                )
            pools.reserve(self.cuda_memory_proportion)

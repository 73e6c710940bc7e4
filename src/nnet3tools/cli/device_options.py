"""Options that choose a device, Kaldi's --cuda-* options (cu-device.h, cu-allocator.h) included."""

from typing import Any

from nnet3tools.cli.gpu import MathIfPossible, choose_device, cpu_kernels_option
from nnet3tools.errors import OptionError
from nnet3tools.options import OptionGroup, option

_LEAST, _MOST = 0.05, 0.99
"""Smallest and largest proportion of a GPU's memory that Kaldi's allocator accepts."""
_USE_GPU = "yes|no|optional|wait, only has effect if there is a GPU"


class DeviceOptions(OptionGroup):
    """Options of every program that computes."""

    use_gpu: str | None = option(None, _USE_GPU, shown="yes")
    gpu_math: str = option(
        "fp32",
        "How matrix products are done on a GPU: fp32|tf32|fp16|bf16 (stored and summed in single "
        "precision all the same; fp16 with loss scaling in training)",
    )
    cpu_kernels: str | None = cpu_kernels_option()

    @property
    def math(self) -> str:
        """The precision of matrix products on a GPU: "fp32", "tf32", "fp16" or "bf16"."""
        return self.gpu_math

    def choose(self, use_gpu: str | None = None) -> Any:
        """An empty array on the device that the options choose; `use_gpu` overrides --use-gpu."""
        return choose_device(use_gpu or self.use_gpu, self.math, self.cpu_kernels)


class CpuDeviceOptions(DeviceOptions):
    """Options of programs that compute on a GPU only if asked, because Kaldi's use only the CPU."""

    use_gpu: str | None = option("no", _USE_GPU)


class CudaDeviceOptions(DeviceOptions):
    """DeviceOptions and Kaldi's CuDevice options, which are other names of --gpu-math's values."""

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

    @property
    def math(self) -> str:
        """The mode of matrix products on a GPU; OptionError if options contradict each other.

        Tensor cores take precedence over TF32, as in Kaldi.
        """
        if not (self.cuda_use_tensor_cores or self.cuda_use_tf32_compute):
            return self.gpu_math
        name = "cuda-use-tensor-cores" if self.cuda_use_tensor_cores else "cuda-use-tf32-compute"
        asked = "fp16" if self.cuda_use_tensor_cores else "tf32"
        if self.gpu_math not in ("fp32", asked):
            raise OptionError(
                f"--gpu-math={self.gpu_math} and --{name}=true (which is --gpu-math={asked}) "
                "contradict each other: expected one of them"
            )
        return asked if asked == self.gpu_math else MathIfPossible(asked)


class XvectorDeviceOptions(CudaDeviceOptions):
    """CudaDeviceOptions of programs that compute on a GPU only if asked."""

    use_gpu: str | None = option("no", _USE_GPU)


class CudaAllocatorOptions(OptionGroup):
    """The options of Kaldi's CuAllocator, applied to CuPy's memory pool."""

    cuda_cache_memory: bool = option(
        True,
        "True if you want to use the caching allocator.  Set this to false only if you want to use "
        "compute-sanitizer or cuda-gdb; it will be slower.",
    )
    cuda_memory_proportion: float | None = option(
        None,
        "Proportion of the GPU device memory that the allocator should allocate at the start; "
        "nothing is allocated ahead unless this is given.",
        shown=0.5,
    )

    def apply(self, device: Any) -> None:
        """Configure the GPU's memory pool if `device`, any array, is on a GPU."""
        if type(device).__module__ == "numpy":
            return
        from nnet3tools.tensor.cuda import pools

        if not self.cuda_cache_memory:
            pools.use_none()
        elif self.cuda_memory_proportion is not None:
            if not _LEAST <= self.cuda_memory_proportion < _MOST:
                raise OptionError(
                    f"--cuda-memory-proportion={self.cuda_memory_proportion:g}: expected at least "
                    f"{_LEAST:g} and less than {_MOST:g}"
                )
            pools.reserve(self.cuda_memory_proportion)

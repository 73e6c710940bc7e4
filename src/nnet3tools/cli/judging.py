"""Code shared by the programs that compute an objective of a network on examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nnet3tools.cli.gpu import choose_device, cpu_kernels_option, gpu_math_option, use_gpu_option
from nnet3tools.cli.options import option

if TYPE_CHECKING:
    from nnet3tools.nnet.nnet import Nnet
    from nnet3tools.tensor.arrays import Array


@dataclass(frozen=True)
class JudgingOptions:
    """Options of programs that compute objectives: the network's test modes and the device."""

    batchnorm_test_mode: bool = option(
        True, "If true, set test-mode to true on any BatchNormComponents."
    )
    dropout_test_mode: bool = option(
        True, "If true, set test-mode to true on any DropoutComponents and DropoutMaskComponents."
    )
    use_gpu: str | None = use_gpu_option("no")  # Kaldi's programs only use the CPU
    gpu_math: str = gpu_math_option()
    cpu_kernels: str | None = cpu_kernels_option()

    def device(self) -> Array | None:
        """An empty array on the device that the options choose."""
        return choose_device(self.use_gpu, self.gpu_math, self.cpu_kernels)

    def set_test_modes(self, nnet: Nnet) -> None:
        """Set the test modes of `nnet` that the options request."""
        from nnet3tools.cli.model_changes import set_test_modes

        set_test_modes(nnet, self.batchnorm_test_mode, self.dropout_test_mode)

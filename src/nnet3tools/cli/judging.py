"""Code shared by the programs that compute an objective of a network on examples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools.cli.device_options import CpuDeviceOptions
from nnet3tools.cli.options import OptionGroup, option, option_group

if TYPE_CHECKING:
    from nnet3tools.nnet.nnet import Nnet


class JudgingOptions(OptionGroup):
    """Options of programs that compute objectives: the network's test modes and the device."""

    batchnorm_test_mode: bool = option(
        True, "If true, set test-mode to true on any BatchNormComponents."
    )
    dropout_test_mode: bool = option(
        True, "If true, set test-mode to true on any DropoutComponents and DropoutMaskComponents."
    )
    device: CpuDeviceOptions = option_group("", CpuDeviceOptions)

    def set_test_modes(self, nnet: Nnet) -> None:
        """Set the test modes of `nnet` that the options request."""
        from nnet3tools.nnet.arithmetic import set_test_modes

        set_test_modes(nnet, self.batchnorm_test_mode, self.dropout_test_mode)

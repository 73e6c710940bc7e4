"""nnet3-show-progress: report the change between two networks and its effect on the objective."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nnet3tools.cli.device_options import CpuDeviceOptions
from nnet3tools.cli.options import OptionGroup, option, option_group, program
from nnet3tools.errors import DataError, OptionError
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np
from nnet3tools.training.diagnostics_options import ComputeProbOptions

if TYPE_CHECKING:
    from nnet3tools.nnet.nnet import Nnet
    from nnet3tools.training.example import NnetExample

USAGE = """Given an old and a new 'raw' nnet3 network and perhaps some training examples, show
the average objective function of networks between the two, and how much the
change of each component contributed to it (from derivatives). Also show the
parameter differences of each component; without examples only these.

Usage:  nnet3-show-progress [options] <old-net-in> <new-net-in> [<training-examples-in>]
e.g.: nnet3-show-progress 1.nnet 2.nnet ark:valid.egs
"""


class Options(OptionGroup):
    num_segments: int = option(1, "Number of line segments used for computing derivatives")
    device: CpuDeviceOptions = option_group("", CpuDeviceOptions)
    compute_prob: ComputeProbOptions = option_group("", ComputeProbOptions)


@program("nnet3-show-progress", USAGE, Options, num_args=(2, 3))
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.nnet.arithmetic import num_parameters
    from nnet3tools.nnet.model_file import read_nnet

    device = options.device.choose()
    if options.num_segments < 1:
        raise OptionError("--num-segments must be at least 1")
    old, new = read_nnet(args[0]), read_nnet(args[1])
    if num_parameters(old) != num_parameters(new):
        log.warning("Parameter-dim mismatch, cannot show progress.")
        return
    if len(args) == 3 and args[2] and old.is_simple():
        from nnet3tools.training.example import for_each_example

        examples: list[NnetExample] = []
        if not for_each_example(args[2], lambda key, example: examples.append(example)):
            raise DataError(f"{args[2]}: no examples")
        _show_objective_changes(options, old, new, examples, device)
    _show_parameter_changes(old, new)


def _show_objective_changes(
    options: Options, old: Nnet, new: Nnet, examples: list[NnetExample], device: Any
) -> None:
    """Log the objective at points between models `old` and `new`, and each component's share.

    `device` is any array on the device that computes, or None for the host.
    """
    from nnet3tools.nnet.arithmetic import (
        add_nnet,
        component_dot_products,
        format_per_component,
        scale_nnet,
    )
    from nnet3tools.nnet.device import move_nnet
    from nnet3tools.training.diagnostics import NnetComputeProb

    num_segments = options.num_segments
    change = np.zeros(len(old.updatable_components()))
    for segment in range(num_segments):
        middle = (segment + 0.5) / num_segments
        between = new.copy()
        scale_nnet(between, middle)
        add_nnet(between, old, 1.0 - middle)
        computer = NnetComputeProb(options.compute_prob, between, compute_deriv=True, like=device)
        for example in examples:
            computer.compute(example)
        totals, gradient = computer.totals.get("output"), computer.deriv_nnet
        if gradient is not None:
            move_nnet(gradient)  # back from the GPU
        if totals is None or gradient is None or totals.weight == 0.0:
            raise DataError("the examples have no supervision for 'output'")
        computer.print_total_stats()
        log.log(f"At position {middle:g}, objf per frame is {totals.objective / totals.weight:g}")
        slope = component_dot_products(gradient, new).astype(np.float64)
        slope -= component_dot_products(gradient, old)
        change += slope / (totals.weight * num_segments)
        shown = format_per_component(old, change)
        log.vlog(1, f"By segment {segment}, objf change is {shown}")
    log.log(f"Total objf change per component is {format_per_component(old, change)}")


def _show_parameter_changes(old: Nnet, new: Nnet) -> None:
    """Log the l2 norm of each component's parameter change, absolute and relative."""
    from nnet3tools.nnet.arithmetic import add_nnet, component_dot_products, format_per_component

    difference = old.copy()
    add_nnet(difference, new, -1.0)
    if log.get_verbose() >= 1:
        from nnet3tools.cli.information import network_info

        log.vlog(
            1,
            f"Printing info for the difference between the neural nets: {network_info(difference)}",
        )
    norms = np.sqrt(component_dot_products(difference, difference))
    old_norms = np.sqrt(component_dot_products(old, old))
    new_norms = np.sqrt(component_dot_products(new, new))
    log.log(f"Parameter differences per layer are {format_per_component(old, norms)}")
    log.log(
        f"Norms of parameter matrices from <new-nnet-in> are {format_per_component(new, new_norms)}"
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = norms / old_norms
    log.log(f"Relative parameter differences per layer are {format_per_component(old, relative)}")

"""TdnnComponent on the emulated device against NumPy: one product for all time offsets."""

import numpy as np
import pytest
from test_cuda_fused_levels import run_both_ways

from nnet3tools import tensor
from nnet3tools.nnet.components.base import BackpropArgs
from nnet3tools.nnet.components.tdnn import TdnnIndexes
from nnet3tools.tensor.cuda.fused_levels import schedule
from nnet3tools.tensor.cuda.launches import launches_of
from support.emulated_cuda import fetch, needs_compiler, to_device
from support.harness import make

pytestmark = needs_compiler

ROWS = 40
OFFSETS = {
    "two that overlap": (1, [0, 4]),
    "three that overlap": (1, [2, 0, 6]),
    "far apart": (1, [0, 90]),
    "every third row": (3, [6, 0]),
    "other rows": (2, [0, 3]),
}
"""Name -> (row stride, offsets of rows)."""


def arrays_of(offsets, stride, dims, bias):
    """(component, indexes, [input, output, derivative at the output, at the input]) on the host."""
    times = ",".join(str(i) for i in range(len(offsets)))
    options = f"time-offsets={times} use-bias={bias} use-natural-gradient=false learning-rate=0.1"
    tensor.random.seed(1)
    component = make(f"type=TdnnComponent input-dim={dims[0]} output-dim={dims[1]} {options}")
    indexes = TdnnIndexes(row_stride=stride, row_offsets=np.array(offsets, np.int32))
    rng = np.random.default_rng(2)
    num_in = max(offsets) + stride * (ROWS - 1) + 1 + 2
    shapes = [(num_in, dims[0]), (ROWS, dims[1]), (ROWS, dims[1]), (num_in, dims[0])]
    return component, indexes, [rng.normal(size=s).astype(np.float32) for s in shapes]


def steps_of(component, indexes, arrays):
    """What runs the component forward, and backward to its input and its parameters."""
    x, y, derivs, in_deriv = arrays
    args = BackpropArgs("t", indexes, x, None, derivs, None, component, in_deriv)
    return (
        lambda: component.propagate(indexes, x, y),
        lambda: component.backprop_input(args),
        lambda: component.update(args),
    )


@pytest.mark.parametrize("bias", ["true", "false"])
@pytest.mark.parametrize("dims", [(4, 8), (3, 5), (12, 4), (7, 3)], ids=str)
@pytest.mark.parametrize("name", OFFSETS)
def test_all_time_offsets_agree_with_the_host(device, name, dims, bias):
    stride, offsets = OFFSETS[name]
    component, indexes, host = arrays_of(offsets, stride, dims, bias)
    moved = arrays_of(offsets, stride, dims, bias)[0]
    moved.map_arrays(to_device)
    given = [to_device(array) for array in host]
    parameters = [component.linear_params, component.bias_params]
    on_device = [moved.linear_params, moved.bias_params]
    for on_host, work in zip(
        steps_of(component, indexes, host), steps_of(moved, indexes, given), strict=True
    ):
        on_host()
        run_both_ways(device, work, [*given, *(p for p in on_device if p.size)])
        for expected, found in zip([*host, *parameters], [*given, *on_device], strict=True):
            np.testing.assert_allclose(fetch(found), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dims", [(4, 8), (12, 4)], ids=["narrow input", "narrow output"])
@pytest.mark.parametrize("name", ["two that overlap", "three that overlap", "every third row"])
def test_all_time_offsets_are_one_product_and_one_kernel(device, name, dims):
    """A product for each offset would read and write the wide matrix once for each."""
    stride, offsets = OFFSETS[name]
    component, indexes, host = arrays_of(offsets, stride, dims, "true")
    component.map_arrays(to_device)
    steps = steps_of(component, indexes, [to_device(array) for array in host])
    for work in steps[:2]:
        levels = schedule(launches_of(work))
        products = [level for level in levels if isinstance(level, list)]
        assert [len(level) for level in products] == [1]
        assert len(levels) <= 2 + (work is steps[0])

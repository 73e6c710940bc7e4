"""TdnnComponent compared with splicing row by row; irregular times, subsampling, single output."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.errors import RequestError
from nnet3tools.nnet.components.base import Properties
from support.harness import check_component, forward, from_bytes, make, to_bytes
from support.time_aware import Ordered, check_dependencies, grid, inputs_for

OUTPUTS = {
    "every frame": grid(3, range(10)),
    "every third": grid(2, range(0, 21, 3)),
    "one output": grid(2, [5]),
    "a gap": np.concatenate([grid(2, [0, 1, 5]), grid(1, [2])]),
    "negative times": grid(2, range(-7, 3, 2)),
    "images differ in x": grid(2, range(4), x=3),
}


def component(offsets: str, output_dim: int = 5, **options: object):
    more = " ".join(f"{key.replace('_', '-')}={value}" for key, value in options.items())
    config = f"type=TdnnComponent input-dim=4 output-dim={output_dim} time-offsets={offsets}"
    return make(f"{config} {more}")


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("offsets", ["-1,0,1", "0", "-3,0,3", "2,-1", "-6,0"])
@pytest.mark.parametrize("use_bias", ["true", "false"])
@pytest.mark.parametrize("output_dim", [5, 3])  # spliced inputs; one product for all offsets
def test_splicing_row_by_row(name: str, offsets: str, use_bias: str, output_dim: int) -> None:
    tdnn = component(offsets, use_bias=use_bias, output_dim=output_dim)
    outputs = OUTPUTS[name]
    ordered = Ordered(tdnn, inputs_for(tdnn, outputs), outputs)
    x = ordered.values(np.random.default_rng(2)).astype(np.float32)
    y, _ = forward(tdnn, x, ordered.rows)
    frames = ordered.by_index(x)
    bias = tdnn.bias_params if use_bias == "true" else np.zeros(output_dim)

    def formula(index):
        n, t, x = index
        spliced = np.concatenate([frames[n, t + o, x] for o in tdnn.time_offsets])
        return tdnn.linear_params @ spliced + bias

    ordered.compare(y, formula)


@pytest.mark.parametrize("name", ["every third", "a gap", "one output"])
@pytest.mark.parametrize("use_bias", ["true", "false"])
@pytest.mark.parametrize("output_dim", [5, 3])
def test_derivatives_updates_and_files(name: str, use_bias: str, output_dim: int) -> None:
    options = {"use_bias": use_bias, "output_dim": output_dim}
    tdnn = component("-3,0,3", param_stddev=0.5, l2_regularize=0.01, **options)
    assert bool(tdnn.properties & Properties.PROPAGATE_ADDS) == (use_bias == "false")
    outputs = OUTPUTS[name]
    check_component(tdnn, Ordered(tdnn, inputs_for(tdnn, outputs), outputs).rows)


def test_no_random_numbers_are_drawn_for_a_bias_that_is_not_there() -> None:
    config = "type=TdnnComponent input-dim=3 output-dim=2 time-offsets=0,1"
    tensor.random.seed(3)
    weights = make(f"{config} use-bias=false").linear_params
    after = tensor.random.rand()
    tensor.random.seed(3)
    alone = np.empty_like(weights)
    tensor.random.normal(alone)
    assert np.allclose(weights, alone / np.sqrt(6.0))
    assert tensor.random.rand() == after


def test_without_natural_gradient() -> None:
    tdnn = component("0,1", use_natural_gradient="false", orthonormal_constraint=-1.0)
    assert ", orthonormal-constraint=-1, time-offsets=0,1, linear-params-rms=" in tdnn.info()
    assert tdnn.info().endswith(", use-natural-gradient=false")
    outputs = OUTPUTS["every frame"]
    check_component(tdnn, Ordered(tdnn, inputs_for(tdnn, outputs), outputs).rows)


def test_dependencies_are_all_offsets_and_all_are_needed() -> None:
    tdnn = component("2,-1,0")
    check_dependencies(
        tdnn,
        OUTPUTS["images differ in x"],
        lambda o: [(o[0], o[1] + d, o[2]) for d in (2, -1, 0)],
        lambda o, wanted, available: all(i in available for i in wanted),
    )


def test_rows_are_blocks_of_times_when_subsampling() -> None:
    tdnn = component("-1,0,1")
    inputs, outputs = tdnn.reorder_indexes(grid(2, range(-1, 5)), grid(2, [0, 2]))
    assert inputs[:, 1].tolist() == [-1, 0, -1, 0, 1, 2, 1, 2, 3, 4, 3, 4]
    assert outputs[:, 1].tolist() == [0, 0, 2, 2]
    indexes = tdnn.precompute_indexes(inputs, outputs, True)
    assert indexes.row_stride == 2
    assert indexes.row_offsets.tolist() == [0, 1, 4]


def test_rows_that_cannot_be_ordered_name_the_component() -> None:
    tdnn = component("-1,0,1")
    with pytest.raises(RequestError, match=r"TdnnComponent with time-offsets .* cannot compute"):
        tdnn.precompute_indexes(grid(2, range(3)), grid(2, range(3)), True)
    with pytest.raises(RequestError, match=r"TdnnComponent cannot order its rows.*step 2"):
        tdnn.reorder_indexes(grid(2, range(0, 9, 3)), grid(2, [0, 2]))
    with pytest.raises(RequestError, match="no input has"):
        tdnn.reorder_indexes(grid(1, range(-1, 3)), grid(2, [0, 1]))


def test_the_old_spelling_of_alpha_is_read() -> None:
    tdnn = component("0,1", alpha_in=2.0, alpha_out=2.0)
    text = to_bytes(tdnn, False)
    assert b"<AlphaInOut> 2 2 " in text
    old = text.replace(b"<AlphaInOut> 2 2 ", b"<Alpha> 2 ")
    assert to_bytes(from_bytes(old, False), False) == text

"""TimeHeightConvolutionComponent against sums over the patch; padding, subsampling, memory."""

import io
import tracemalloc

import numpy as np
import pytest

from nnet3tools.errors import DataError, RequestError
from nnet3tools.io.stream import Reader
from nnet3tools.nnet.components.base import BackpropArgs
from nnet3tools.nnet.components.registry import read_precomputed_indexes
from support.harness import check_component, forward, make
from support.time_aware import Ordered, check_dependencies, grid, inputs_for

PLAIN = "num-filters-in=2 num-filters-out=3 height-in=5 height-out=5"
THREE = "height-offsets=-1,0,1 time-offsets=-1,0,1"
CONFIGS = {
    "3x3": f"{PLAIN} {THREE}",
    "zero padding in time": f"{PLAIN} {THREE} required-time-offsets=0",
    "height subsampled": "num-filters-in=2 num-filters-out=3 height-in=6 height-out=3 "
    f"height-subsample-out=2 {THREE}",
    "no height padding": "num-filters-in=3 num-filters-out=2 height-in=6 height-out=4 "
    "height-offsets=0,1,2 time-offsets=0",
    "1x1": "num-filters-in=4 num-filters-out=3 height-in=3 height-out=3 offsets=0,0",
    "contiguous part": "num-filters-in=2 num-filters-out=3 height-in=5 height-out=3 offsets=0,1",
    "odd offsets": f"{PLAIN} offsets=0,0;-3,1;3,-1;3,2",
    "wide steps": f"{PLAIN} height-offsets=0,2 time-offsets=-6,0,3 required-time-offsets=0,3",
    "height 1": "num-filters-in=3 num-filters-out=2 height-in=1 height-out=1 "
    "height-offsets=0 time-offsets=-1,0,1",
}
OUTPUTS = {
    "every frame": grid(2, range(8)),
    "every third": grid(3, range(0, 13, 3)),
    "every second": grid(2, range(1, 10, 2)),
    "one output": grid(2, [4]),
    "a gap": np.concatenate([grid(2, [0, 1, 5]), grid(1, [2])]),
    "images differ in x": grid(2, range(4), x=2),
}


def conv(config: str):
    return make(f"type=TimeHeightConvolutionComponent bias-stddev=1 {config}")


def patch_sum(component, frames, index):
    """Compute one output row with loops over heights and offsets, as a reference."""
    model, (n, t, x) = component.model, index
    f_in = model.num_filters_in
    rows = []
    for h in range(model.height_out):
        total = component.bias_params.astype(np.float64)
        for k, (dt, dh) in enumerate(model.offsets):
            h_in = h * model.height_subsample_out + dh
            frame = frames.get((n, t + dt, x))
            if frame is not None and 0 <= h_in < model.height_in:
                weights = component.linear_params[:, k * f_in : (k + 1) * f_in]
                total = total + weights @ frame[h_in * f_in : (h_in + 1) * f_in]
        rows.append(total)
    return np.concatenate(rows)


@pytest.mark.parametrize("request_name", OUTPUTS)
@pytest.mark.parametrize("name", CONFIGS)
def test_patch_sums(name: str, request_name: str) -> None:
    component, outputs = conv(CONFIGS[name]), OUTPUTS[request_name]
    ordered = Ordered(component, inputs_for(component, outputs), outputs)
    x = ordered.values(np.random.default_rng(2)).astype(np.float32)
    y, _ = forward(component, x, ordered.rows)
    frames = ordered.by_index(x)
    ordered.compare(y, lambda index: patch_sum(component, frames, index))


@pytest.mark.parametrize("name", CONFIGS)
def test_derivatives_updates_and_files(name: str) -> None:
    component = conv(CONFIGS[name])
    outputs = OUTPUTS["every third" if "wide" in name else "every second"]
    check_component(component, Ordered(component, inputs_for(component, outputs), outputs).rows)


def test_absent_optional_inputs_read_as_zero() -> None:
    component, outputs = conv(CONFIGS["zero padding in time"]), grid(2, range(5))
    inputs = grid(2, range(5))  # nothing at -1 and 5
    ordered = Ordered(component, inputs, outputs)
    x = ordered.values(np.random.default_rng(2))
    y, _ = forward(component, x.astype(np.float32), ordered.rows)
    frames = ordered.by_index(x)
    assert (0, -1, 0) not in frames
    ordered.compare(y, lambda index: patch_sum(component, frames, index))


@pytest.mark.parametrize("request_name", ["every frame", "every third"])
def test_pieces_that_fit_the_memory_limit_give_the_same(request_name: str) -> None:
    whole, outputs = conv(CONFIGS["3x3"]), OUTPUTS[request_name]
    pieces = whole.copy()
    pieces.max_memory_mb = 0.0003
    made = [Ordered(c, inputs_for(c, outputs), outputs) for c in (whole, pieces)]
    rows = [o.rows.indexes.computation.temp_rows for o in made]
    assert 0 < rows[1] < rows[0]
    assert rows[1] % made[1].rows.indexes.computation.num_images == 0
    x = made[0].values(np.random.default_rng(2)).astype(np.float32)
    y = [forward(c, x, o.rows)[0] for c, o in zip((whole, pieces), made, strict=True)]
    np.testing.assert_allclose(y[1], y[0], 1e-5, 1e-6)
    check_component(pieces, made[1].rows)


def test_memory_stays_below_twice_input_output_and_patches() -> None:
    component = make(
        "type=TimeHeightConvolutionComponent num-filters-in=16 num-filters-out=16 height-in=20 "
        f"height-out=20 {THREE} max-memory-mb=2"
    )
    outputs = grid(32, range(40))
    ordered = Ordered(component, inputs_for(component, outputs), outputs)
    x = ordered.values(np.random.default_rng(0)).astype(np.float32)
    y, dx = np.zeros((len(outputs), 320), np.float32), np.zeros_like(x)
    gradient = component.copy()
    gradient.set_as_gradient()
    tracemalloc.start()
    component.propagate(ordered.rows.indexes, x, y)
    component.backprop(BackpropArgs("", ordered.rows.indexes, x, None, y, None, gradient, dx))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < x.nbytes + y.nbytes + 2e6


def test_dependencies_need_only_the_required_offsets() -> None:
    component = conv(CONFIGS["wide steps"])
    check_dependencies(
        component,
        OUTPUTS["images differ in x"],
        lambda o: [(o[0], o[1] + d, o[2]) for d in (-6, 0, 3)],
        lambda o, _, there: {(o[0], o[1], o[2]), (o[0], o[1] + 3, o[2])} <= there,
    )


def test_init_unit_copies_its_input() -> None:
    component = make(
        "type=TimeHeightConvolutionComponent num-filters-in=3 num-filters-out=3 height-in=4 "
        f"height-out=4 {THREE} init-unit=true"
    )
    outputs = grid(2, range(3))
    ordered = Ordered(component, inputs_for(component, outputs), outputs)
    x = ordered.values(np.random.default_rng(1)).astype(np.float32)
    y, _ = forward(component, x, ordered.rows)
    frames = ordered.by_index(x)
    ordered.compare(y, lambda index: frames[index])


def test_rows_that_cannot_be_ordered_name_component_and_reason() -> None:
    component = conv(CONFIGS["3x3"])
    with pytest.raises(RequestError, match="TimeHeightConvolutionComponent cannot order its rows"):
        component.reorder_indexes(grid(2, range(-2, 6)), grid(2, range(4)))
    with pytest.raises(RequestError, match="an output has an"):
        component.reorder_indexes(grid(1, range(-1, 5)), grid(2, range(4)))


def test_unused_input_heights_are_only_warned_of(capfd: pytest.CaptureFixture[str]) -> None:
    conv("num-filters-in=1 num-filters-out=1 height-in=9 height-out=3 offsets=0,0")
    assert "input heights [3, 4, 5, 6, 7, 8] are not used" in capfd.readouterr().err


COMPUTATION = (
    "<TimeHeightConvolutionComponentPrecomputedIndexes> <Computation> <ConvComputation> "
    "<NumFiltersInOut> 1 1 <HeightInOut> 4 2 <NumTInOut> 2 2 <NumImages> 1 <TempRowsCols> 2 2 "
    "<NumSteps> 1 <TimeShift> 0 <ParamsStartCol> 0 <HeightMap> [ 1 3 ] </ConvComputation> "
    "</TimeHeightConvolutionComponentPrecomputedIndexes> "
)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("<TimeShift> 0", "<TimeShift> 1"),
        ("[ 1 3 ]", "[ 1 4 ]"),
        ("[ 1 3 ]", "[ -1 -1 ]"),
        ("[ 1 3 ]", "[ 3 1 ]"),
        ("[ 1 3 ]", "[ 1 2 3 ]"),
        ("<TempRowsCols> 2 2", "<TempRowsCols> 0 0"),
        ("<TempRowsCols> 2 2", "<TempRowsCols> 9 2"),
        ("<NumTInOut> 2 2", "<NumTInOut> 1 2"),
        ("<NumSteps> 1", "<NumSteps> 0"),
        ("<ParamsStartCol> 0", "<ParamsStartCol> -1"),
    ],
)
def test_bad_programs_are_refused_when_read(old: str, new: str) -> None:
    read_precomputed_indexes(Reader(io.BytesIO(COMPUTATION.encode()), "test", False))
    assert old in COMPUTATION
    data = COMPUTATION.replace(old, new).encode()
    with pytest.raises(DataError):
        read_precomputed_indexes(Reader(io.BytesIO(data), "test", False))

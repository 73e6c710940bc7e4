"""Statistics extraction and pooling against sums over windows, index by index."""

import numpy as np
import pytest

from nnet3tools.errors import RequestError
from nnet3tools.nnet.components.base import Properties
from support.harness import backward, check_component, check_round_trip, forward, make
from support.time_aware import Ordered, check_dependencies, grid, inputs_for

EXTRACTIONS = {
    "frame by frame": "input-dim=3",
    "periods": "input-dim=3 input-period=2 output-period=6",
    "no variance": "input-dim=2 output-period=5 include-variance=false",
}
POOLINGS = {
    "stddevs": "input-dim=7 left-context=4 right-context=2 output-stddevs=true",
    "means and squares": "input-dim=5 left-context=2 right-context=0",
    "log counts": "input-dim=7 input-period=3 left-context=3 right-context=6 "
    "num-log-count-features=2 output-stddevs=true",
    "log counts only of means": "input-dim=4 left-context=1 right-context=1 "
    "num-log-count-features=1",
}


def extraction(config: str):
    return make(f"type=StatisticsExtractionComponent {config}")


def pooling(config: str):
    return make(f"type=StatisticsPoolingComponent {config}")


def extraction_request(component):
    period = component.output_period
    outputs = np.concatenate(
        [grid(2, range(-2 * period, 3 * period, period)), grid(1, [7 * period], x=2)[1:]]
    )
    inputs = inputs_for(component, outputs)
    return inputs[np.random.default_rng(4).random(len(inputs)) < 0.8], outputs


@pytest.mark.parametrize("name", EXTRACTIONS)
def test_extraction_sums_what_is_there(name: str) -> None:
    component = extraction(EXTRACTIONS[name])
    inputs, outputs = extraction_request(component)
    covered = {(n, t // component.output_period, x) for n, t, x in inputs.tolist()}
    there = [(n, t // component.output_period, x) in covered for n, t, x in outputs.tolist()]
    ordered = Ordered(component, inputs, outputs[there])
    x = ordered.values(np.random.default_rng(2))
    y, _ = forward(component, x.astype(np.float32), ordered.rows)
    frames = ordered.by_index(x)

    def formula(index):
        n, t, x = index
        times = range(t, t + component.output_period, component.input_period)
        rows = np.array([frames[n, s, x] for s in times if (n, s, x) in frames])
        squares = (rows**2).sum(axis=0) if component.include_variance else []
        return np.concatenate([[len(rows)], rows.sum(axis=0), squares])

    ordered.compare(y, formula)
    check_component(component, ordered.rows)


@pytest.mark.parametrize("name", EXTRACTIONS)
def test_extraction_needs_one_frame_of_the_period(name: str) -> None:
    component = extraction(EXTRACTIONS[name])
    period = component.output_period

    def input_indexes(o):
        start = o[1] // period * period
        times = range(start, start + period, component.input_period)
        return [(o[0], t, o[2]) for t in times]

    check_dependencies(
        component,
        grid(2, range(-5, 9, 3), x=2),
        input_indexes,
        lambda o, wanted, there: any(i in there for i in wanted),
    )


def pooling_request(component):
    outputs = grid(2, range(-6, 12, 3), x=2)
    inputs = inputs_for(component, outputs)
    inputs = inputs[np.random.default_rng(4).random(len(inputs)) < 0.6]
    wanted, offsets = component.input_indexes(outputs)
    there = {tuple(i) for i in inputs.tolist()}
    available = np.array([tuple(i) in there for i in wanted.tolist()])
    computable, used = component.computable(outputs, wanted, offsets, available)
    return np.unique(wanted[used], axis=0), outputs[computable]


@pytest.mark.parametrize("name", POOLINGS)
def test_pooling_row_by_row_and_derivatives(name: str) -> None:
    component = pooling(POOLINGS[name])
    ordered = Ordered(component, *pooling_request(component))
    rng = np.random.default_rng(3)
    x = ordered.values(rng)
    counts = rng.integers(1, 5, size=len(x))
    x[:, 0] = counts
    if component.output_stddevs:  # mean squares must exceed squared means
        x[:, 4:] = x[:, 1:4] ** 2 / counts[:, None] + 0.5 + rng.random((len(x), 3))
    y, _ = forward(component, x.astype(np.float32), ordered.rows)

    def pool(index, frames):
        n, t, x = index
        first, last = t - component.left_context, t + component.right_context
        rows = [r for (m, s, z), r in frames.items() if (m, z) == (n, x) and first <= s <= last]
        total = np.sum(rows, axis=0)
        stats = total[1:] / total[0]
        if component.output_stddevs:
            mean, square = stats[:3], stats[3:]
            stats = np.concatenate([mean, np.sqrt(square - mean**2)])
        logs = np.full(component.num_log_count_features, np.log(total[0]))
        return np.concatenate([logs, stats])

    frames = ordered.by_index(x)
    ordered.compare(y, lambda index: pool(index, frames))
    check_round_trip(component)

    # The counts have no derivative, so the finite differences leave column 0 alone.
    y, _ = forward(component, x, ordered.rows)
    dy = rng.normal(size=y.shape)
    dx = backward(component, x, y, None, dy, ordered.rows, None)
    assert not dx[:, 0].any()
    for at in zip(rng.integers(len(x), size=20), rng.integers(1, x.shape[1], size=20), strict=True):
        sides = []
        for step in (1e-6, -1e-6):
            moved = x.copy()
            moved[at] += step
            sides.append((forward(component, moved, ordered.rows)[0] * dy).sum())
        assert abs((sides[0] - sides[1]) / 2e-6 - dx[at]) < 1e-5


def test_pooling_floors_the_variance() -> None:
    component = pooling("input-dim=3 left-context=1 right-context=0 output-stddevs=true "
                        "variance-floor=0.25")  # fmt: skip
    ordered = Ordered(component, grid(1, range(-1, 2)), grid(1, range(2)))
    x = np.array([[1, 2, 4], [1, 2, 4], [1, 0, 9]], np.float32)
    y, _ = forward(component, x, ordered.rows)
    np.testing.assert_allclose(y, [[2, 0.5], [1, np.sqrt(5.5)]], 1e-6)


@pytest.mark.parametrize("name", POOLINGS)
def test_pooling_needs_one_frame_of_the_window_on_the_grid(name: str) -> None:
    component = pooling(POOLINGS[name])
    left, right, period = component.left_context, component.right_context, component.input_period
    check_dependencies(
        component,
        grid(2, range(-5, 9, 2)),
        lambda o: [(o[0], t, o[2]) for t in range(o[1] - left, o[1] + right + 1, period)],
        lambda o, wanted, there: o[1] % period == 0 and any(i in there for i in wanted),
    )


def test_windows_without_a_frame_and_rows_off_the_grid_name_the_component() -> None:
    component = pooling("input-dim=3 left-context=2 right-context=2")
    with pytest.raises(
        RequestError, match=r"StatisticsPooling.*no frame in the window of \(n=0, t=9"
    ):
        component.precompute_indexes(grid(1, range(3)), grid(1, [0, 9]), True)
    with pytest.raises(RequestError, match="ordered by n"):
        component.precompute_indexes(grid(2, range(3)), grid(2, [0]), True)
    component = extraction("input-dim=3 output-period=4")
    with pytest.raises(RequestError, match=r"StatisticsExtraction.*no frame.*t=8"):
        component.precompute_indexes(grid(1, range(4)), grid(1, [0, 8]), True)
    with pytest.raises(RequestError, match="exactly one output"):
        component.precompute_indexes(grid(1, range(4)), grid(1, [0, 2]), True)
    with pytest.raises(RequestError, match="exactly one output"):
        component.precompute_indexes(grid(1, range(8)), grid(1, [0]), True)
    component = extraction("input-dim=3 input-period=2 output-period=4")
    with pytest.raises(RequestError, match="multiples of its period 2"):
        component.precompute_indexes(grid(1, range(4)), grid(1, [0]), True)


def test_without_backprop_the_backward_rows_are_left_out() -> None:
    component = extraction("input-dim=3 output-period=2")
    indexes = component.precompute_indexes(grid(1, range(4)), grid(1, [0, 2]), False)
    assert indexes.counts.tolist() == [2, 2]
    assert len(indexes.backward) == 0
    component = pooling("input-dim=3 left-context=1 right-context=1")
    indexes = component.precompute_indexes(grid(1, range(3)), grid(1, [1]), False)
    assert indexes.forward.tolist() == [[0, 3]]
    assert len(indexes.backward) == 0


def test_flags_follow_the_options() -> None:
    assert not extraction(EXTRACTIONS["no variance"]).properties & Properties.BACKPROP_NEEDS_INPUT
    flags = pooling(POOLINGS["log counts"]).properties
    assert flags & Properties.BACKPROP_NEEDS_OUTPUT
    assert not flags & Properties.BACKPROP_NEEDS_INPUT
    assert not pooling(POOLINGS["means and squares"]).properties & Properties.BACKPROP_NEEDS_OUTPUT

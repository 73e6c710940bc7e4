"""One harness for the tests of every component type.

`make(config)` builds a component from a config line; `check_component` puts it through everything
that its flags promise: file round trips, parameters as a vector, propagate and backprop in and out
of place and into strided memory, derivatives of input and parameters against finite differences
(in float64, then float32 against that), the natural-gradient update and the statistics.
`check_output` compares its output with a formula that the test states for itself.
"""

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnet3tools import tensor
from nnet3tools.io.stream import Reader
from nnet3tools.nnet.components.base import BackpropArgs, Component, PrecomputedIndexes, Properties
from nnet3tools.nnet.components.registry import component_class, read_component
from nnet3tools.nnet.components.updatable import UpdatableComponent
from nnet3tools.nnet.config import ConfigLine
from support.streams import bytes_of

SEED = 17
"""Random components draw the same numbers on every run of theirs."""

EPSILON = 1.0e-6
"""Step of the finite differences, which are taken in float64."""

MAX_DIFFERENCES = 60
"""At most this many elements of a matrix are perturbed, chosen at random."""


# -- making and storing


def make(config: str) -> Component:
    """The component of `type=T key=value ...`; every key must have been read."""
    line = ConfigLine(f"component name=c {config}")
    line.get_string("name")
    component = component_class(line.get_string("type")).from_config(line)
    assert not line.unused_keys()
    return component


def to_bytes(component: Component, binary: bool) -> bytes:
    """The component's file."""
    return bytes_of(component.write, binary=binary)


def from_bytes(data: bytes, binary: bool) -> Component:
    """The component of a file; fails if bytes are left."""
    reader = Reader(io.BytesIO(data), "test", binary)
    component = read_component(reader)
    assert reader.at_end()
    return component


def check_round_trip(component: Component) -> None:
    """Text and binary files read back give the same files, info and type."""
    for binary in (False, True):
        data = to_bytes(component, binary)
        again = from_bytes(data, binary)
        assert type(again) is type(component)
        assert to_bytes(again, binary) == data
        assert again.info() == component.info() or not binary
        assert again.properties == component.properties
    assert component.info().startswith(component.type_name)
    assert "\n" not in component.info()


def in_float64(component: Component) -> Component:
    """A copy that computes in float64, so that finite differences are exact enough."""
    copy = component.copy()
    copy.map_arrays(lambda array: array.astype(np.float64))
    return copy


# -- running


@dataclass
class Rows:
    """The numbers of input and output rows, and the precomputed indexes of the component."""

    num_in: int
    num_out: int
    indexes: PrecomputedIndexes | None = None


def rows_of(
    component: Component,
    num_rows: int = 7,
    input_indexes: np.ndarray | None = None,
    output_indexes: np.ndarray | None = None,
) -> Rows:
    """`num_rows` in and out for simple components; else reordered and precomputed indexes."""
    if input_indexes is None or output_indexes is None:
        assert component.properties & Properties.SIMPLE
        return Rows(num_rows, num_rows)
    if component.properties & Properties.REORDERS_INDEXES:
        input_indexes, output_indexes = component.reorder_indexes(input_indexes, output_indexes)
    precomputed = component.precompute_indexes(input_indexes, output_indexes, True)
    return Rows(len(input_indexes), len(output_indexes), precomputed)


def matrix(rng: np.random.Generator, rows: int, cols: int, contiguous: bool) -> np.ndarray:
    """Random float64 numbers; a view with gaps between its rows unless `contiguous`."""
    if contiguous:
        return rng.normal(size=(rows, cols))
    return rng.normal(size=(rows, cols + 3))[:, 1 : cols + 1]


def like(a: np.ndarray, fill: float, contiguous: bool) -> np.ndarray:
    """A matrix of the same shape and type, contiguous or not, holding `fill`."""
    rows, cols = a.shape
    whole = np.full((rows, cols if contiguous else cols + 2), fill, a.dtype)
    return whole if contiguous else whole[:, :cols]


def forward(component: Component, x: np.ndarray, rows: Rows) -> tuple[np.ndarray, object]:
    """(output, memo); the output is poisoned before, unless the component adds to it."""
    adds = bool(component.properties & Properties.PROPAGATE_ADDS)
    contiguous = bool(component.properties & Properties.OUTPUT_CONTIGUOUS)
    shape = np.empty((rows.num_out, component.output_dim), x.dtype)
    y = like(shape, 0.5 if adds else np.nan, contiguous)
    tensor.random.seed(SEED)
    memo = component.propagate(rows.indexes, x, y)
    assert memo is None or component.properties & Properties.USES_MEMO
    return (y - 0.5 if adds else y), memo


def backward(
    component: Component,
    x: np.ndarray,
    y: np.ndarray,
    memo: object,
    dy: np.ndarray,
    rows: Rows,
    to_update: Component | None,
) -> np.ndarray:
    """The derivative by the input; the component gets only the values that its flags ask for."""
    flags = component.properties
    adds = bool(flags & Properties.BACKPROP_ADDS)
    dx = like(x, 0.25 if adds else np.nan, bool(flags & Properties.INPUT_CONTIGUOUS))
    before = dy.copy()
    component.backprop(
        BackpropArgs(
            "test",
            rows.indexes,
            x if flags & Properties.BACKPROP_NEEDS_INPUT else None,
            y if flags & Properties.BACKPROP_NEEDS_OUTPUT else None,
            dy,
            memo,
            to_update,
            dx,
        )
    )
    assert np.array_equal(dy, before), "backprop changed out_deriv"
    return dx - 0.25 if adds else dx


def gradient_holder(component: Component) -> Component | None:
    """A copy with zeroed parameters that collects the plain gradient."""
    if not component.properties & Properties.UPDATABLE:
        return None
    holder = component.copy()
    assert isinstance(holder, UpdatableComponent)
    holder.scale(0.0)
    holder.set_as_gradient()
    return holder


# -- checks


def check_output(
    component: Component,
    formula: Callable[[np.ndarray], np.ndarray],
    rows: Rows | None = None,
    tolerance: float = 1e-5,
) -> None:
    """The output for a random float32 input is that of a formula on the same numbers in float64."""
    rows = rows or rows_of(component)
    contiguous = bool(component.properties & Properties.INPUT_CONTIGUOUS)
    x = matrix(np.random.default_rng(3), rows.num_in, component.input_dim, contiguous)
    y, _ = forward(component, like(x.astype(np.float32), 0, contiguous) + np.float32(x), rows)
    np.testing.assert_allclose(y, formula(np.float32(x).astype(np.float64)), tolerance, tolerance)


def check_derivatives(component: Component, rows: Rows | None = None, seed: int = 5) -> None:
    """Input and parameter derivatives against finite differences of a random linear objective.

    For a component whose backprop is not the derivative on purpose (clipping, scaling), leave this
    out and compare `backward` with what is intended.
    """
    rows = rows or rows_of(component)
    rng = np.random.default_rng(seed)
    flags = component.properties
    x = matrix(rng, rows.num_in, component.input_dim, bool(flags & Properties.INPUT_CONTIGUOUS))
    dy = matrix(rng, rows.num_out, component.output_dim, bool(flags & Properties.OUTPUT_CONTIGUOUS))
    exact = in_float64(component)
    y, memo = forward(exact, x, rows)
    holder = gradient_holder(exact)
    dx = backward(exact, x, y, memo, dy, rows, holder)

    def objective() -> float:
        return float(np.sum(forward(exact, x, rows)[0] * dy))

    _compare(x, dx, objective, rng, "input")
    if holder is not None:
        assert isinstance(holder, UpdatableComponent)
        assert isinstance(exact, UpdatableComponent)
        gradients = holder.parameters()
        for name, parameter in exact.parameters().items():
            _compare(parameter, gradients[name], objective, rng, name)
    _check_float32(component, x, dy, dx, holder, rows)


def _compare(
    values: np.ndarray,
    derivs: np.ndarray,
    objective: Callable[[], float],
    rng: np.random.Generator,
    what: str,
) -> None:
    scale = float(np.abs(derivs).max(initial=0.0)) + 1e-3
    chosen = rng.permutation(values.size)[:MAX_DIFFERENCES]
    for at in zip(*np.unravel_index(chosen, values.shape), strict=True):
        kept = values[at]
        values[at] = kept + EPSILON
        above = objective()
        values[at] = kept - EPSILON
        below = objective()
        values[at] = kept
        numeric = (above - below) / (2.0 * EPSILON)
        assert abs(numeric - derivs[at]) < 1e-4 * scale, (what, at, numeric, derivs[at])


def _check_float32(
    component: Component,
    x64: np.ndarray,
    dy64: np.ndarray,
    dx64: np.ndarray,
    holder64: Component | None,
    rows: Rows,
) -> None:
    """float32 gives the same, also in place, and without what is not asked for."""
    flags = component.properties
    contiguous_in = bool(flags & Properties.INPUT_CONTIGUOUS)
    x = like(x64.astype(np.float32), 0.0, contiguous_in)
    x += x64.astype(np.float32)
    dy = like(dy64.astype(np.float32), 0.0, bool(flags & Properties.OUTPUT_CONTIGUOUS))
    dy += dy64.astype(np.float32)
    kept = to_bytes(component, True)
    y, memo = forward(component, x, rows)
    holder = gradient_holder(component)
    dx = backward(component, x, y, memo, dy, rows, holder)
    if not flags & Properties.RANDOM:  # the two types draw different numbers
        tolerance = 2e-3 * (float(np.abs(dx64).max(initial=0.0)) + 1e-2)
        np.testing.assert_allclose(dx, dx64, 2e-3, tolerance)
    if holder is not None and holder64 is not None:
        for name, gradient in holder.parameters().items():  # type: ignore[attr-defined]
            expected = holder64.parameters()[name]  # type: ignore[attr-defined]
            tolerance = 2e-3 * (float(np.abs(expected).max(initial=0.0)) + 1e-2)
            np.testing.assert_allclose(gradient, expected, 2e-3, tolerance)
    assert to_bytes(component, True) == kept, "propagate or backprop changed the component"

    compact = bool(flags & (Properties.INPUT_CONTIGUOUS | Properties.OUTPUT_CONTIGUOUS))
    if flags & Properties.PROPAGATE_IN_PLACE:
        both = x.copy() if compact else np.hstack([x, x])[:, : x.shape[1]]
        tensor.random.seed(SEED)
        component.propagate(rows.indexes, both, both)
        np.testing.assert_allclose(both, y, 1e-6, 1e-6)
    if flags & Properties.BACKPROP_IN_PLACE:
        both = dy.copy() if compact else np.hstack([dy, dy])[:, : dy.shape[1]]
        needed = (
            x if flags & Properties.BACKPROP_NEEDS_INPUT else None,
            y if flags & Properties.BACKPROP_NEEDS_OUTPUT else None,
        )
        again = gradient_holder(component)
        component.backprop(BackpropArgs("test", rows.indexes, *needed, both, memo, again, both))
        np.testing.assert_allclose(both, dx, 1e-4, 1e-5)
        if holder is not None and again is not None:
            assert to_bytes(again, True) == to_bytes(holder, True)


def check_update(component: Component, rows: Rows | None = None) -> None:
    """Real updates (natural gradient where there is one) follow the gradient and stay finite."""
    if not component.properties & Properties.UPDATABLE:
        return
    rows = rows or rows_of(component)
    rng = np.random.default_rng(9)
    flags = component.properties
    updated = component.copy()
    for _ in range(5):
        x = matrix(rng, rows.num_in, component.input_dim, bool(flags & Properties.INPUT_CONTIGUOUS))
        dy = matrix(
            rng, rows.num_out, component.output_dim, bool(flags & Properties.OUTPUT_CONTIGUOUS)
        )
        x, dy = x.astype(np.float32), dy.astype(np.float32)
        y, memo = forward(component, x, rows)
        before = updated.copy()
        holder = gradient_holder(component)
        backward(component, x, y, memo, dy, rows, holder)
        backward(component, x, y, memo, dy, rows, updated)
        step = updated.copy()
        step.add(-1.0, before)
        assert np.isfinite(updated.vectorize()).all()  # type: ignore[attr-defined]
        gradient: Any = holder
        if gradient.num_parameters and np.abs(gradient.vectorize()).max() > 0:
            assert gradient.dot_product(step) > 0.0


def check_vectorize(component: Component) -> None:
    """Parameters go out as one vector and back; scale, add and dot product agree with it."""
    if not isinstance(component, UpdatableComponent):
        return
    if not component.properties & Properties.UPDATABLE:
        return
    other = component.copy()
    values = np.random.default_rng(2).normal(size=component.num_parameters).astype(np.float32)
    other.unvectorize(values)
    assert np.array_equal(other.vectorize(), values)
    mine = component.vectorize().astype(np.float64)
    np.testing.assert_allclose(component.dot_product(other), mine @ values, 1e-4, 1e-4)
    other.scale(0.5)
    other.add(2.0, component)
    np.testing.assert_allclose(other.vectorize(), 0.5 * values + 2.0 * mine, 1e-5, 1e-5)
    assert np.array_equal(component.vectorize(), mine.astype(np.float32))


def check_stats(component: Component, rows: Rows | None = None) -> None:
    """Statistics of two minibatches survive the files; scaling by 0 forgets them."""
    if not component.properties & Properties.STORES_STATS:
        return
    rows = rows or rows_of(component)
    with_stats = component.copy()
    for seed in (0, 1):
        contiguous = bool(component.properties & Properties.INPUT_CONTIGUOUS)
        x = matrix(np.random.default_rng(seed), rows.num_in, component.input_dim, contiguous)
        x = x.astype(np.float32)
        y, memo = forward(component, x, rows)
        with_stats.store_stats(x, y, memo)
    check_stable_files(with_stats)
    doubled = with_stats.copy()
    doubled.add(1.0, with_stats)
    doubled.scale(0.5)
    assert doubled.info() == with_stats.info()
    doubled.zero_stats()
    assert "nan" not in to_bytes(doubled, False).decode().lower()
    assert doubled.info().count("avg") == 0


def check_stable_files(component: Component) -> None:
    """A file with statistics, which are averages there, keeps its values to float precision."""
    assert from_bytes(to_bytes(component, True), True).info() == component.info()
    text = to_bytes(component, False)
    before, after = text.split(), to_bytes(from_bytes(text, False), False).split()
    is_number = [_is_number(token) for token in before]
    assert [_is_number(token) for token in after] == is_number
    words = [(a, b) for a, b, skip in zip(before, after, is_number, strict=True) if not skip]
    assert all(a == b for a, b in words)
    numbers = [np.array(tokens)[is_number].astype(np.float64) for tokens in (before, after)]
    np.testing.assert_allclose(*numbers, 1e-5, 1e-6)


def _is_number(token: bytes) -> bool:
    try:
        float(token)
    except ValueError:
        return False
    return True


def check_component(component: Component, rows: Rows | None = None) -> None:
    """All checks of this file but `check_output`."""
    check_round_trip(component)
    check_vectorize(component)
    check_derivatives(component, rows)
    check_update(component, rows)
    check_stats(component, rows)

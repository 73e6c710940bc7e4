"""Generated kernels of formulas and reductions, run on the host, against the NumPy backend."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.errors import ProgramError
from nnet3tools.tensor import formulas as F
from support.emulated_cuda import counts_transfers, fetch, mirror, needs_compiler, to_device

pytestmark = needs_compiler


def strided(array: np.ndarray) -> np.ndarray:
    """The same numbers as columns of a wider matrix."""
    wide = np.full((*array.shape[:-1], array.shape[-1] + 5), 99, array.dtype)
    view = wide[..., 2 : 2 + array.shape[-1]]
    view[...] = array
    return view


def gaps(array: np.ndarray) -> np.ndarray:
    """The same numbers with others in between, both ways."""
    wide = np.zeros((2 * array.shape[0], 2 * array.shape[1]), array.dtype)
    wide[::2, ::2] = array
    return wide[::2, ::2]


LAYOUTS = {
    "contiguous": np.array,
    "columns": strided,
    "transposed": np.asfortranarray,
    "gaps": gaps,
}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "bool"])
def test_every_function_over_every_type(device, dtype):
    """All functions in one formula each: as many outputs as there are functions."""
    rng = np.random.default_rng(1)
    values = [np.abs(rng.uniform(0.1, 1.5, size=(3, 33))) for _ in range(3)]
    operands = [v.astype(dtype) for v in values]
    items = []
    for i, function in enumerate(F.FUNCTIONS.values()):
        arguments = [F.Placeholder(1 + k) for k in range(function.arity)]
        items.append((F.Placeholder(4 + i), function(*arguments)))
    op = tensor.element(F.Assignments(tuple(items)))
    outs = [np.empty((3, 33), np.float64) for _ in items]
    on_device = mirror([*operands, *outs])
    op(*operands, *outs)
    op(*on_device)
    tolerance = 2e-3 if dtype == "float16" else 1e-6
    for (_, expr), got, expected in zip(items, on_device[3:], outs, strict=True):
        np.testing.assert_allclose(
            fetch(got), expected, rtol=tolerance, atol=tolerance, err_msg=expr.text()
        )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(5, 8), (1, 8), (5, 1), (0, 6), (70, 300)])
def test_broadcasts_and_strides(device, shape, layout):
    rng = np.random.default_rng(2)
    rows, columns = shape
    shapes = [shape, (columns,), (1, columns), (rows, 1), (1, 1)]
    ins = [LAYOUTS[layout](rng.normal(size=shape).astype(np.float32))]
    ins += [rng.normal(size=s).astype(np.float32) for s in shapes[1:]]
    op = tensor.element("_1 = _2 * exp(_3) + tanh(_4) * _5 - where(_6 > _7, _2, sqr(_5))")
    out = LAYOUTS[layout](np.zeros(shape, np.float32))
    got, on_device = mirror(out), mirror(ins)
    op(out, *ins, 0.25)
    op(got, *on_device, 0.25)
    np.testing.assert_allclose(fetch(got), out, rtol=1e-5, atol=1e-5)


def test_three_axes_with_repeated_middle(device):
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(4, 3, 5)).astype(np.float32), rng.normal(size=(4, 1, 5))
    out = np.zeros((4, 3, 5), np.float32)
    got = mirror(out)
    op = tensor.element("_1 = _2 * _3")
    op(out, x, y.astype(np.float32))
    op(got, mirror(x), mirror(y.astype(np.float32)))
    np.testing.assert_array_equal(fetch(got), out)


def test_four_at_a_time_only_where_all_is_aligned(device):
    op = tensor.element("_1 += _2")
    x = to_device(np.arange(32, dtype=np.float32).reshape(4, 8))
    op(x, to_device(np.ones(8, np.float32)))
    assert fetch(x).sum() == 32 * 31 / 2 + 32
    assert any("float4" in source for source in device.sources.values())
    device.sources.clear()
    op(x[:, 1:5], to_device(np.ones(4, np.float32)))
    assert not any("float4" in source for source in device.sources.values())
    assert fetch(x).sum() == 32 * 31 / 2 + 48


def test_operand_that_overlaps_the_output_askew_is_read_before(device):
    x = np.arange(12, dtype=np.float32)
    got = to_device(x)
    op = tensor.element("_1 = _2 + 1")
    op(x[1:], x[:-1])
    op(got[1:], got[:-1])
    np.testing.assert_array_equal(fetch(got), x)


def test_column_blocks_of_one_matrix_need_no_copy(device):
    x = to_device(np.ones((6, 8), np.float32))
    device.launched.clear()
    tensor.element("_1 = _2 * 2; _3 = _2 * 3")(x[:, :2], x[:, 2:5][:, :2], x[:, 5:7])
    assert len(device.launched) == 1
    assert fetch(x)[0].tolist() == [2, 2, 1, 1, 1, 3, 3, 1]


def test_assigned_operand_of_another_shape_is_refused(device):
    with pytest.raises(ProgramError, match="full shape"):
        tensor.element("_1 = _2")(to_device(np.ones(3)), to_device(np.ones((2, 3))))


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod", "logsumexp"])
@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_reductions(device, reduce, axis, layout):
    rng = np.random.default_rng(0)
    op = tensor.aggregate("_1 + _2 * _3", reduce, axis=axis)
    for shape in ((7, 5), (1, 5), (7, 1), (3, 1100), (300, 3)):
        spread, centre = (0.01, 1.0) if reduce == "prod" else (1.0, 0.0)
        x = LAYOUTS[layout]((spread * rng.normal(size=shape) + centre).astype(np.float32))
        row = (spread * rng.normal(size=shape[1])).astype(np.float32)
        if axis is None:
            got = op(mirror(x), mirror(row), 0.5)
            assert float(got) == pytest.approx(op(x, row, 0.5), rel=1e-4, abs=1e-3)
            continue
        for dtype in ("float32", "float64"):
            out = np.full(shape[1 - axis], 2.0, dtype)
            other = mirror(out)
            for beta in (0.0, 0.5):
                op(out, x, row, 0.5, alpha=2.0, beta=beta)
                op(other, mirror(x), mirror(row), 0.5, alpha=2.0, beta=beta)
                np.testing.assert_allclose(fetch(other), out, rtol=2e-4, atol=1e-4)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_stacks_reduce_over_any_axis(device, axis):
    x = np.random.default_rng(0).normal(size=(9, 8, 50)).astype(np.float32)
    expected = (x.astype(float) ** 2).sum(axis=axis)
    out = to_device(np.empty(expected.shape, np.float32))
    tensor.aggregate("sqr(_1)", "sum", axis=axis)(out, mirror(x))
    np.testing.assert_allclose(fetch(out), expected, rtol=1e-5)


def test_long_reductions_are_cut_into_chunks(device):
    x = np.random.default_rng(0).normal(size=(20000, 3)).astype(np.float32)
    out = to_device(np.empty(3, np.float64))
    step = tensor.aggregate("_1", "sum", axis=0).bind(out, mirror(x))
    assert step.grid[1] > 1
    for _ in range(2):  # the tickets are zeros again
        step()
        np.testing.assert_allclose(fetch(out), x.sum(axis=0, dtype=float), rtol=1e-9)
    assert len(device.launched) == 2


def test_reductions_of_nothing(device):
    out = to_device(np.full(3, 9.0, np.float32))
    empty = to_device(np.zeros((0, 3), np.float32))
    tensor.aggregate("_1", "sum", axis=0)(out, empty)
    assert fetch(out).tolist() == [0.0] * 3
    with pytest.raises(ProgramError, match="nothing"):
        tensor.aggregate("_1", "max", axis=0)(out, empty)


@counts_transfers
def test_numbers_stay_on_the_device_until_they_are_looked_at(device):
    x = to_device(np.ones((5, 5), np.float32))
    total = 0.0
    for _ in range(3):
        total += -0.5 * tensor.dot(x, x)
    assert device.downloads == 0
    assert float(total) == -37.5
    assert device.downloads == 1


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_reductions_of_rows_and_maps_over_them(device, dtype, layout):
    """Two stages of reductions, a result for each row, operands repeated every way."""
    rng = np.random.default_rng(0)
    op = tensor.element(
        "c = x - row_mean(x); v = 1 / sqrt(row_mean(c * c) + eps); out = c * v * row + column;"
        "one = v + row_max(y) - row_min(y) + row_sum(y * row)",
        "out one x y row column eps",
    )
    for shape in ((4, 300), (1, 1), (70, 9), (0, 5), (5, 0)):
        x, y = (LAYOUTS[layout](rng.normal(size=shape).astype(dtype)) for _ in range(2))
        row, column = (rng.normal(size=n).astype(dtype) for n in (shape[1], (shape[0], 1)))
        out, one = LAYOUTS[layout](np.zeros(shape, dtype)), np.zeros((shape[0], 1), dtype)
        operands = [out, one, x, y, row, column]
        on_device = mirror(operands)
        op(*operands, 0.1)
        op(*on_device, 0.1)
        tolerance = 3e-2 if dtype == "float16" else 1e-4
        for got, expected in zip(on_device[:2], operands[:2], strict=True):
            np.testing.assert_allclose(fetch(got), expected, tolerance, tolerance)


def test_a_row_formula_in_place_is_one_kernel(device):
    x = np.random.default_rng(0).normal(size=(3, 4, 50)).astype(np.float32)
    got = to_device(x)
    device.launched.clear()
    tensor.softmax(got, got)
    assert len(device.launched) == 1
    tensor.softmax(x, x)
    np.testing.assert_allclose(fetch(got), x, rtol=1e-5)
    with pytest.raises(ProgramError, match="has none"):
        tensor.element("out = x - row_sum(y)", "out x y")(got, got, to_device(np.ones((4, 1))))

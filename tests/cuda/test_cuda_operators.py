"""Every special operator against its reference: on NumPy, and its CUDA kernel run on the host."""

import itertools

import numpy as np
import pytest
from test_cuda_formulas import LAYOUTS

from nnet3tools import tensor
from nnet3tools.errors import ProgramError
from nnet3tools.tensor.cuda.fused_levels import capture
from nnet3tools.tensor.operators import (
    compress,
    csr,
    gather,
    groups,
    order,
    patches,
    sparse_targets,
    windows,
)
from support.emulated_cuda import fetch, mirror, needs_compiler, to_device
from support.native_kernels import copied
from support.row_operators import all_operators, reference

pytestmark = needs_compiler


@pytest.fixture(params=["host", "cuda"])
def where(request, monkeypatch):
    """The CUDA device of a test; None if its operators run on NumPy, in both float types."""
    if request.param == "cuda":
        return request.getfixturevalue("device")
    narrow = check

    def check_both(operator, outs, *args, host=(), **options):
        narrow(operator, outs, *args, host=host, **options)
        wide = [_wide(a) for a in (*outs, *args)]
        narrow(operator, wide[: len(outs)], *wide[len(outs) :], host=host, **options)

    for name, function in (("mirror", copied), ("fetch", lambda array: array)):
        monkeypatch.setitem(globals(), name, function)
    monkeypatch.setitem(globals(), "check", check_both)
    return None


def _wide(array):
    """An argument with float64 in place of float32."""
    if isinstance(array, list):
        return [_wide(a) for a in array]
    is_narrow = isinstance(array, np.ndarray) and array.dtype == np.float32
    return array.astype(np.float64) if is_narrow else array


def check(operator, outs, *args, host=(), **options):
    """Run an operator on the device and its reference on the host, and compare the outputs.

    `host` are the positions of arguments that stay on the host.
    """
    expected = [o.copy() for o in outs]
    got = mirror(outs)
    moved = [a if i in host else mirror(a) for i, a in enumerate(args)]
    operator(*got, *moved, **options)
    reference(operator)(*expected, *args, **options)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(fetch(a), b, rtol=1e-4, atol=2e-5, err_msg=operator.name)


class OutputsLast:
    """An operator whose last operands are its outputs, or None: `check` gives outputs first."""

    def __init__(self, operator, wanted, **more):
        self.operator, self.wanted = operator, wanted
        self.name = f"{operator.name}, outputs first"
        self.more = more

    def _moved(self, value, args):
        return value if isinstance(value, bool) else mirror(value.astype(args[0].dtype))

    def _run(self, function, args, more):
        count = sum(self.wanted)
        outs = iter(args[:count])
        function(*args[count:], *(next(outs) if w else None for w in self.wanted), **more)

    def __call__(self, *args):
        self._run(
            self.operator, args, {name: self._moved(a, args) for name, a in self.more.items()}
        )

    def reference(self, *args):
        self._run(reference(self.operator), args, self.more)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_the_table_has_no_gaps(device):
    for operator in all_operators():
        for element_type in operator.types:
            assert operator._find("cupy", element_type)  # UnsupportedOperator if there is none


@pytest.fixture(params=["cublas", "cublaslt"])
def by_each_library(request, monkeypatch):
    """cuBLAS and cublasLt do the products of a test in turn."""
    monkeypatch.setenv("NNET3TOOLS_GPU_PRODUCTS", request.param)


@pytest.mark.parametrize(("trans_a", "trans_b"), list(itertools.product([False, True], repeat=2)))
def test_products(device, by_each_library, trans_a, trans_b):
    for n, k, d in ((5, 4, 3), (1, 4, 3), (5, 1, 1), (1, 1, 1), (0, 3, 2), (4, 0, 3)):
        a, b = normal(*((k, n) if trans_a else (n, k))), normal(*((d, k) if trans_b else (k, d)))
        out = normal(n, d)
        for to, left, right in itertools.product(LAYOUTS.values(), repeat=3):
            check(
                tensor.prod, [to(out)], left(a), right(b), trans_a=trans_a, trans_b=trans_b,
                alpha=0.5, beta=0.25,
            )  # fmt: skip


def test_products_of_stacks_and_outer_products(where, by_each_library):
    a, b = normal(6, 5, 4), normal(6, 3, 4, seed=1)
    check(tensor.prod, [normal(6, 5, 3)], a, b, trans_b=True, alpha=2.0, beta=0.5)
    check(tensor.prod, [normal(6, 5, 3)], a, b[:1], trans_b=True)
    check(tensor.prod, [normal(5, 3)], a[0, :, 0][:, None], b[0, :, 0][None, :], beta=1.0)


def test_contiguous_products_are_one_call_without_copies(device):
    out, a, b = (to_device(normal(4, 4)) for _ in range(3))
    device.launched.clear()
    tensor.prod(out, a.T, b[:, :4], beta=1.0)
    assert device.launched == ["gemm"]


def test_basics(where):
    shapes = [(6, 7), (0, 5), (1, 1), *[(600, 700)] * (where is None)]
    for shape, to, of in itertools.product(shapes, LAYOUTS.values(), LAYOUTS.values()):
        x, y = to(normal(*shape)), of(normal(*shape, seed=1))
        check(tensor.copy, [x], y)
        check(tensor.add, [x], y, -0.5)
        check(tensor.add, [x], y[:1], 3.0)
        check(tensor.scale, [x], 0.25)
        check(tensor.fill, [x], 7.0)
        assert float(tensor.dot(mirror(x), mirror(y))) == pytest.approx(tensor.dot(x, y), rel=1e-4)


def test_adding_with_a_factor_on_the_device_and_not_at_all_if_it_is_zero(device):
    x, bad = to_device(normal(3, 4)), to_device(np.full((3, 4), np.inf, np.float32))
    before = fetch(x)
    factor = tensor.dot(to_device(np.full(2, 0.5)), to_device(np.ones(2)))
    tensor.add(x, to_device(np.ones((3, 4), np.float32)), 2.0 * factor)
    np.testing.assert_allclose(fetch(x), before + 2.0, rtol=1e-6)
    tensor.add(x, bad, 0.0 * factor)
    assert np.isfinite(fetch(x)).all()
    assert device.downloads == 0


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("on_host", [True, False])
def test_row_operations(where, seed, on_host):
    for case in range(seed, seed + 48, 12) if where is None else [seed]:
        _check_row_operations(case, (1,) if on_host else ())


def _check_row_operations(seed, host):
    rng = np.random.default_rng(seed)
    n, rows, columns = int(rng.integers(0, 30)), int(rng.integers(1, 20)), int(rng.integers(1, 6))
    src, out = list(LAYOUTS.values())[seed % 4](normal(rows, columns)), normal(n, columns, seed=1)
    at = np.arange(n)
    pattern = [
        rng.integers(-1, rows, n),
        np.clip(at * int(rng.integers(-2, 3)) + int(rng.integers(0, rows)), 0, rows - 1),
        (at // 3 * 2 + at % 3) % rows,
        np.full(n, -1),
    ][seed // 4 % 4].astype(np.int32)
    alpha = [1.0, -1.0, 0.5][seed % 3]
    check(tensor.copy_rows, [out], src, pattern, host=host)
    check(tensor.add_rows, [out], src, pattern, alpha, host=host)
    check(tensor.copy_cols, [out.T.copy()], src.T, pattern, host=host)
    begin = rng.integers(0, rows + 1, n)
    end = np.minimum(begin + rng.integers(-1, (5 if seed % 2 else rows) + 1, n), rows)
    regular = [(at % rows, np.minimum(at % rows + length, rows)) for length in (1, rows)]
    for pair in ((begin, end), *regular):
        ranges = np.stack(pair, axis=1).astype(np.int32)
        check(tensor.add_row_ranges, [out], src, ranges, alpha, host=host)


@pytest.mark.parametrize("seed", range(6))
def test_multi_row_operations(where, seed):
    rng = np.random.default_rng(seed)
    n, columns = int(rng.integers(0, 25)), int(rng.integers(1, 5))
    out = normal(n, columns)
    parts = [normal(int(rng.integers(1, 9)), columns, seed=i) for i in range(3)]
    which = rng.integers(-1, 3, n).astype(np.int32)
    row = np.array([rng.integers(0, len(parts[w])) if w >= 0 else -1 for w in which], np.int32)
    check(tensor.copy_rows_multi, [out], parts, which, row, host=(1, 2))
    check(tensor.add_rows_multi, [out], parts, which, row, 0.5, host=(1, 2))
    places = [(p, r) for p in range(3) for r in range(len(parts[p]))]
    chosen = [places[i] for i in rng.permutation(len(places))]
    dest = np.array([p for p, _ in chosen], np.int32)
    row = np.array([r for _, r in chosen], np.int32)
    dest[rng.random(len(dest)) < 0.2] = -1
    src = normal(len(dest), columns)
    for operator, args, twice in (
        (tensor.copy_to_rows_multi, (), False),
        (tensor.add_to_rows_multi, (2.0,), True),
    ):
        expected = [p.copy() for p in parts]
        got = mirror(parts)
        at = row // 2 if twice else row
        operator(mirror(src), got, dest, at, *args)
        reference(operator)(src, expected, dest, at, *args)
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(fetch(a), b, rtol=1e-5)


def test_indexes_and_addresses_are_uploaded_once(device):
    parts = [to_device(normal(4, 3)) for _ in range(2)]
    out, which = to_device(np.zeros((5, 3), np.float32)), np.array([0, 1, -1, 1, 0], np.int32)
    uploads = []
    upload = device.upload
    device.upload = lambda host: uploads.append(host.shape) or upload(host)
    for _ in range(3):
        tensor.copy_rows_multi(out, parts, which, np.array([0, 1, 0, 3, 2], np.int32))
    assert len(uploads) <= 3


@pytest.mark.parametrize(
    "call",
    [
        lambda x: tensor.copy_rows(x, x[:2], np.array([0, 1, 2])),
        lambda x: tensor.copy_rows(x, x, np.array([0, 1])),
        lambda x: tensor.add_row_ranges(x, x, np.array([[0, 4], [0, 1], [0, 1]])),
        lambda x: tensor.add_rows_multi(x, [x], np.zeros(3, int), np.array([0, -1, 2])),
    ],
)
def test_indexes_beyond_a_matrix_are_refused_when_bound(where, call):
    with pytest.raises(ProgramError, match="row"):
        call(mirror(np.zeros((3, 2))))


@pytest.mark.parametrize("shape", [(7, 5), (1, 1), (0, 4), (3, 600), (4, 3, 5), (9,)])
def test_softmax_family(where, shape):
    shape = (300, 6000) if where is None and shape == (3, 600) else shape
    x, e = 5 * normal(*shape), normal(*shape, seed=1)
    for forward, backward in (
        (tensor.softmax, tensor.softmax_backprop),
        (tensor.log_softmax, tensor.log_softmax_backprop),
    ):
        check(forward, [np.empty_like(x)], x)
        y = np.empty_like(x)
        forward(y, x)
        check(backward, [np.empty_like(x)], y, e)
        expected, in_place = np.empty_like(x), mirror(e)
        reference(backward)(expected, y, e)
        backward(in_place, mirror(y), in_place)
        np.testing.assert_allclose(fetch(in_place), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("add_log_stddev", [False, True])
def test_row_normalisation(where, add_log_stddev):
    for rows in (0, 1, 30 if where else 300):
        x = normal(rows, 40)
        x[:1] = 0.0
        e = normal(rows, 40 + add_log_stddev, seed=1)
        check(tensor.normalize_per_row, [np.ones_like(e)], x, 0.5, add_log_stddev)
        check(tensor.diff_normalize_per_row, [np.ones_like(x)], x, e, 0.5, add_log_stddev)


@pytest.mark.parametrize("centred", [True, False])
def test_layer_norm(where, centred):
    backward = tensor.layer_norm_backprop
    shapes = [(0, 40), (1, 40), (30, 40)] if where else [(0, 40), (4, 0), (3, 1), (700, 130)]
    for (rows, dim), of in itertools.product(shapes, LAYOUTS.values()):
        scale, offset = normal(dim, seed=2), normal(dim, seed=3)
        x, e = of(3 + normal(rows, dim)), of(normal(rows, dim, seed=1))
        out = of(np.ones((rows, dim), np.float32))
        for a, b in ((None, None), (scale, None), (None, offset), (scale, offset)):
            check(tensor.layer_norm, [out], x, a, b, 1e-3, centred)
        made = [np.ones_like(x), np.ones(dim, np.float32), np.ones(dim, np.float32)]
        for wanted in itertools.product((False, True), repeat=3):
            outs = [d for d, w in zip(made, wanted, strict=True) if w]
            for factor in (None, scale):
                check(OutputsLast(backward, wanted, centred=centred), outs, x, e, factor, 1e-3)
        set_ = OutputsLast(backward, wanted, add=False, centred=centred)
        check(set_, outs, x, e, factor, 1e-3)


def test_batch_norm(where):
    large = [] if where else [(129, 40), (300, 1500), (5, 70000), (3, 0)]
    shapes = [(0, 3), (1, 1), (30, 5), (300, 33), *large]
    for (rows, dim), of in itertools.product(shapes, LAYOUTS.values()):
        x, e = of(normal(rows, dim)), of(normal(rows, dim, seed=1))
        stats = np.ones((3, dim), np.float32)
        check(tensor.batch_norm, [of(np.ones((rows, dim), np.float32)), stats], x, 0.01, 0.7)
        z, scale = of(normal(rows, dim, seed=2)), normal(dim, seed=3)
        check(tensor.batch_norm_backprop, [np.ones_like(x)], z, e, scale, 0.7)


@pytest.mark.parametrize("dropout", [0, 3])
def test_lstm(where, dropout):
    large = [] if where else [(1, 700), (903, 50)]
    for rows, dim in ((0, 4), (1, 1), (30, 5), (300, 33), *large):
        of = list(LAYOUTS.values())[rows % 4]
        x, w = of(normal(rows, 5 * dim + dropout)), normal(3, dim, seed=1)
        check(tensor.lstm_nonlinearity, [of(np.ones((rows, 2 * dim), np.float32))], x, w)
        e, repair = of(normal(rows, 2 * dim, seed=2)), normal(5, dim, seed=3)
        made = [np.ones_like(x), np.ones_like(w), np.ones((5, dim)), np.ones((5, dim))]
        for wanted in ((1, 0, 0, 0), (0, 1, 0, 0), (0, 1, 1, 1), (1, 1, 1, 1), (1, 0, 0, 1)):
            outs = [d for d, use in zip(made, wanted, strict=True) if use]
            backward = OutputsLast(tensor.lstm_nonlinearity_backprop, wanted)
            check(backward, outs, x, w, e, repair)


@pytest.mark.parametrize("weights", [(5, 5), (6, 2), (1, 1), (4,), (1,)])
def test_gru(where, weights):
    dim, inner = weights[0], sum(weights[1:])
    width = 3 * dim + inner + (0 if inner == dim else inner)
    w = normal(*weights)
    for rows, of in itertools.product((0, 1, 30 if where else 700), LAYOUTS.values()):
        x, out = of(normal(rows, width)), of(normal(rows, 2 * dim, seed=1))
        check(tensor.gru_nonlinearity, [out], x, w)
        tensor.gru_nonlinearity(out, x, w)
        e, repair = normal(rows, 2 * dim, seed=2), normal(dim, seed=3)
        made = [np.zeros((rows, dim), np.float32), of(normal(rows, width, seed=4))]
        for wanted in ((True, False), (True, True)):
            outs = made[: sum(wanted)]
            check(OutputsLast(tensor.gru_nonlinearity_backprop, wanted), outs, x, w, out, e)
        repaired = OutputsLast(tensor.gru_nonlinearity_backprop, wanted, repair=repair)
        check(repaired, outs, x, w, out, e)


@pytest.mark.parametrize("dtype", ["bool", "int32", "float16", "float32"])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((40, 70), (1, 0)), ((3, 4), (1, 0)), ((33, 9, 41), (2, 1, 0)), ((2, 5, 40), (1, 0, 2)),
        ((2, 40, 3, 33), (0, 3, 2, 1)), ((0, 5), (1, 0)), ((6,), (0,)),
    ],
)  # fmt: skip
def test_transposes(where, shape, axes, dtype):
    x, out = ((10 * normal(*n)).astype(dtype) for n in (shape, [shape[a] for a in axes]))
    for to, of in itertools.product((out, np.flip(out)), (x, np.asfortranarray(x))):
        check(tensor.transpose, [to], of, axes)
        if dtype == "float32":
            check(tensor.add_transposed, [to], of, axes)


@pytest.mark.parametrize("dtype", ["bool", "int32", "float16", "float32"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_joining_and_splitting(where, axis, dtype):
    def part(size, seed):
        shape = [3, 4, 5]
        shape[axis] = size
        return (10 * normal(*shape, seed=seed)).astype(dtype)

    parts = [part(n, seed) for seed, n in enumerate([2, 0, 1, 3] + [1] * 20)]
    parts[2] = np.flip(part(1, 0))
    whole = np.concatenate(parts, axis)
    check(tensor.concatenate, [np.zeros_like(whole)], parts, axis)
    for operator in (tensor.split, tensor.add_split) if dtype == "float32" else (tensor.split,):
        expected, got = [p.copy() for p in parts], mirror(parts)
        operator(mirror(whole), got, axis)
        reference(operator)(whole, expected, axis)
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(fetch(a), b, rtol=1e-6)


def test_splitting_adds_to_one_array_many_times(device):
    src, total = normal(4, 6), to_device(np.zeros((4, 1), np.float32))
    tensor.add_split(mirror(src), [total] * 6, 1)
    np.testing.assert_allclose(fetch(total), src.sum(1, keepdims=True), rtol=1e-5)
    parts = [to_device(np.zeros((4, 2), np.float32)) for _ in range(3)]
    device.kernels_of_graphs = 0
    capture(tensor.concatenate.bind(mirror(src), parts, 1))()
    assert device.kernels_of_graphs == 1


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_compression(where, dtype):
    x = 3 * normal(5, 6)
    for value_range in (0.0, 2.0):
        small = np.zeros(x.shape, dtype)
        check(compress.compress, [small], x, value_range)
        compress.compress(small, x, value_range)
        check(compress.decompress, [np.zeros_like(x)], small, value_range)


def test_sparse_targets(device):
    x, rows = normal(5, 7), np.array([0, 1, 1, 4])
    cols, values = np.array([6, 0, 3, 2]), np.array([1.0, 0.25, 0.75, 2.0], np.float32)
    check(sparse_targets.set_elements, [x], rows, cols, values, host=(0, 1, 2))
    got = sparse_targets.dot_elements(mirror(x), rows, cols, values)
    assert device.downloads == 0
    assert float(got) == pytest.approx(sparse_targets.dot_elements(x, rows, cols, values))


def test_sparse_targets_in_row_minus_one_are_left_out(device):
    x, rows = normal(5, 7), np.array([0, 4, -1, -1])
    cols, values = np.array([6, 2, 0, 0]), np.array([1.0, 2.0, 0.0, np.nan], np.float32)
    check(sparse_targets.set_elements, [x], rows, cols, values, host=(0, 1, 2))
    x[:, 0] = np.inf
    for a in (x, mirror(x)):
        got = sparse_targets.dot_elements(a, rows, cols, values)
        assert float(got) == pytest.approx(1.0 * x[0, 6] + 2.0 * x[4, 2])


def test_groups(where):
    x, y, e = normal(4, 12), normal(4, 3, seed=1), normal(4, 3, seed=2)
    x[0] = 0.0
    check(groups.group_norm, [np.empty((4, 3), np.float32)], x)
    groups.group_norm(y, x)
    check(groups.group_norm_backprop, [np.empty_like(x)], x, y, e)
    ranges = np.array([[0, 5], [5, 6], [6, 12]], np.int32)
    check(groups.sum_column_ranges, [np.empty((4, 3), np.float32)], x, ranges, host=(1,))


def test_patches(where):
    # every second height, a plain range, no height at all, a single one
    pieces = np.array([[0, 3, 0, 2], [1, 4, 1, 1], [2, 2, 0, 1], [3, 4, 5, 7]], np.int32)
    frames, out = normal(10, 6, 2)[::2], normal(5, 4, 4, 2)
    check(patches.gather_patches, [out], frames, pieces, host=(1,))
    check(patches.add_patches, [frames], out, pieces, host=(1,))


def test_windows(where):
    shapes = [(5, 2, 3), (5, 4, 2), (3, 2, 1), *[(700, 2, 5)] * (where is None)]
    for (rows, shift, width), alpha in itertools.product(shapes, (1.0, -0.3)):
        a, b = normal(rows, 2, 6)[..., ::2], normal(rows + (width - 1) * shift, 2, 3, seed=1)
        weights = normal(rows, 2, width, seed=2)
        check(windows.window_dots, [np.empty_like(weights)], a, b, shift, alpha)
        check(windows.add_weighted_windows, [a], b, weights, shift, alpha)
        check(windows.add_to_windows, [b], a, weights, shift, alpha)


@pytest.mark.parametrize("axis", [0, 1])
def test_gathering(where, axis):
    rng = np.random.default_rng(0)
    x, at = normal(5, 6), rng.integers(0, 5, 4).astype(np.int32)
    picked = normal(*((4, 6) if axis == 0 else (5, 4)))
    check(gather.take, [picked], x, at, axis, host=(1,))
    check(gather.add_taken, [x], picked, at, axis, host=(1,))
    each = rng.integers(0, 5, picked.shape).astype(np.int32)
    check(gather.gather, [picked], x, each, axis)
    check(gather.add_gathered, [x], picked, each, axis)
    places = np.argsort(normal(*x.shape), axis=axis).astype(np.int32)
    check(gather.scatter, [x], normal(*x.shape, seed=3), places, axis)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("flag", [False, True])
def test_order_and_cumulative_sums(where, axis, flag):
    x = np.round(normal(7, 6))
    out = np.zeros((3, 6) if axis == 0 else (7, 3), np.int32)
    check(order.sort_indexes, [out], x, axis, flag)
    long = np.round(normal(300, 2) if axis == 0 else normal(2, 300))
    long[long > 2] = np.nan
    for k in (1, 5):
        out = np.zeros((k, 2) if axis == 0 else (2, k), np.int32)
        check(order.sort_indexes, [out], np.nan_to_num(long), axis, flag)
    for k in (60, 300):
        out = np.zeros((k, 2) if axis == 0 else (2, k), np.int32)
        check(order.sort_indexes, [out], long, axis, flag)
    for exclusive in (False, True):
        check(order.cumulative_sum, [normal(7, 6)], x, axis, flag, exclusive, 0.5)


@pytest.mark.parametrize(("length", "wanted"), [(2048, 2048), (4500, 4500), (4097, 3000)])
def test_lines_longer_than_a_block_sorts_are_merged(device, length, wanted):
    rng = np.random.default_rng(length)
    x = rng.integers(0, 1000, (2, length)).astype(np.float32)  # many are equal
    x[1, ::7] = np.nan
    check(order.sort_indexes, [np.zeros((2, wanted), np.int32)], x, 1, True)


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65])
def test_short_lines_are_sorted(device, length):
    x = np.round(normal(length, 40))
    check(order.sort_indexes, [np.zeros((length, 40), np.int32)], x, 0, False)


@pytest.mark.parametrize("trans", [False, True])
def test_sparse_products(where, trans):
    values, offsets = normal(6), np.array([0, 2, 2, 5, 6], np.int32)
    columns = np.array([1, 0, 4, 1, 1, 2], np.int32)
    b, out = normal(4 if trans else 5, 3), normal(5 if trans else 4, 3)
    check(csr.csr_dot, [out], values, columns, offsets, b, trans, 0.5, host=(1, 2))


def test_random_numbers_are_spread_and_repeat(device):
    tensor.random.seed(3)
    u, v, n = (to_device(np.zeros((40, 250), np.float32)) for _ in range(3))
    tensor.random.uniform(u)
    tensor.random.normal(n)
    tensor.random.seed(3)
    tensor.random.uniform(v)
    values = fetch(u)
    assert np.array_equal(values, fetch(v))
    assert 0.0 < values.min() < 0.01
    assert 0.99 < values.max() <= 1.0
    assert values.mean() == pytest.approx(0.5, abs=0.01)
    assert fetch(n).mean() == pytest.approx(0.0, abs=0.04)
    assert fetch(n).std() == pytest.approx(1.0, abs=0.03)


def test_philox_agrees_with_the_published_vectors(device):
    """The first word for counter 0 and our key, by an independent Philox."""
    tensor.random.seed(12345)
    out = to_device(np.zeros(3, np.float64))
    tensor.random.uniform(out)
    expected = [((_philox(i, 12345) >> 8) + 1) * 2.0**-24 for i in range(3)]
    np.testing.assert_allclose(fetch(out), expected, rtol=1e-6)


def _philox(counter: int, key: int) -> int:
    words, keys, mask = [counter, 0, 0, 0], [key, 0x5EED], 0xFFFFFFFF
    for _ in range(10):
        a, b = 0xD2511F53 * words[0], 0xCD9E8D57 * words[2]
        words = [
            (b >> 32) ^ words[1] ^ keys[0], b & mask, (a >> 32) ^ words[3] ^ keys[1], a & mask,
        ]  # fmt: skip
        keys = [(keys[0] + 0x9E3779B9) & mask, (keys[1] + 0xBB67AE85) & mask]
    return words[0]


def test_elements_picked_from_outside_are_no_numbers(device):
    """A check would have to wait for the device: what is wrong must be seen, and nothing harmed."""
    x, at = normal(4, 3), np.array([0, -1, 4, 3], np.int32)
    out = mirror(np.zeros((4, 3), np.float32))
    gather.take(out, mirror(x), mirror(at), 0)
    expected = np.array([x[0], [np.nan] * 3, [np.nan] * 3, x[3]])
    np.testing.assert_array_equal(fetch(out), expected)
    each = np.repeat(at[:, None], 3, 1)
    gather.gather(out, mirror(x), mirror(each), 0)
    np.testing.assert_array_equal(fetch(out), expected)
    whole = mirror(np.ones((4, 3), np.float32))
    gather.scatter(whole, mirror(x), mirror(each), 0)
    np.testing.assert_array_equal(fetch(whole), np.array([x[0], np.ones(3), np.ones(3), x[3]]))

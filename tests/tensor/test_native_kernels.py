"""Compiled kernels give what NumPy's calls give, NaN, infinity and all."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.tensor import formulas as F
from nnet3tools.tensor.call import Call
from nnet3tools.tensor.cpu.calls import jobs_of
from nnet3tools.tensor.cpu.jobs import CompiledJobs
from nnet3tools.tensor.formulas import Placeholder
from nnet3tools.tensor.number import Number
from nnet3tools.tensor.operators.compress import compress, decompress
from support.native_kernels import Bound, check, needs_compiler, unexpected
from support.tensor_reference import random_expression

pytestmark = needs_compiler

SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 88.5, -88.5, 104.5, -104.5, 3e38, 1.0)


def normal(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(dtype)


def with_special(array):
    """Numbers that functions treat differently put at the front, in every order of two."""
    flat = array.reshape(-1)
    flat[: len(SPECIAL)] = SPECIAL
    return array


def strided(array):
    wide = np.full((*array.shape[:-1], array.shape[-1] + 5), 99, array.dtype)
    wide[..., 2:-3] = array
    return wide[..., 2:-3]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_function_over_every_number(dtype):
    bound = []
    for name, function in F.FUNCTIONS.items():
        n = function.arity
        operands = [with_special(normal(13, 40, dtype=dtype, seed=k) * 3) for k in range(n)]
        operands[-1] = np.ascontiguousarray(operands[-1][:, ::-1])
        if n > 1:
            operands[-1].reshape(-1)[: len(SPECIAL)] = SPECIAL[::-1]
        if name == "tan":  # near its poles nothing is accurate
            operands[0] = with_special(np.tanh(operands[0]))
        if name == "pow":
            operands = [np.abs(operands[0]), np.clip(operands[1], -2, 2)]
        expr = function(*[Placeholder(i + 2) for i in range(n)])
        bound.append(Bound(tensor.element(expr), np.empty((13, 40), dtype), *operands))
    check(bound, 3e-6 if dtype == "float32" else 1e-12)


def test_functions_are_accurate_everywhere():
    x = np.arange(-(1 << 31), 1 << 31, 104_729).astype(np.int32).view(np.float32)  # all magnitudes
    near = np.linspace(-20, 20, 100_001, dtype=np.float32)
    with np.errstate(all="ignore"):
        exact = {
            "exp": np.exp, "log": np.log, "tanh": np.tanh,
            "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
        }  # fmt: skip
        for values in (x, near):
            runs = {n: Bound(tensor.element(f"_1 = {n}(_2)"), values * 0, values) for n in exact}
            for name, one in runs.items():
                one.run_native()
                expected = exact[name](values.astype(np.float64))
                expected = np.where(expected > np.finfo(np.float32).max, np.inf, expected)
                found = one.native[0][0]
                # exp(-x) overflows where a sigmoid is below the least normal number, as in NumPy's
                least = 1.2e-38 if name == "sigmoid" else 1e-44
                np.testing.assert_allclose(found, expected, rtol=4e-7, atol=least, err_msg=name)


def test_random_trees():
    bound = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        tree = random_expression(rng, depth=6)
        rows, columns = int(rng.integers(1, 40)), int(rng.integers(1, 90))
        shapes = [(rows, columns), (columns,), (rows, 1), (1, columns)]
        ins = [normal(*shapes[rng.integers(4)], dtype=np.float64, seed=k) for k in range(3)]
        ins = [strided(a) if rng.random() < 0.5 else a for a in ins]
        out = strided(np.zeros((rows, columns)))
        bound.append(Bound(tensor.element(F.assign(Placeholder(4), tree)), *ins, out))
    check(bound, 1e-6)


def test_what_has_no_functions_is_the_same_to_the_last_bit():
    x, y = with_special(normal(17, 23)), with_special(normal(17, 23, seed=1))
    formulas = (
        "_1 = _2 * _3 + _2", "_1 = max(_2, 0)", "_1 = where(_2 > _3, _2, _3 * 0.3)",
        "_1 += _2 * 0.7", "_1 = sqrt(abs(_2)) / _3", "_1 = (1 - _2) * _3 - _2 * _2",
        "_1 = round(_2) + floor(_3)",
        "_1 = sgn(_2) * min(_2, _3)",
    )  # fmt: skip
    for one in [Bound(tensor.element(f), normal(17, 23, seed=2), x, y)
                if "_3" in f else Bound(tensor.element(f), normal(17, 23, seed=2), x)
                for f in formulas]:  # fmt: skip
        one.run()
        for expected, found in one.arrays():
            assert np.array_equal(expected, found, equal_nan=True), one.operator


def test_types_meet_as_in_numpy():
    ints, floats = np.arange(-6, 6, dtype=np.int32), normal(12)
    unsigned, truth = np.arange(12, dtype=np.uint32), np.arange(12) % 3 == 0
    check(
        [
            Bound(tensor.element("_1 = _2 + _3"), np.empty(12), ints, unsigned),
            Bound(tensor.element("_1 = _2 * 3 + _3"), np.empty(12, np.int32), ints, truth),
            Bound(tensor.element("_1 = _2 > 0"), np.empty(12, bool), floats),
            Bound(
                tensor.element("_1 = where(_2, _3, 0.5)"), np.empty(12, np.float32), truth, floats
            ),
            Bound(tensor.element("_1 = float64(_2) * _3"), np.empty(12), floats, 3),
            Bound(tensor.copy, np.empty(12, np.float32), np.linspace(0, 1, 12)),
        ]
    )


ROWS = (
    "y = x - row_max(x); out = y - log(row_sum(exp(y)))",
    "p = exp(x - row_max(x)); out = p * (1 / row_sum(p))",
    "out = (x - row_mean(x)) / sqrt(row_mean(sqr(x - row_mean(x))) + 0.001)",
    "out = x - row_min(x) + row_max(abs(x))",
)


@pytest.mark.parametrize("width", [3, 64, 600, 20_000])
def test_rows_are_reduced(width):
    bound = [Bound(tensor.element(f, "out x"), normal(9, width), normal(9, width)) for f in ROWS]
    hit = normal(9, width, seed=5)
    hit[1, 0], hit[2, width // 2], hit[3] = np.nan, np.inf, -np.inf
    bound += [Bound(tensor.element(f, "out x"), normal(9, width), hit) for f in ROWS]
    column = tensor.element("out = row_sum(x * x)", "out x")
    bound.append(Bound(column, np.empty((9, 1), np.float32), strided(hit)))
    check(bound, 2e-5)


LAYOUTS = {"plain": lambda a: a, "transposed": lambda a: a.T.copy().T, "strided": strided}


@pytest.mark.parametrize("layout", list(LAYOUTS))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_aggregates(layout, dtype):
    laid = LAYOUTS[layout]
    bound = []
    for formula, more, hows in (
        ("_1 * _2", 1, ("sum",)), ("_1", 0, ("max", "min")), ("_1 > 0", 0, ("mean",)),
    ):  # fmt: skip
        for how in hows:
            ins = [laid(normal(70, 131, dtype=dtype, seed=k)) for k in range(more + 1)]
            for axis, shape in ((0, (131,)), (1, (70,)), (1, (70, 1)), (None, None)):
                op = tensor.aggregate(formula, how, axis)
                for to in ("float32", "float64"):
                    out = [] if shape is None else [normal(*shape, dtype=to)]
                    beta = {} if shape is None else {"beta": 0.5}
                    bound.append(Bound(op, *out, *ins, alpha=0.25, **beta))
    three = laid(normal(5, 20, 33, dtype=dtype))
    for axis, shape in ((0, (20, 33)), (1, (5, 33)), (2, (5, 20))):
        bound.append(Bound(tensor.aggregate("_1", "sum", axis), np.empty(shape, dtype), three))
    check(bound, 3e-5)


def test_largest_and_sums_keep_nan_and_infinity():
    x = normal(6, 300)
    x[0, 7], x[1, 8], x[2, 9] = np.nan, np.inf, -np.inf
    bound = []
    for how in ("sum", "max", "min"):
        bound.append(Bound(tensor.aggregate("_1", how, 0), np.empty(300, np.float32), x))
        bound.append(Bound(tensor.aggregate("_1", how, 1), np.empty(6, np.float32), x))
        bound.append(Bound(tensor.aggregate("_1", how, None), x))
    check(bound, 1e-4)


def test_sums_of_many_numbers_are_accurate():
    x = np.abs(normal(100_000, 3)) + 1000
    for axis, shape in ((0, (3,)), (None, None)):
        out = [] if shape is None else [np.empty(shape)]
        one = Bound(tensor.aggregate("_1", "sum", axis), *out, x)
        one.run_native()
        found = one.number.array if shape is None else one.native[0][0]
        np.testing.assert_allclose(found, x.sum(axis, dtype=np.float64).reshape(-1), rtol=3e-7)


def test_numbers_are_what_they_are_at_the_time():
    factor = Number(np.array([2.0]))
    x, out = normal(40), np.zeros(40, np.float32)
    one = Bound(tensor.element("_1 = _2 * _3"), out, x, factor)
    total = Bound(tensor.aggregate("_1", "sum", None), x, alpha=factor)
    for value in (2.0, -3.0):
        factor.array[0] = value
        check([one, total])


def test_operators():
    rows = np.random.default_rng(3).integers(-1, 20, size=50).astype(np.int32)
    which = np.where(rows >= 0, rows % 3, -1)
    places = np.random.default_rng(4).permutation(60)[:50].astype(np.int32)
    three = [normal(20, 17, seed=k) for k in range(3)]
    ranges = np.array([[0, 3], [2, 2], [5, 200], [199, 200], [7, 72]], np.int32)
    check(
        [
            Bound(tensor.copy_rows, normal(50, 17), normal(20, 17), rows),
            Bound(tensor.copy_rows, strided(normal(50, 17)), strided(normal(20, 17)), rows),
            Bound(tensor.add_rows, normal(50, 17), normal(20, 17), rows, 0.3),
            Bound(tensor.copy_rows_multi, normal(50, 17), three, which, rows),
            Bound(tensor.add_rows_multi, normal(50, 17), three, which, rows, -1.0),
            Bound(tensor.copy_to_rows_multi, normal(50, 17), [normal(60, 17)], places * 0, places),
            Bound(tensor.add_to_rows_multi, normal(50, 17), three, which, rows, 1.5),
            Bound(tensor.add_row_ranges, normal(5, 300), normal(200, 300), ranges, 0.5),
            Bound(tensor.add, normal(5, 30), normal(30), 0.5),
            Bound(tensor.add, normal(5, 30), normal(5, 1), -1.0),
            Bound(tensor.scale, normal(5, 30), 0.5),
            Bound(tensor.fill, strided(normal(5, 30)), 0.5),
            Bound(tensor.dot, normal(50, 300), normal(50, 300, seed=1)),
            Bound(tensor.layer_norm, normal(5, 30), normal(5, 30), normal(30), normal(30), 1e-5),
            Bound(tensor.layer_norm_backprop, normal(5, 30), normal(5, 30), normal(30), 1e-5,
                  normal(5, 30), normal(30), normal(30)),
            Bound(tensor.gru_nonlinearity, normal(9, 20), normal(9, 30), normal(10)),
            Bound(tensor.normalize_per_row, normal(9, 21), normal(9, 20), 0.7, True),
        ],
        3e-5,
    )  # fmt: skip


@pytest.mark.parametrize("axis", [0, 1])
def test_parts_of_arrays(axis):
    def parts():
        return [normal(6, 9, seed=1), strided(normal(6, 9, seed=2)), normal(6, 9, seed=3)]

    shape = (18, 9) if axis == 0 else (6, 27)
    same = normal(6, 9)
    check(
        [
            Bound(tensor.concatenate, strided(normal(*shape)), parts(), axis),
            Bound(tensor.concatenate, np.empty(shape), parts(), axis),
            Bound(tensor.split, normal(*shape), parts(), axis),
            Bound(tensor.add_split, normal(*shape), parts(), axis),
        ]
    )
    whole, expected = normal(*shape), same + sum(np.split(normal(*shape), 3, axis))
    CompiledJobs(jobs_of(Call.of(tensor.add_split, whole, [same] * 3, axis)), lambda: unexpected)()
    np.testing.assert_allclose(same, expected, rtol=1e-6, atol=1e-6)


def test_signs_are_kept_as_bytes():
    x = with_special(normal(13, 40))
    kept = np.random.default_rng(0).integers(0, 2, (13, 40)).astype(np.uint8)
    check(
        [
            Bound(compress, np.full((13, 40), 9, np.uint8), x, 0.0),
            Bound(decompress, np.empty((13, 40), np.float32), kept, 0.0),
        ],
        0.0,
    )
    for value_range, dtype in ((0.0, np.int8), (2.0, np.uint8)):
        out = np.empty((13, 40), dtype)
        assert jobs_of(Call.of(compress, out, x, value_range)) is None
        assert jobs_of(Call.of(decompress, x, out, value_range)) is None


@pytest.mark.parametrize("rows", [1, 37, 3000])
def test_batch_norm(rows):
    far = normal(rows, 131) * 1e-3 + 50  # where the sums of squares have lost all digits
    bound = [
        Bound(tensor.batch_norm, np.empty_like(x), normal(3, 131), x, 0.001, 0.5)
        for x in (normal(rows, 131), far, strided(normal(rows, 131)))
    ]
    z, e = normal(rows, 131), normal(rows, 131, seed=1)
    bound.append(Bound(tensor.batch_norm_backprop, np.empty_like(e), z, e, normal(131), 0.7))
    check(bound, 2e-4)


@pytest.mark.parametrize("scales", [0, 3])
@pytest.mark.parametrize("dim", [7, 150])
def test_lstm(dim, scales):
    x, params, repair = normal(37, 5 * dim + scales), normal(3, dim), normal(5, dim)
    given = x, params, normal(37, 2 * dim, seed=1), repair
    sums = np.zeros((5, dim)), np.zeros((5, dim), np.float32)
    derivs = np.empty_like(x), np.empty_like(params)
    check(
        [
            Bound(tensor.lstm_nonlinearity, normal(37, 2 * dim), x, params),
            Bound(tensor.lstm_nonlinearity_backprop, *given, *derivs, *sums),
            Bound(tensor.lstm_nonlinearity_backprop, *given, None, derivs[1], None, sums[1]),
            Bound(tensor.lstm_nonlinearity_backprop, *given, derivs[0]),
        ],
        5e-5,
    )


def test_what_shares_memory_askew_is_left_to_numpy():
    x = normal(10, 8)
    assert jobs_of(Call.of(tensor.element("_1 = _2"), x[1:], x[:-1])) is None
    assert jobs_of(Call.of(tensor.element("_1 = _2 + _3"), x[:, :7], x[:, 1:], 1.0)) is None
    rows = np.arange(10, dtype=np.int32)[::-1]
    assert jobs_of(Call.of(tensor.copy_rows, x, x, rows)) is None
    assert jobs_of(Call.of(tensor.element("_1 = exp(_2)"), x[:, :4], x[:, 4:])) is not None


def test_an_output_may_be_an_input():
    for formula in ("_1 = exp(_1) * _1", "y = _1 - row_max(_1); _1 = y - log(row_sum(exp(y)))"):
        check([Bound(tensor.element(formula), normal(7, 50))])


def test_half_floats_and_what_has_no_kernel_are_left_to_numpy():
    x = normal(4, 5).astype(np.float16)
    assert jobs_of(Call.of(tensor.element("_1 = _2"), x.copy(), x)) is None
    y = normal(4, 5)
    assert jobs_of(Call.of(tensor.aggregate("_1", "prod"), np.empty(5), y)) is None
    assert jobs_of(Call.of(tensor.aggregate("_1", "logsumexp"), np.empty(5), y)) is None
    assert jobs_of(Call.of(tensor.prod, np.empty((4, 4)), y, y, False, True)) is None


def test_a_row_that_is_not_there_is_an_error_when_bound():
    with pytest.raises(Exception, match="row"):
        assert jobs_of(Call.of(tensor.copy_rows, normal(3, 4), normal(2, 4), np.array([0, 1, 2])))


def test_sums_of_exp_are_accurate_everywhere():
    """Vectors have an exp of their own: a row for each number, which is alone in it."""
    some = np.arange(-(1 << 31), 1 << 31, 3_104_729).astype(np.int32).view(np.float32)
    values = np.concatenate(
        [some, np.linspace(-104, 89, 3001, dtype=np.float32), np.float32(SPECIAL[:5])]
    )
    x = np.full((len(values), 37), -np.inf, np.float32)  # two vectors, and some that are left
    x[np.arange(len(values)), np.arange(len(values)) % 37] = values
    one = Bound(tensor.element("_1 = row_sum(exp(_2))"), np.empty((len(values), 1), np.float32), x)
    one.run_native()
    with np.errstate(all="ignore"):
        exact = np.exp(values.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(one.native[0][0][:, 0], exact, rtol=4e-7, atol=1.5e-45)


@pytest.mark.parametrize("in_place", [False, True])
def test_what_is_stored_past_the_caches_is_whole(in_place):
    """At every distance of a row from the lines of memory."""
    x = with_special(np.resize(normal(50_000), (2_100, 4_001)))[:, :-1]
    out = x if in_place else np.full((x.shape[0] + 1, 4_001), 7, np.float32)[:-1, 1:]
    expected = np.empty_like(x)
    tensor.log_softmax(expected, x)
    jobs = jobs_of(Call.of(tensor.log_softmax, out, x))
    CompiledJobs(jobs, lambda: unexpected)()
    np.testing.assert_allclose(out, expected, rtol=2e-6, atol=2e-6)
    if not in_place:
        assert (out.base[:, 0] == 7).all()
        assert (out.base[-1] == 7).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_with_a_factor_that_is_a_number_of_the_time(dtype):
    shapes = [(5, 4, 3), (200, 7, 90), (1, 30, 20), (97, 12, 130)]
    bound = []
    for (n, k, d), trans_a, trans_b in itertools.product(shapes, (False, True), (False, True)):
        a = strided(normal(k, n, dtype=dtype) if trans_a else normal(n, k, dtype=dtype))
        b = normal(d, k, dtype=dtype) if trans_b else normal(k, d, dtype=dtype)
        for out in (normal(n, d, dtype=dtype), np.asfortranarray(normal(n, d, dtype=dtype))):
            for alpha, beta in ((1.0, 0.0), (2.0, 1.0), (Number(np.array([-0.5])), 0.25)):
                options = {"alpha": alpha, "beta": beta}
                bound.append(Bound(_product, out, a, b, trans_a, trans_b, **options))
    check(bound, 1e-5)


class _Product:
    """tensor.prod, whose NumPy side takes floats."""

    name, reference, is_formulas = "prod", tensor.prod.reference, False

    def __call__(self, *operands, alpha, beta):
        tensor.prod(*operands, alpha=float(alpha), beta=beta)


_product = _Product()


def test_a_symmetric_product_is_left_to_numpy_and_half_the_work():
    x = normal(30, 8)
    assert jobs_of(Call.of(tensor.prod, np.empty((8, 8), np.float32), x, x, True)) is None


THREADED = """
import os, sys
os.environ.pop("LD_PRELOAD", None)
import numpy as np
from nnet3tools import tensor
from nnet3tools.tensor.plain import products as products_of_numpy
from nnet3tools.tensor.plain import threads
from support.native_kernels import Bound

rng = np.random.default_rng(0)
x = rng.normal(size=(900, 700)).astype(np.float32)
rows = rng.integers(0, 900, size=900).astype(np.int32)
bound = [
    Bound(tensor.log_softmax, np.empty_like(x), x),
    Bound(tensor.batch_norm, np.empty_like(x), np.empty((3, 700), np.float32), x, 0.001, 1.0),
    Bound(tensor.aggregate("_1 * _1", "sum", 0), np.empty(700, np.float32), x),
    Bound(tensor.aggregate("_1 * _1", "sum", 1), np.empty(900, np.float32), x),
    Bound(tensor.dot, x, x + 1),
    Bound(tensor.copy_rows, np.empty_like(x), x, rows),
]
products = [
    Bound(tensor.prod, np.ones((900, 90), np.float32), x, x[:90], trans_b=True, beta=1.0),
    Bound(tensor.prod, np.ones((90, 700), np.float32), x[:, :90], x, trans_a=True, beta=1.0),
    Bound(tensor.prod, np.ones((97, 701), np.float32), x[:97], x[:701], trans_b=True),
]
for one in products:
    one.operator.reference(one.plain[0][0], *one.plain[0][1:], **one.plain[1])
    one.exact = one.plain[0][0]


def results(count):
    threads._num_threads = count
    for one in bound:
        one.run_native()
    by_numpy = []
    for one in products:
        one.native[0][0][:] = 1
        one.run_native()
        np.testing.assert_allclose(one.native[0][0], one.exact, 1e-4, 1e-3)
        by_numpy.append(np.ones_like(one.exact))
        products_of_numpy.bind_prod(by_numpy[-1], *one.native[0][1:], **one.native[1])()
    found = [a.copy() for one in [*bound, *products] for _, a in one.arrays()]
    return [*found, *by_numpy, *(one.number.array.copy() for one in bound)]


def alike(count):
    return all(map(lambda a, b: np.array_equal(a, b, equal_nan=True), first, results(count)))


first = results(1)
assert alike(2) and alike(3) and alike(8)
child = os.fork()
if child == 0:  # where the other threads are not
    os._exit(0 if alike(8) and alike(2) else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_any_number_of_threads_and_forked_processes_get_the_same_numbers():
    """In a process of its own, lest the other threads stay in this one."""
    root = Path(__file__).parents[1]
    preload = {"LD_PRELOAD": os.environ.get("SANITIZER", "")}
    environment = {**os.environ, "PYTHONPATH": str(root), **preload}
    command = [sys.executable, "-c", THREADED]
    assert subprocess.run(command, env=environment, timeout=120, check=False).returncode == 0

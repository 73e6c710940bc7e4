"""Special operators against their reference implementations, and the registry's rules."""

import itertools
import tracemalloc

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.errors import ProgramError
from nnet3tools.tensor import registry
from nnet3tools.tensor.plain import products
from nnet3tools.tensor.registry import OPERATORS, UnsupportedOperator
from support.row_operators import reference

SEEDS = range(60)


def layouts(array):
    """The same matrix contiguous, as columns of a wider one, transposed, with gaps both ways."""
    wide = np.zeros((array.shape[0], array.shape[1] + 3), array.dtype)
    wide[:, 1:-2] = array
    gaps = np.zeros((2 * array.shape[0], 2 * array.shape[1]), array.dtype)
    gaps[::2, ::2] = array
    return [array, wide[:, 1:-2], np.asfortranarray(array), gaps[::2, ::2]]


def check(operator, outs, *args, **options):
    """Run an operator and its reference on copies of the outputs and compare these."""
    got, expected = ([o.copy() for o in outs] for _ in range(2))
    operator(*got, *args, **options)
    reference(operator)(*expected, *args, **options)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=operator.name)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("trans_a", "trans_b"), list(itertools.product([False, True], repeat=2)))
@pytest.mark.parametrize("how", ["blas", "matmul", "halves"])
def test_products(dtype, trans_a, trans_b, how, monkeypatch):
    if how == "matmul":
        monkeypatch.setattr(products, "gemm", lambda *a: None)
    elif how == "halves":
        monkeypatch.setattr(products, "num_threads", lambda: 2)
        monkeypatch.setattr(products, "SHARED", 0)
    rng = np.random.default_rng(0)
    sizes = [(5, 4, 3), (1, 4, 3), (5, 1, 1), (1, 1, 1), (0, 3, 2), (4, 0, 3), (200, 7, 90)]
    for n, k, d in sizes:
        a = rng.normal(size=(k, n) if trans_a else (n, k)).astype(dtype)
        b = rng.normal(size=(d, k) if trans_b else (k, d)).astype(dtype)
        out = rng.normal(size=(n, d)).astype(dtype)
        for alpha, beta in ((1.0, 0.0), (2.0, 0.0), (0.5, 1.0), (-1.0, 0.25)):
            old, expected = out.copy(), out.copy()
            tensor.prod.reference(expected, a, b, trans_a, trans_b, alpha, beta)
            for to, left, right in itertools.product(layouts(out), layouts(a), layouts(b)):
                to[...] = old
                tensor.prod(to, left, right, trans_a, trans_b, alpha=alpha, beta=beta)
                assert np.allclose(to, expected, rtol=1e-4, atol=1e-4)


def test_product_with_beta_zero_does_not_read_the_output():
    out = np.full((2, 2), np.nan, np.float32)
    tensor.prod(out, np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32), alpha=2.0)
    assert (out == 2 * np.eye(2)).all()


def test_product_of_stacks_and_outer_product():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(6, 5, 4)), rng.normal(size=(6, 3, 4))
    check(tensor.prod, [np.ones((6, 5, 3))], a, b, trans_b=True, alpha=2.0, beta=0.5)
    check(tensor.prod, [np.ones((6, 5, 3))], a, b[:1], trans_b=True)
    out = np.ones((5, 3))
    tensor.prod(out, a[0, :, 0][:, None], b[0, :, 0][None, :], beta=1.0)
    np.testing.assert_allclose(out, 1 + np.outer(a[0, :, 0], b[0, :, 0]))


def test_product_that_does_not_fit():
    with pytest.raises(ProgramError, match="3 x 4"):
        tensor.prod(np.zeros((3, 3)), np.zeros((3, 4)), np.zeros((5, 3)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_basics(dtype):
    rng = np.random.default_rng(0)
    for shape in ((4, 5), (0, 5), (1, 1), (600, 700)):
        x, y = rng.normal(size=(2, *shape)).astype(dtype)
        for to, of in itertools.product(layouts(x), layouts(y)):
            for operator, args in (
                (tensor.copy, (of,)),
                (tensor.add, (of,)),
                (tensor.add, (of, -0.5)),
                (tensor.add, (of[:1], 3.0) if shape[0] else (of, 1.0)),
                (tensor.scale, (0.25,)),
                (tensor.fill, (7.0,)),
            ):
                check(operator, [to], *args)
            assert tensor.dot(to, of) == pytest.approx(tensor.dot.reference(x, y), rel=1e-4)


@pytest.mark.parametrize("seed", SEEDS)
def test_row_operations(seed):
    rng = np.random.default_rng(seed)
    n, rows, columns = int(rng.integers(0, 30)), int(rng.integers(1, 20)), int(rng.integers(1, 6))
    src, out = rng.normal(size=(rows, columns)), rng.normal(size=(n, columns))
    at = np.arange(n)
    pattern = [
        rng.integers(-1, rows, n),
        np.clip(at * int(rng.integers(-2, 3)) + int(rng.integers(0, rows)), 0, rows - 1),
        (at // 3 * 2 + at % 3) % rows,
        np.full(n, -1),
    ][seed % 4].astype(np.int32)
    alpha = [1.0, -1.0, 0.5][seed % 3]
    src = layouts(src)[seed % 4]
    check(tensor.copy_rows, [out], src, pattern)
    check(tensor.add_rows, [out], src, pattern, alpha)
    check(tensor.copy_cols, [out.T.copy()], src.T, pattern)
    begin = rng.integers(0, rows + 1, n)
    longest = 4 if seed % 2 else rows
    end = np.minimum(begin + rng.integers(-1, longest + 1, n), rows)
    check(tensor.add_row_ranges, [out], src, np.stack([begin, end], axis=1), alpha)
    begin = at % rows
    for length in (1, rows):
        ranges = np.stack([begin, np.minimum(begin + length, rows)], axis=1).astype(np.int32)
        check(tensor.add_row_ranges, [out], src, ranges, alpha)


def test_ranges_of_one_row_each_take_no_memory():
    src, out = np.ones((4000, 500), np.float32), np.zeros((2000, 500), np.float32)
    begin = 3 + 2 * np.arange(1990)
    tracemalloc.start()
    tensor.add_row_ranges(out[:1990], src, np.stack([begin, begin + 1], axis=1), 0.5)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < src.nbytes / 2
    assert (out[:1990] == 0.5).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_multi_row_operations(seed):
    rng = np.random.default_rng(seed)
    n, columns = int(rng.integers(0, 25)), int(rng.integers(1, 5))
    out = rng.normal(size=(n, columns))
    parts = [rng.normal(size=(int(rng.integers(1, 9)), columns)) for _ in range(3)]
    which = rng.integers(-1, 3, n)
    row = np.array([rng.integers(0, len(parts[w])) if w >= 0 else -1 for w in which], np.int32)
    check(tensor.copy_rows_multi, [out], parts, which, row)
    check(tensor.add_rows_multi, [out], parts, which, row, 0.5)
    places = [(p, r) for p in range(3) for r in range(len(parts[p]))]
    chosen = [places[i] for i in rng.permutation(len(places))]
    dest = np.array([p for p, _ in chosen], np.int32)
    row = np.array([r for _, r in chosen], np.int32)
    dest[rng.random(len(dest)) < 0.2] = -1
    src = rng.normal(size=(len(dest), columns))
    for operator, args in ((tensor.copy_to_rows_multi, ()), (tensor.add_to_rows_multi, (2.0,))):
        got, expected = ([p.copy() for p in parts] for _ in range(2))
        operator(src, got, dest, row, *args)
        reference(operator)(src, expected, dest, row, *args)
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(a, b)


def test_rows_added_twice_to_one_place_add_up():
    dest = [np.zeros((2, 3))]
    indexes = np.zeros(5, np.int32)
    tensor.add_to_rows_multi(np.ones((5, 3)), dest, indexes, np.array([0, 1, 0, 0, 1]), 1.0)
    assert dest[0][:, 0].tolist() == [3.0, 2.0]


@pytest.mark.parametrize(
    "call",
    [
        lambda x: tensor.copy_rows(x, x[:2], np.array([0, 1, 2])),
        lambda x: tensor.copy_rows(x, x, np.array([0, 1])),
        lambda x: tensor.add_row_ranges(x, x, np.array([[0, 4], [0, 1], [0, 1]])),
        lambda x: tensor.add_rows_multi(x, [x], np.zeros(3, int), np.array([0, -1, 2])),
    ],
)
def test_indexes_beyond_a_matrix_are_refused_when_bound(call):
    with pytest.raises(ProgramError, match="row"):
        call(np.zeros((3, 2)))


@pytest.mark.parametrize("shape", [(7, 5), (1, 1), (0, 4), (300, 6000), (4, 3, 5), (9,)])
def test_softmax_family(shape):
    rng = np.random.default_rng(0)
    x, e = (5 * rng.normal(size=(2, *shape))).astype(np.float32)
    for forward, backward in (
        (tensor.softmax, tensor.softmax_backprop),
        (tensor.log_softmax, tensor.log_softmax_backprop),
    ):
        check(forward, [np.empty_like(x)], x)
        y = np.empty_like(x)
        forward(y, x)
        check(backward, [np.empty_like(x)], y, e)
        expected = np.empty_like(x)
        reference(backward)(expected, y, e)
        for in_place in (e.copy(), y.copy()):
            given = (in_place, e) if np.array_equal(in_place, y) else (y, in_place)
            backward(in_place, *given)
            np.testing.assert_allclose(in_place, expected, rtol=1e-4, atol=1e-5)
    in_place = x.copy()
    tensor.log_softmax(in_place, in_place)
    check(tensor.log_softmax, [in_place], x)


@pytest.mark.parametrize("add_log_stddev", [False, True])
@pytest.mark.parametrize("rows", [0, 1, 300])
def test_row_normalisation(rows, add_log_stddev):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 40)).astype(np.float32)
    x[:1] = 0.0
    e = rng.normal(size=(rows, 40 + add_log_stddev)).astype(np.float32)
    check(tensor.normalize_per_row, [np.ones_like(e)], x, 0.5, add_log_stddev)
    check(tensor.diff_normalize_per_row, [np.ones_like(x)], x, e, 0.5, add_log_stddev)
    in_place, expected = e.copy(), e.copy()
    tensor.diff_normalize_per_row(in_place[:, :40], x, in_place, 0.5, add_log_stddev)
    reference(tensor.diff_normalize_per_row)(expected[:, :40], x, expected, 0.5, add_log_stddev)
    np.testing.assert_allclose(in_place, expected, rtol=1e-4, atol=1e-4)


def test_derivative_of_row_normalisation_is_the_slope():
    rng = np.random.default_rng(0)
    x, e = rng.normal(size=(5, 6)), rng.normal(size=(5, 7))
    direction, step, values = rng.normal(size=(5, 6)), 1e-6, []
    for sign in (1, -1):
        out = np.empty((5, 7))
        tensor.normalize_per_row(out, x + sign * step * direction, 0.7, True)
        values.append(float((out * e).sum()))
    deriv = np.zeros((5, 6))
    tensor.diff_normalize_per_row(deriv, x, e, 0.7, True)
    slope = (values[0] - values[1]) / (2 * step)
    assert float((deriv * direction).sum()) == pytest.approx(slope, rel=1e-6)


def test_scratch_is_used_again_and_nested_scratch_is_other_memory():
    x = np.zeros(1, np.float32)
    with tensor.scratch((10, 3), like=x) as a, tensor.scratch((10, 3), like=x) as b:
        assert not np.shares_memory(a, b)
        assert a.dtype == np.float32
        first = a
    with tensor.scratch(30, like=x) as again, tensor.scratch((0, 3), like=x) as none:
        assert again.size == 30
        assert none.shape == (0, 3)
        with tensor.scratch(25, like=x) as third:
            assert np.shares_memory(first, again) or np.shares_memory(first, third)


# -- the registry


def test_nothing_is_missing_on_numpy():
    assert tensor.gaps("numpy") == []


def test_what_networks_and_expressions_are_made_of_is_declared():
    """Element and Aggregate are formulas; every other kind of operator is one declaration."""
    kinds = (
        "prod softmax log_softmax layer_norm batch_norm lstm_nonlinearity "
        "gru_nonlinearity copy_rows add_rows copy_rows_multi add_rows_multi copy_to_rows_multi "
        "add_to_rows_multi add_row_ranges copy_cols take gather scatter transpose "
        "concatenate split compress decompress sort_indexes cumulative_sum csr_dot"
    ).split()
    tensor.gaps("numpy")  # every module of the layer is imported
    assert set(kinds) <= set(OPERATORS)
    backward = [k for k in kinds if k.endswith(("softmax", "norm", "nonlinearity"))]
    assert {f"{k}_backprop" for k in backward} <= set(OPERATORS)


def test_gaps_of_a_device_are_listed():
    missing = tensor.gaps("cupy")
    print("\n".join(f"{name} {element_type}" for name, element_type in missing))
    assert missing == sorted(missing)


def test_a_missing_implementation_is_found_when_bound():
    @registry.operator(types=("float64",))
    def without_implementation(out, x):
        """No device does this in single precision."""

    del OPERATORS["without_implementation"]
    x = np.zeros(3, np.float32)
    for call in (without_implementation, without_implementation.bind):
        with pytest.raises(tensor.UnsupportedOperator) as caught:
            call(x, x)
        for word in ("without_implementation", "float32", "numpy"):
            assert word in str(caught.value)


def test_declarations_name_their_operands():
    assert tensor.prod.operands[:3] == ("out", "a", "b")
    assert tensor.copy_to_rows_multi.writes == ("dests",)
    for operator in OPERATORS.values():
        assert operator.__doc__
        assert set(operator.writes) <= set(operator.operands)
    with pytest.raises(ProgramError, match="twice"):
        registry.operator()(tensor.prod.reference)
    with pytest.raises(ProgramError, match="no operand 'out'"):
        registry.operator()(lambda x: None)


def test_what_is_no_array_is_refused():
    with pytest.raises(ProgramError, match="not an array"):
        tensor.copy([1.0], np.zeros(1))


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "cumulative_sum", "add"])
@pytest.mark.parametrize("dtype", ["int32", "bool"])
def test_types_that_an_operator_lacks_are_refused_when_it_is_bound(name, dtype):
    x = np.ones((2, 3), dtype)
    more = (0, False, False) if name == "cumulative_sum" else ()
    with pytest.raises(UnsupportedOperator, match=f"{name} .* type {dtype}"):
        OPERATORS[name].bind(x, x.copy(), *more)
    with pytest.raises(UnsupportedOperator, match=f"{name} .* type {dtype}"):
        OPERATORS[name](x, x.copy(), *more)

"""Products, row operations at their limits, and the registry's rules."""

import itertools
import tracemalloc

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.errors import ProgramError
from nnet3tools.tensor import registry
from nnet3tools.tensor.operators.windows import window_dots
from nnet3tools.tensor.plain import products
from nnet3tools.tensor.registry import OPERATORS, UnsupportedOperator
from support.row_operators import all_operators


def layouts(array):
    """The same matrix contiguous, as columns of a wider one, transposed, with gaps both ways."""
    wide = np.zeros((array.shape[0], array.shape[1] + 3), array.dtype)
    wide[:, 1:-2] = array
    gaps = np.zeros((2 * array.shape[0], 2 * array.shape[1]), array.dtype)
    gaps[::2, ::2] = array
    return [array, wide[:, 1:-2], np.asfortranarray(array), gaps[::2, ::2]]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("trans_a", "trans_b"), list(itertools.product([False, True], repeat=2)))
@pytest.mark.parametrize("how", ["blas", "matmul", "parts"])
def test_products(dtype, trans_a, trans_b, how, monkeypatch):
    if how == "matmul":
        monkeypatch.setattr(products, "gemm", lambda *a: None)
    elif how == "parts":
        monkeypatch.setattr(products, "num_threads", lambda: 3)
        monkeypatch.setattr(products, "_PART", 1)
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


def test_product_that_does_not_fit():
    with pytest.raises(ProgramError, match="3 x 4"):
        tensor.prod(np.zeros((3, 3)), np.zeros((3, 4)), np.zeros((5, 3)))


def test_ranges_of_one_row_each_take_no_memory():
    src, out = np.ones((4000, 500), np.float32), np.zeros((2000, 500), np.float32)
    begin = 3 + 2 * np.arange(1990)
    tracemalloc.start()
    tensor.add_row_ranges(out[:1990], src, np.stack([begin, begin + 1], axis=1), 0.5)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < src.nbytes / 2
    assert (out[:1990] == 0.5).all()


@pytest.mark.parametrize("rows", [[0, 1, 0, 0, 1], [1, 1, 1, 1, 1], [0, 0, 1, 1]])
def test_rows_added_twice_to_one_place_add_up(rows):
    dest, at = [np.zeros((2, 3))], np.array(rows)
    tensor.add_to_rows_multi(np.ones((len(rows), 3)), dest, np.zeros(len(rows), int), at, 1.0)
    assert dest[0][:, 0].tolist() == [rows.count(0), rows.count(1)]


# -- the registry


def test_nothing_is_missing_on_numpy():
    for operator in all_operators():
        for element_type in operator.types:
            assert operator._find("numpy", element_type)  # UnsupportedOperator if there is none


def test_what_networks_and_expressions_are_made_of_is_declared():
    """Element and Aggregate are formulas; every other kind of operator is one declaration."""
    kinds = (
        "prod softmax log_softmax layer_norm batch_norm lstm_nonlinearity "
        "gru_nonlinearity copy_rows add_rows copy_rows_multi add_rows_multi copy_to_rows_multi "
        "add_to_rows_multi add_row_ranges copy_cols take gather scatter transpose "
        "concatenate split compress decompress sort_indexes cumulative_sum csr_dot"
    ).split()
    assert set(kinds) <= {operator.__name__ for operator in all_operators()}
    backward = [k for k in kinds if k.endswith(("softmax", "norm", "nonlinearity"))]
    assert {f"{k}_backprop" for k in backward} <= set(OPERATORS)


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


def test_windows_beyond_the_end_are_refused():
    short, long = np.zeros((4, 1, 2), np.float32), np.zeros((5, 1, 2), np.float32)
    with pytest.raises(ProgramError, match="do not fit"):
        window_dots(np.zeros((4, 1, 3), np.float32), short, long, 1)


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

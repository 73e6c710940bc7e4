"""Element against plain float64 formulas, over types, broadcasts, strides, sizes and aliasing."""

import threading

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.errors import ProgramError
from nnet3tools.tensor import formulas as F
from nnet3tools.tensor.formulas import Placeholder
from nnet3tools.tensor.plain import blocks, threads
from support.tensor_reference import evaluate, random_expression

TOLERANCE = {"float16": 4e-3, "float32": 3e-6, "float64": 1e-12}


def strided(array: np.ndarray) -> np.ndarray:
    """The same numbers as columns of a wider matrix."""
    wide = np.full((*array.shape[:-1], array.shape[-1] + 5), 99, array.dtype)
    view = wide[..., 2 : 2 + array.shape[-1]]
    view[...] = array
    return view


@pytest.fixture
def small_blocks(monkeypatch):
    """Registers of 256 bytes, so that small arrays are many blocks."""
    for module in (threads, blocks):
        monkeypatch.setattr(module, "REGISTER_BYTES", 256)
    monkeypatch.setattr(blocks, "_SPLAT_FROM", 8)
    monkeypatch.setattr(threads, "_registers", {})
    blocks.repeated_constant.cache_clear()
    yield
    blocks.repeated_constant.cache_clear()


@pytest.mark.parametrize("name", list(F.FUNCTIONS))
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "uint32", "bool"])
def test_every_function_over_every_type(name, dtype):
    function = F.FUNCTIONS[name]
    rng = np.random.default_rng(1)
    values = [rng.uniform(-3, 3, size=(7, 33)) for _ in range(function.arity)]
    values[0][0, :4] = 0.0
    if dtype in ("uint32", "bool") or name in ("sqrt", "log", "pow"):
        values = [np.abs(v) for v in values]
    if name == "log":
        values = [v + 1.0 for v in values]
    if name in ("div", "pow"):
        values[-1] = np.abs(values[-1]) + 1.0
    if name == "tan":
        values = [v / 3.0 for v in values]
    operands = [v.astype(dtype) for v in values]
    if name == "neg" and dtype == "uint32":
        pytest.skip("wraps around, as in C")
    if name == "sub" and dtype == "uint32":
        operands[0] += np.uint32(10)
    expr = function(*[Placeholder(i + 2) for i in range(function.arity)])
    out = np.empty((7, 33), np.float64)
    tensor.element(expr)(out, *operands)
    expected = np.broadcast_to(evaluate(expr, [None, *operands]), out.shape)
    # integers are worked on as float32 where a function is not one of integers
    tolerance = TOLERANCE.get(dtype, 3e-6)
    np.testing.assert_allclose(out, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(5, 6), (1, 6), (5, 1), (0, 6), (5, 0), (300, 700), (2, 40000)])
def test_broadcasts_and_strides(shape, dtype):
    rng = np.random.default_rng(2)
    rows, columns = shape
    shapes = [shape, (columns,), (1, columns), (rows, 1), (1, 1)]
    ins = [rng.normal(size=s).astype(dtype) for s in shapes]
    formula = "_1 = _2 * exp(_3) + tanh(_4) * _5 - where(_6 > _7, _2, sqr(_5))"
    op = tensor.element(formula)
    operands = [*ins, 0.25]
    expected = evaluate(F.parse(formula.removeprefix("_1 = ")), [None, *operands])
    for layout in (np.array, strided, lambda a: a.T.copy().T):
        out = layout(np.zeros(shape, dtype))
        views = [layout(a) for a in ins]
        op(out, *views, 0.25)
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
        run = op.bind(out, *views, 0.25)
        views[0][...] = 0.0
        run()
        zeroed = [None, np.zeros(shape), *operands[1:]]
        again = evaluate(F.parse(formula.removeprefix("_1 = ")), zeroed)
        np.testing.assert_allclose(out, again, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(40))
def test_random_trees_in_many_blocks(seed, small_blocks):
    rng = np.random.default_rng(seed)
    tree = random_expression(rng, depth=6)
    rows, columns = int(rng.integers(1, 40)), int(rng.integers(1, 90))
    shapes = [(rows, columns), (columns,), (rows, 1), (1, columns)]
    # float64, lest a comparison come out differently (functions of a bool are float32)
    ins = [rng.normal(size=shapes[rng.integers(4)]) for _ in range(3)]
    ins = [strided(a) if rng.random() < 0.5 else a for a in ins]
    text = F.Assignments(((Placeholder(4), tree),)).text()
    for op in (tensor.element(text), tensor.element(F.assign(Placeholder(4), tree))):
        first = np.zeros((rows, columns))
        # the output is the last operand here: which one it is makes no difference
        op(*ins, first)
        expected = np.broadcast_to(evaluate(tree, ins), first.shape)
        np.testing.assert_allclose(first, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("operator", ["+=", "-=", "*=", "/="])
def test_changing_assignments_read_the_old_contents(operator):
    out = np.full((4, 5), 3.0, np.float32)
    x = np.full(5, 2.0, np.float32)
    tensor.element(f"_1 {operator} _2")(out, x)
    assert out[0, 0] == {"+=": 5.0, "-=": 1.0, "*=": 6.0, "/=": 1.5}[operator]


@pytest.mark.parametrize("rows", [3, 2000])
def test_output_may_be_an_input(rows):
    x = np.random.default_rng(0).normal(size=(rows, 65)).astype(np.float32)
    expected = evaluate(F.parse("_1 * sigmoid(_1) + _1"), [x])
    tensor.element("_1 = _2 * sigmoid(_2) + _2")(x, x)
    np.testing.assert_allclose(x, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rows", [3, 2000])
def test_outputs_that_are_inputs_of_later_statements_stay_whole(rows):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, rows, 65)).astype(np.float32)
    old_a, old_b = a.astype(float), b.astype(float)
    # the first result must not reach _1 before the second has read its old contents
    tensor.element("s = _1 * 2; _2 = _2 + _1; _1 = s * _3")(a, b, b)
    np.testing.assert_allclose(b, old_a + old_b, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(a, 2 * old_a * old_b, rtol=1e-5, atol=1e-5)


def test_swap_through_two_outputs():
    a, b = np.ones((300, 300), np.float32), np.zeros((300, 300), np.float32)
    swap = F.assign(Placeholder(1), Placeholder(2)).then(F.assign(Placeholder(2), Placeholder(1)))
    tensor.element(swap)(a, b)
    assert (b == 1).all()
    assert (a == 0).all()


@pytest.mark.parametrize("rows", [10, 3000])
def test_askew_overlap_is_read_before_it_is_written(rows):
    buffer = np.arange(rows * 8, dtype=np.float32).reshape(rows, 8)
    expected = buffer[:-1] * 2
    tensor.element("_1 = _2 * 2")(buffer[1:], buffer[:-1])
    np.testing.assert_array_equal(buffer[1:], expected)


def test_a_row_of_the_output_may_be_broadcast_over_it():
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    expected = x - x[0]
    tensor.element("_1 -= _2")(x, x[0])
    np.testing.assert_array_equal(x, expected)


def test_axes_beyond_two():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 6, 700)).astype(np.float32)
    group, out = rng.normal(size=(50, 6, 1)).astype(np.float32), np.empty_like(x)
    tensor.element("_1 = _2 / _3")(out, x, group)
    np.testing.assert_allclose(out, x / group, rtol=1e-6)
    flat = np.float32(0)
    scalar = np.zeros((), np.float32)
    tensor.element("_1 = _2 + 1")(scalar, flat)
    assert scalar == 1


def test_integers_stay_exact_and_wrap_like_c():
    big = np.array([2**31 - 1, 2**24 + 1, -7], np.int32)
    out = np.empty(3, np.int32)
    tensor.element("_1 = _2 - 1")(out, big)
    assert out.tolist() == [2**31 - 2, 2**24, -8]
    as_float = np.empty(3, np.float64)
    tensor.element("_1 = _2 / 2")(as_float, big)
    assert as_float[2] == -3.5


def test_nan_and_infinity_go_the_way_of_ieee():
    x = np.array([np.nan, np.inf, -np.inf, 0.0], np.float32)
    out = np.empty(4, np.float32)
    tensor.element("_1 = max(_2, 0)")(out, x)
    np.testing.assert_array_equal(out, [np.nan, np.inf, 0, 0])
    tensor.element("_1 = sigmoid(_2)")(out, x)
    np.testing.assert_array_equal(out, [np.nan, 1, 0, 0.5])
    tensor.element("_1 = logaddexp(_2, _2)")(out, x)
    np.testing.assert_allclose(out, [np.nan, np.inf, -np.inf, np.log(2)], rtol=1e-6)
    tensor.element("_1 = where(_2 > 0, _2, 7)")(out, x)
    np.testing.assert_array_equal(out, [7, np.inf, 7, 7])
    tensor.element("_1 = erf(_2)")(out, x)
    np.testing.assert_allclose(out, [np.nan, 1, -1, 0], rtol=1e-6)


def test_where_keeps_nan_of_the_side_not_taken_out():
    bad, good = np.full(9, np.nan, np.float32), np.ones(9, np.float32)
    out = np.empty(9, np.float32)
    tensor.element("_1 = where(_2, _3, _4)")(out, np.zeros(9, bool), bad, good)
    assert (out == 1).all()


@pytest.mark.parametrize(
    ("formula", "shapes", "words"),
    [
        ("_1 = _2 + _3", [(3, 4), (3, 4)], "takes 3 operands, not 2"),
        ("_1 = _2", [(3, 4), (3, 5)], "broadcast"),
        ("_1 = _2", [(1, 4), (3, 4)], "full shape"),
        ("_1 = _2; _3 = _2", [(3, 4), (3, 4), (4,)], "full shape"),
    ],
)
def test_operands_that_do_not_fit(formula, shapes, words):
    with pytest.raises(ProgramError, match=words):
        tensor.element(formula)(*[np.zeros(s, np.float32) for s in shapes])


def test_foreign_operands_are_refused():
    x = np.zeros(3, np.float32)
    with pytest.raises(ProgramError, match="list"):
        tensor.element("_1 = _2")([1.0], x)
    with pytest.raises(ProgramError, match="number"):
        tensor.element("_1 = _2")(x, "text")
    with pytest.raises(ProgramError, match="int64"):
        tensor.element("_1 = _2")(x, np.zeros(3, np.int64))


def test_results_do_not_depend_on_the_number_of_threads(monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 512)).astype(np.float32)
    results, sums = [], []
    for count in (1, 2):
        monkeypatch.setattr(threads, "_num_threads", count)
        out = np.empty_like(x)
        tensor.element("_1 = tanh(_2) * exp(-_2) + sigmoid(_2)")(out, x)
        total = np.empty(512, np.float32)
        tensor.aggregate("sqr(_1)", "sum", axis=0)(total, x)
        results.append(out)
        sums.append(total)
    assert np.array_equal(*results)
    assert np.array_equal(*sums)


def test_operators_called_from_several_threads_do_not_share_scratch():
    op = tensor.element("_1 = (exp(_2) + 1) * (exp(_2) - 1)")
    failures = []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).normal(size=(200, 300)).astype(np.float32)
        out = np.empty_like(x)
        for _ in range(20):
            op(out, x)
            if not np.allclose(out, np.exp(2 * x) - 1, rtol=1e-4, atol=1e-4):
                failures.append(seed)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures


def test_no_temporaries_of_the_operands_size():
    import tracemalloc

    x = np.ones((2000, 1000), np.float32)
    out = np.empty_like(x)
    op = tensor.element("_1 = tanh(_2) * exp(-_2) + where(_2 > 0, _2, sigmoid(_2))")
    op(out, x)
    tracemalloc.start()
    op(out, x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < x.nbytes / 8

"""Errors of users that once gave wrong numbers or an error message without their name."""

import numpy as np
import pytest

from nnet3tools import expression as ex
from nnet3tools.errors import TextError
from nnet3tools.expression.formula import Formula
from support.expression_checks import check, normal, run
from support.marian_operators import smax

X = normal(4, 3)


def graph_and_input(shape=(4, 3), **kind):
    g = ex.Graph(**kind)
    return g, g.input("x", shape, ex.Type.FLOAT64, trainable=True)


@pytest.mark.parametrize("axis", [0, 1])
def test_softmax_takes_its_axis_second_and_masks_by_keyword(axis):
    check(lambda x: ex.softmax(x, axis), lambda x: smax(x, axis), X)
    check(lambda x: ex.log_softmax(x, axis), lambda x: np.log(smax(x, axis)), X)
    g, x = graph_and_input()
    for name in ("softmax", "log_softmax"):
        formula = Formula(f"{name}(x, {axis})").build(g, {"x": x})
        assert formula is getattr(ex, name)(x, axis)
        with pytest.raises(TextError, match="mask is given as mask="):
            Formula(f"{name}(x, x > 0)").build(g, {"x": x})
        with pytest.raises(ex.ExpressionError, match="mask is given as mask="):
            getattr(ex, name)(x, x > 0)
        with pytest.raises(ex.ExpressionError, match="mask of a softmax"):
            getattr(ex, name)(x, mask=0)


INDEXES = {
    "negative": ([0, -1], "from -1 to 0 do not fit"),
    "beyond": ([0, 4], "from 0 to 4 do not fit"),
    "floats": ([0.5, 1.0], "must be integers, found float64"),
    "booleans": ([True, False], "must be integers, found bool"),
    "wide": ([2**32 + 1], "4294967297 is no int32"),
}


@pytest.mark.parametrize("name", INDEXES)
def test_indexes_are_integers_in_range(name):
    indexes, message = INDEXES[name]
    g, x = graph_and_input()
    for given in (indexes, np.array(indexes)):
        with pytest.raises(ex.ExpressionError, match=message):
            ex.rows(x, given)
    with pytest.raises(TextError, match=message.replace("float64", ".*")):
        Formula(f"rows(x, {indexes})".replace("True, False", "true, false")).build(
            g, {"x": x, "true": True, "false": False}
        )


@pytest.mark.parametrize("labels", [[0, 1, 2, -1], [0, 1, 2, 3]])
def test_labels_are_integers_in_range(labels):
    g, x = graph_and_input()
    for build in (ex.cross_entropy, ex.unlikelihood):
        with pytest.raises(ex.ExpressionError, match=rf"labels from {min(labels)} to"):
            build(x, g.constant(labels))
        fed = g.input(f"y{build.__name__}", (4,), ex.Type.INT32)
        with pytest.raises(ex.ExpressionError, match=r"from .* to .* do not fit axis 1"):
            g.forward(build(x, fed), x=X, **{fed.name: np.array(labels, np.int32)})


def test_indexes_that_are_fed_are_checked_at_each_run():
    for build in (
        lambda x, i: ex.rows(x, i),
        lambda x, i: ex.gather(x, 0, ex.reshape(i, (1, 3))),
        lambda x, i: ex.scatter(x, 0, ex.reshape(i, (1, 3)), ex.narrow(x, 0, 0, 1)),
    ):
        for kind in (ex.Type.INT32, ex.Type.UINT32):
            g, x = graph_and_input()
            i = g.input("i", (3,), kind)
            y = build(x, i)
            good, bad = (np.array(k, kind.value) for k in ([0, 3, 1], [0, 4, 1]))
            g.forward(y, x=X, i=good)
            with pytest.raises(ex.ExpressionError, match="indexes from 0 to 4 do not fit axis 0"):
                g.forward(y, x=X, i=bad)
    g, x = graph_and_input()
    with pytest.raises(ex.ExpressionError, match="found x input float64"):
        ex.rows(x, x)


def test_constants_do_not_change():
    g = ex.Graph()
    for value, kind in (([2**40], None), ([1.5], ex.Type.INT32), (np.array([-1]), ex.Type.UINT32)):
        with pytest.raises(ex.ExpressionError, match=r" is no u?int32"):
            g.constant(value, kind)
    for value in ("text", [[1], [2, 3]], None, 1j):
        with pytest.raises(ex.ExpressionError, match="no array of numbers"):
            g.constant(value)
    assert g.constant(np.arange(3)).type is ex.Type.INT32
    assert g.constant(np.arange(3, dtype=np.uint8)).type is ex.Type.UINT32
    assert g.constant(np.arange(3.0)).type is ex.Type.FLOAT64
    assert g.constant([1.0, 2.0], ex.Type.INT32) is g.constant([1, 2])


def test_only_floats_are_trained():
    g = ex.Graph()
    with pytest.raises(ex.ExpressionError, match="'w' is int32: only floats can be trained"):
        g.param("w", np.ones(3, np.int32))
    with pytest.raises(ex.ExpressionError, match="'y' is bool: only floats"):
        g.input("y", (3,), ex.Type.BOOL, trainable=True)
    with pytest.raises(ex.ExpressionError, match="an array is meant"):
        g.param("v", np.ones(3, np.int64))


@pytest.mark.parametrize("axes", [(7,), (4, 3), (1, 1), (0, -2), (1.0,)])
def test_dropout_takes_axes(axes):
    _, x = graph_and_input()
    with pytest.raises(ex.ExpressionError, match="dropout"):
        ex.dropout(x, 0.5, axes)
    assert {c.shape for c in ex.dropout(x, 0.5, (-1,)).children} == {(4, 3), (1, 3)}


def test_std_of_one_number_has_no_slope():
    value, (grad,) = run(lambda x: ex.std(x, 1), [normal(4, 1)], np.ones((4, 1)))
    np.testing.assert_array_equal(value, 0.0)
    np.testing.assert_array_equal(grad, 0.0)
    _, (grad,) = run(lambda x: ex.std(x, 1), [np.ones((2, 3))], np.ones((2, 1)))
    np.testing.assert_array_equal(grad, 0.0)


@pytest.mark.parametrize(
    "number", [np.float16(2), np.float32(2), np.float64(2), np.int64(2), np.uint8(2), np.array(2.0)]
)
def test_numpy_numbers_stand_on_both_sides(number):
    _, x = graph_and_input()
    plain = type(number.item())(2)
    assert x * number is x * plain
    assert number * x is plain * x
    assert (number < x) is (x > plain)
    assert number - x is plain - x
    assert x**number is x**plain
    check(lambda a: number / ex.exp(a) + number, lambda a: 2 / np.exp(a) + 2, X)


def test_numpy_arrays_become_constants_on_both_sides():
    row = np.array([1.0, 2.0, 3.0])
    check(lambda a: row * a - row, lambda a: row * a - row, X)
    check(lambda a: a @ row[:, None], lambda a: a @ row[:, None], X)
    check(lambda a: row[None] @ ex.transpose(a), lambda a: row[None] @ a.T, X)
    _, x = graph_and_input()
    assert isinstance(row * x, ex.Node)
    with pytest.raises(ex.ExpressionError, match="broadcast"):
        np.ones(5) * x


def test_a_lambda_without_a_derivative_stops_the_gradient():
    def build(x):
        twice = ex.lambda_([x], x.shape, x.type, lambda out, i: np.multiply(i[0], 2, out=out))
        return twice * x

    value, (grad,) = run(build, [X], np.ones_like(X))
    np.testing.assert_allclose(value, 2 * X * X)
    np.testing.assert_allclose(grad, 2 * X)


MESSAGES = {
    "axis array": (lambda g, x: ex.sum_(x, np.array([0, 1])), "sum: an axis is one integer"),
    "axis float": (lambda g, x: ex.sum_(x, 1.0), "sum: an axis is one integer, found 1.0"),
    "list": (lambda g, x: ex.sum_([1, 2]), "sum_: x must be an expression"),
    "number": (lambda g, x: ex.softmax(3.0), "softmax: x must be an expression, found 3.0"),
    "parts": (lambda g, x: ex.concatenate([x, 1.0]), "concatenate: .* must be an expression"),
    "no node": (lambda g, x: ex.exp(2.0), "exp of float: not an expression"),
    "list operand": (lambda g, x: x * [1.0], "mul of list: not an expression"),
    "labels": (lambda g, x: ex.cross_entropy(x, [0, 1]), "labels must be an expression"),
    "text": (lambda g, x: x @ "a", "no array of numbers"),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_name_the_operand(name):
    g, x = graph_and_input()
    build, message = MESSAGES[name]
    with pytest.raises(ex.ExpressionError, match=message):
        build(g, x)


def test_axes_may_be_numbers_of_numpy():
    _, x = graph_and_input()
    for one in (np.int64(1), np.int32(1), np.array(1)):
        assert ex.sum_(x, one) is ex.sum_(x, 1)


def test_gradients_in_inference_mode_are_refused_by_that_name():
    g, x = graph_and_input(inference=True)
    g.forward(ex.sum_(x, None), x=X)
    with pytest.raises(ex.ExpressionError, match="inference=True"):
        g.backward()

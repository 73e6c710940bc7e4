"""help() of every operator; docs/expression.md: the table of Marian's operators, the network."""

import inspect
import pydoc
import re
from pathlib import Path

import numpy as np
import pytest

from nnet3tools import expression as ex
from support.expression_checks import check, run
from support.marian_operators import TRIALS

TEXT = (Path(__file__).parents[2] / "docs" / "expression.md").read_text()
TABLE = TEXT[TEXT.index("## Marian's operators") :]
ROWS = dict(re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", TABLE, re.M))


def test_the_table_has_what_is_tried():
    assert len(ROWS) == len(re.findall(r"^\| `", TABLE, re.M))
    assert ROWS.keys() == TRIALS.keys()


@pytest.mark.parametrize("name", ROWS)
def test_names_of_the_table_exist(name):
    for ours in re.findall(r"\w{2,}(?=\()", ROWS[name]):
        assert ours in ex.__all__ or hasattr(ex.Graph, ours), ours


@pytest.mark.parametrize("name", TRIALS)
def test_operators_of_the_table(name):
    build, formula, arrays = TRIALS[name]
    check(build, formula, *arrays, tolerance=1e-5)


def gradients(build, *arrays):
    value, grads = run(build, [np.array(a, float) for a in arrays])
    value, grads = run(build, [np.array(a, float) for a in arrays], np.ones(value.shape))
    return [g.tolist() for g in grads]


def test_conventions_are_those_of_the_documentation():
    assert gradients(ex.maximum, [1, 2], [1, 3]) == [[1, 0], [0, 1]]
    assert gradients(ex.minimum, [1, 2], [1, 3]) == [[1, 1], [0, 0]]
    assert gradients(lambda x: ex.max_(x, 0), [2, 1, 2]) == [[1, 0, 1]]
    assert gradients(lambda x: ex.min_(x, 0), [1, 1, 2]) == [[1, 1, 0]]
    assert gradients(lambda x: ex.clip(x, 1), [-2, -1, 0, 1, 2]) == [[0, 1, 1, 1, 0]]
    assert run(lambda x: ex.bump(x, 1.0), [np.array([-2.0, -1, 1, 2])])[0].tolist() == [0, 1, 1, 0]
    for function in (ex.relu, ex.abs_):
        assert gradients(function, [0.0]) == [[0]]
    for function in (ex.std, ex.var):
        assert gradients(function, [3.0]) == [[0]]


OPERATORS = sorted(n for n in ex.__all__ if not isinstance(getattr(ex, n), type))


def test_elementwise_functions_are_among_the_operators():
    assert {"exp", "pow_", "maximum", "and_", "where", "attention", "sum_"} <= set(OPERATORS)
    assert len(OPERATORS) >= 107


@pytest.mark.parametrize("name", OPERATORS)
def test_help_has_signature_shapes_and_derivative(name):
    operator = getattr(ex, name)
    text = pydoc.plain(pydoc.render_doc(operator))
    called = operator.__name__
    assert f"\n{called}{inspect.signature(operator)}\n" in text
    assert name in (called, "average")
    assert "Node" in str(inspect.signature(operator).return_annotation)
    doc = inspect.getdoc(operator)
    first, _, rest = doc.partition("\n\n")
    assert first.endswith((".", ":", ")."))
    assert "Derivative: " in rest
    assert "Shapes: " in rest or "(.., " in doc
    assert rest.rstrip().endswith(".")
    assert all(len(line) <= 200 for line in doc.splitlines())


def test_derivatives_of_elementwise_functions_are_those_of_the_table():
    assert "Derivative: adj * value." in ex.exp.__doc__
    assert "Derivative: adj * b by a; adj * a by b." not in ex.highway.__doc__
    assert "where(a >= b, adj, 0) by a; where(a < b, adj, 0) by b" in ex.maximum.__doc__
    assert "0 by c; where(c != 0, adj, 0) by a; where(not c, adj, 0) by b" in ex.where.__doc__
    assert str(inspect.signature(ex.highway)).startswith("(a: 'Operand', b: 'Operand', t")

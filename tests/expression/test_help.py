"""help() of every operator: signature, shapes and derivative."""

import inspect
import pydoc

import pytest

from nnet3tools import expression as ex

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

"""The typed form that every backend emits from: types, conversions, definitions, shared parts."""

import pytest

from nnet3tools.errors import ProgramError
from nnet3tools.tensor import formulas as F
from nnet3tools.tensor.formulas import Type, parse
from nnet3tools.tensor.formulas.lowered import Kind, Lowering, Target, used
from nnet3tools.tensor.registry import UnsupportedOperator

PRIMITIVES = frozenset(name for name, f in F.FUNCTIONS.items() if f.definition is None)
PLAIN = Target("paper", PRIMITIVES)


def lowered(formula, *types, target=PLAIN):
    """The instructions of a formula as text, without operands and constants; and its type."""
    lowering = Lowering([Type(t) for t in types], target)
    root = lowering.lower(parse(formula))
    names: dict = {}
    lines = []
    for v in used(lowering.instructions, [root]):
        if v.kind is Kind.OPERAND:
            names[v] = f"_{v.number + 1}"
        elif v.kind is Kind.CONSTANT:
            names[v] = repr(v.value)
        else:
            name = v.name or v.type.value
            names[v] = f"v{len(lines)}"
            lines.append(f"{name}({', '.join(names[i] for i in v.inputs)})")
    return lines, root.type.value


@pytest.mark.parametrize(
    ("formula", "types", "lines", "result"),
    [
        ("_1 + _2", ["float32", "float32"], ["add(_1, _2)"], "float32"),
        ("_1 + _2", ["int32", "float64"], ["float64(_1)", "add(v0, _2)"], "float64"),
        # half precision only where it is stored
        ("_1 * _1", ["float16"], ["float32(_1)", "sqr(v0)"], "float32"),
        ("float16(_1) + 1", ["float32"], ["float16(_1)", "float32(v0)", "add(v1, 1.0)"], "float32"),
        # plain numbers: 64 bits among themselves, then the type of what they meet
        (
            "_1 * exp(_2)",
            ["float32", "weak_float"],
            ["exp(_2)", "float32(v0)", "mul(_1, v1)"],
            "float32",
        ),
        ("_1 + (2 + 3)", ["float32"], ["add(_1, 5.0)"], "float32"),
        # definitions are written out, once
        ("relu_back(_1)", ["float32"], ["gt(_1, 0.0)"], "bool"),
        (
            "swish(_1) + sigmoid(_1)",
            ["float32"],
            ["sigmoid(_1)", "mul(_1, v0)", "add(v1, v0)"],
            "float32",
        ),
        # constants last, so that a + 1 and 1 + a are one
        ("(_1 + 1) * (1 + _1)", ["float32"], ["add(_1, 1.0)", "mul(v0, v0)"], "float32"),
        ("floor(_1)", ["int32"], [], "int32"),
        ("not _1 and _2", ["float32", "bool"], ["bool(_1)", "not(v0)", "and(v1, _2)"], "bool"),
        ("where(_1, _2, 0)", ["int32", "float32"], ["bool(_1)", "where(v0, _2, 0.0)"], "float32"),
    ],
)
def test_instructions(formula, types, lines, result):
    assert lowered(formula, *types) == (lines, result)


def test_a_backend_may_have_its_own_definitions():
    def rewrite(name, compute):
        return (lambda x: 1 / (1 + F.exp(-x))) if name == "sigmoid" else None

    target = Target("paper", PRIMITIVES, rewrite)
    assert lowered("sigmoid(_1)", "float32", target=target)[0] == [
        "neg(_1)", "exp(v0)", "add(v1, 1.0)", "div(1.0, v2)",
    ]  # fmt: skip


def test_functions_nobody_defines_are_refused():
    with pytest.raises(UnsupportedOperator, match=r"tanh.*float32.*paper"):
        lowered("tanh(_1)", "float32", target=Target("paper", frozenset()))
    with pytest.raises(ProgramError, match="uses _2 but has 1"):
        lowered("_1 + _2", "float32")


@pytest.mark.parametrize("kind", ["bool", "int32", "uint32", "float16", "float32", "float64"])
@pytest.mark.parametrize("name", F.FUNCTIONS)
def test_every_function_has_the_type_that_expressions_promise(name, kind):
    """But for half precision, which is that of float32 until it is stored."""
    function = F.FUNCTIONS[name]
    expr = function(*(F.Placeholder(i + 1) for i in range(function.arity)))
    promised = expr.type(dict.fromkeys(range(1, 4), Type(kind))).value
    _, found = lowered(expr.text(), *[kind] * function.arity)
    assert found == promised.replace("float16", "float32")

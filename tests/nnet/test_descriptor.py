"""Descriptors: normal form as Kaldi prints it, evaluation against a row-by-row interpreter, errors.

The interpreter works on the expression as written, before it is normalised, so it also shows that
normalising keeps the meaning.
"""

import functools
import math
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnet3tools.errors import ConfigError, TextError
from nnet3tools.grammars.descriptor import read_descriptor
from nnet3tools.grammars.descriptor_syntax import Expression
from nnet3tools.nnet.descriptor import Descriptor
from nnet3tools.nnet.descriptor_parser import MAX_DEPTH, parse_expression
from nnet3tools.nnet.indexes import NO_TIME, BoolArray, IndexArray, IntArray, make_indexes

NAMES = ["a", "b", "c"]
NUMBERS = {name: i for i, name in enumerate(NAMES)}


class Dims:
    """Stands for a network whose nodes all have dimension 5."""

    def dim(self, node: int) -> int:
        return 5


def parse(text: str) -> Descriptor:
    return Descriptor.parse(text, NUMBERS)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("a", "a"),
        ("Sum(a)", "a"),
        ("Sum(a,b,c)", "Sum(a, Sum(b, c))"),
        ("Sum(Sum(a,b),c)", "Sum(Sum(a, b), c)"),
        ("Append(a)", "a"),
        ("Append(Append(a,b),c)", "Append(a, b, c)"),
        ("Offset(Append(a,b),1)", "Append(Offset(a, 1), Offset(b, 1))"),
        ("Offset(Offset(a,1),-3,2)", "Offset(a, -2, 2)"),
        ("Offset(Offset(a,1),-1)", "a"),
        ("Offset(a,0)", "a"),
        ("Offset(a,0,1)", "Offset(a, 0, 1)"),
        ("Offset(Sum(a,IfDefined(b)),2)", "Sum(Offset(a, 2), IfDefined(Offset(b, 2)))"),
        ("Round(Failover(a,b),3)", "Failover(Round(a, 3), Round(b, 3))"),
        ("ReplaceIndex(Append(a,b),t,0)", "Append(ReplaceIndex(a, t, 0), ReplaceIndex(b, t, 0))"),
        ("Scale(2, Sum(a, Offset(b,1)))", "Sum(Scale(2, a), Offset(Scale(2, b), 1))"),
        ("Scale(0.5, Scale(4, a))", "Scale(2, a)"),
        ("Scale(1.0, a)", "a"),
        ("Scale(1e-7, a)", "Scale(1e-07, a)"),
        ("Offset(Const(1.50,10),0)", "Const(1.5, 10)"),
        ("Switch(a, Offset(b, 1))", "Switch(a, Offset(b, 1))"),
        ("Switch(Append(a,b),Append(b,c))", "Append(Switch(a, b), Switch(b, c))"),
        ("Failover(Append(a,b), Append(b,a))", "Append(Failover(a, b), Failover(b, a))"),
        # Kaldi cannot bring these into normal form.
        ("Scale(2, Failover(a, b))", "Failover(Scale(2, a), Scale(2, b))"),
        ("Scale(2, IfDefined(a))", "IfDefined(Scale(2, a))"),
        ("Scale(2, Switch(a, Scale(3, b)))", "Switch(Scale(2, a), Scale(6, b))"),
        ("Scale(2, Sum(a, Const(1.5, 5)))", "Sum(Scale(2, a), Const(3, 5))"),
        ("Offset(Sum(a, Const(2, 5)), 1)", "Sum(Offset(a, 1), Const(2, 5))"),
        ("Switch(Sum(a, b), Sum(b, c))", "Sum(Switch(a, b), Switch(b, c))"),
        ("Switch(Sum(a, b), c)", "Sum(Switch(a, Scale(0.5, c)), Switch(b, Scale(0.5, c)))"),
        ("Switch(Failover(a, b), c)", "Failover(Switch(a, c), Switch(b, c))"),
        ("Switch(IfDefined(a), IfDefined(b))", "IfDefined(Switch(a, b))"),
    ],
)
def test_normal_form_prints_as_kaldi_prints_it(text: str, printed: str) -> None:
    descriptor = parse(text)
    assert descriptor.text(NAMES) == printed
    assert parse(printed) == descriptor, "the printed form must mean the same"


@pytest.mark.parametrize(
    ("text", "column", "what"),
    [
        ("", 1, "node name"),
        ("Append(a, d)", 11, "no node named 'd'"),
        ("Append(a, b", 12, "'\\)'"),
        ("Append(a,,b)", 10, "node name"),
        ("Offset(a, b)", 11, "integer"),
        ("Offset(a, 1, 2, 3)", 15, "'\\)'"),
        ("Offset(a)", 9, "','"),
        ("Round(a, 0)", 10, "positive integer"),
        ("ReplaceIndex(a, n, 0)", 17, "t or x"),
        ("Scale(x, a)", 7, "number"),
        ("Const(1, 0)", 10, "positive"),
        ("a b", 3, "end"),
        ("Failover(a, b, c)", 14, "'\\)'"),
        ("Sum(Append(a, b), c)", 1, "different numbers of terms"),
        ("Switch(a, IfDefined(b))", 11, "IfDefined"),
        ("Switch(IfDefined(a), Sum(b, c))", 8, "IfDefined"),
        ("Switch(Const(1, 5), a)", 8, "Const"),
    ],
)
def test_error_names_the_column(text: str, column: int, what: str) -> None:
    with pytest.raises(TextError, match=what) as caught:
        parse(text)
    mark = f"{text[: column - 1]} >>> {text[column - 1 :]}"
    assert str(caught.value).endswith(f"at column {column} of descriptor: {mark}")


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 20_000])
@pytest.mark.parametrize(
    ("opened", "closed"), [("Offset(", ", 1)"), ("Sum(", ", a)"), ("Sum(", ")")]
)
def test_deep_nesting_is_an_error_of_one_line(depth: int, opened: str, closed: str) -> None:
    text = opened * depth + "a" + closed * depth
    if closed == ")":  # nested text, though each is the last argument of the one before
        assert parse(text) == parse("a")
        return
    for reader in (parse, read_descriptor):
        with pytest.raises(TextError, match=f"expected at most {MAX_DEPTH} levels"):
            reader(text)


@pytest.mark.parametrize("operator", ["Scale(-1, {})", "Offset({}, 1)", "IfDefined({})"])
def test_nesting_up_to_the_limit_is_read_and_read_back(operator: str) -> None:
    text = "a"
    for _ in range(MAX_DEPTH // 2 - 1):
        text = f"Sum({operator.format(text)}, b)"
    descriptor = parse(text)
    assert parse(descriptor.text(NAMES)) == descriptor


@pytest.mark.parametrize("operator", ["Sum", "Append", "Failover"])
@pytest.mark.parametrize("count", [90, 400, 4_000])
def test_any_number_of_terms_is_read_back(operator: str, count: int) -> None:
    """Long sums would exhaust Python's stack, nested as Kaldi prints them or in one list."""
    terms = [f"Offset({NAMES[i % 3]}, {i})" for i in range(1, count + 1)]
    nested = (
        f"{operator}(" + f", {operator}(".join(terms[:-1]) + f", {terms[-1]}" + ")" * (count - 1)
    )
    descriptor = parse(nested)
    assert len([leaf for part in descriptor.parts for leaf in part.leaves]) == count
    if operator != "Failover":
        assert parse(f"{operator}({', '.join(terms)})") == descriptor
    if operator != "Append":
        assert descriptor.text(NAMES) == nested
    assert parse(descriptor.text(NAMES)) == descriptor


def test_a_normal_form_deeper_than_its_text_keeps_to_the_limit() -> None:
    text = "a"
    for _ in range(MAX_DEPTH - 2):
        text = f"Failover(b, Sum({text}, c))" if len(text) % 2 else f"Sum(b, Failover({text}, c))"
    with pytest.raises(TextError, match="levels"):
        parse(f"Switch({text}, {text})")


def test_switches_whose_terms_multiply_are_a_config_error() -> None:
    text = "a"
    for _ in range(30):
        text = f"Switch(Failover({text}, a), Sum(a, b))"
    with pytest.raises(TextError, match="more than 1000 terms"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "modulus"),
    [
        ("a", 1),
        ("Round(a, 3)", 3),
        ("Append(Round(a, 4), Switch(a, b, c))", 12),
        ("Sum(Offset(Round(a, 2), 1), Switch(b, Round(c, 3)))", 6),
    ],
)
def test_modulus(text: str, modulus: int) -> None:
    assert parse(text).modulus() == modulus


def test_dimensions() -> None:
    assert parse("Append(a, Sum(b, Const(1, 5)))").dim(Dims()) == 10
    with pytest.raises(ConfigError, match="5 and 6"):
        parse("Sum(a, Const(1, 6))").dim(Dims())
    with pytest.raises(ConfigError, match="10 and 5"):
        parse("Sum(Const(1, 10), b)").dim(Dims())


def test_rounding_and_offsets_of_negative_times() -> None:
    indexes = make_indexes(0, [-4, -3, -1, 0, 2, 3], [0, 0, 0, 1, 1, 1])
    (leaf,) = parse("Round(Offset(a, 1, -1), 3)").parts[0].leaves
    _, mapped = leaf.map_to_input(indexes)
    np.testing.assert_array_equal(mapped[:, 1], [-5, -2, -2, 1, 1, 4])
    np.testing.assert_array_equal(mapped[:, 2], [-1, -1, -1, 0, 0, 0])


def test_index_without_time_keeps_having_none() -> None:
    indexes = make_indexes([0, 1], NO_TIME)
    for text in ("Offset(a, 3)", "Round(a, 3)"):
        _, mapped = parse(text).parts[0].leaves[0].map_to_input(indexes)
        np.testing.assert_array_equal(mapped[:, 1], NO_TIME)


@pytest.mark.parametrize(
    ("text", "constant", "of_rows"),
    [
        ("Sum(Const(1, 5), Sum(a, Const(2, 5)))", 3.0, [3, 3]),
        ("IfDefined(Const(1, 5))", 1.0, [1, 1]),
        ("IfDefined(Sum(a, Const(1, 5)))", None, [1, 0]),
        ("Failover(a, Const(4, 5))", None, [0, 4]),
        ("Failover(Const(4, 5), a)", None, [4, 4]),
        ("Failover(Sum(a, Const(4, 5)), Const(4, 5))", 4.0, [4, 4]),
        ("Sum(Const(1, 5), Failover(a, Const(4, 5)))", None, [1, 5]),
    ],
)
def test_constants_of_all_rows_or_of_each(
    text: str, constant: float | None, of_rows: list[float]
) -> None:
    """Of two rows, the descriptor's node is computable in the first only."""
    (part,) = parse(text).parts
    assert part.constant == constant
    _, used = part.combine(2, [np.array([True, False]) for _ in part.leaves])
    np.testing.assert_array_equal(part.row_constants(2, used), np.float32(of_rows))


# -- an interpreter of the expression as written, one row at a time

Row = tuple[int, int, int]
Term = tuple[str, Row, float]


def random_tree(rng: random.Random, depth: int, allow_sum: bool = True) -> Any:
    """A random expression as a nested tuple (operator, children, parameters), without Append."""
    choices = ["name"]
    if depth > 0:
        choices += ["Offset", "Round", "ReplaceIndex", "Scale"]
        choices += ["Sum", "Failover", "IfDefined"] if allow_sum else ["Switch"]
    kind = rng.choice(choices)
    if kind == "name":
        return ("name", [], rng.choice(NAMES))
    if kind == "Scale":
        inner = random_tree(rng, depth - 1, allow_sum)
        return ("Scale", [inner], rng.choice([0.5, 2.0, -1.0]))
    if kind == "Switch":
        count = rng.randint(1, 3)
        return ("Switch", [random_tree(rng, depth - 1, False) for _ in range(count)], None)
    if kind in ("Sum", "Failover"):
        count = rng.randint(1, 4) if kind == "Sum" else 2
        return (kind, [random_tree(rng, depth - 1) for _ in range(count)], None)
    parameter: Any = None
    if kind == "Offset":
        parameter = (rng.randint(-3, 3), rng.randint(-1, 1))
    elif kind == "Round":
        parameter = rng.randint(1, 4)
    elif kind == "ReplaceIndex":
        parameter = (rng.choice("tx"), rng.randint(-1, 1))
    return (kind, [random_tree(rng, depth - 1, allow_sum)], parameter)


def tree_text(tree: Any) -> str:
    kind, children, parameter = tree
    inner = ", ".join(tree_text(child) for child in children)
    if kind == "name":
        return parameter
    if kind == "Scale":
        return f"Scale({parameter}, {inner})"
    if kind in ("Offset", "ReplaceIndex"):
        return f"{kind}({inner}, {parameter[0]}, {parameter[1]})"
    return f"Round({inner}, {parameter})" if kind == "Round" else f"{kind}({inner})"


def interpret(tree: Any, row: Row, available: set[tuple[str, Row]]) -> list[Term] | None:
    """The terms whose sum the tree is at a row; None if it cannot be computed there."""
    kind, children, parameter = tree
    n, t, x = row
    if kind == "name":
        return [(parameter, row, 1.0)] if (parameter, row) in available else None
    if kind == "Scale":
        terms = interpret(children[0], row, available)
        return None if terms is None else [(a, r, s * parameter) for a, r, s in terms]
    if kind == "Switch":
        return interpret(children[t % len(children)], row, available)
    if kind == "IfDefined":
        return interpret(children[0], row, available) or []
    if kind == "Failover":
        first = interpret(children[0], row, available)
        return interpret(children[1], row, available) if first is None else first
    if kind == "Sum":
        parts = [interpret(child, row, available) for child in children]
        if any(part is None for part in parts):
            return None
        return [term for part in parts for term in part or []]
    if kind == "Offset":
        row = (n, t + parameter[0], x + parameter[1])
    elif kind == "Round":
        row = (n, parameter * math.floor(t / parameter), x)
    else:
        row = (n, parameter[1], x) if parameter[0] == "t" else (n, t, parameter[1])
    return interpret(children[0], row, available)


@pytest.mark.parametrize("seed", range(60))
def test_evaluation_agrees_with_the_expression_as_written(seed: int) -> None:
    rng = random.Random(seed)
    tree = random_tree(rng, 4)
    text = tree_text(tree)
    rows = [(n, t, x) for n in range(2) for t in range(-5, 6) for x in range(-1, 2)]
    wide = [(n, t, x) for n in range(2) for t in range(-20, 21) for x in range(-5, 6)]
    available = {(name, row) for name in NAMES for row in wide if rng.random() < 0.6}
    descriptor = parse(text)
    (part,) = descriptor.parts
    assert parse(descriptor.text(NAMES)) == descriptor

    def is_computable(nodes: IntArray, indexes: IndexArray) -> BoolArray:
        cindexes = zip(nodes, indexes, strict=True)
        return np.array([(NAMES[node], tuple(map(int, i))) in available for node, i in cindexes])

    indexes = np.array(rows, np.int32)
    mapped = [leaf.map_to_input(indexes) for leaf in part.leaves]
    computable, used = part.combine(len(rows), [is_computable(*cindexes) for cindexes in mapped])
    for i, row in enumerate(rows):
        expected = interpret(tree, row, available)
        assert computable[i] == (expected is not None), (text, row)
        found = [
            (NAMES[nodes[i]], tuple(map(int, where[i])), float(leaf.row_scales(indexes)[i]))
            for leaf, (nodes, where), use in zip(part.leaves, mapped, used, strict=True)
            if use[i]
        ]
        assert found == (expected or []), (text, row)


def many(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(inner, min_size=1, max_size=3).map(", ".join)


PLAIN = st.recursive(
    st.sampled_from(["a", "b", "c.x-1"]),
    lambda inner: st.one_of(
        st.builds("{}({})".format, st.sampled_from(["Append", "Sum", "Switch"]), many(inner)),
        st.builds("Failover({}, {})".format, inner, inner),
        st.builds("IfDefined( {} )".format, inner),
        st.builds("Offset({}, {})".format, inner, st.sampled_from(["-1", "2, 0", "+3 , 4"])),
        st.builds("Round({},3)".format, inner),
        st.builds("ReplaceIndex({}, {}, 0)".format, inner, st.sampled_from("tx")),
        st.builds("Scale({}, {})".format, st.sampled_from(["-0.5", "1e3", ".25"]), inner),
        st.just("Const(1.5, 7)"),
    ),
    max_leaves=12,
)
BROKEN = ["", "(", ")", ",", "a(", "Sum", "Sum()", "Offset(a,", "1", "Offset(a, x)", "\t", "n"]


def read(reader: Callable[[str], Expression], text: str) -> Expression | int:
    """What the reader returns for the text, or the column of its error."""
    try:
        return reader(text)
    except TextError as error:
        return error.column


@given(PLAIN)
def test_text_means_the_same_as_by_the_grammar(text: str) -> None:
    assert parse_expression(text, flat=False) == read_descriptor(text)


@given(PLAIN, st.integers(0), st.integers(0, 3), st.sampled_from(BROKEN))
def test_faults_are_found_where_the_grammar_finds_them(
    text: str, at: int, size: int, put: str
) -> None:
    at %= len(text)
    broken = text[:at] + put + text[at + size :]
    found = read(functools.partial(parse_expression, flat=False), broken)
    expected = read(functools.partial(read_descriptor, previous=["a"]), broken)
    if isinstance(found, Expression) or not re.match(r"[-+]?\d", broken[found - 1 :]):
        assert found == expected  # the grammar reads an integer as a layer's name

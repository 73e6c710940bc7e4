"""Left and right context of networks whose context is known."""

from __future__ import annotations

import pytest

from nnet3tools.errors import UserError
from nnet3tools.graph.context import compute_simple_nnet_context
from support.plain_graph import parse


def network(descriptor: str, dim: int = 1, more: str = "") -> str:
    return (
        f"input-node name=input dim=1\ncomponent name=a type=NoOpComponent dim={dim}\n{more}"
        f"component-node name=a component=a input={descriptor}\noutput-node name=output input=a\n"
    )


@pytest.mark.parametrize(
    ("descriptor", "dim", "left", "right", "modulus"),
    [
        ("input", 1, 0, 0, 1),
        ("Append(Offset(input, -2), Offset(input, 3))", 2, 2, 3, 1),
        ("Offset(input, 4)", 1, 0, 4, 1),
        ("Round(input, 3)", 1, 2, 0, 3),
        ("Switch(Offset(input, -1), Offset(input, 5))", 1, 1, 5, 2),
        ("Sum(input, IfDefined(Offset(input, -4)))", 1, 0, 0, 1),
        ("Failover(Offset(input, 6), input)", 1, 0, 0, 1),
        ("Sum(input, Offset(a, -1))", 1, None, None, 1),
        ("Sum(input, IfDefined(Offset(a, -3)))", 1, 0, 0, 1),
        ("Append(Offset(input, -60), Offset(input, 70))", 2, 60, 70, 1),
    ],
)
def test_context(
    descriptor: str, dim: int, left: int | None, right: int | None, modulus: int
) -> None:
    nnet = parse(network(descriptor, dim))
    if left is None:
        with pytest.raises(UserError, match="cannot find the network's context"):
            compute_simple_nnet_context(nnet)
    else:
        assert compute_simple_nnet_context(nnet) == (left, right, modulus)


def test_an_ivector_is_taken_to_be_there() -> None:
    text = network("Append(Offset(input, 1), ReplaceIndex(ivector, t, 0), Round(ivector, 10))", 7)
    nnet = parse("input-node name=ivector dim=3\n" + text)
    assert compute_simple_nnet_context(nnet) == (0, 1, 10)


def test_other_inputs_make_a_network_not_simple() -> None:
    nnet = parse("input-node name=speaker dim=3\n" + network("Append(input, speaker)", 4))
    with pytest.raises(UserError, match="not a simple one"):
        compute_simple_nnet_context(nnet)

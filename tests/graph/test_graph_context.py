"""Left and right context of networks whose context is known."""

import time

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


def test_the_context_of_a_local_network_is_the_one_found_by_trial(monkeypatch) -> None:
    more = (
        "component name=b type=NoOpComponent dim=2\n"
        "component-node name=b component=b input=Append(Offset(input, -7), Offset(input, -2))"
    )
    nnet = parse(network("Append(Offset(b, 3), Offset(input, -1))", 3, more + "\n"))
    found = compute_simple_nnet_context(nnet)
    monkeypatch.setattr("nnet3tools.graph.context._fixed_window", lambda _: None)
    assert found == compute_simple_nnet_context(nnet) == (4, 1, 1)


def test_an_ivector_is_taken_to_be_there() -> None:
    text = network("Append(Offset(input, 1), ReplaceIndex(ivector, t, 0), Round(ivector, 10))", 7)
    nnet = parse("input-node name=ivector dim=3\n" + text)
    assert compute_simple_nnet_context(nnet) == (0, 1, 10)


def test_other_inputs_make_a_network_not_simple() -> None:
    nnet = parse("input-node name=speaker dim=3\n" + network("Append(input, speaker)", 4))
    with pytest.raises(UserError, match="not a simple one"):
        compute_simple_nnet_context(nnet)


@pytest.mark.parametrize(
    ("descriptor", "what"),
    [
        ("Round(input, 10000)", "computable from 640 frames"),
        ("Append(input, Round(ivector, 30000))", "repeats every 30000 frames"),
        ("Round(input, 2147483647)", "repeats every 2147483647 frames"),
        ("Sum(Round(input, 46337), Round(input, 46327))", "repeats every 2146654199 frames"),
    ],
)
def test_long_periods_are_refused_at_once(descriptor: str, what: str) -> None:
    dim = 4 if "ivector" in descriptor else 1
    text = ("input-node name=ivector dim=3\n" if dim == 4 else "") + network(descriptor, dim)
    start = time.process_time()
    with pytest.raises(UserError, match=what):
        compute_simple_nnet_context(parse(text))
    assert time.process_time() - start < 2


def seconds_of_chain(count: int) -> float:
    """Time to read a chain written from its end, so that every search goes to the end."""
    lines = ["input-node name=input dim=1", "component name=a type=NoOpComponent dim=1"]
    for i in reversed(range(count)):
        source = f"n{i - 1}" if i else "input"
        lines.append(f"component-node name=n{i} component=a input={source}")
    lines.append(f"output-node name=output input=n{count - 1}")
    start = time.process_time()
    assert compute_simple_nnet_context(parse("\n".join(lines))) == (0, 0, 1)
    return time.process_time() - start


def test_a_chain_of_many_nodes_takes_linear_time() -> None:
    few = min(seconds_of_chain(1000) for _ in range(3))
    tries = (seconds_of_chain(8000) < 20 * few for _ in range(3))
    assert any(tries), "8 times is linear, 64 times is quadratic"

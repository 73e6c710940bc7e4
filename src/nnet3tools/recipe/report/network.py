"""A network as described by nnet3-info or a config: nodes with their sources, components."""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Iterator

from nnet3tools.errors import ConfigError, TextError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.grammars.descriptor_syntax import Expression
from nnet3tools.nnet.config import ConfigLine
from nnet3tools.nnet.descriptor_parser import parse_expression
from nnet3tools.number_text import parse_double

_LARGEST = 1e30
_FIELD = re.compile(r"(?:^|, | )([a-z][a-z-]*)=([^\s,\[{]+)")
_GATE = re.compile(r"(\w{1,40})=\{ ([^{}]*) \}")
_SUMMARY = re.compile(r"(value-avg|deriv-avg)=\[([^][]*)\]")
_PERCENTILES = re.compile(r"percentiles\([\d, ]*\)=\(([^()]*)\)")
_TIME_OFFSETS = re.compile(r"(?:^|, | )time-offsets=(-?\d[\d,-]{0,200})")
_PATCH_OFFSETS = re.compile(r"(?:\{time,height\}-offsets=\[| offsets=)([-\d,; ]{1,4000})")
_COMPONENT = re.compile(r"component name=(\S+) type=(\w+)(.*)", re.S)

PERCENTS = (0, 1, 2, 5, 10, 20, 50, 80, 90, 95, 98, 99, 100)
"""The percentiles that nnet3-info prints."""


@dataclass(frozen=True)
class NodeFacts:
    """A network node for a report; `sources` are the nodes that it reads, with time offsets."""

    kind: str
    """ "input", "output", "component" or "range"."""
    name: str
    sources: tuple[tuple[str, tuple[int, ...]], ...]
    component: str = ""
    dim: int = 0


@dataclass(frozen=True)
class Nonlinearity:
    """Statistics of a nonlinearity's units: percentiles of their average values and derivatives.

    Of fewer than ten units there are all values. `name` is "" or the name of one gate of an LSTM.
    """

    name: str
    values: tuple[float, ...]
    """Percentiles (PERCENTS) of the units' average values; fewer than ten units: all values."""
    derivs: tuple[float, ...]
    """The same of the units' average derivatives."""
    self_repaired: float | None = None
    """The proportion of units that self-repair was applied to."""


@dataclass(frozen=True)
class ComponentFacts:
    """A component of the network, as a report shows it."""

    name: str
    type: str
    fields: dict[str, str]
    time_offsets: tuple[int, ...]
    """The times, relative to the output's, that the component itself reads; () if only 0."""
    nonlinearities: tuple[Nonlinearity, ...]


@dataclass(frozen=True)
class NetworkFacts:
    """A network for a report: nodes in file order, components, and contexts etc. in `numbers`."""

    nodes: tuple[NodeFacts, ...]
    components: dict[str, ComponentFacts]
    numbers: dict[str, str]


def read_network(lines: list[str]) -> NetworkFacts:
    """Parse the output of nnet3-info, or a config file, to a network; skips other lines."""
    nodes: dict[str, NodeFacts] = {}
    components: dict[str, ComponentFacts] = {}
    numbers: dict[str, str] = {}
    for line in lines:
        kind, _, rest = line.partition(" ")
        if kind == "component":
            if facts := _read_component(line):
                components[facts.name] = facts
        elif kind.endswith("-node"):
            if node := _read_node(line):
                nodes[node.name] = node
        elif kind.endswith(":"):
            numbers[kind[:-1]] = rest.strip()
    return NetworkFacts(tuple(nodes.values()), components, numbers)


@functools.lru_cache(maxsize=4096)
def _read_node(line: str) -> NodeFacts | None:
    try:
        config = ConfigLine(line.strip())
        name = config.get_string("name")
        dim = config.get_int("output-dim", config.get_int("dim", 0))
        kind = config.first_token.removesuffix("-node")
        if kind == "input":
            return NodeFacts(kind, name, (), dim=dim)
        if kind == "dim-range":
            source = config.get_string("input-node")
            return NodeFacts("range", name, ((source, (0,)),), dim=dim)
        sources = _sources(parse_expression(config.get_string("input")))
        return NodeFacts(kind, name, sources, config.get_string("component", ""), dim)
    except (ConfigError, TextError):
        return None


def _sources(expression: Expression) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Pairs (node name, time offsets) of the nodes that a descriptor reads, in its order."""
    offsets: dict[str, set[int]] = {}
    for name, offset in _leaves(expression):
        offsets.setdefault(name, set()).add(offset)
    return tuple((name, tuple(sorted(found))) for name, found in offsets.items())


def _leaves(expression: Expression) -> Iterator[tuple[str, int]]:
    """Yield pairs (node, total time offset), one for each place where `expression` names a node."""
    waiting = [(expression, 0)]
    while waiting:
        at, offset = waiting.pop()
        if at.operator == "Offset":
            offset += at.numbers[0]
        if not at.operator:
            yield at.name, offset
        waiting += [(child, offset) for child in reversed(at.children)]


def _read_component(line: str) -> ComponentFacts | None:
    """Parse the line of a component in nnet3-info's output or a config; None for other lines."""
    if (match := _COMPONENT.fullmatch(line)) is None:
        return None
    name, type_name, rest = match.groups()
    outside = _GATE.sub("", rest)
    fields = dict(_FIELD.findall(outside))
    gates = [(f"{name} {gate}", text) for gate, text in _GATE.findall(rest)] or [(name, rest)]
    found = [_nonlinearity(gate, text) for gate, text in gates]
    kept = tuple(nonlinearity for nonlinearity in found if nonlinearity is not None)
    return ComponentFacts(name, type_name, fields, _time_offsets(rest), kept)


def _time_offsets(text: str) -> tuple[int, ...]:
    """The time offsets in the info line of a TDNN or convolution; () for other components."""
    if found := _TIME_OFFSETS.search(text):
        words = found[1].split(",")
    elif found := _PATCH_OFFSETS.search(text):
        words = [pair.split(",")[0] for pair in re.split("[; ]+", found[1].strip())]
    else:
        return ()
    numbers = {int(word) for word in words if re.fullmatch(r"-?\d{1,9}", word)}
    return tuple(sorted(numbers)) if numbers != {0} else ()


def _nonlinearity(name: str, text: str) -> Nonlinearity | None:
    summaries = {key: _numbers(inside) for key, inside in _SUMMARY.findall(text)}
    if not summaries.get("deriv-avg"):
        return None
    fields = dict(_FIELD.findall(text))
    repaired = number_or_none(fields.get("self-repaired-proportion", ""))
    return Nonlinearity(name, summaries.get("value-avg", ()), summaries["deriv-avg"], repaired)


def _numbers(inside: str) -> tuple[float, ...]:
    """Parse the text in brackets of nnet3-info: 13 percentiles or all values; () if malformed."""
    match = _PERCENTILES.search(inside)
    words = re.split("[, ]+", match[1] if match else inside.strip())
    numbers = tuple(n for n in map(number_or_none, words) if n is not None)
    if len(numbers) != len(words):
        return ()
    if match:
        return numbers if len(numbers) == len(PERCENTS) else ()
    return tuple(sorted(numbers))


def number_or_none(text: str) -> float | None:
    """Parse a number (tiny numbers become 0); None if malformed or too large for a chart."""
    value = parse_double(text)
    if value is None or not math.isfinite(value) or abs(value) > _LARGEST:
        return None
    return value if abs(value) > 1 / _LARGEST else 0.0


def percentile(numbers: tuple[float, ...], percent: int) -> float:
    """Percentile `percent` of `numbers`: fewer than ten sorted values, or 13 given percentiles."""
    if len(numbers) == len(PERCENTS):
        return numbers[PERCENTS.index(percent)]
    return numbers[(len(numbers) - 1) * percent // 100]


def share_below(numbers: tuple[float, ...], limit: float) -> float:
    """The approximate share (0 to 1) of units with a value below `limit`.

    `numbers` has 13 percentiles, or the sorted values of fewer than ten units.
    """
    if len(numbers) != len(PERCENTS):
        return sum(n < limit for n in numbers) / len(numbers)
    for (p, low), (q, high) in itertools.pairwise(zip(PERCENTS, numbers, strict=True)):
        if high >= limit:
            inside = (limit - low) / (high - low) if high > low else 0.0
            return (p + (q - p) * max(0.0, inside)) / 100
    return 1.0

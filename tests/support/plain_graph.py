"""Random networks, and their computation graph worked out one row at a time, the plain way."""

import random
from collections.abc import Iterator

from nnet3tools.compiler.compiler import Compiler
from nnet3tools.compiler.options import CompilerOptions
from nnet3tools.graph.request import ComputationRequest, IoSpecification
from nnet3tools.nnet import forwarding
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.descriptor import Const, IfDefined, Joined, Leaf, SumDescriptor
from nnet3tools.nnet.indexes import make_indexes
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.nnet.nodes import ComponentNode, DescriptorNode, DimRangeNode
from nnet3tools.program.computation import Computation

Index = tuple[int, int, int]
Cindex = tuple[int, Index]


def parse(text: str) -> Nnet:
    """A network from config text."""
    return Nnet.from_config(parse_config_lines(text, "test.config"))


def compile_computation(
    nnet: Nnet, requests: ComputationRequest | list[ComputationRequest]
) -> Computation:
    """The unoptimized program for one request, or for several as segments of one program."""
    segments = [requests] if isinstance(requests, ComputationRequest) else requests
    return Compiler(nnet).compile(segments, CompilerOptions())


# -- random networks; every node has one column, so that anything can be summed


class RandomNetwork:
    """Config text of a network with gaps, options and perhaps recurrences."""

    def __init__(self, rng: random.Random, recurrent: bool, backprop: bool = False) -> None:
        self.rng, self.recurrent = rng, recurrent
        self.backprop = backprop
        self.num_nodes = rng.randint(1, 6)
        self.delay = rng.choice([-1, -2, -3, 1])
        names = [f"a{i}" for i in range(self.num_nodes)]
        self.known = ["input", "side"]
        lines = ["input-node name=input dim=1", "input-node name=side dim=2"]
        lines.append("dim-range-node name=side0 input-node=side dim-offset=1 dim=1")
        self.known[1] = "side0"
        for i, name in enumerate(names):
            parts = [self.part(names[i:]) for _ in range(rng.choice([1, 1, 2, 3]))]
            if recurrent:  # or it would have no end where the input ends
                parts[0] = f"Offset({rng.choice(self.known)}, {rng.randint(-1, 1)})"
            lines += [
                f"component name={name} type=AffineComponent input-dim={len(parts)} output-dim=1 "
                "param-stddev=1 bias-stddev=1",
                f"component-node name={name} component={name} input={self.append(parts)}",
            ]
            self.known.append(name)
        lines.append(f"output-node name=output input={self.known[-1]}")
        if rng.random() < 0.4:
            lines.append(f"output-node name=other input={self.append([self.part([])])}")
        self.text = "\n".join(lines)

    @staticmethod
    def append(parts: list[str]) -> str:
        return parts[0] if len(parts) == 1 else f"Append({', '.join(parts)})"

    def leaf(self) -> str:
        rng = self.rng
        name = rng.choice(self.known) if rng.random() < 0.5 else self.known[-1]
        kind = rng.random()
        if kind < 0.45:
            return name
        if kind < 0.75:
            return f"Offset({name}, {rng.randint(-3, 3)})"
        if kind < 0.85:
            return f"Round({name}, {rng.randint(1, 3)})"
        if kind < 0.92:
            return f"ReplaceIndex({name}, t, 0)"
        return f"Switch({name}, Offset({rng.choice(self.known)}, 1))"

    def part(self, later: list[str]) -> str:
        rng = self.rng
        kind = rng.random()
        if self.recurrent and later and kind < 0.35:
            return f"IfDefined(Offset({rng.choice(later)}, {self.delay}))"
        if kind < 0.6:
            return self.leaf()
        if kind < 0.75:
            return f"Sum({self.part(later)}, {self.part(later)})"
        if kind < 0.87:
            return f"Failover({self.leaf()}, {self.leaf()})"
        if kind < 0.95 or self.backprop:
            return f"IfDefined({self.leaf()})"
        return f"Sum({self.leaf()}, Const(2.5, 1))"


def random_request(rng: random.Random, nnet: Nnet, times: int = 8) -> ComputationRequest:
    """Inputs and outputs with gaps, in a random order of rows."""
    sequences = rng.randint(1, 3)

    def rows(begin: int, end: int, keep: float) -> list[Index]:
        chosen = [
            (n, t, 0) for n in range(sequences) for t in range(begin, end) if rng.random() < keep
        ]
        rng.shuffle(chosen)
        return chosen or [(0, begin, 0)]

    def spec(name: str, chosen: list[Index]) -> IoSpecification:
        columns = list(zip(*chosen, strict=True))
        return IoSpecification(name, make_indexes(*columns))

    request = ComputationRequest()
    request.inputs.append(spec("input", rows(-6, times + 6, rng.choice([1.0, 1.0, 0.9]))))
    request.inputs.append(spec("side", rows(-6, times + 6, rng.choice([1.0, 0.7]))))
    for node in nnet.output_nodes():
        name = nnet.node_names[node]
        request.outputs.append(spec(name, rows(0, times, rng.choice([1.0, 0.6]))))
    return request


# -- the plain evaluation


def leaf_cindex(leaf: forwarding.Forwarding, index: Index) -> Cindex:
    """Where one leaf takes one Index from."""
    n, t, x = index
    match leaf:
        case forwarding.NodeTerm(node):
            return node, index
        case forwarding.Offset(source, dt, dx):
            return leaf_cindex(source, (n, t + dt, x + dx))
        case forwarding.Round(source, multiple):
            return leaf_cindex(source, (n, t - t % multiple, x))
        case forwarding.ReplaceIndex(source, variable, value):
            return leaf_cindex(source, (n, value, x) if variable == "t" else (n, t, value))
        case forwarding.Switch(sources):
            return leaf_cindex(sources[t % len(sources)], index)
    raise AssertionError(leaf)


def uses(part: SumDescriptor, index: Index, available: set[Cindex]) -> list[Cindex] | None:
    """What one part of a descriptor sums for one Index; None if it cannot be computed."""
    match part:
        case Leaf(source):
            cindex = leaf_cindex(source, index)
            return [cindex] if cindex in available else None
        case Const():
            return []
        case IfDefined(source):
            return uses(source, index, available) or []
        case Joined("Sum", terms):
            found = [uses(term, index, available) for term in terms]
            return None if None in found else [use for of_term in found for use in of_term or []]
        case Joined("Failover", terms):
            found = [uses(term, index, available) for term in terms]
            return next((of_term for of_term in found if of_term is not None), None)
    raise AssertionError(part)


class PlainGraph:
    """What the outputs could want within a horizon, what of it can be computed, what is needed."""

    def __init__(self, nnet: Nnet, request: ComputationRequest, horizon: int = 60) -> None:
        self.nnet = nnet
        self.given = {c for spec in request.inputs for c in self._cindexes(spec)}
        self.outputs = [list(self._cindexes(spec)) for spec in request.outputs]
        times = [t for _, (_, t, _) in self.given] + [t for o in self.outputs for _, (_, t, _) in o]
        self.range = (min(times) - horizon, max(times) + horizon)
        wanted = self._wanted()
        self.computable = set(self.given)
        changed = True
        while changed:
            changed = False
            for cindex in wanted:
                if cindex not in self.computable and self.terms(cindex) is not None:
                    self.computable.add(cindex)
                    changed = True

    def _cindexes(self, spec: IoSpecification) -> Iterator[Cindex]:
        node = self.nnet.node_index(spec.name)
        for index in spec.indexes.tolist():
            yield node, tuple(index)

    def _possible(self, cindex: Cindex) -> list[Cindex]:
        node, index = cindex
        if cindex in self.given:
            return []
        match self.nnet.nodes[node]:
            case DescriptorNode(descriptor):
                leaves = [leaf for part in descriptor.parts for leaf in part.leaves]
                return [leaf_cindex(leaf, index) for leaf in leaves]
            case ComponentNode():
                return [(node - 1, index)]
            case DimRangeNode(source):
                return [(source, index)]
        return []

    def _wanted(self) -> list[Cindex]:
        found = {c for output in self.outputs for c in output}
        pending = list(found)
        while pending:
            for dependency in self._possible(pending.pop()):
                t = dependency[1][1]
                if dependency not in found and self.range[0] <= t <= self.range[1]:
                    found.add(dependency)
                    pending.append(dependency)
        return sorted(found, reverse=True)

    def terms(self, cindex: Cindex) -> list[Cindex] | None:
        """What a cindex is computed from, given what is computable; None if it cannot be."""
        node, index = cindex
        match self.nnet.nodes[node]:
            case DescriptorNode(descriptor):
                of_parts = [uses(part, index, self.computable) for part in descriptor.parts]
                return None if None in of_parts else [c for terms in of_parts for c in terms]
            case ComponentNode():
                source = (node - 1, index)
            case DimRangeNode(source_node):
                source = (source_node, index)
            case _:
                return None
        return [source] if source in self.computable else None

    def required(self) -> dict[Cindex, set[Cindex]]:
        """The inputs and everything the outputs need, each with what it depends on."""
        graph: dict[Cindex, set[Cindex]] = {c: set() for c in self.given}
        pending = [c for output in self.outputs for c in output]
        while pending:
            cindex = pending.pop()
            if cindex not in graph:
                graph[cindex] = set(self.terms(cindex) or [])
                pending += graph[cindex]
        return graph

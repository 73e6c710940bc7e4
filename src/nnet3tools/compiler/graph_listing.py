"""Listings of a computation graph: dependencies, computability, epochs, phases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnet3tools.graph.builder import GraphBuilder
from nnet3tools.graph.computation_graph import COMPUTABLE, NOT_COMPUTABLE, UNKNOWN, ComputationGraph
from nnet3tools.graph.node_rules import NetworkPlan
from nnet3tools.graph.phases import find_phases
from nnet3tools.nnet.indexes import BoolArray, IntArray, unpack
from nnet3tools.program.listing import Entry
from nnet3tools.program.printing import indexes_text

_WILL_NOT_COMPUTE = 3
_STATES = {
    COMPUTABLE: "computable",
    NOT_COMPUTABLE: "not computable",
    _WILL_NOT_COMPUTE: "will not compute",
    UNKNOWN: "unknown",
}


def list_graph(plan: NetworkPlan, graph: ComputationGraph) -> Iterator[Entry]:
    """The cindexes of each node in a pruned graph, and the cindexes that each depends on."""
    for node, first, end in graph.node_ranges[0]:
        name, ids = plan.nnet.node_names[node], np.arange(first, end, dtype=np.int32)
        is_given = graph.is_input[first:end]
        given, computed = ids[is_given], ids[~is_given]
        lines = [f"{name}{indexes_text(graph.indexes(given))} is given"] if len(given) else []
        of_cindex: list[list[int]] = [[] for _ in ids]
        if len(computed):
            terms = graph.dependencies(computed)
            lines += _dependency_lines(plan.nnet.node_names, graph, computed, terms)
            for place, row in zip((computed - first).tolist(), terms.tolist(), strict=True):
                of_cindex[place] = [term for term in row if term >= 0]
        data = {
            "node": name,
            "first_id": first,
            "indexes": graph.indexes(ids).tolist(),
            "is_input": is_given.tolist(),
            "dependencies": of_cindex,
        }
        yield Entry("\n".join(lines), data)


def _dependency_lines(
    names: list[str], graph: ComputationGraph, ids: IntArray, terms: IntArray
) -> Iterator[str]:
    """A line for each set of a node's cindexes whose dependencies differ only by a shift.

    `ids` are the node's cindexes; terms[i] are the cindexes that ids[i] depends on, -1 for none.
    """
    own, used = graph.indexes(ids), terms >= 0
    places = unpack(graph.keys[terms.ravel()]).reshape(*terms.shape, 3).astype(np.int64)
    shifts = places - own[:, None]
    is_fixed = _is_constant(places[..., 1], used) & ~_is_constant(shifts[..., 1], used)
    facts = np.stack(
        [
            graph.nodes[terms],
            np.broadcast_to(is_fixed, terms.shape),
            np.where(is_fixed, places[..., 1], shifts[..., 1]),
            shifts[..., 2],
        ],
        axis=2,
    )
    facts[~used] = -1
    patterns, firsts, pattern_of = np.unique(
        facts.reshape(len(ids), -1), axis=0, return_index=True, return_inverse=True
    )
    for number in np.argsort(firsts).tolist():
        pattern = patterns[number].reshape(-1, 4).tolist()
        sources = ", ".join(_term_text(names, *term) for term in pattern if term[0] >= 0)
        rows = indexes_text(own[pattern_of.ravel() == number])
        yield f"{names[graph.nodes[ids[0]]]}{rows} depends on {sources or 'nothing'}"


def _is_constant(values: NDArray[np.int64], used: BoolArray) -> BoolArray:
    """For each column of `values`, whether the values that `used` flags are equal."""
    limits = np.iinfo(np.int64)
    lowest = np.where(used, values, limits.max).min(axis=0)
    highest = np.where(used, values, limits.min).max(axis=0)
    return lowest >= highest


def _term_text(names: list[str], node: int, is_fixed: int, time: int, x_shift: int) -> str:
    """The text "name(t-1, x+1)" of names[node] at t + time, x + x_shift; "(t=0)" if is_fixed."""
    when = f"t={time}" if is_fixed else f"t{time:+d}" if time else "t"
    return f"{names[node]}({when}{f', x{x_shift:+d}' if x_shift else ''})"


def list_computability(builder: GraphBuilder) -> Iterator[Entry]:
    """The state and the usable count of the cindexes of each node before pruning.

    The usable count of a cindex is the number of usable cindexes that depend on it.
    """
    store, names = builder.store, builder.plan.nnet.node_names
    unusable = (store.status == UNKNOWN) & (store.usable == 0)
    states = np.where(unusable, _WILL_NOT_COMPUTE, store.status)
    for node, table in enumerate(builder.graph.tables):
        for state, name in _STATES.items():
            ids = table.ids[states[table.ids] == state]
            if len(ids) == 0:
                continue
            indexes, counts = unpack(store.keys[ids]), store.usable[ids]
            low, high = int(counts.min()), int(counts.max())
            usable = f"{low}" if low == high else f"{low} to {high}"
            data = {"indexes": indexes.tolist(), "usable_counts": counts.tolist()}
            yield Entry(
                f"{names[node]}{indexes_text(indexes)} {name}, usable count {usable}",
                {"node": names[node], "state": name, **data},
            )


def list_epochs(plan: NetworkPlan) -> Iterator[Entry]:
    """The nodes of each epoch (a node, or the nodes of one recurrence), in order of computation."""
    for epoch in range(max(plan.epochs) + 1):
        nodes = [
            name
            for name, its_epoch in zip(plan.nnet.node_names, plan.epochs, strict=True)
            if its_epoch == epoch
        ]
        text = ", ".join(nodes) + (" (recurrence)" if len(nodes) > 1 else "")
        yield Entry(f"epoch {epoch}: {text}", {"epoch": epoch, "nodes": nodes})


def list_phases(plan: NetworkPlan, graph: ComputationGraph) -> Iterator[Entry]:
    """The cindexes of each phase (computed together), and the phase's epoch (group of nodes)."""
    for number, phase in enumerate(find_phases(plan, graph, 0)):
        cindexes: dict[str, Any] = {}
        texts = []
        for node, ids in phase:
            indexes = graph.indexes(ids)
            cindexes[plan.nnet.node_names[node]] = indexes.tolist()
            texts.append(plan.nnet.node_names[node] + indexes_text(indexes))
        is_given = bool(graph.is_input[phase[0][1][0]])
        epoch = None if is_given else plan.epochs[phase[0][0]]
        origin = "given" if is_given else f"epoch {epoch}"
        yield Entry(
            f"phase {number} ({origin}): {', '.join(texts)}",
            {"phase": number, "epoch": epoch, "cindexes": cindexes},
        )

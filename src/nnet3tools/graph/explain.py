"""An explanation, in one line, why an output cannot be computed."""

from __future__ import annotations

import numpy as np

from nnet3tools.graph.builder import GraphBuilder
from nnet3tools.graph.computation_graph import COMPUTABLE
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.nnet.indexes import IntArray, pack, unpack


def explain_uncomputable(builder: GraphBuilder, request: ComputationRequest) -> str:
    """The first uncomputable output row and the missing input; empty if all rows are computable."""
    for spec, computable in zip(request.outputs, builder.computable_outputs(request), strict=True):
        if computable.all():
            continue
        if builder.foresees and builder.segment_start == 0:
            # Without exploring ahead, the first missing dependency is what the user needs to know.
            builder = GraphBuilder(builder.plan, foresee=False)
            builder.compute(request)
        row = int(np.flatnonzero(~computable)[0])
        node = builder.plan.nnet.node_index(spec.name)
        cindex = int(builder.graph.tables[node].find(pack(spec.indexes[row : row + 1]))[0])
        return (
            f"cannot compile: output '{spec.name}' is not computable in {int((~computable).sum())} "
            f"of {len(computable)} rows; {_name(builder, cindex)} {_reason(builder, cindex)}"
        )
    return ""


def _name(builder: GraphBuilder, cindex: int) -> str:
    store = builder.store
    n, t, x = builder.graph_index(cindex)
    place = f"n={n}, t={t}" + (f", x={x}" if x else "")
    return f"{builder.plan.nnet.node_names[store.nodes[cindex]]}({place})"


def _reason(builder: GraphBuilder, start: int) -> str:
    """Why cindex `start` is not computable: the missing input, or the cycle, that it depends on."""
    store = builder.store
    came_from = {start: -1}
    pending = [start]
    cindex = start
    while pending:
        cindex = pending.pop()
        node = int(store.nodes[cindex])
        if node in builder.plan.input_nodes:
            path = _path(builder, came_from, cindex)
            return f"needs {path}, which is not given ({_given(builder, cindex)})"
        if store.slots[cindex] < 0:
            continue
        terms = builder.dependency_rows[node].take(store.slots[cindex : cindex + 1])[0]
        for term in _missing(builder, terms).tolist():
            if term not in came_from:
                came_from[term] = cindex
                pending.append(term)
    return f"depends on {_path(builder, came_from, cindex)} in a circle or without any input"


def _given(builder: GraphBuilder, cindex: int) -> str:
    """Text that says at which times t an input node is given, for the n and x of the cindex."""
    n, _, x = builder.graph_index(cindex)
    table = builder.graph.tables[int(builder.store.nodes[cindex])]
    indexes = unpack(table.keys[builder.store.is_input[table.ids]])
    times = indexes[(indexes[:, 0] == n) & (indexes[:, 2] == x), 1]
    if len(times) == 0:
        return f"no row is given for n={n}"
    return f"{len(times)} rows with t={times.min()} to {times.max()} are given for n={n}"


def _missing(builder: GraphBuilder, terms: IntArray) -> IntArray:
    """The cindexes among `terms` that are not computable."""
    terms = terms[terms >= 0]
    return terms[builder.store.status[terms] != COMPUTABLE]


def _path(builder: GraphBuilder, came_from: dict[int, int], end: int) -> str:
    """Text that names cindex `end` and the components on the path to it.

    `came_from` maps each cindex of the path to the one before, the first to -1.
    """
    nnet = builder.plan.nnet
    through = []
    cindex = came_from[end]
    while cindex >= 0:
        if nnet.is_component(int(builder.store.nodes[cindex])):
            through.append(_name(builder, cindex))
        cindex = came_from[cindex]
    through.reverse()
    shown = through if len(through) <= 4 else [*through[:2], "...", *through[-2:]]
    by_way_of = f" through {', '.join(shown)}" if shown else ""
    return _name(builder, end) + by_way_of

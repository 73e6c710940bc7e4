"""What Kaldi's compiler logs with --verbose=5 and --verbose=6, in Kaldi's words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnet3tools.compiler.step_info import StepInfo
from nnet3tools.graph.builder import GraphBuilder
from nnet3tools.graph.epochs import Graph, graph_of_sccs, top_sort
from nnet3tools.graph.node_rules import NetworkPlan
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.io import log
from nnet3tools.program.printing import integers_text


def log_distance(builder: GraphBuilder, request: ComputationRequest) -> None:
    """At verbose 6, log the number of hops of Kaldi's search from the outputs of one request."""
    if log.get_verbose() >= 6 and builder.segment_start == 0:
        from nnet3tools.graph.spot_checks import sizes_by_hop

        hops = sum(1 for _ in sizes_by_hop(builder, request))
        log.vlog(6, f"current_distance = {hops}")


def log_epochs(plan: NetworkPlan) -> None:
    """At verbose 6, log the graph of the network's nodes and the epoch of each node."""
    if log.get_verbose() >= 6:
        _log_sccs(plan.consumers)
        log.vlog(6, f"node_to_epoch: {integers_text(np.array(plan.epochs, np.int32))}")


def _log_sccs(graph: Graph) -> None:
    scc_graph, _ = graph_of_sccs(graph)
    log.vlog(6, f"graph is: {_graph_text(graph)}")
    log.vlog(6, f"scc graph is: {_graph_text(scc_graph)}")
    epochs = "".join(f"{epoch}, " for epoch in top_sort(scc_graph))
    log.vlog(6, f"scc_node_to_epoch is: {epochs}")


def _graph_text(graph: Graph) -> str:
    return "; ".join(f"{i} -> ({','.join(map(str, to))})" for i, to in enumerate(graph))


def log_deriv_needed(infos: Sequence[StepInfo]) -> None:
    """At verbose 5, log for each step whether it has a derivative: t or f."""
    if log.get_verbose() >= 5:
        log.vlog(5, f"deriv_needed = {''.join('t' if info.deriv else 'f' for info in infos)}\n")

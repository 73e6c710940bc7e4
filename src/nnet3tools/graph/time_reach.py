"""The time offsets of input frames that a network's outputs may use, optional ones included.

They tell whether an output has the same value in every chunk that contains it. In general, the
value may depend on where the chunk begins and ends.
"""

from __future__ import annotations

from nnet3tools.graph.context import NnetContext
from nnet3tools.graph.network_plan import NetworkPlan
from nnet3tools.nnet.nnet import Nnet


def is_local_in_time(nnet: Nnet) -> bool:
    """Whether each output needs exactly a fixed window of "input" frames.

    If so, every chunk with that window gives the same output. This holds for feed-forward networks
    without i-vectors, pooling and zero-padded convolutions.
    """
    plan = NetworkPlan(nnet)
    rules = [plan.rules[node] for node in plan.from_outputs]
    if any(rule.has_fixed_times or rule.time_shifts() is None for rule in rules):
        return False
    return not plan.back_edges and all(rule.is_strict for rule in rules)


def looks_ahead_within(nnet: Nnet, context: NnetContext) -> bool:
    """Whether no output uses input later than its right context.

    If so, all chunks that begin at the same frame give the same output, as in networks whose
    recurrences all go forward in time.
    """
    plan = NetworkPlan(nnet)
    shifts = {node: plan.rules[node].time_shifts() for node in plan.from_outputs}
    reach = dict.fromkeys(range(nnet.num_nodes), 0)
    # Longest paths. A change in round num_nodes + 1 means that a recurrence goes backward in time.
    for _ in range(nnet.num_nodes + 1):
        changed = False
        for node in reversed(plan.from_outputs):
            if (of_node := shifts[node]) is None:
                return False
            furthest = max((t + reach[source] for source, t in of_node), default=0)
            if furthest > reach[node]:
                reach[node], changed = furthest, True
        if not changed:
            return reach[nnet.node_index("output")] <= context.right
    return False

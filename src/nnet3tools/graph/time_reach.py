"""How far in time a network's outputs look, whatever is optional included.

It says whether an output is the same in every chunk that gives it: what a chunk can compute may
otherwise depend on where it begins and ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools.graph.context import NnetContext
from nnet3tools.graph.network_plan import NetworkPlan

if TYPE_CHECKING:
    from nnet3tools.nnet.nnet import Nnet

__all__ = ["is_local_in_time", "looks_ahead_within"]


def is_local_in_time(nnet: Nnet) -> bool:
    """Whether each output depends on a fixed window of "input" alone, all of which it needs.

    It can then be computed in any chunk that has the window. So it is with feed-forward networks
    without i-vectors, pooling and zero-padded convolutions.
    """
    plan = NetworkPlan(nnet)
    rules = [plan.rules[node] for node in plan.from_outputs]
    if any(rule.has_fixed_times or rule.time_shifts() is None for rule in rules):
        return False
    return not plan.back_edges and all(rule.is_strict for rule in rules)


def looks_ahead_within(nnet: Nnet, context: NnetContext) -> bool:
    """Whether nothing that an output may use lies later than the right context that it needs.

    Its value is then the same in all chunks that begin at the same frame and have it, as in
    networks whose recurrences all go forward in time.
    """
    plan = NetworkPlan(nnet)
    shifts = {node: plan.rules[node].time_shifts() for node in plan.from_outputs}
    reach = dict.fromkeys(range(nnet.num_nodes), 0)
    # The longest way; one round more than there are nodes means that a recurrence goes backward.
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

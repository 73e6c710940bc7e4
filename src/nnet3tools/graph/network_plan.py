"""The facts about a network's structure that compilation needs, found once for all requests."""

from __future__ import annotations

from nnet3tools.graph.epochs import consumers, node_epochs, visit_order
from nnet3tools.graph.node_rules import make_rule
from nnet3tools.nnet.nnet import Nnet


class NetworkPlan:
    """Facts about one network that graph building needs: rules, order and epochs of its nodes.

    The network must not change afterwards.
    """

    def __init__(self, nnet: Nnet) -> None:
        self.nnet = nnet
        self.rules = [make_rule(nnet, node) for node in range(nnet.num_nodes)]
        self.consumers = consumers(nnet)
        self.epochs = node_epochs(self.consumers)
        """Epoch of each node, from 0; a recurrence is one epoch."""
        inputs = [list(rule.sources) for rule in self.rules]
        self.from_outputs = visit_order(inputs, nnet.output_nodes())
        """The nodes that outputs need, each before its sources except in recurrences."""
        position = {node: i for i, node in enumerate(self.from_outputs)}
        edges = [(node, source) for node in position for source in inputs[node]]
        self.back_edges = frozenset(
            (node, source) for node, source in edges if position[source] < position[node]
        )
        """(node, source) of the dependencies against that order; they close recurrences."""
        self.input_nodes = frozenset(nnet.input_nodes())

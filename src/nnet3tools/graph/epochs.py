"""The order of nodes: strongly connected components of the network, and epochs made of them.

An epoch is a node, or the nodes of one recurrence; epochs are numbered in an order in which they
can be computed (Kaldi's ComputeNnetComputationEpochs in nnet-graph.cc, same numbering).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nnet3tools.nnet.nnet import Nnet

Graph = Sequence[Sequence[int]]
"""graph[i] lists the nodes that an edge leads to from node i."""


def consumers(nnet: Nnet) -> list[list[int]]:
    """For each node of the network, the nodes that read its value, in increasing order."""
    graph: list[list[int]] = [[] for _ in range(nnet.num_nodes)]
    for node in range(nnet.num_nodes):
        for source in nnet.node_inputs(node):
            graph[source].append(node)
    return graph


def _depth_first(graph: Graph, start: int, seen: list[bool]) -> Iterator[int]:
    """Yield the unseen nodes reachable from `start`, each after its successors; set `seen`."""
    seen[start] = True
    path = [(start, iter(graph[start]))]
    while path:
        node, edges = path[-1]
        for target in edges:
            if not seen[target]:
                seen[target] = True
                path.append((target, iter(graph[target])))
                break
        else:
            path.pop()
            yield node


def visit_order(graph: Graph, starts: Sequence[int]) -> list[int]:
    """The nodes reachable from `starts`, each before its successors except along cycles."""
    seen = [False] * len(graph)
    finished = [n for start in starts if not seen[start] for n in _depth_first(graph, start, seen)]
    return finished[::-1]


def top_sort(graph: Graph) -> list[int]:
    """The position of each node of an acyclic graph in a topological order.

    graph[i] lists the successors of node i. If two nodes have no order between them, the later node
    comes first, as in Kaldi.
    """
    position = [0] * len(graph)
    for i, node in enumerate(visit_order(graph, range(len(graph)))):
        position[node] = i
    return position


def find_sccs(graph: Graph) -> list[list[int]]:
    """Strongly connected components of a graph (Tarjan's algorithm), successors first."""
    index: list[int] = [-1] * len(graph)
    low: list[int] = [0] * len(graph)
    on_stack = [False] * len(graph)
    stack: list[int] = []
    place: list[int] = [0] * len(graph)
    """Place of each node on the stack."""
    sccs: list[list[int]] = []
    count = 0
    for start in range(len(graph)):
        if index[start] >= 0:
            continue
        path = [(start, iter(graph[start]))]
        while path:
            node, edges = path[-1]
            if index[node] < 0:
                index[node] = low[node] = count
                count += 1
                place[node] = len(stack)
                stack.append(node)
                on_stack[node] = True
            for target in edges:
                if index[target] < 0:
                    path.append((target, iter(graph[target])))
                    break
                if on_stack[target]:
                    low[node] = min(low[node], index[target])
            else:
                path.pop()
                if path:
                    parent = path[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == index[node]:
                    sccs.append(stack[place[node] :])
                    for member in sccs[-1]:
                        on_stack[member] = False
                    del stack[place[node] :]
    return sccs


def graph_of_sccs(graph: Graph) -> tuple[list[list[int]], list[int]]:
    """(edges between the strongly connected components, the component of each node)."""
    sccs = find_sccs(graph)
    scc_of = [0] * len(graph)
    for i, scc in enumerate(sccs):
        for node in scc:
            scc_of[node] = i
    edges = [
        sorted({scc_of[target] for node in scc for target in graph[node]} - {i})
        for i, scc in enumerate(sccs)
    ]
    return edges, scc_of


def node_epochs(graph: Graph) -> list[int]:
    """The number of each node's epoch, in the order of computation.

    An epoch is a node, or the nodes of one recurrence. `graph[node]` are the node's consumers.
    """
    scc_graph, scc_of = graph_of_sccs(graph)
    epoch_of_scc = top_sort(scc_graph)
    return [epoch_of_scc[scc] for scc in scc_of]

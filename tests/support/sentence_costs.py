"""Costs of sentences in acceptors."""

import math

from nnet3tools.fst.fst import NOT_FINAL, Fst


def best_cost(fst: Fst, sentence: list[int], silent: tuple[int, ...] = (0, 3)) -> float:
    """The least cost of a sentence; labels in `silent` may come anywhere."""
    lists, finals = fst.arc_lists(), fst.finals.tolist()

    def closed(costs: dict[int, float]) -> dict[int, float]:
        queue = list(costs)
        for state in queue:
            for label, _, weight, target in lists[state]:
                cost = costs[state] + weight
                if label in silent and cost < costs.get(target, math.inf):
                    costs[target] = cost
                    queue.append(target)
        return costs

    here = closed({fst.start: 0.0})
    for word in sentence:
        after: dict[int, float] = {}
        for state, cost in here.items():
            for label, _, weight, target in lists[state]:
                if label == word:
                    after[target] = min(after.get(target, math.inf), cost + weight)
        here = closed(after)
    return min((c + finals[s] for s, c in here.items() if finals[s] != NOT_FINAL), default=math.inf)

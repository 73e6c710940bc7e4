"""What compiling a request finds out, stage by stage, as listings in text or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

from nnet3tools.compiler.compiler import Compiler, PlannedSteps
from nnet3tools.compiler.graph_listing import (
    list_computability,
    list_epochs,
    list_graph,
    list_phases,
)
from nnet3tools.compiler.step_info import StepInfo, dependencies, own_deriv_reason
from nnet3tools.graph.builder import GraphBuilder
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.nnet.nodes import ComponentNode
from nnet3tools.program.computation import Computation
from nnet3tools.program.listing import Entry, list_accesses, list_variables
from nnet3tools.program.printing import ProgramNames, indexes_text


class Explanation:
    """The stages of compiling one request for one network, each computed when it is needed."""

    def __init__(
        self, nnet: Nnet, request: ComputationRequest, compile_program: Callable[[], Computation]
    ) -> None:
        """Explain how `request` is compiled; `compile_program` returns its optimized program."""
        self.nnet, self.request, self._compile_program = nnet, request, compile_program
        self.compiler = Compiler(nnet)

    @cached_property
    def planned(self) -> PlannedSteps:
        """The computation graph and the steps; RequestError if an output cannot be computed."""
        return self.compiler.plan_steps([self.request])

    @cached_property
    def program(self) -> Computation:
        """The optimized program for the request."""
        return self._compile_program()

    def explored(self) -> GraphBuilder:
        """A GraphBuilder with the graph before pruning, explored hop by hop as in Kaldi."""
        builder = GraphBuilder(self.compiler.plan, foresee=False)
        builder.compute(self.request)
        return builder

    def text(self, listing: str) -> str:
        """The listing with the name `listing`, a key of LISTINGS, as text with a title line."""
        lines = [f"# {listing}", *(entry.text for entry in LISTINGS[listing](self))]
        return "".join(f"{line}\n" for line in lines)

    def json(self, listing: str) -> str:
        """The listing with the name `listing`, a key of LISTINGS, as one line of JSON."""
        return json.dumps({"explain": listing, "entries": self.data(listing)}) + "\n"

    def data(self, listing: str) -> list[dict[str, Any]]:
        """The entries of the listing named `listing`, a key of LISTINGS, in types for JSON."""
        return [entry.data for entry in LISTINGS[listing](self)]


def list_steps(stages: Explanation) -> Iterator[Entry]:
    """The steps in order: node, rows, matrices of value and derivative, and the steps they read.

    The matrices are those of the program before optimization.
    """
    nnet, (_, infos, computation) = stages.nnet, stages.planned
    names = ProgramNames(computation, nnet)
    for number, info in enumerate(infos):
        data = {
            "step": number,
            "node": nnet.node_names[info.step.node],
            "kind": _kind(nnet, info),
            "indexes": info.step.indexes.tolist(),
            "value": names.submatrix(info.value),
            "deriv": names.submatrix(info.deriv) if info.deriv else None,
            "parts": [names.submatrix(part) for part in info.value_parts],
            "from_steps": sorted(dependencies(number, info)),
        }
        extra = f", derivative {data['deriv']}" if info.deriv else ""
        if len(info.value_parts) > 1:
            extra += f", parts {' '.join(data['parts'])}"
        if data["from_steps"]:
            extra += f", from {_steps_text(data['from_steps'])}"
        rows = indexes_text(info.step.indexes)
        text = f"step {number}: {data['node']}{rows}, {data['kind']}, value {data['value']}{extra}"
        yield Entry(text, data)


def _kind(nnet: Nnet, info: StepInfo) -> str:
    """Words for what fills a step's matrix: "given", "columns of step 3", "component c", ..."""
    node = info.step.node
    if info.step.is_input:
        return "given"
    if info.step.source >= 0:
        return f"columns of step {info.step.source}"
    match nnet.nodes[node]:
        case ComponentNode(component):
            return f"component {nnet.component_names[component]}"
    return "output" if nnet.is_output(node) else "input of a component"


def list_deriv(stages: Explanation) -> Iterator[Entry]:
    """For each step, whether its derivative is needed, and why."""
    nnet, infos = stages.nnet, stages.planned.infos
    for number, info in enumerate(infos):
        name = nnet.node_names[info.step.node]
        own = own_deriv_reason(nnet, stages.request, info) if len(info.step.ids) else None
        through = sorted(i for i in dependencies(number, info) if infos[i].deriv)
        reasons = [own.value] if own else []
        if info.deriv and through:
            reasons.append(f"{_steps_text(through)} need{'s' * (len(through) == 1)} a derivative")
        because = f"yes, because {'; '.join(reasons)}" if info.deriv else "no"
        yield Entry(
            f"step {number}: {name}: {because}",
            {
                "step": number,
                "node": name,
                "needed": info.deriv > 0,
                "reason": own.value if own else None,
                "from_steps": through if info.deriv else [],
            },
        )


def _steps_text(steps: list[int]) -> str:
    return f"step{'s' if len(steps) > 1 else ''} {', '.join(map(str, steps))}"


LISTINGS: dict[str, Callable[[Explanation], Iterator[Entry]]] = {
    "graph": lambda stages: list_graph(stages.compiler.plan, stages.planned.graph),
    "computable": lambda stages: list_computability(stages.explored()),
    "epochs": lambda stages: list_epochs(stages.compiler.plan),
    "phases": lambda stages: list_phases(stages.compiler.plan, stages.planned.graph),
    "steps": list_steps,
    "deriv": list_deriv,
    "variables": lambda stages: list_variables(stages.program, stages.nnet),
    "accesses": lambda stages: list_accesses(stages.program, stages.nnet),
}
"""The listings that nnet3-compile --explain offers, by name."""

"""What nnet3-compile --explain lists: checked against the row-by-row model of compilation."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
from typing import Any

import pytest

from nnet3tools.compiler.compiler import Compiler
from nnet3tools.compiler.explaining import LISTINGS, Explanation
from nnet3tools.compiler.options import CompilerOptions
from nnet3tools.errors import RequestError
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.io import log
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.program.command import Command
from support.io_specifications import io_range
from support.plain_graph import PlainGraph, RandomNetwork, parse, random_request

SEEDS = range(25)


def explanation(nnet: Nnet, request: ComputationRequest) -> Explanation:
    """An explanation of the unoptimized program."""
    compiler = Compiler(nnet)
    return Explanation(nnet, request, lambda: compiler.compile([request], CompilerOptions()))


def random_explanation(seed: int) -> Explanation:
    """The first of the seed's networks and requests that can be computed, with derivatives."""
    for attempt in itertools.count():
        rng = random.Random(f"{seed} {attempt}")
        nnet = parse(RandomNetwork(rng, recurrent=bool(seed % 2)).text)
        request = random_request(rng, nnet)
        request.need_model_derivative = rng.random() < 0.5
        request.inputs[0].has_deriv = rng.random() < 0.3
        request.outputs[0].has_deriv = True
        explained = explanation(nnet, request)
        with contextlib.suppress(RequestError):
            _ = explained.planned
            return explained
    raise AssertionError


def entries(explained: Explanation, listing: str) -> list[dict[str, Any]]:
    """The entries of a listing in JSON."""
    return json.loads(explained.json(listing))["entries"]


@pytest.mark.parametrize("seed", SEEDS)
def test_graph_lists_the_dependencies_of_every_cindex(seed: int) -> None:
    explained = random_explanation(seed)
    names = explained.nnet.node_names
    listed, cindexes = {}, []
    nodes = entries(explained, "graph")
    for node in nodes:
        assert node["first_id"] == len(cindexes)
        cindexes += [(names.index(node["node"]), tuple(index)) for index in node["indexes"]]
    for node in nodes:
        ids = itertools.count(node["first_id"])
        for cindex, terms in zip(ids, node["dependencies"], strict=False):
            listed[cindexes[cindex]] = {cindexes[term] for term in terms}
    assert listed == PlainGraph(explained.nnet, explained.request).required()


@pytest.mark.parametrize("seed", SEEDS)
def test_computable_are_the_cindexes_that_can_be_computed(seed: int) -> None:
    explained = random_explanation(seed)
    plain = PlainGraph(explained.nnet, explained.request)
    for entry in entries(explained, "computable"):
        node = explained.nnet.node_names.index(entry["node"])
        assert entry["state"] in ("computable", "not computable", "will not compute")
        for index, count in zip(entry["indexes"], entry["usable_counts"], strict=True):
            if entry["state"] == "will not compute":
                assert count == 0
            else:
                is_computable = (node, tuple(index)) in plain.computable
                assert is_computable == (entry["state"] == "computable"), (entry["node"], index)


def test_computable_explains_a_request_that_cannot_be_computed() -> None:
    nnet = parse(
        "input-node name=input dim=1\ncomponent name=a type=NoOpComponent dim=1\n"
        "component-node name=a component=a input=Offset(input, 1)\noutput-node name=output input=a"
    )
    request = ComputationRequest([io_range("input", 0, 4)], [io_range("output", 0, 4)])
    explained = explanation(nnet, request)
    assert explained.text("computable").splitlines() == [
        "# computable",
        "input[(0,0:3)] computable, usable count 0 to 1",
        "input[(0,4)] not computable, usable count 0",
        "a_input[(0,0:2)] computable, usable count 1",
        "a_input[(0,3)] not computable, usable count 0",
        "a[(0,0:2)] computable, usable count 1",
        "a[(0,3)] not computable, usable count 0",
        "output[(0,0:2)] computable, usable count 1",
        "output[(0,3)] not computable, usable count 1",
    ]
    with pytest.raises(RequestError, match="not computable"):
        explained.text("steps")


@pytest.mark.parametrize("seed", SEEDS)
def test_phases_hold_every_cindex_once_after_its_dependencies(seed: int) -> None:
    explained = random_explanation(seed)
    names = explained.nnet.node_names
    phase_of = {}
    for number, phase in enumerate(entries(explained, "phases")):
        assert phase["phase"] == number
        for name, indexes in phase["cindexes"].items():
            phase_of |= {(names.index(name), tuple(index)): number for index in indexes}
    required = PlainGraph(explained.nnet, explained.request).required()
    assert phase_of.keys() == required.keys()
    for cindex, terms in required.items():
        assert all(phase_of[term] < phase_of[cindex] for term in terms)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_node_is_in_one_epoch_and_every_column_step_names_its_source(seed: int) -> None:
    explained = random_explanation(seed)
    epochs = entries(explained, "epochs")
    assert all(epoch["nodes"] for epoch in epochs)
    nodes = itertools.chain.from_iterable(epoch["nodes"] for epoch in epochs)
    assert sorted(nodes) == sorted(explained.nnet.node_names)
    for entry, info in zip(entries(explained, "steps"), explained.planned.infos, strict=True):
        is_column = not info.step.is_input and info.step.source >= 0
        source = f"columns of step {info.step.source}"
        assert entry["kind"] == source if is_column else "columns" not in entry["kind"]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_derivative_is_needed_for_a_reason_or_through_other_steps(seed: int) -> None:
    explained = random_explanation(seed)
    steps, derivs = entries(explained, "steps"), entries(explained, "deriv")
    for step, deriv in zip(steps, derivs, strict=True):
        through = [i for i in step["from_steps"] if derivs[i]["needed"]]
        reasons = deriv["reason"] is not None or (through and step["kind"] != "output")
        assert deriv["needed"] == bool(reasons) == (step["deriv"] is not None)
        assert deriv["from_steps"] == (through if deriv["needed"] else [])


@pytest.mark.parametrize("seed", SEEDS)
def test_accesses_of_variables_and_commands_are_the_same(seed: int) -> None:
    explained = random_explanation(seed)
    of_commands, of_variables = set(), set()
    for entry in entries(explained, "accesses"):
        if "command" in entry:
            for kind in ("read", "write"):
                variables = entry[f"variables_{kind}"]
                of_commands |= {(entry["command"], variable, kind) for variable in variables}
        elif "variable" in entry:
            for command, kinds in entry["accesses"]:
                of_variables |= {(command, entry["variable"], k) for k in kinds.split("/")}
    assert of_commands == of_variables
    for number, command in enumerate(explained.program.commands):
        submatrices = {s for s in _accessed(explained, command) if s}
        variables = {v for c, v, _ in of_commands if c == number}
        blocks = {e["submatrix"]: e for e in entries(explained, "variables") if "submatrix" in e}
        assert variables == {v for s in submatrices for v in blocks[s]["variables"]}
        if number > 40:
            break


def _accessed(explained: Explanation, command: Command) -> list[int]:
    from nnet3tools.program.component_facts import ComponentTable

    table = ComponentTable(explained.nnet)
    return [access.submatrix for access in command.accesses(explained.program, table)]


@pytest.mark.parametrize("listing", LISTINGS)
def test_text_begins_with_the_name_and_json_is_one_line(listing: str) -> None:
    explained = random_explanation(1)
    assert explained.text(listing).startswith(f"# {listing}\n")
    assert explained.json(listing).count("\n") == 1


def test_dependencies_that_differ_by_a_shift_share_a_line() -> None:
    nnet = parse(
        "input-node name=input dim=1\ninput-node name=ivector dim=1\n"
        "component name=a type=AffineComponent input-dim=3 output-dim=1\n"
        "component-node name=a component=a "
        "input=Append(Offset(input, -1), IfDefined(Offset(a, -1)), ReplaceIndex(ivector, t, 0))\n"
        "output-node name=output input=a"
    )
    request = ComputationRequest(
        [io_range("input", -1, 3), io_range("ivector", 0, 1)], [io_range("output", 0, 4)]
    )
    assert explanation(nnet, request).text("graph").splitlines()[3:5] == [
        "a_input[(0,0)] depends on input(t-1), ivector(t=0)",
        "a_input[(0,1:3)] depends on input(t-1), a(t-1), ivector(t=0)",
    ]


def test_verbose_six_prints_kaldis_lines(capsys: pytest.CaptureFixture[str]) -> None:
    nnet = parse(
        "input-node name=input dim=1\ncomponent name=a type=AffineComponent input-dim=2 "
        "output-dim=1\ncomponent-node name=a component=a "
        "input=Append(input, IfDefined(Offset(a, -1)))\noutput-node name=output input=a"
    )
    request = ComputationRequest([io_range("input", 0, 2)], [io_range("output", 0, 2, True)], True)
    log.set_verbose(6)
    try:
        Compiler(nnet).compile([request], CompilerOptions())
    finally:
        log.set_verbose(0)
    lines = [line.split(") ", 1)[1] for line in capsys.readouterr().err.splitlines() if line]
    assert lines[0].startswith("current_distance = ")
    assert lines[1:] == [
        "graph is: 0 -> (1); 1 -> (2); 2 -> (1,3); 3 -> ()",
        "scc graph is: 0 -> (); 1 -> (0); 2 -> (1)",
        "scc_node_to_epoch is: 2, 1, 0, ",
        "node_to_epoch: [0, 1, 1, 2]",
        "deriv_needed = fftttt",
    ]

"""What is told of a program without running it agrees with plain counting."""

import json
import re

import numpy as np
import pytest

from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.program.commands import (
    AcceptInput,
    AddRowRanges,
    AddRows,
    AddToRowsMulti,
    AllocMatrix,
    CompressionType,
    CompressMatrix,
    CopyRows,
    DeallocMatrix,
    DecompressMatrix,
    MatrixAdd,
    MatrixCopy,
    Propagate,
    ProvideOutput,
    SwapMatrix,
)
from nnet3tools.program.dot import network_dot, program_dot
from nnet3tools.program.html_page import html_page, page_data
from nnet3tools.program.lifetimes import matrix_lives, matrix_subject
from nnet3tools.program.report import ProgramReport, bytes_text, flops_text
from support.handmade import ROWS, Program, small_nnet, small_program


@pytest.fixture
def nnet():
    return small_nnet()


@pytest.fixture
def report(nnet):
    return ProgramReport(small_program(nnet).computation, nnet)


def component(line: str):
    text = f"input-node name=i dim=1\ncomponent name=c type={line}\noutput-node name=o input=i"
    return Nnet.from_config(parse_config_lines(text, "t")).component(0)


# -- operations


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("AffineComponent input-dim=4 output-dim=3", 7 * (2 * 4 * 3 + 3)),
        ("FixedAffineComponent input-dim=4 output-dim=3", 7 * (2 * 4 * 3 + 3)),
        ("LinearComponent input-dim=4 output-dim=3", 7 * 2 * 4 * 3),
        ("RectifiedLinearComponent dim=5", 7 * 5),
        ("NoOpComponent dim=5", 0),
        (
            "RepeatedAffineComponent input-dim=6 output-dim=4 num-repeats=2",
            7 * 2 * (2 * 3 * 2 + 2),
        ),
        (
            "TdnnComponent input-dim=4 output-dim=3 time-offsets=-1,0,1",
            7 * (2 * 12 * 3 + 3),
        ),
        (
            "TimeHeightConvolutionComponent num-filters-in=2 num-filters-out=3 height-in=4 "
            "height-out=4 height-offsets=-1,0,1 time-offsets=-1,0,1",
            7 * 4 * 3 * (2 * 9 * 2 + 1),
        ),
        ("NaturalGradientPerElementScaleComponent dim=5", 7 * 5),
    ],
)
def test_operations_of_the_forward_pass(line, expected):
    assert component(line).propagate_flops(7, None) == expected


def test_operations_of_the_backward_pass():
    affine = component("AffineComponent input-dim=4 output-dim=3")
    forward = affine.propagate_flops(7, None)
    assert affine.backprop_flops(7, None, True, True) == 2 * forward
    assert affine.backprop_flops(7, None, True, False) == forward
    relu = component("RectifiedLinearComponent dim=5")
    assert relu.backprop_flops(7, None, True, True) == 2 * 7 * 5
    assert relu.backprop_flops(7, None, False, True) == 0


def test_a_composite_costs_what_its_parts_cost():
    composite = component(
        "CompositeComponent num-components=2 max-rows-process=2 component1='type=AffineComponent "
        "input-dim=4 output-dim=3' component2='type=TanhComponent dim=3'"
    )
    forward = composite.propagate_flops(7, None)
    assert forward == 7 * (2 * 4 * 3 + 3) + 7 * 3
    assert composite.backprop_flops(7, None, True, True) == 2 * forward


def test_natural_gradient_is_counted():
    plain = component("AffineComponent input-dim=40 output-dim=30")
    natural = component(
        "NaturalGradientAffineComponent input-dim=40 output-dim=30 rank-in=2 rank-out=3 "
        "update-period=1"
    )
    extra = natural.backprop_flops(7, None, True, True) - plain.backprop_flops(7, None, True, True)
    per_side = [3 * 2 * 7 * rank * dim + 2 * rank * rank * dim for rank, dim in ((2, 41), (3, 30))]
    assert extra == sum(per_side)
    assert natural.backprop_flops(7, None, True, False) == natural.propagate_flops(7, None)


def test_operations_of_moving_commands(nnet):
    c = small_program(nnet).computation
    rows = c.new_indexes(np.array([0, -1, 4, 3, 2]))
    pairs = c.new_indexes_multi(np.array([[3, 1], [-1, -1], [4, 0], [4, 1], [4, 2]]))
    ranges = c.new_indexes_ranges(np.array([[0, 2], [-1, -1], [1, 5], [0, 1], [4, 5]]))
    for command, expected in (
        (MatrixCopy(2, 3), 0),
        (MatrixCopy(2, 3, 0.5), ROWS * 3),
        (MatrixAdd(2, 3), ROWS * 3),
        (MatrixAdd(2, 3, 0.5), 2 * ROWS * 3),
        (CopyRows(2, 3, rows), 0),
        (AddRows(2, 3, rows), 4 * 3),
        (AddToRowsMulti(2, pairs, -1.0), 2 * 4 * 3),
        (AddRowRanges(2, 3, ranges), 8 * 3),
        (Propagate(0, 0, 1, 2), ROWS * (2 * 4 * 3 + 3)),
    ):
        assert command.flops(c, nnet) == expected


# -- memory


def test_lives_add_up_to_the_memory_in_use(report):
    total = np.zeros(len(report.computation.commands), int)
    for life in report.lives:
        total[life.first : life.last + 1] += life.num_bytes
    np.testing.assert_array_equal(total, report.memory)
    computation, alive, counted = report.computation, 0, []
    for command in computation.commands:
        if isinstance(command, AllocMatrix | AcceptInput):
            alive += 4 * computation.submatrices[command.submatrix].size
        elif isinstance(command, DeallocMatrix):
            alive -= 4 * computation.submatrices[command.submatrix].size
        counted.append(alive)
    assert report.memory.tolist() == counted
    assert sum(x.num_bytes for x in report.alive_at(report.peak_command)) == report.peak_bytes


def test_compressed_and_swapped_matrices_change_lives(nnet):
    p = Program(nnet)
    for name in ("a", "b"):
        p.matrix(name, ROWS, 4)
    p.add(
        AcceptInput(p["a"], p.node("input")),
        CompressMatrix(p["a"], CompressionType.UINT8, True, 0.0),
        DecompressMatrix(p["a"]),
        SwapMatrix(p["b"], p["a"]),
        DeallocMatrix(p["b"]),
    )
    full = ROWS * 4 * 4
    assert matrix_lives(p.computation) == [
        (1, 0, 0, full),
        (1, 1, 1, full // 4),
        (1, 2, 2, full),
        (2, 3, 3, full),
    ]


def test_subject_names_nodes_and_times(report):
    c, nnet = report.computation, report.nnet
    assert matrix_subject(c, nnet, 2) == "affine, t = 0..4"
    assert matrix_subject(c, nnet, 7) == "derivative of affine, t = 0..4"
    c.matrix_debug_info = []
    assert matrix_subject(c, nnet, 2) == ""


def test_text_has_all_sections(report):
    text = report.text({"cpu": 1234}, max_matrices=2)
    num = len(report.computation.commands)
    assert f"commands: {num} (in 2 segments: " in text
    assert re.search(r"\n  Propagate +4 +\d+ FLOP", text)
    assert f"peak-bytes: {report.peak_bytes} (" in text
    assert f"peak-at: c{report.peak_command}: " in text
    assert "arena-bytes-cpu: 1234 (1.2 KiB)" in text
    assert "\n... and " in text
    assert sum(row.number for row in report.kinds()) == num
    assert sum(row.flops for row in report.kinds()) == report.flops.sum()


def test_empty_program(nnet):
    report = ProgramReport(Program(nnet).computation, nnet)
    assert "commands: 0" in report.text()
    assert "peak-bytes: 0" in report.text()
    assert html_page(report, "empty")


def test_units():
    assert [bytes_text(n) for n in (0, 1023, 1024, 5 << 20)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "5.0 MiB",
    ]
    assert [flops_text(n) for n in (0, 999, 1000, 1234567)] == [
        "0 FLOP",
        "999 FLOP",
        "1 kFLOP",
        "1.23 MFLOP",
    ]


# -- pictures


def test_program_graph_has_an_arrow_for_each_access(report):
    dot = program_dot(report.computation, report.nnet)
    assert dot.startswith("digraph program {")
    assert dot.count("{") == dot.count("}") == 1
    command = next(
        c
        for c, x in enumerate(report.computation.commands)
        if isinstance(x, Propagate) and x.input == 1
    )
    assert f"  m1 -> c{command};" in dot
    assert not any(
        isinstance(x, AllocMatrix) and f"  c{c} [" in dot
        for c, x in enumerate(report.computation.commands)
    )


def test_network_graph_has_an_arrow_for_each_source(nnet):
    dot = network_dot(nnet)
    affine, relu = nnet.node_index("affine"), nnet.node_index("relu")
    assert f"  n{affine} -> n{relu};" in dot
    assert "AffineComponent 4 -> 3" in dot


def test_page_holds_the_program_and_needs_nothing_else(report):
    page = html_page(report, "a <b> & {{DATA}}", [[1, 0, 3, 0, 64]], 64)
    assert "<title>a &lt;b&gt; &amp; {{DATA}}</title>" in page
    for outside in ("http:", "https:", "src=", "<link", "@import", "url("):
        assert outside not in page
    text = re.search(r'id="program">(.*?)</script>', page, re.S)[1]
    data = json.loads(text)
    assert data == page_data(report, "a <b> & {{DATA}}", [[1, 0, 3, 0, 64]], 64)
    assert len(data["commands"]) == len(data["memory"]) == len(report.computation.commands)
    assert len(data["matrices"]) == len(report.computation.matrices)


def test_page_says_what_commands_touch(report):
    data = page_data(report, "t")
    c = next(c for c, x in enumerate(report.computation.commands) if isinstance(x, Propagate))
    kind, text, flops, touched = data["commands"][c]
    assert kind == "Propagate"
    assert text.startswith("affine.Propagate(")
    assert flops == ROWS * (2 * 4 * 3 + 3)
    assert touched == [[1, "m1", 1], [2, "m2", 2]]
    output = next(x for x in report.computation.commands if isinstance(x, ProvideOutput))
    matrix = report.computation.matrix_of(output.submatrix)
    assert data["matrices"][matrix]["role"] == "given to the user: output"


def test_text_cannot_end_the_script_early(report):
    report.nnet.node_names[0] = "</script><b>"
    page = html_page(report, "t")
    assert "</script><b>" not in page
    assert page.count("</script>") == 2


def test_text_cannot_hide_the_end_of_the_script(report):
    report.nnet.node_names[0] = "<!--<script>"
    page = html_page(report, "t")
    assert "<!--" not in page
    text = re.search(r'id="program">(.*?)</script>', page, re.S)[1]
    assert json.loads(text) == page_data(report, "t")

"""The printed form."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnet3tools.nnet.indexes import make_indexes
from nnet3tools.program.commands import AddRowRanges, AddRowsMulti, CopyRows, MatrixAdd, MatrixCopy
from nnet3tools.program.printing import (
    cindexes_text,
    command_text,
    indexes_text,
    integers_text,
    program_text,
)
from support.handmade import small_nnet, small_program


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([], "[ ]"),
        ([7], "[7]"),
        ([3, 4], "[3, 4]"),
        ([3, 4, 5], "[3:5]"),
        ([2, 2, 2, 2], "[2x4]"),
        ([0, 1, 2, 2, 2, 9, -1], "[0:2, 2, 2, 9, -1]"),
        ([5, 4, 3], "[5, 4, 3]"),
    ],
)
def test_integers(values, text):
    assert integers_text(np.array(values, np.int32)) == text


def written_out(text):
    values = []
    for part in text.strip("[] ").split(", ") if text != "[ ]" else []:
        if ":" in part:
            first, last = map(int, part.split(":"))
            values += range(first, last + 1)
        elif "x" in part:
            value, times = map(int, part.split("x"))
            values += [value] * times
        else:
            values.append(int(part))
    return values


@given(st.lists(st.integers(-1, 4), max_size=40))
def test_integers_say_all_of_the_list(values):
    assert written_out(integers_text(np.array(values, np.int32))) == values


def test_indexes_join_consecutive_times_only():
    indexes = np.concatenate(
        [make_indexes(0, np.arange(-2, 4)), make_indexes(1, [7, 9]), make_indexes(1, 10, 2)]
    )
    assert indexes_text(indexes) == "[(0,-2:3), (1,7), (1,9), (1,10,2)]"


def test_cindexes_start_a_bracket_at_each_change_of_node():
    text = cindexes_text(np.array([1, 1, 0]), make_indexes(0, [3, 4, 4]), ["a", "b"])
    assert text == "b[(0,3:4)]a[(0,4)]"


@pytest.mark.parametrize("rows", [30, 5000])
def test_long_texts_keep_their_ends(rows):
    text = indexes_text(make_indexes(np.arange(rows), 0))
    assert len(text) == 205
    assert text.startswith("[(0,0), (1,0)")
    assert text.endswith(f"({rows - 2},0), ({rows - 1},0)]")
    assert " ... " in text


def test_program_reads_like_kaldis():
    nnet = small_nnet()
    p = small_program(nnet)
    lines = program_text(p.computation, nnet).splitlines()
    assert lines[0].startswith("matrix m1(5, 4), m2(5, 3), m3(5, 3)")
    assert "m1 == value: input[(0,0:4)]" in lines
    assert "m6 == deriv: input[(0,0:4)]" in lines
    first = lines.index("# begin forward commands") + 1
    assert lines[first : first + 4] == [
        "c0: m1 = user input [for node: 'input']",
        "c1: m2 = undefined(5,3)",
        "c2: m2.set(0) [dim = 5 x 3];",
        "c3: affine.Propagate(NULL, m1, &m2)",
    ]
    assert lines[-1].endswith("output m6 to user [for node: 'input']")
    assert any("affine.Backprop(NULL, m1, [], m7, [component-pointer], &m6)" in x for x in lines)


def test_parts_and_lists_of_rows():
    nnet = small_nnet()
    p = small_program(nnet)
    c = p.computation
    part = c.new_submatrix(p["relu"], 1, 2, 0, 3)
    narrow = c.new_submatrix(p["relu"], 2, 3, 1, 2)
    c.commands = [
        MatrixAdd(part, narrow, -0.5),
        MatrixCopy(part, part, 2.0),
        CopyRows(p["norm"], p["relu"], c.new_indexes([0, 1, 2, -1, -1])),
        AddRowsMulti(part, c.new_indexes_multi([[-1, -1], [narrow, 1]])),
        AddRowsMulti(part, c.new_indexes_multi([[p["norm"], 4], [part, 1]])),
        AddRowRanges(part, p["norm"], c.new_indexes_ranges([[0, 3], [-1, -1]])),
    ]
    texts = [command_text(c, nnet, i) for i in range(len(c.commands))]
    assert texts == [
        "c0: m3(1:2, 0:2) += -0.5 * m3(2:4, 1:2)",
        "c1: m3(1:2, 0:2) = 2 * m3(1:2, 0:2)",
        "c2: m4.CopyRows(1, m3[0:2, -1, -1])",
        "c3: m3(1:2, 0:2).AddRowsMulti(1, [NULL,m3(3,1:2)])",
        "c4: m3(1:2, 0:2).AddRowsMulti(1, [m4(4,:),m3(2,:)])",
        "c5: m3(1:2, 0:2).AddRowRanges(1, m4, [0:2,null])",
    ]

"""Rules of minibatch sizes, dropout schedules, requests: values, and errors that mark the place."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nnet3tools.errors import TextError
from nnet3tools.grammars.lines import read_edit
from nnet3tools.grammars.request import read_request
from nnet3tools.grammars.schedules import read_dropout_schedule, read_minibatch_rules

REQUEST = (Path(__file__).parents[2] / "docs" / "request.txt").read_text()


def test_minibatch_rules() -> None:
    assert read_minibatch_rules("64") == {0: [(64, 64)]}
    assert read_minibatch_rules("256=4, 8:16 /128=2") == {256: [(4, 4), (8, 16)], 128: [(2, 2)]}


def test_dropout_schedule() -> None:
    assert read_dropout_schedule("") == []
    assert read_dropout_schedule("0,1e-1@.25,0 lstm.*=0.5,0.25,1") == [
        ("*", [(0, 0), (0.25, 0.1), (1, 0)]),
        ("lstm.*", [(0, 0.5), (0.5, 0.25), (1, 1)]),
    ]


def test_edits() -> None:
    assert read_edit("  # comment") is None
    values = {"name": "a*.x", "learning-rate": "1e-3", "why": "b = c"}
    line = 'set-learning-rate name=a*.x learning-rate=1e-3 why="b = c" # x=y'
    assert read_edit(line) == ("set-learning-rate", values)


def test_request() -> None:
    inputs, outputs, need_model_derivative, store_component_stats = read_request(REQUEST)
    times = range(-3, 5)
    assert inputs == [("input", [n for t in times for n in (0, t, 0)], False)]
    assert outputs == [("output", [0, 0, 0, 0, 1, 0], True)]
    assert need_model_derivative
    assert store_component_stats


def of_request(old: str, new: str) -> str:
    assert old in REQUEST
    return REQUEST.replace(old, new, 1)


@pytest.mark.parametrize(
    ("read", "text", "message", "line", "column"),
    [
        (read_minibatch_rules, "", "expected a positive integer, found the end", 1, 1),
        (read_minibatch_rules, "4,", "expected end of text, found ','", 1, 2),
        (read_minibatch_rules, "8:4", "expected a rising range, found 8:4", 1, 1),
        (read_minibatch_rules, "8=4/8=2", "expected size=sizes, each size once", 1, 5),
        (read_minibatch_rules, "9" * 5000, "expected a positive integer", 1, 1),
        (read_dropout_schedule, "0,1.5,0", "expected a number from 0 to 1, found '1.5'", 1, 3),
        (read_dropout_schedule, "0,0@.5,0@.2,0", "expected rising fractions of the data", 1, 1),
        (read_dropout_schedule, "a=0", "expected ',', found the end", 1, 4),
        (read_edit, "3 a=b", "expected a command such as set-learning-rate, found '3'", 1, 1),
        (read_edit, "rename-node a", "expected key=value, found 'a'", 1, 13),
        (read_edit, "rename-node a=1 a=2", "'a' is given twice", 1, 17),
        (
            read_request,
            of_request("<NumOutputs>", "<Outputs>"),
            "expected '<NumOutputs>', found '<Outputs>'",
            7,
            1,
        ),
        (read_request, of_request("0 1 0 <Has", "0 1 <Has"), "expected '<HasDeriv>'", 9, 52),
        (read_request, of_request("> 8 <I1>", "> 9 <I1>"), "expected 8 indexes for 'input'", 3, 10),
        (read_request, of_request("<I1> 0 4", "<I1> 0 4294967296"), "expected integers", 4, 40),
        (read_request, REQUEST[:40], "expected '<Inputs>'", 3, 1),
    ],
)
def test_errors_mark_the_place(
    read: Callable[[str], Any], text: str, message: str, line: int, column: int
) -> None:
    with pytest.raises(TextError) as caught:
        read(text)
    assert str(caught.value).startswith(message)
    assert (caught.value.line, caught.value.column) == (line, column), str(caught.value)
    assert f"column {column} of " in str(caught.value)
    assert "\n" not in str(caught.value)

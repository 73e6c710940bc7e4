"""Tables of Python values: every kind there and back, and values of the wrong kind."""

import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnet3tools
from nnet3tools import RandomTableReader, TableReader, TableWriter, Wave
from nnet3tools.api import tables

VALUES: dict[str, list[Any]] = {
    "matrix": [np.arange(6.0).reshape(2, 3), [[1, 2], [3, 4]]],
    "vector": [np.arange(3.0), [1, 2]],
    "wave": [Wave(8000, np.arange(40, dtype=np.int16).reshape(2, 20))] * 2,
    "posterior": [[[(1, 0.5), (2, 0.25)], [], [(0, 1.0)]], [[(3, 1.0)]]],
    "int-vector": [np.array([3, 1, 2]), [7]],
    "int": [4, -5],
    "float": [0.5, -2.0],
    "word": ["a", "b"],
    "words": [["a", "b"], []],
}


def plain(value: Any) -> Any:
    """A value in a form that can be compared."""
    match value:
        case np.ndarray():
            return value.tolist()
        case Wave():
            return value.rate, value.samples.tolist()
        case nnet3tools.Posterior():
            return value.frames()
    return value


@pytest.mark.parametrize("kind", VALUES)
def test_values_come_back(kind: Any) -> None:
    first, second = VALUES[kind]
    with TableWriter("ark,scp:t.ark,t.scp", kind) as table:
        table.write("one", first)
        table.write("two", second)
    want = [("one", plain(first)), ("two", plain(second))]
    for rspecifier in ("ark:t.ark", "scp:t.scp"):
        with TableReader(rspecifier, kind) as reader:
            assert [(key, plain(value)) for key, value in reader] == want
        with RandomTableReader(rspecifier, kind) as by_key:
            assert plain(by_key["two"]) == plain(second)
            assert "three" not in by_key
            assert by_key.get("three") is None
            with pytest.raises(nnet3tools.DataError, match="'three'"):
                by_key["three"]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("matrix", np.zeros(3)),
        ("matrix", [["a"]]),
        ("vector", np.zeros((2, 2))),
        ("int-vector", [0.5]),
        ("int-vector", [2**40]),
        ("int", 0.5),
        ("float", "half"),
        ("word", "two words"),
        ("words", "a string"),
        ("posterior", [[(1,)]]),
        ("egs", np.zeros(4)),
        ("lattice", None),
        ("wave", np.zeros(4)),
        ("wave", Wave(8000, np.zeros((1, 4)))),
    ],
)
def test_a_value_of_another_kind_is_a_data_error(kind: Any, value: Any) -> None:
    with pytest.raises(nnet3tools.DataError, match="expected"), TableWriter("ark:t", kind) as table:
        table.write("one", value)
    assert not Path("t").exists()


def test_every_kind_has_a_type_for_type_checkers() -> None:
    kinds = set(typing.get_args(tables.Kind))
    assert kinds == set(tables._KINDS)


def test_specifiers_and_kinds_are_checked() -> None:
    with pytest.raises(nnet3tools.OptionError, match="expected one of matrix"):
        TableReader("ark:t", "matrices")  # type: ignore[arg-type]
    with pytest.raises(nnet3tools.OptionError, match="rspecifier"):
        TableReader("t.ark")
    with pytest.raises(nnet3tools.DataError, match=r"nosuch\.ark"):
        list(TableReader("ark:nosuch.ark"))


def test_each_loop_over_a_reader_reads_from_the_beginning() -> None:
    with TableWriter("ark:t", "int") as table:
        table.write("one", 1)
    with TableReader("ark:t", "int") as reader:
        assert list(reader) == list(reader) == [("one", 1)]
    with RandomTableReader("ark:t", "int") as by_key:
        assert "one" in by_key
    with pytest.raises(nnet3tools.DataError, match="closed"):
        by_key.get("one")
    with pytest.raises(nnet3tools.DataError, match="one word"):
        TableWriter("ark:t", "int").write(3, 1)  # type: ignore[arg-type]

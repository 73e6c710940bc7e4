"""FST algorithms give the states and arcs of kaldifst (OpenFst's and Kaldi's code)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnet3tools.fst.compose import compose
from nnet3tools.fst.connect import connect
from nnet3tools.fst.determinize_star import determinize_star
from nnet3tools.fst.epsilon import remove_epsilons
from nnet3tools.fst.files import load_fst, save_fst
from nnet3tools.fst.fst import NOT_FINAL, Fst
from nnet3tools.fst.reverse import reversed_fst
from nnet3tools.lang.graphs import minimized

kaldifst = pytest.importorskip("kaldifst")


@st.composite
def transducers(
    draw: st.DrawFn, acceptor: bool = False, acyclic: bool = False, least_label: int = 0
) -> Fst:
    """Random FSTs of up to 6 states, labels to 3, weights in quarters; the last state is final."""
    size = draw(st.integers(1, 6))
    state, label = st.integers(0, size - 1), st.integers(least_label, 3)
    weight = st.integers(0, 12).map(lambda quarters: quarters / 4)
    arcs = draw(st.lists(st.tuples(state, label, label, weight, state), max_size=12))
    arcs = sorted((a for a in arcs if a[0] < a[4] or not acyclic), key=lambda arc: arc[0])
    finals = np.array([*draw(st.lists(weight, min_size=size, max_size=size))], np.float32)
    finals[draw(st.lists(st.booleans(), min_size=size, max_size=size))] = NOT_FINAL
    finals[-1] = 0.5
    sources, ilabels, olabels, weights, nextstates = zip(*arcs, strict=True) if arcs else [()] * 5
    if acceptor:
        olabels = ilabels
    offsets = np.searchsorted(np.array(sources, int), np.arange(size + 1))
    return Fst(
        0, finals, offsets, *(np.array(x, np.int32) for x in (ilabels, olabels)),
        np.array(weights, np.float32), np.array(nextstates, np.int32),
    )  # fmt: skip


def kaldifst_result(fst: Fst, change: Callable[[Any], Any], folder: Path) -> Fst:
    """The FST after `change` in kaldifst, which works in place or returns a new FST."""
    path = str(folder / "fst")
    save_fst(path, fst)
    given_fst = kaldifst.StdVectorFst.read(path)
    result = change(given_fst)
    (result if hasattr(result, "write") else given_fst).write(path)
    return load_fst(path)


def assert_same(ours: Fst, expected: Fst) -> None:
    assert ours.num_states == expected.num_states
    assert ours.arc_lists() == expected.arc_lists()
    np.testing.assert_array_equal(ours.finals, expected.finals)
    if ours.num_states:
        assert ours.start == expected.start


FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@FOLDER
@given(fst=transducers())
def test_connect(fst: Fst, tmp_path: Path) -> None:
    assert_same(connect(fst), kaldifst_result(fst, kaldifst.connect, tmp_path))


@FOLDER
@given(fst=transducers(acceptor=True))
def test_reverse_acceptor(fst: Fst, tmp_path: Path) -> None:
    assert_same(reversed_fst(fst), kaldifst_result(fst, kaldifst.reverse, tmp_path))


@FOLDER
@given(fst=transducers())
def test_remove_epsilons(fst: Fst, tmp_path: Path) -> None:
    assert_same(remove_epsilons(fst), kaldifst_result(fst, kaldifst.rmepsilon, tmp_path))


def determinize_in_log(fst: Any) -> None:
    """Determinize in the log semiring, as Kaldi's scripts do with decoding graphs."""
    kaldifst.determinize_star(fst, use_log=True)


@FOLDER
@given(fst=transducers(acceptor=True, acyclic=True))
def test_determinize_star(fst: Fst, tmp_path: Path) -> None:
    assert_same(determinize_star(fst), kaldifst_result(fst, determinize_in_log, tmp_path))


@FOLDER
@given(fst=transducers())
def test_minimize_encoded(fst: Fst, tmp_path: Path) -> None:
    assert_same(minimized(fst), kaldifst_result(fst, kaldifst.minimize_encoded, tmp_path))


@FOLDER
@given(first=transducers(least_label=1), second=transducers(least_label=1))
def test_compose(first: Fst, second: Fst, tmp_path: Path) -> None:
    save_fst(str(tmp_path / "second"), second)
    other = kaldifst.StdVectorFst.read(str(tmp_path / "second"))
    kaldifst.arcsort(other, "ilabel")
    expected = kaldifst_result(first, lambda fst: kaldifst.compose(fst, other, "right"), tmp_path)
    other.write(str(tmp_path / "second"))
    assert_same(connect(compose(first, load_fst(str(tmp_path / "second")))), expected)

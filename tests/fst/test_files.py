"""FST files: OpenFst's binary types and Kaldi's text form, written and read; invalid files."""

import io
import struct

import numpy as np
import pytest

from nnet3tools.errors import DataError
from nnet3tools.fst import binary_reader
from nnet3tools.fst.binary_writer import write_compact_acceptor, write_const_fst, write_vector_fst
from nnet3tools.fst.compact_reader import read_compact_acceptor
from nnet3tools.fst.files import FST, load_fst, read_fst, save_fst
from nnet3tools.fst.fst import NOT_FINAL, Fst
from nnet3tools.fst.properties import Property, all_properties
from nnet3tools.fst.text_form import write_fst_text
from nnet3tools.io.stream import Reader
from nnet3tools.io.table import SequentialTableReader, TableWriter
from support.streams import bytes_of

ACCEPTOR = Fst.from_lists(
    1,
    [NOT_FINAL, NOT_FINAL, 0.25],
    [[(2, 2, 0.5, 2), (2, 2, 1.5, 0)], [(1, 1, 0.0, 0), (3, 3, 2.0, 2)], []],
)
TRANSDUCER = Fst.from_lists(0, [NOT_FINAL, 0.0], [[(2, 0, 0.5, 1), (0, 3, -1.5, 1)], []])


def assert_same(a: Fst, b: Fst) -> None:
    assert a.start == b.start
    for name in ("finals", "offsets", "ilabels", "olabels", "weights", "nextstates"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), name)


@pytest.mark.parametrize("write", [write_vector_fst, write_const_fst, write_fst_text])
@pytest.mark.parametrize("fst", [ACCEPTOR, TRANSDUCER, Fst.linear([3, 1, 2]), Fst.empty()])
def test_every_kind_of_file_comes_back(write, fst):
    assert_same(read_fst(Reader(io.BytesIO(bytes_of(write, fst)))), fst)


@pytest.mark.parametrize("write", [write_vector_fst, write_const_fst])
def test_arcs_of_several_slabs_come_back(write, monkeypatch):
    monkeypatch.setattr(binary_reader, "_SLAB", 2)
    for fst in (ACCEPTOR, TRANSDUCER, Fst.linear(range(1, 8))):
        assert_same(read_fst(Reader(io.BytesIO(bytes_of(write, fst)))), fst)


def test_states_beyond_the_look_ahead_come_back():
    size = 70_000  # one state's arcs exceed a mebibyte
    labels = np.arange(1, size + 1)
    many = Fst.from_arcs(
        0, np.array([1.0, 0.0]), np.zeros(size, int), labels, labels / 7, np.ones(size, int)
    )
    assert_same(read_fst(Reader(io.BytesIO(bytes_of(write_vector_fst, many)))), many)


@pytest.mark.parametrize("fst", [ACCEPTOR, Fst.linear([3, 1, 2]), Fst.linear([])])
def test_compact_acceptors_come_back_with_their_properties(fst):
    back = read_compact_acceptor(Reader(io.BytesIO(bytes_of(write_compact_acceptor, fst))))
    assert_same(back, fst)
    assert back.properties == all_properties(fst) | Property.EXPANDED


def test_tables_in_text_and_binary(tmp_path):
    for kind in ("ark", "ark,t"):
        with TableWriter(f"{kind}:{tmp_path}/fsts", FST) as writer:
            writer.write("a", TRANSDUCER)
            writer.write("b", ACCEPTOR)
        items = dict(SequentialTableReader(f"ark:{tmp_path}/fsts", FST))
        assert_same(items["a"], TRANSDUCER)
        if kind == "ark":
            assert_same(items["b"], ACCEPTOR)
        else:  # as in Kaldi, the start's lines come first
            assert items["b"].start == 1


def test_text_begins_with_the_start_and_leaves_out_zero_weights():
    assert bytes_of(write_fst_text, ACCEPTOR).decode() == (
        "\n1\t0\t1\t1\n1\t2\t3\t3\t2\n0\t2\t2\t2\t0.5\n0\t0\t2\t2\t1.5\n2\t0.25\n\n"
    )


PROPERTIES = {
    "a cycle through the start, weighted": (
        Fst.from_lists(0, [0.0], [[(1, 1, 0.5, 0)]]),
        Property.CYCLIC | Property.WEIGHTED_CYCLES | Property.INITIAL_CYCLIC | Property.WEIGHTED,
    ),
    "a cycle off the start, unweighted": (
        Fst.from_lists(0, [0.0, 0.0], [[(1, 1, 0.5, 1)], [(1, 1, 0.0, 1)]]),
        Property.CYCLIC | Property.UNWEIGHTED_CYCLES,
    ),
    "a string": (Fst.linear([1, 2]), Property.STRING | Property.TOP_SORTED | Property.ACYCLIC),
    "a state that leads nowhere": (
        Fst.from_lists(0, [0.0, NOT_FINAL], [[(1, 1, 0.0, 1)], []]),
        Property.NOT_COACCESSIBLE | Property.ACCESSIBLE,
    ),
    "a state nobody reaches": (
        Fst.from_lists(1, [NOT_FINAL, 0.0], [[(1, 1, 0.0, 1)], []]),
        Property.NOT_ACCESSIBLE | Property.COACCESSIBLE,
    ),
    "labels unsorted, one twice": (
        Fst.from_lists(0, [0.0, 0.0], [[(2, 2, 0, 1), (1, 1, 0, 1), (2, 2, 1, 1)], []]),
        Property.NON_I_DETERMINISTIC | Property.NOT_I_LABEL_SORTED | Property.ACCEPTOR,
    ),
}


@pytest.mark.parametrize("name", PROPERTIES)
def test_properties(name):
    fst, expected = PROPERTIES[name]
    assert all_properties(fst) & expected == expected


def damage(place: int, code: str, value: object) -> bytes:
    data = bytearray(bytes_of(write_vector_fst, ACCEPTOR))
    struct.pack_into(code, data, place, value)
    return bytes(data)


START, NUM_STATES, FIRST_STATE = 42, 50, 66
BAD = {
    "another file": (b"what is this?", "magic number"),
    "other arcs": (
        bytes_of(write_vector_fst, ACCEPTOR).replace(b"standard", b"lattice4"),
        "standard arcs",
    ),
    "another kind": (bytes_of(write_vector_fst, ACCEPTOR).replace(b"vector", b"ngrams"), "ngrams"),
    "a start that is none": (damage(START, "<q", 7), "starts in state 7"),
    "states that are not there": (damage(NUM_STATES, "<q", 1 << 60), "end of the stream"),
    "fewer than no states": (damage(NUM_STATES, "<q", -5), "-5 states"),
    "arcs that are not there": (damage(FIRST_STATE + 4, "<q", 1 << 50), "arcs of state 0"),
    "an arc to nowhere": (damage(FIRST_STATE + 24, "<i", 9), "leads to state 9"),
    "a negative label": (damage(FIRST_STATE + 12, "<i", -9), "negative label"),
    "a weight that is none": (damage(FIRST_STATE + 20, "<f", np.nan), "not a number"),
    "cut short": (bytes_of(write_vector_fst, ACCEPTOR)[:-7], "end of the stream"),
    "three fields": (b"\n0 1 2\n\n", "bad line"),
    "a word": (b"\n0 1 2 x\n\n", "bad line"),
    "one huge state": (b"\n0 2000000000 1 1\n\n", "2000000000"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_in_one_line(name, tmp_path):
    data, why = BAD[name]
    (tmp_path / "bad.fst").write_bytes(data)
    with pytest.raises(DataError, match=why):
        load_fst(str(tmp_path / "bad.fst"))


def test_saving_writes_a_file_that_says_nothing_it_does_not_know(tmp_path):
    save_fst(f"{tmp_path}/x.fst", ACCEPTOR)
    assert load_fst(f"{tmp_path}/x.fst").properties == Property.EXPANDED | Property.MUTABLE

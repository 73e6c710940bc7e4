"""Acoustic models: transition models from trees and topologies, round trips, priors."""

import struct

import numpy as np
import pytest

from nnet3tools.errors import DataError
from nnet3tools.io.stream import Reader
from nnet3tools.nnet.am_nnet import AmNnet
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.hmm.topology import HmmTopology
from nnet3tools.nnet.hmm.transition_model import TransitionModel
from nnet3tools.nnet.hmm.tree import ContextDependency
from nnet3tools.nnet.model_file import load_nnet
from nnet3tools.nnet.nnet import Nnet
from support.streams import bytes_reader, to_bytes

TOPOLOGY = """<Topology> <TopologyEntry> <ForPhones> 1 2 </ForPhones>
<State> 0 <PdfClass> 0 <Transition> 0 0.75 <Transition> 1 0.25 </State>
<State> 1 <PdfClass> 1 <Transition> 1 0.5 <Transition> 2 0.5 </State>
<State> 2 </State> </TopologyEntry>
{} </Topology>
"""

CHAIN_ENTRY = """<TopologyEntry> <ForPhones> 3 </ForPhones>
<State> 0 <ForwardPdfClass> 0 <SelfLoopPdfClass> 1 <Transition> 0 0.5 <Transition> 1 0.5 </State>
<State> 1 </State> </TopologyEntry>"""

# A window of 3 phones: phone 1 has one pdf a class; phone 2's first class depends on whether its
# left neighbour is phone 1; phone 3 has pdfs 5/6 (left is 1 or not) and 7/8 (likewise).
TREE = """ContextDependency 3 1 ToPdf TE 1 4 ( NULL
TE -1 2 ( CE 0 CE 1 )
TE -1 2 ( SE 0 [ 1 ] { CE 2 CE 3 } CE 4 )
TE -1 2 ( SE 0 [ 1 ] { CE 5 CE 6 } SE 0 [ 1 ] { CE 7 CE 8 } )
) EndContextDependency """


def text_reader(text: str) -> Reader:
    return bytes_reader(text.encode())


def make(extra: str = CHAIN_ENTRY) -> TransitionModel:
    tree = ContextDependency.read(text_reader(TREE))
    topology = HmmTopology.read(text_reader(TOPOLOGY.format(extra)))
    return TransitionModel.from_tree(tree, topology)


def test_transition_states_of_a_tree() -> None:
    model = make()
    assert model.tuples.tolist() == [
        [1, 0, 0, 0],
        [1, 1, 1, 1],
        [2, 0, 2, 2],
        [2, 0, 3, 3],
        [2, 1, 4, 4],
        [3, 0, 5, 7],  # never 5 with 8: both ask the same question of the context
        [3, 0, 6, 8],
    ]
    np.testing.assert_allclose(np.exp(model.log_probs[1:5]), [0.75, 0.25, 0.5, 0.5], rtol=1e-6)
    assert len(model.log_probs) == 1 + 2 * 7
    assert model.num_pdfs == 9


def test_binary_tree_equals_text_tree() -> None:
    def int32(value: int) -> bytes:
        return struct.pack("<bi", 4, value)

    def table(key: int, *children: bytes) -> bytes:
        size = struct.pack("<bI", -4, len(children))
        return b"TE " + int32(key) + size + b"( " + b"".join(children) + b") "

    split = b"SE " + int32(0) + int32(1) + struct.pack("<i", 1)
    split += b"{ CE " + int32(2) + b"CE " + int32(3) + b"} "
    data = b"\0BContextDependency " + int32(3) + int32(1) + b"ToPdf "
    data += table(1, b"NULL ", table(-1, b"CE " + int32(0)), table(-1, split))
    data += b"EndContextDependency "
    text = "ContextDependency 3 1 ToPdf TE 1 3 ( NULL TE -1 1 ( CE 0 ) TE -1 1 ( SE 0 [ 1 ]\n"
    text += "{ CE 2 CE 3 } ) ) EndContextDependency "
    expected = ContextDependency.read(text_reader(text))
    assert ContextDependency.read(bytes_reader(data)) == expected


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("extra", [CHAIN_ENTRY, ""])
def test_transition_model_round_trip(binary: bool, extra: str) -> None:
    model = make(extra)
    data = to_bytes(model, binary)
    assert (b"<Tuples>" in data) == bool(extra)
    again = TransitionModel.read(bytes_reader(data))
    np.testing.assert_array_equal(again.tuples, model.tuples)
    assert to_bytes(again, binary) == data


@pytest.mark.parametrize("binary", [True, False])
def test_truncated_transition_model(binary: bool) -> None:
    data = to_bytes(make(), binary)
    for size in range(3, len(data) - 2):
        with pytest.raises(DataError):
            TransitionModel.read(bytes_reader(data[:size]))


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("1 0 0 0", "9 0 0 0", "does not fit the topology"),
        ("<Tuples> 7", "<Tuples> -1", "transition states"),
        ("<State> 1 <F", "<State> 7 <F", "State"),
        ("<Transition> 1 0.25", "<Transition> 9 0.25", "states"),
        ("<Transition> 1 0.25", "<Transition> 1 0", "not positive"),
        ("\n1 2 \n", "\n1 1 \n", "two entries"),
    ],
)
def test_contradictions_are_data_errors(old: str, new: str, what: str) -> None:
    text = to_bytes(make(), False).decode()
    assert old in text
    with pytest.raises(DataError, match=what):
        TransitionModel.read(text_reader(text.replace(old, new, 1)))


def make_am() -> AmNnet:
    config = (
        "input-node name=input dim=3\n"
        "component name=a type=AffineComponent input-dim=3 output-dim=9"
        "\ncomponent-node name=a component=a input=input\noutput-node name=output input=a\n"
    )
    nnet = Nnet.from_config(parse_config_lines(config))
    return AmNnet(make(), nnet, 1, 2)


@pytest.mark.parametrize("binary", [True, False])
def test_acoustic_model_round_trip_and_as_raw_network(binary: bool) -> None:
    model = make_am()
    model.set_priors(np.linspace(0.1, 0.9, 9, dtype=np.float32))
    data = to_bytes(model, binary)
    again = AmNnet.read(bytes_reader(data))
    assert (again.left_context, again.right_context) == (1, 2)
    assert to_bytes(again, binary) == data
    assert load_nnet(bytes_reader(data)).config_lines() == model.nnet.config_lines()


def test_priors_must_fit_and_are_dropped_with_another_network() -> None:
    model = make_am()
    with pytest.raises(DataError, match="8 priors"):
        model.set_priors(np.ones(8, np.float32))
    model.set_priors(np.full(9, 0.125, np.float32))
    assert "prior-sum: 1.125\nprior-min: 0.125\nprior-max: 0.125\n" in model.info()
    other = Nnet.from_config(
        parse_config_lines("input-node name=input dim=3\noutput-node name=output input=input\n")
    )
    model.set_nnet(other)
    assert len(model.priors) == 0


def test_network_of_an_acoustic_model_must_be_simple() -> None:
    model = make_am()
    other = Nnet.from_config(
        parse_config_lines("input-node name=in dim=3\noutput-node name=output input=in\n")
    )
    with pytest.raises(DataError, match="'input'"):
        model.set_nnet(other)

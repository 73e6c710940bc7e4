"""Chain examples and supervisions as Kaldi's files, what of them is refused, also when encoded."""

import io
from dataclasses import replace

import numpy as np
import pytest

from nnet3tools.chain.example import CHAIN_EXAMPLE, NnetChainExample, NnetChainSupervision
from nnet3tools.chain.example_format import ENCODED_CHAIN_EXAMPLES
from nnet3tools.chain.sequences import output_indexes
from nnet3tools.chain.supervision import Supervision
from nnet3tools.errors import DataError
from nnet3tools.fst.fst import NOT_FINAL, Fst
from nnet3tools.io.stream import Reader
from nnet3tools.training.example import frames_io
from support.chain_examples import LABEL_DIM, acceptor, chain_example
from support.example_archives import archive, outcome
from support.streams import bytes_of

FRAMES = 3
PLAIN = Supervision(0.5, 1, FRAMES, 4, Fst.linear([1, 4, 2]))
LOOP = Fst.from_lists(0, [NOT_FINAL, 0.25], [[(1, 1, 0.5, 1)], [(2, 2, 0.7, 1)]])
E2E = Supervision(1.0, 2, FRAMES, 4, Fst.empty(), (LOOP, Fst.linear([3, 3, 3])))
ALIGNED = replace(PLAIN, alignment_pdfs=np.array([0, 3, 1], np.int32))
NO_WEIGHTS = np.zeros(0, np.float32)


def example_of(supervision: Supervision, weights: np.ndarray = NO_WEIGHTS) -> NnetChainExample:
    indexes = output_indexes(supervision.num_sequences, FRAMES, 0, 3)
    output = NnetChainSupervision("output", indexes, supervision, weights)
    return NnetChainExample([frames_io("input", -1, np.ones((11, 2), np.float32))], [output])


def written(example: NnetChainExample, binary: bool = True) -> bytes:
    return bytes_of(CHAIN_EXAMPLE.write_object, example, binary=binary)


def read(data: bytes) -> NnetChainExample:
    return CHAIN_EXAMPLE.read_object(Reader(io.BytesIO(data)))


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(
    "example", [example_of(PLAIN, np.array([1, 0.5, 0], "f")), example_of(E2E), example_of(ALIGNED)]
)
def test_examples_come_back(example, binary):
    data = written(example, binary)
    back = read(data)
    assert written(back, binary) == data
    assert back.size == 11
    assert (back.outputs[0].first_frame, back.outputs[0].frame_skip) == (0, 3)


def test_old_examples_have_weights_as_bytes():
    data = written(example_of(PLAIN, np.array([1, 0, 1], "f")))
    at = data.index(b"<DW2>")
    old = data[:at] + b"<DW> \1\3\0\0\0\xff\0\x33</NnetChainSup> </Nnet3ChainEg> "
    np.testing.assert_allclose(read(old).outputs[0].deriv_weights, [1, 0, 0.2])


SPLIT = Fst.from_lists(
    0, [NOT_FINAL] * 3 + [0.0], [[(1, 1, 0, 1), (2, 2, 0, 2)], [(1, 1, 0, 3)], [(2, 2, 0, 3)], []]
)


def test_times_of_states():
    supervision = Supervision(1.0, 1, 2, 4, SPLIT)
    assert supervision.state_times().tolist() == [0, 1, 1, 2]


UNTIMED = {
    "an epsilon": (Fst.linear([1, 0, 2]), "epsilon"),
    "a cycle": (LOOP, "arc back"),
    "paths of two lengths": (
        Fst.from_lists(
            0, [NOT_FINAL] * 2 + [0], [[(1, 1, 0, 1), (1, 1, 0, 2)], [(1, 1, 0, 2)], []]
        ),
        "different lengths",
    ),
    "a state that no path reaches": (
        Fst.from_lists(0, [NOT_FINAL, 0, 0], [[(1, 1, 0, 1)], [], []]),
        "different lengths",
    ),
    "two times of ending": (
        Fst.from_lists(0, [NOT_FINAL, 0, 0], [[(1, 1, 0, 1)], [(1, 1, 0, 2)], []]),
        "2 times",
    ),
    "another length": (Fst.linear([1, 2]), "2 frames long, expected 1 x 3"),
}


@pytest.mark.parametrize("name", UNTIMED)
def test_supervisions_without_times_are_refused(name):
    fst, why = UNTIMED[name]
    with pytest.raises(DataError, match=why):
        replace(PLAIN, fst=fst).state_times()


BAD = {
    "a label beyond the model's": (example_of(replace(PLAIN, label_dim=3)), "label 4"),
    "more weights than rows": (example_of(PLAIN, np.ones(4, "f")), "4 derivative weights"),
    "a negative weight": (example_of(PLAIN, -np.ones(3, "f")), "negative derivative weight"),
    "no labels": (example_of(replace(PLAIN, label_dim=0)), "with 0 labels"),
    "no sequences": (example_of(replace(PLAIN, num_sequences=0)), "0 sequences"),
    "fewer frames than rows": (example_of(replace(PLAIN, frames_per_sequence=2)), "has 3 rows"),
    "no output": (NnetChainExample(example_of(PLAIN).inputs, []), "0 outputs"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_examples_are_refused(name):
    example, why = BAD[name]
    with pytest.raises(DataError, match=why):
        read(written(example))


@pytest.mark.parametrize("supervision", [PLAIN, E2E])
def test_truncated_examples_are_refused(supervision):
    data = written(example_of(supervision))
    for size in range(2, len(data) - 1, 7):
        with pytest.raises(DataError):
            read(data[:size])


def unsound(name: str) -> Supervision:
    """A supervision that the full reader refuses."""
    fst = acceptor(4)
    labels, weights, targets = fst.ilabels.copy(), fst.weights.copy(), fst.nextstates.copy()
    at = len(labels) // 2
    match name:
        case "a label above the dimension":
            labels[at] = LABEL_DIM + 1
        case "a negative label":
            labels[at] = -2
        case "a weight that is no number":
            weights[at] = np.nan
        case "a weight of minus infinity":
            weights[at] = -np.inf
        case "a state that is not there":
            targets[at] = fst.num_states
    fst = replace(fst, ilabels=labels, olabels=labels, weights=weights, nextstates=targets)
    return Supervision(1.0, 1, 4, LABEL_DIM, replace(fst, properties=0x56A5A95A0000))


@pytest.mark.parametrize(
    "name",
    [
        "a label above the dimension",
        "a negative label",
        "a weight that is no number",
        "a weight of minus infinity",
        "a state that is not there",
    ],
)
def test_unsound_acceptors_have_the_error_of_the_full_reader(name) -> None:
    sound = chain_example(0, False)
    output = replace(sound.outputs[0], supervision=unsound(name))
    data = archive([sound] * 9 + [replace(sound, outputs=[output])])
    found, error = outcome(ENCODED_CHAIN_EXAMPLES, data)
    assert (len(found), error) == (9, outcome(CHAIN_EXAMPLE, data)[1])
    assert error


def test_a_negative_derivative_weight_is_refused() -> None:
    sound = chain_example(1, False)
    (output,) = sound.outputs
    output = replace(output, deriv_weights=-output.deriv_weights)
    data = archive([sound] * 9 + [replace(sound, outputs=[output])])
    assert "negative derivative weight" in outcome(ENCODED_CHAIN_EXAMPLES, data)[1]

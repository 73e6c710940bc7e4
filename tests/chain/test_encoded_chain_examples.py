"""Chain examples that pass as bytes, changed and merged many at a time: as if each were read."""

import io
import random
from dataclasses import replace

import numpy as np
import pytest

from nnet3tools.chain.encoded_examples import ENCODED_CHAIN_EXAMPLES
from nnet3tools.chain.example import (
    CHAIN_EXAMPLE,
    NnetChainExample,
)
from nnet3tools.chain.merging import merge_chain_examples
from nnet3tools.chain.selection import (
    CHAIN_CHANGES,
    ChainSelection,
    rename_output,
    scale_supervision,
)
from nnet3tools.chain.supervision import Supervision
from nnet3tools.errors import DataError
from nnet3tools.io.encoded import EncodedRecord
from nnet3tools.io.stream import Reader, Writer
from nnet3tools.io.table_reader import iterate_archive
from nnet3tools.training.batched_changes import BatchedChanges
from nnet3tools.training.selection import ContextCutter
from support.chain_examples import LABEL_DIM, acceptor, chain_example


def written(value) -> bytes:
    file = io.BytesIO()
    ENCODED_CHAIN_EXAMPLES.write(Writer(file), value)
    return file.getvalue()


def archive(values) -> bytes:
    file = io.BytesIO()
    for i, value in enumerate(values):
        file.write(f"utt-{'x' * (i % 5)}{i} \0B".encode() + written(value))
    return file.getvalue()


class Trickle(io.BytesIO):
    """A pipe that gives some bytes at a time, cutting examples anywhere."""

    def read1(self, size: int | None = -1) -> bytes:
        return super().read1(min(size or 1, 999))


def read(holder, data: bytes, stream=io.BytesIO) -> list:
    return [value for _, value in iterate_archive(Reader(stream(data)), holder)]


def outcome(holder, data: bytes) -> tuple[list[tuple[str, bytes]], str]:
    """Keys and bytes as far as an archive can be read, and the error at its end, if any."""
    found = []
    try:
        for key, value in iterate_archive(Reader(io.BytesIO(data), "egs"), holder):
            found.append((key, written(value)))
    except DataError as error:
        return found, str(error)
    return found, ""


@pytest.fixture(params=[False, True], ids=["plain", "end to end"])
def values(request) -> list[NnetChainExample]:
    return [chain_example(i, request.param) for i in range(48)]


@pytest.mark.parametrize("stream", [io.BytesIO, Trickle])
def test_all_pass_as_bytes(values, stream) -> None:
    data = archive(values)
    found = read(ENCODED_CHAIN_EXAMPLES, data, stream)
    assert all(isinstance(value, EncodedRecord) for value in found)
    assert archive(found) == data
    assert [written(value.whole()) for value in found] == list(map(written, values))


def test_garbled_archives_have_the_error_of_the_full_reader(values) -> None:
    data = archive(values[:12])
    read(ENCODED_CHAIN_EXAMPLES, archive(values))  # from here on layouts are known
    generator = random.Random(3)
    for _ in range(400):
        garbled = bytearray(data)
        garbled[generator.randrange(len(data))] = generator.choice([0, 1, 4, 8, 32, 127, 128, 255])
        if generator.random() < 0.1:
            garbled = garbled[: generator.randrange(len(data))]
        (found, error), (expected, other) = (
            outcome(holder, bytes(garbled)) for holder in (ENCODED_CHAIN_EXAMPLES, CHAIN_EXAMPLE)
        )
        assert error == other
        assert [key for key, _ in found] == [key for key, _ in expected]
        assert all(value in garbled or (key, value) in expected for key, value in found)


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


CHANGES = {
    "shift": ChainSelection(1, ContextCutter()),
    "far away": ChainSelection(-400, ContextCutter()),
    "less context": ChainSelection(0, ContextCutter(1, 2)),
    "both": ChainSelection(2, ContextCutter(2, -1)),
    "nothing": ChainSelection(0, ContextCutter()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_together_as_changed_one_by_one(values, change) -> None:
    selection = CHANGES[change]
    changes, found, expected = BatchedChanges(CHAIN_CHANGES, selection), [], []
    for i, (value, given) in enumerate(
        zip(values, read(ENCODED_CHAIN_EXAMPLES, archive(values)), strict=True)
    ):
        weight, name = (1.0, 0.5, 1.7)[i % 3], f"output-{i % 2}"
        one = selection.apply(scale_supervision(value, "key", weight), "key")
        expected.append(rename_output(one, "key", name) if i % 5 else one)
        changed = changes.select(changes.scale(given, "key", weight), "key")
        found.append(changes.rename(changed, "key", name) if i % 5 else changed)
    made = list(changes.finish(found))
    assert [written(value) for value in made] == [written(value) for value in expected]
    # What was made knows where its parts are.
    assert written(merge_chain_examples(made[17::12], False)) == written(
        merge_chain_examples(expected[17::12], False)
    )


def test_many_new_names_take_no_more_memory(values, monkeypatch) -> None:
    monkeypatch.setattr("nnet3tools.training.batched_changes._MAX_ROW_MAPS", 9)
    changes, made = BatchedChanges(CHAIN_CHANGES, CHANGES["nothing"]), []
    for i, given in enumerate(read(ENCODED_CHAIN_EXAMPLES, archive(values))):
        made += changes.finish([changes.rename(given, "key", f"output-{i}")])
        assert changes.num_kept <= 12
    expected = [rename_output(value, "key", f"output-{i}") for i, value in enumerate(values)]
    assert [written(value) for value in made] == [written(value) for value in expected]


@pytest.mark.parametrize("compressed", [False, True])
def test_merged_together_as_merged_one_by_one(values, compressed) -> None:
    given = read(ENCODED_CHAIN_EXAMPLES, archive(values))
    for kind in range(4):
        merged = [merge_chain_examples(some[kind::4], compressed) for some in (values, given)]
        assert written(merged[0]) == written(merged[1])


def test_single_examples_and_bytes_merge_in_order(values) -> None:
    given = read(ENCODED_CHAIN_EXAMPLES, archive(values))
    mixed = [given[1], given[5], values[9], values[13], given[17], given[1]]
    expected = [values[i] for i in (1, 5, 9, 13, 17, 1)]
    assert written(merge_chain_examples(mixed, False)) == written(
        merge_chain_examples(expected, False)
    )

"""Examples found by their layouts and taken apart together: as if each were read by itself."""

import io
import itertools
import random
from collections.abc import Iterator

import numpy as np
import pytest

from nnet3tools import draws
from nnet3tools.errors import DataError
from nnet3tools.io.compressed import CompressionMethod
from nnet3tools.io.encoded import EncodedRecord
from nnet3tools.io.general_matrix import GeneralMatrix, compress
from nnet3tools.io.sparse import SparseMatrix
from nnet3tools.io.stream import Reader, Writer
from nnet3tools.io.table_reader import iterate_archive
from nnet3tools.tensor.cpu import choice
from nnet3tools.training import same_layout
from nnet3tools.training.batched_changes import FRAME_CHANGES, BatchedChanges
from nnet3tools.training.encoded_examples import ENCODED_EXAMPLES
from nnet3tools.training.example import EXAMPLE, NnetExample, frames_io, structure_key
from nnet3tools.training.merging import MERGEABLE_FRAMES, ExampleMerger, merge_examples
from nnet3tools.training.minibatch_rules import ExampleMergingOptions
from nnet3tools.training.same_layout import (
    BATCHED_EXAMPLES,
    DECODABLE_EXAMPLES,
    SameLayoutBatch,
    prototype,
)
from nnet3tools.training.selection import FrameSelection
from support.native_kernels import needs_compiler

NUM = 24
RNG = np.random.default_rng(7)


def _full(rows: int) -> GeneralMatrix:
    return (RNG.normal(size=(rows, 5)) * 10).astype(np.float32)


def _by_columns(rows: int) -> GeneralMatrix:
    return compress(np.asarray(_full(rows)), CompressionMethod.SPEECH_FEATURE)


def _two_bytes(rows: int) -> GeneralMatrix:
    return compress(np.asarray(_full(rows)), CompressionMethod.TWO_BYTE_AUTO)


def _one_byte(rows: int) -> GeneralMatrix:
    return compress(np.asarray(_full(rows)), CompressionMethod.ONE_BYTE_AUTO)


def _one_hot(rows: int) -> GeneralMatrix:
    return SparseMatrix.from_counts([1] * rows, RNG.integers(0, 300, rows), RNG.random(rows), 300)


def _uneven(rows: int) -> GeneralMatrix:
    counts = RNG.integers(0, 6, rows)
    counts[0] = 5  # so that a pattern that has been seen is soon one for all of them
    total = int(counts.sum())
    return SparseMatrix.from_counts(counts, RNG.integers(0, 9, total), RNG.random(total), 9)


KINDS = {
    "full": _full,
    "by columns": _by_columns,
    "two bytes": _two_bytes,
    "one byte": _one_byte,
    "one hot": _one_hot,
    "uneven": _uneven,
}
PAIRS = [(a, b) for a, b in itertools.product(KINDS, KINDS) if (a < b or a in ("full", "uneven"))]


def examples(first: str, second: str) -> list[NnetExample]:
    """Examples of four layouts, in turns: of two contexts and two numbers of frames."""
    found = []
    for i in range(NUM):
        left = 3 if i % 3 else 4
        ios = [frames_io("input", -left, KINDS[first](11 + left))]
        found.append(NnetExample([*ios, frames_io("output", 0, KINDS[second](8 + i % 2))]))
    return found


def archive(values: list[NnetExample]) -> bytes:
    file = io.BytesIO()
    writer = Writer(file)
    for i, value in enumerate(values):
        writer.write_text(f"utt-{'x' * (i % 5)}{i} ")
        EXAMPLE.write_object(writer, value)
    return file.getvalue()


class Trickle(io.BytesIO):
    """A pipe that gives some bytes at a time, cutting examples anywhere."""

    def read1(self, size: int | None = -1) -> bytes:
        return super().read1(min(size or 1, 999))


def written(value: NnetExample | EncodedRecord) -> bytes:
    file = io.BytesIO()
    ENCODED_EXAMPLES.write(Writer(file), value)
    return file.getvalue()


def outcome(holder, data: bytes, stream=io.BytesIO) -> tuple[list[tuple[str, bytes]], str]:
    """Keys and bytes of an archive as far as it can be read, and the error at its end, if any."""
    found = []
    try:
        for key, value in iterate_archive(Reader(stream(data), "egs"), holder):
            found.append((key, written(value)))
    except DataError as error:
        return found, str(error)
    return found, ""


@pytest.mark.parametrize("stream", [io.BytesIO, Trickle])
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_all_bytes_and_keys_pass_whatever_is_at_hand(first, second, stream) -> None:
    values = examples(first, second)
    data = archive(values)
    expected = [written(value) for value in values]
    found, error = outcome(ENCODED_EXAMPLES, data, stream)
    assert ([value for _, value in found], error) == (expected, "")
    assert [key for key, _ in found] == [key for key, _ in outcome(EXAMPLE, data)[0]]


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_merged_together_as_merged_one_by_one(first, second, compressed) -> None:
    data = archive(examples(first, second)) * 4
    whole = [value for _, value in iterate_archive(Reader(io.BytesIO(data)), EXAMPLE)]
    alike = [value for _, value in iterate_archive(Reader(io.BytesIO(data)), DECODABLE_EXAMPLES)]
    assert sum(isinstance(value, EncodedRecord) for value in alike) > NUM
    kinds = [structure_key(prototype(value)) for value in alike]
    assert kinds == list(map(structure_key, whole))
    for kind in set(kinds):
        places = [i for i, other in enumerate(kinds) if other == kind]
        merged = [merge_examples([some[i] for i in places], compressed) for some in (whole, alike)]
        assert written(merged[0]) == written(merged[1])


def test_many_new_names_take_no_more_memory(monkeypatch) -> None:
    monkeypatch.setattr("nnet3tools.training.batched_changes._MAX_ROW_MAPS", 9)
    data = archive(examples("full", "one hot")) * 4
    outcomes = []
    for holder in (EXAMPLE, DECODABLE_EXAMPLES):
        changes, made = BatchedChanges(FRAME_CHANGES, FrameSelection()), []
        for i, (key, value) in enumerate(iterate_archive(Reader(io.BytesIO(data)), holder)):
            made += changes.finish([changes.rename(value, key, f"output-{i}")])
            assert changes.num_kept <= 12
        outcomes.append([written(value) for value in made])
    assert outcomes[0] == outcomes[1]


@needs_compiler
@pytest.mark.parametrize("first", ["by columns", "two bytes", "one byte"])
def test_compiled_code_gives_the_same_bytes(first, monkeypatch) -> None:
    monkeypatch.setattr(choice, "_chosen", choice.CpuKernels.NATIVE)
    data = archive(examples(first, "uneven")) * 4
    outcomes = []
    for worth_compiling in (1 << 60, 0):
        monkeypatch.setattr(same_layout, "_WORTH_COMPILING", worth_compiling)
        values = [
            value for _, value in iterate_archive(Reader(io.BytesIO(data)), DECODABLE_EXAMPLES)
        ]
        outcomes.append(minibatches(DECODABLE_EXAMPLES, values, "5"))
        draws.seed(5)
        changes = BatchedChanges(FRAME_CHANGES, CHANGES["one frame"])
        scaled = [changes.scale(value, "key", 0.5) for value in values]
        chosen = [changes.select(value, "key") for value in scaled]
        outcomes.append([written(value) for value in changes.finish(chosen)])
    assert outcomes[:2] == outcomes[2:]


def minibatches(holder, values, sizes: str) -> tuple[list[tuple[str, bytes]], int]:
    """What is merged of a table's values, and how many examples there were."""
    found: list[tuple[str, bytes]] = []
    options = ExampleMergingOptions(minibatch_size=sizes)
    merger = ExampleMerger(
        MERGEABLE_FRAMES, options, lambda key, value: found.append((key, written(value)))
    )
    for value in values:
        merger.accept(value)
    merger.finish()
    return found, merger.num_accepted


@pytest.mark.parametrize("sizes", ["7", "64", "5,16:30", "1"])
@pytest.mark.parametrize("stream", [io.BytesIO, Trickle])
@pytest.mark.parametrize("second", ["one hot", "uneven"])
def test_blocks_become_the_minibatches_of_single_examples(second, stream, sizes) -> None:
    values = sorted(examples("by columns", second), key=structure_key) * 3
    data = archive(values)
    list(iterate_archive(Reader(io.BytesIO(data)), ENCODED_EXAMPLES))  # its layouts are known now
    blocks = [value for _, value in iterate_archive(Reader(stream(data)), BATCHED_EXAMPLES)]
    if stream is io.BytesIO:
        assert max(len(block) for block in blocks if isinstance(block, SameLayoutBatch)) >= 4
    assert minibatches(BATCHED_EXAMPLES, blocks, sizes) == minibatches(EXAMPLE, values, sizes)


def test_blocks_and_single_examples_of_one_layout_merge_in_order() -> None:
    values = examples("full", "uneven")[1::6]
    data = archive(values * 4)
    list(iterate_archive(Reader(io.BytesIO(data)), ENCODED_EXAMPLES))
    *_, (_, block) = iterate_archive(Reader(io.BytesIO(archive(values * 2))), BATCHED_EXAMPLES)
    assert isinstance(block, SameLayoutBatch)
    block = block.part(len(block) - len(values), len(block))
    singles = [value for _, value in iterate_archive(Reader(io.BytesIO(data)), DECODABLE_EXAMPLES)]
    mixed = [block, singles[-1], singles[-2], block.part(1, 3), values[0]]
    expected = [*values, values[3], values[2], values[1], values[2], values[0]]
    assert written(merge_examples(mixed, False)) == written(merge_examples(expected, False))


def _garbled(data: bytes, generator: random.Random) -> Iterator[bytes]:
    for _ in range(150):
        changed = bytearray(data)
        changed[generator.randrange(len(data))] = generator.choice([0, 4, 8, 32, 125, 127, 255])
        yield bytes(changed)
    for _ in range(20):
        yield data[: generator.randrange(len(data))]


@pytest.mark.parametrize(("first", "second"), [("full", "one hot"), ("by columns", "uneven")])
def test_garbled_archives_have_the_error_of_the_full_reader(first, second) -> None:
    data = archive(examples(first, second))
    outcome(ENCODED_EXAMPLES, data)  # from here on its layouts are known
    for garbled in _garbled(data, random.Random(first)):
        (expected, error), (found, other) = (
            outcome(EXAMPLE, garbled),
            outcome(ENCODED_EXAMPLES, garbled),
        )
        assert other == error
        assert [key for key, _ in found] == [key for key, _ in expected]
        # What is right passes as it is; in a form that Kaldi does not write (two spaces after a
        # token, say), as the writer puts it.
        assert all(
            value in garbled or value == rewritten
            for (_, value), (_, rewritten) in zip(found, expected, strict=True)
        )


def test_a_column_beyond_the_dimension_matches_no_layout() -> None:
    def one(column: int, dim: int) -> NnetExample:
        return NnetExample(
            [frames_io("output", 0, SparseMatrix.from_counts([1], [column], [1], dim))]
        )

    for dim in (1, 255, 256, 257, 65536, 70000, 1 << 24, 0x12345678):
        outcome(ENCODED_EXAMPLES, archive([one(0, dim)] * 10))
        columns = {c for c in (0, 1, 254, 255, 256, 65535, 65536, dim // 2, dim - 1) if c < dim}
        data = archive([one(column, dim) for column in sorted(columns)])
        assert len(outcome(ENCODED_EXAMPLES, data)[0]) == len(columns)
        for column in (dim, dim + 1, dim + 255, -1, 0x7FFFFFFF):
            data = archive([one(column, dim)])
            assert outcome(ENCODED_EXAMPLES, data) == outcome(EXAMPLE, data)
            assert f"column {column} of a sparse matrix" in outcome(EXAMPLE, data)[1]


CHANGES = {
    "one frame": FrameSelection("2"),
    "a frame that some lack": FrameSelection("8"),
    "any frame": FrameSelection("random", left_context=2, right_context=1),
    "less context": FrameSelection(left_context=1),
    "far away": FrameSelection(frame_shift=-300),
    "nothing": FrameSelection(),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_changed_together_as_changed_one_by_one(first, second, change) -> None:
    data = archive(examples(first, second)) * 4
    outcomes = []
    for holder in (EXAMPLE, DECODABLE_EXAMPLES):
        draws.seed(5)
        changes, found = BatchedChanges(FRAME_CHANGES, CHANGES[change]), []
        for i, (key, value) in enumerate(iterate_archive(Reader(io.BytesIO(data)), holder)):
            scaled = changes.scale(value, key, (1.0, 0.5, 1.7)[i % 3])
            selected = changes.select(scaled, key)
            if selected is not None:
                found.append(changes.rename(selected, key, "output-1") if i % 2 else selected)
        outcomes.append([written(value) for value in changes.finish(found)])
    assert outcomes[0] == outcomes[1]

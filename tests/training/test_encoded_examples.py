"""Examples that pass as bytes or are taken apart together: as if each were read by itself."""

import io
import itertools
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

from nnet3tools import draws
from nnet3tools.chain.example import CHAIN_EXAMPLE, NnetChainExample
from nnet3tools.chain.example_format import ENCODED_CHAIN_EXAMPLES
from nnet3tools.chain.merging import merge_chain_examples
from nnet3tools.chain.selection import CHAIN_CHANGES, ChainSelection
from nnet3tools.errors import DataError
from nnet3tools.io import encoded
from nnet3tools.io.byte_walk import ByteWalk, OtherFormError
from nnet3tools.io.compressed import CompressionMethod
from nnet3tools.io.encoded import EncodedRecord, LayoutTable
from nnet3tools.io.general_matrix import GeneralMatrix, compress
from nnet3tools.io.holders import Holder
from nnet3tools.io.sparse import SparseMatrix
from nnet3tools.io.stream import Reader
from nnet3tools.io.table_reader import iterate_archive
from nnet3tools.tensor.cpu import choice
from nnet3tools.training import same_layout
from nnet3tools.training.batched_changes import FRAME_CHANGES, BatchedChanges
from nnet3tools.training.example import EXAMPLE, NnetExample, NnetIo, frames_io, structure_key
from nnet3tools.training.example_format import ENCODED_EXAMPLES
from nnet3tools.training.merging import MERGEABLE_FRAMES, ExampleMerger, merge_examples
from nnet3tools.training.minibatch_rules import ExampleMergingOptions
from nnet3tools.training.same_layout import (
    BATCHED_EXAMPLES,
    DECODABLE_EXAMPLES,
    SameLayoutBatch,
    prototype,
)
from nnet3tools.training.selection import ContextCutter, FrameSelection
from support.chain_examples import chain_example
from support.example_archives import archive, outcome, read, written
from support.native_kernels import needs_compiler
from support.streams import Trickle
from support.training_helpers import example

NUM = 24
RNG = np.random.default_rng(7)


def _full(rows: int) -> GeneralMatrix:
    return (RNG.normal(size=(rows, 5)) * 10).astype(np.float32)


def _compressed(method: CompressionMethod, rows: int) -> GeneralMatrix:
    return compress(np.asarray(_full(rows)), method)


def _one_hot(rows: int) -> GeneralMatrix:
    return SparseMatrix.from_counts([1] * rows, RNG.integers(0, 300, rows), RNG.random(rows), 300)


def _two_a_row(rows: int) -> GeneralMatrix:
    columns = RNG.integers(0, 9, 2 * rows)
    return SparseMatrix.from_counts([2] * rows, columns, RNG.random(2 * rows), 9)


def _uneven(rows: int) -> GeneralMatrix:
    counts = RNG.integers(0, 6, rows)
    counts[0] = 5  # so that a pattern that has been seen is soon one for all of them
    total = int(counts.sum())
    return SparseMatrix.from_counts(counts, RNG.integers(0, 9, total), RNG.random(total), 9)


KINDS: dict[str, Callable[[int], GeneralMatrix]] = {
    "full": _full,
    "by columns": partial(_compressed, CompressionMethod.SPEECH_FEATURE),
    "two bytes": partial(_compressed, CompressionMethod.TWO_BYTE_AUTO),
    "one byte": partial(_compressed, CompressionMethod.ONE_BYTE_AUTO),
    "one hot": _one_hot,
    "uneven": _uneven,
}
PAIRS = [(a, b) for a, b in itertools.product(KINDS, KINDS) if (a < b or a in ("full", "uneven"))]


def examples(first: str, second: str) -> list[NnetExample]:
    """Examples of six layouts, in turns: of two contexts and two numbers of frames."""
    found = []
    for i in range(NUM):
        left = 3 if i % 3 else 4
        ios = [frames_io("input", -left, KINDS[first](11 + left))]
        found.append(NnetExample([*ios, frames_io("output", 0, KINDS[second](8 + i % 2))]))
    return found


class Family(NamedTuple):
    """How examples of one type are read, changed and merged."""

    full: Holder
    encoded: Holder
    decodable: Holder
    """Reads examples that changes and merging can take apart without reading them in full."""
    changes: Any
    merge: Callable[..., Any]
    selections: dict[str, Any]
    period: int
    """Examples at this distance from each other have one layout."""


FRAMES = Family(
    EXAMPLE, ENCODED_EXAMPLES, DECODABLE_EXAMPLES, FRAME_CHANGES, merge_examples,
    {
        "one frame": FrameSelection("2"),
        "a frame that some lack": FrameSelection("8"),
        "any frame": FrameSelection("random", left_context=2, right_context=1),
        "less context": FrameSelection(left_context=1),
        "far away": FrameSelection(frame_shift=-300),
        "nothing": FrameSelection(),
    },
    6,
)  # fmt: skip
CHAIN = Family(
    CHAIN_EXAMPLE, ENCODED_CHAIN_EXAMPLES, ENCODED_CHAIN_EXAMPLES, CHAIN_CHANGES,
    merge_chain_examples,
    {
        "shift": ChainSelection(1, ContextCutter()),
        "far away": ChainSelection(-400, ContextCutter()),
        "less context": ChainSelection(0, ContextCutter(1, 2)),
        "both": ChainSelection(2, ContextCutter(2, -1)),
        "nothing": ChainSelection(0, ContextCutter()),
    },
    4,
)  # fmt: skip


def _chain_minibatches(is_e2e: bool) -> list[NnetChainExample]:
    """Minibatches of two structures, each more often than a common layout has to be seen."""
    return [
        merge_chain_examples([chain_example(number, is_e2e) for _ in range(3)], True)
        for number in [0, 1] * 10
    ]


JUMPS = np.array([[0, 0, 0], [0, 900, 0], [0, 901, 2]], np.int32)
CASES: dict[str, tuple[Family, Callable[[], list]]] = {
    **{f"{a}, {b}": (FRAMES, partial(examples, a, b)) for a, b in PAIRS},
    "chain": (CHAIN, lambda: [chain_example(i, False) for i in range(48)]),
    "end to end": (CHAIN, lambda: [chain_example(i, True) for i in range(48)]),
}
ODD: dict[str, tuple[Family, Callable[[], list]]] = {
    "two a row": (FRAMES, lambda: [NnetExample([frames_io("a", 0, _two_a_row(3))])] * 4),
    "jumps in t": (FRAMES, lambda: [NnetExample([NnetIo("a", JUMPS, _full(3))])] * 4),
    "minibatch": (FRAMES, lambda: [merge_examples([example(seed=i) for i in range(3)], True)] * 4),
    "chain minibatch": (CHAIN, partial(_chain_minibatches, False)),
    "end-to-end minibatch": (CHAIN, partial(_chain_minibatches, True)),
}


@pytest.fixture(params=[encoded._WORTH_SCANNING, 0], ids=["walked", "scanned"])
def found_by(request, monkeypatch) -> None:
    """Let C find chain examples from the second one on, or Python find all."""
    monkeypatch.setattr(encoded, "_WORTH_SCANNING", request.param)


@pytest.mark.parametrize("stream", [io.BytesIO, partial(Trickle, piece=999)])
@pytest.mark.parametrize("case", CASES | ODD)
@pytest.mark.usefixtures("found_by")
def test_all_bytes_and_keys_pass_whatever_is_at_hand(case, stream) -> None:
    family, build = (CASES | ODD)[case]
    values = build()
    data = archive(values)
    found = read(family.encoded, data, stream)
    assert all(isinstance(value, EncodedRecord) for value in found)
    assert [written(value) for value in found] == [written(value) for value in values]
    texts = [[written(value, binary=False) for value in some] for some in (found, values)]
    assert texts[0] == texts[1]
    keys = [[key for key, _ in outcome(h, data)[0]] for h in (family.encoded, family.full)]
    assert keys[0] == keys[1]


@pytest.mark.parametrize("shape", [(0, 5), (6, 0)])
def test_matrices_without_elements_are_read_in_full(shape) -> None:
    value = NnetExample([frames_io("input", -2, np.zeros(shape, np.float32))])
    (found,) = read(ENCODED_EXAMPLES, archive([value]))
    assert isinstance(found, NnetExample)
    assert written(found) == written(value)


def _garbled(data: bytes, generator: random.Random) -> Iterator[bytes]:
    for _ in range(200):
        changed = bytearray(data)
        changed[generator.randrange(len(data))] = generator.choice([0, 1, 4, 8, 32, 125, 127, 255])
        yield bytes(changed)
    for size in {*range(0, len(data), 1 + len(data) // 60), len(data) - 1}:
        yield data[:size]


@pytest.mark.parametrize("case", ["full, one hot", "by columns, uneven", *list(CASES)[-2:], *ODD])
@pytest.mark.usefixtures("found_by")
def test_garbled_archives_have_the_error_of_the_full_reader(case) -> None:
    family, build = (CASES | ODD)[case]
    values = build()
    read(family.encoded, archive(values))  # from here on its layouts are known
    for garbled in _garbled(archive(values[: family.period]), random.Random(case)):
        (expected, error), (found, other) = (
            outcome(holder, garbled) for holder in (family.full, family.encoded)
        )
        assert other == error
        assert [key for key, _ in found] == [key for key, _ in expected]
        # What is right passes as it is; in a form that Kaldi does not write (two spaces after a
        # token, say), as the writer puts it.
        assert all(
            value in garbled or value == rewritten
            for (_, value), (_, rewritten) in zip(found, expected, strict=True)
        )


def test_a_name_without_an_end_is_none() -> None:
    """Nor does the walk begin anew at the first byte, where one might be."""
    walk = ByteWalk(b"x" * 3000, 5)
    with pytest.raises(OtherFormError):
        walk.name()
    assert walk.at == 5


def test_a_header_that_asks_for_much_gets_nothing() -> None:
    data = written(NnetExample([frames_io("input", 0, _full(6))]))
    huge = data.replace(b"\4" + (6).to_bytes(4, "little"), b"\4\xff\xff\xff\x7f")
    with pytest.raises(DataError, match="expected 2147483647 indexes"):
        ENCODED_EXAMPLES.read(Reader(io.BytesIO(huge), binary=True))


def test_a_column_beyond_the_dimension_matches_no_layout() -> None:
    def one(column: int, dim: int) -> NnetExample:
        return NnetExample(
            [frames_io("output", 0, SparseMatrix.from_counts([1], [column], [1], dim))]
        )

    for dim in (1, 255, 256, 257, 65536, 70000, 1 << 24, 0x12345678):
        read(ENCODED_EXAMPLES, archive([one(0, dim)] * 10))
        columns = {c for c in (0, 1, 254, 255, 256, 65535, 65536, dim // 2, dim - 1) if c < dim}
        data = archive([one(column, dim) for column in sorted(columns)])
        assert len(outcome(ENCODED_EXAMPLES, data)[0]) == len(columns)
        for column in (dim, dim + 1, dim + 255, -1, 0x7FFFFFFF):
            data = archive([one(column, dim)])
            assert outcome(ENCODED_EXAMPLES, data) == outcome(EXAMPLE, data)
            assert f"column {column} of a sparse matrix" in outcome(EXAMPLE, data)[1]


# -- changes


@pytest.mark.parametrize(
    ("case", "change"),
    [(case, change) for case, (family, _) in CASES.items() for change in family.selections],
)
def test_changed_together_as_changed_one_by_one(case, change) -> None:
    family, build = CASES[case]
    data, made = archive(build()) * 4, []
    for holder in (family.full, family.decodable):
        draws.seed(5)
        changes, found = BatchedChanges(family.changes, family.selections[change]), []
        for i, value in enumerate(read(holder, data)):
            selected = changes.select(changes.scale(value, "key", (1.0, 0.5, 1.7)[i % 3]), "key")
            if selected is not None:
                found.append(
                    changes.rename(selected, "key", f"output-{i % 2}") if i % 5 else selected
                )
        made.append(list(changes.finish(found)))
    expected, found = made
    assert [written(value) for value in found] == [written(value) for value in expected]


@pytest.mark.parametrize("change", FRAMES.selections)
@pytest.mark.parametrize("case", [f"{a}, {b}" for a, b in PAIRS[::5]])
def test_selected_in_batches_as_selected_one_by_one(case, change, monkeypatch) -> None:
    monkeypatch.setattr("nnet3tools.training.batched_changes._FEWEST", 2)
    family, build = CASES[case]
    data = archive(list(itertools.chain.from_iterable([one] * 12 for one in build()[:8])))
    outcomes, num_batches = [], 0
    for holder in (family.full, BATCHED_EXAMPLES):
        draws.seed(5)
        changes, found = BatchedChanges(family.changes, family.selections[change]), []
        for key, value in iterate_archive(Reader(io.BytesIO(data), "egs"), holder):
            pairs = [(key, value)]
            if isinstance(value, SameLayoutBatch):
                if (selected := changes.select_all(value)) is not None:
                    num_batches += 1
                    found += zip(*selected, strict=True)
                    continue
                pairs = list(value.records())
            for name, one in pairs:
                if (part := changes.select(one, name)) is not None:
                    found += [(name, written(made)) for made in changes.finish([part])]
        outcomes.append((found, draws.get_state()))
    assert outcomes[0] == outcomes[1]
    assert num_batches > 0 or change == "a frame that some lack"


def test_parts_that_cannot_be_encoded_are_not_selected_together(monkeypatch) -> None:
    data = Reader(io.BytesIO(archive([CASES["full, one hot"][1]()[0]] * 40)), "egs")
    *_, (_, batch) = iterate_archive(data, BATCHED_EXAMPLES)
    monkeypatch.setattr(LayoutTable, "encode", lambda *_: None)
    state = draws.get_state()
    assert BatchedChanges(FRAME_CHANGES, FrameSelection("random")).select_all(batch) is None
    assert draws.get_state() == state


@pytest.mark.parametrize("case", ["full, one hot", "chain", "end to end"])
def test_many_new_names_take_no_more_memory(case, monkeypatch) -> None:
    monkeypatch.setattr("nnet3tools.training.batched_changes._MAX_ROW_MAPS", 9)
    family, build = CASES[case]
    data, outcomes = archive(build()) * 4, []
    for holder in (family.full, family.decodable):
        changes, made = BatchedChanges(family.changes, family.selections["nothing"]), []
        for i, value in enumerate(read(holder, data)):
            made += changes.finish([changes.rename(value, "key", f"output-{i}")])
            assert changes.num_kept <= 12
        outcomes.append([written(value) for value in made])
    assert outcomes[0] == outcomes[1]


# -- merging


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_merged_together_as_merged_one_by_one(case, compressed) -> None:
    family, build = CASES[case]
    data = archive(build()) * 4
    whole, alike = read(family.full, data), read(family.decodable, data)
    assert sum(isinstance(value, EncodedRecord) for value in alike) > NUM
    if family is FRAMES:
        assert [structure_key(prototype(v)) for v in alike] == list(map(structure_key, whole))
    for start in range(family.period):
        places = range(start, len(whole), family.period)
        mixed = [(whole if i % 5 == 1 else alike)[i] for i in places]
        expected = written(family.merge([whole[i] for i in places], compressed))
        assert written(family.merge([alike[i] for i in places], compressed)) == expected
        assert written(family.merge(mixed, compressed)) == expected


@needs_compiler
@pytest.mark.parametrize("first", ["by columns", "two bytes", "one byte"])
def test_compiled_code_gives_the_same_bytes(first, monkeypatch) -> None:
    monkeypatch.setattr(choice, "_chosen", choice.CpuKernels.NATIVE)
    data = archive(examples(first, "uneven")) * 4
    outcomes = []
    for worth_compiling in (1 << 60, 0):
        monkeypatch.setattr(same_layout, "_WORTH_COMPILING", worth_compiling)
        values = read(DECODABLE_EXAMPLES, data)
        outcomes.append(minibatches(DECODABLE_EXAMPLES, values, "5"))
        draws.seed(5)
        changes = BatchedChanges(FRAME_CHANGES, FRAMES.selections["one frame"])
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
@pytest.mark.parametrize("stream", [io.BytesIO, partial(Trickle, piece=999)])
@pytest.mark.parametrize("second", ["one hot", "uneven"])
def test_blocks_become_the_minibatches_of_single_examples(second, stream, sizes) -> None:
    values = sorted(examples("by columns", second), key=structure_key) * 3
    data = archive(values)
    read(ENCODED_EXAMPLES, data)  # its layouts are known now
    blocks = read(BATCHED_EXAMPLES, data, stream)
    if stream is io.BytesIO:
        assert max(len(block) for block in blocks if isinstance(block, SameLayoutBatch)) >= 4
    assert minibatches(BATCHED_EXAMPLES, blocks, sizes) == minibatches(EXAMPLE, values, sizes)


def test_blocks_and_single_examples_of_one_layout_merge_in_order() -> None:
    values = examples("full", "uneven")[1::6]
    data = archive(values * 4)
    read(ENCODED_EXAMPLES, data)
    *_, block = read(BATCHED_EXAMPLES, archive(values * 2))
    assert isinstance(block, SameLayoutBatch)
    block = block.part(len(block) - len(values), len(block))
    singles = read(DECODABLE_EXAMPLES, data)
    mixed = [block, singles[-1], singles[-2], block.part(1, 3), values[0]]
    expected = [*values, values[3], values[2], values[1], values[2], values[0]]
    assert written(merge_examples(mixed, False)) == written(merge_examples(expected, False))

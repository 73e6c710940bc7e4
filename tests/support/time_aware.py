"""Helpers for tests of components that look at times: naive index work, irregular requests."""

import io
from collections.abc import Callable

import numpy as np

from nnet3tools.io.stream import Reader
from nnet3tools.nnet.components.base import Component, PrecomputedIndexes
from nnet3tools.nnet.components.registry import read_precomputed_indexes
from nnet3tools.nnet.indexes import NO_TIME, make_indexes
from support.harness import Rows, rows_of
from support.streams import bytes_of

Index = tuple[int, int, int]


def grid(n: int, times: range | list[int], x: int = 1) -> np.ndarray:
    """All (n, t, x), t slowest."""
    t, images = np.repeat(list(times), n * x), np.tile(np.arange(n * x), len(list(times)))
    return make_indexes(images // x, t, images % x)


def tuples(indexes: np.ndarray) -> list[Index]:
    """The indexes as tuples."""
    return [tuple(int(v) for v in row) for row in indexes]  # type: ignore[misc]


def as_array(indexes: list[Index] | set[Index]) -> np.ndarray:
    """An index array of tuples, in sorted order."""
    return np.array(sorted(indexes), np.int32).reshape(-1, 3)


def check_dependencies(
    component: Component,
    outputs: np.ndarray,
    wants: Callable[[Index], list[Index]],
    needs: Callable[[Index, list[Index], set[Index]], bool],
) -> None:
    """`input_indexes` and `computable` against one index at a time, over random available inputs.

    `wants` lists what an output could use; `needs(output, wanted, available)` says whether it can
    be computed.
    """
    inputs, offsets = component.input_indexes(outputs)
    per_output = [wants(o) for o in tuples(outputs)]
    assert tuples(inputs) == [i for wanted in per_output for i in wanted]
    assert offsets.tolist() == np.cumsum([0] + [len(w) for w in per_output]).tolist()
    rng = np.random.default_rng(1)
    for density in (0.0, 0.3, 0.7, 0.9, 1.0):
        available = {i for i in sorted(set(tuples(inputs))) if rng.random() < density}
        there = np.array([i in available for i in tuples(inputs)], bool)
        computable, used = component.computable(outputs, inputs, offsets, there)
        expected = [
            needs(o, w, available) for o, w in zip(tuples(outputs), per_output, strict=True)
        ]
        assert computable.tolist() == expected
        expected_used = [
            ok and i in available
            for ok, wanted in zip(expected, per_output, strict=True)
            for i in wanted
        ]
        assert used.tolist() == expected_used


def inputs_for(
    component: Component, outputs: np.ndarray, absent: set[int] = frozenset()
) -> np.ndarray:  # type: ignore[assignment]
    """The inputs that outputs use, except those at `absent` times; sorted."""
    inputs, offsets = component.input_indexes(outputs)
    there = ~np.isin(inputs[:, 1], list(absent))
    computable, used = component.computable(outputs, inputs, offsets, there)
    assert computable.all()
    return as_array(set(tuples(inputs[used])))


class Ordered:
    """Rows of a request as a component orders them, blanks included, and what it precomputes."""

    def __init__(self, component: Component, inputs: np.ndarray, outputs: np.ndarray) -> None:
        rng = np.random.default_rng(0)
        self.component = component
        self.inputs, self.outputs = component.reorder_indexes(
            rng.permutation(inputs), rng.permutation(outputs)
        )
        again = component.reorder_indexes(self.inputs, self.outputs)
        assert np.array_equal(again[0], self.inputs)
        assert np.array_equal(again[1], self.outputs)
        for made, asked in ((self.inputs, inputs), (self.outputs, outputs)):
            real = made[made[:, 1] != NO_TIME]
            assert sorted(tuples(real)) == sorted(tuples(asked))
        indexes = component.precompute_indexes(self.inputs, self.outputs, True)
        check_precomputed(indexes)
        self.rows = Rows(len(self.inputs), len(self.outputs), indexes)

    def values(self, rng: np.random.Generator) -> np.ndarray:
        """A random float64 input with zeros in the blank rows, as a program gives it."""
        x = rng.normal(size=(len(self.inputs), self.component.input_dim))
        x[self.inputs[:, 1] == NO_TIME] = 0.0
        return x

    def by_index(self, x: np.ndarray) -> dict[Index, np.ndarray]:
        """Input rows by their index; blank ones left out."""
        pairs = zip(tuples(self.inputs), x, strict=True)
        return {i: row for i, row in pairs if i[1] != NO_TIME}

    def compare(self, y: np.ndarray, formula: Callable[[Index], np.ndarray]) -> None:
        """Each real output row is what the formula says for its index."""
        for index, row in zip(tuples(self.outputs), y, strict=True):
            if index[1] != NO_TIME:
                np.testing.assert_allclose(row, formula(index), 1e-4, 1e-5)


def check_precomputed(indexes: PrecomputedIndexes | None) -> None:
    """Text and binary files of precomputed indexes read back give the same files."""
    assert indexes is not None
    for binary in (False, True):
        data = bytes_of(indexes.write, binary=binary)
        reader = Reader(io.BytesIO(data), "test", binary)
        again = read_precomputed_indexes(reader)
        assert reader.at_end()
        assert type(again) is type(indexes)
        assert bytes_of(again.write, binary=binary) == data


__all__ = [
    "Ordered",
    "as_array",
    "check_dependencies",
    "check_precomputed",
    "grid",
    "inputs_for",
    "rows_of",
    "tuples",
]

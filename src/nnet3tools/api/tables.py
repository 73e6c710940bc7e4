"""Tables (archives and script files) of Python values; the kind of value is given by name."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Literal

import numpy as np

from nnet3tools.api.arrays import numbers
from nnet3tools.errors import DataError, OptionError
from nnet3tools.io.holder import Holder
from nnet3tools.io.posterior import Posterior
from nnet3tools.io.table import RandomAccessTableReader, SequentialTableReader
from nnet3tools.io.table import TableWriter as _TableWriter
from nnet3tools.io.text import cast, is_word
from nnet3tools.io.wave import Wave

Kind = Literal[
    "matrix", "vector", "wave", "posterior", "int-vector", "int", "float", "word", "words",
    "egs", "chain-egs", "lattice",
]  # fmt: skip
"""The kinds of values in tables:

| kind | value |
|---|---|
| matrix, vector | float32 array (rows, columns) or (elements,); compressed ones are decompressed |
| wave | `Wave`: `samples` int16 (channels, samples), `rate` in Hz |
| posterior | `Posterior`; when written, also a list of frames, each a list of (pdf, weight) |
| int-vector | int32 array, such as an alignment |
| int, float, word, words | int, float, str, list of str |
| egs, chain-egs | training examples: `NnetExample`, `NnetChainExample` |
| lattice | `Lattice` or `CompactLattice` of nnet3tools.fst.lattice |
"""


def _array(dtype: type, num_dims: int) -> Callable[[Any], np.ndarray]:
    """A function that converts a value to a `dtype` array of `num_dims` axes, else ValueError."""

    def convert(value: Any) -> np.ndarray:
        array = numbers("a value", value)
        converted: np.ndarray = cast(array, dtype)
        if array.ndim != num_dims or (dtype is np.int32 and (converted != array).any()):
            raise ValueError
        return converted

    return convert


def _instance(value: Any, *kinds: str) -> Any:
    """Return `value`; TypeError unless the name of its class is one of `kinds`."""
    if not {c.__name__ for c in type(value).__mro__} & set(kinds):
        raise TypeError
    return value


def _wave(value: Any) -> Wave:
    if not isinstance(value, Wave) or value.samples.dtype != np.int16 or value.samples.ndim != 2:
        raise TypeError
    return value


def _word(value: Any) -> str:
    if not is_word(_instance(value, "str")):
        raise ValueError
    return str(value)


def _posterior(value: Any) -> Posterior:
    return value if isinstance(value, Posterior) else Posterior.from_frames(value)


def _words(value: Any) -> list[str]:
    return [_word(word) for word in _instance(value, "list", "tuple")]


_KINDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "matrix": ("io.holders.MATRIX", _array(np.float32, 2)),
    "vector": ("io.holders.VECTOR", _array(np.float32, 1)),
    "wave": ("io.wave.WAVE", _wave),
    "posterior": ("io.holders.POSTERIOR", _posterior),
    "int-vector": ("io.holders.INT32_VECTOR", _array(np.int32, 1)),
    "int": ("io.holders.INT32", lambda value: int(_array(np.int32, 0)(value))),
    "float": ("io.holders.FLOAT", float),
    "word": ("io.holders.TOKEN", _word),
    "words": ("io.holders.TOKEN_VECTOR", _words),
    "egs": ("training.example.EXAMPLE", lambda x: _instance(x, "NnetExample")),
    "chain-egs": ("chain.example.CHAIN_EXAMPLE", lambda x: _instance(x, "NnetChainExample")),
    "lattice": ("fst.lattice_files.LATTICE", lambda x: _instance(x, "Lattice", "CompactLattice")),
}
"""The holder of each kind, and what a writer does to a value before it writes the value."""


def _holder(kind: Kind) -> Holder[Any]:
    if kind not in _KINDS:
        raise OptionError(f"no kind '{kind}' of tables: expected one of {', '.join(_KINDS)}")
    module, _, name = _KINDS[kind][0].rpartition(".")
    return getattr(import_module(f"nnet3tools.{module}"), name)


class TableReader(SequentialTableReader[Any]):
    """Iterates over the (key, value) pairs of a table, one value in memory at a time.

    with TableReader("scp:feats.scp") as table:
        for key, features in table: ...

    Each `for` reads from the beginning.
    DataError for a missing or damaged table, OptionError for a malformed rspecifier.
    """

    def __init__(self, rspecifier: str, kind: Kind = "matrix") -> None:
        """Open a table of values of one kind; `rspecifier` is Kaldi's, such as "ark:feats.ark"."""
        super().__init__(rspecifier, _holder(kind))

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        self.close()
        return super().__iter__()


class RandomTableReader(RandomAccessTableReader[Any]):
    """Gives the values of a table by key: `key in table`, `table[key]`, `table.get(key)`.

    with RandomTableReader("ark:ali.ark", "int-vector") as table:
        alignment = table["utterance-1"]

    An archive is read as far as needed and stays in memory. DataError for a key that is missing.
    """

    def __init__(self, rspecifier: str, kind: Kind = "matrix") -> None:
        """Open a table of values of one kind; `rspecifier` is Kaldi's, such as "scp:feats.scp"."""
        super().__init__(rspecifier, _holder(kind))


class TableWriter(_TableWriter[Any]):
    """Writes (key, value) pairs to a table, whose files appear when the block ends without error.

    with TableWriter("ark,scp:feats.ark,feats.scp") as table:
        table.write("utterance-1", features)

    DataError for a value of another kind, OptionError for a malformed wspecifier.
    """

    def __init__(self, wspecifier: str, kind: Kind = "matrix") -> None:
        """Open a table for values of one kind; `wspecifier` is Kaldi's, such as "ark,t:-"."""
        super().__init__(wspecifier, _holder(kind))
        self._kind, self._converted = kind, _KINDS[kind][1]

    def write(self, key: str, value: Any) -> None:
        """Write a value under a key, which is one word."""
        try:
            converted = self._converted(value)
        except (TypeError, ValueError):
            found = f"found {reprlib.repr(value)}"
            raise DataError(f"key '{key}': expected kind '{self._kind}', {found}") from None
        super().write(key, converted)

"""Examples that pass from table to table unchanged, as bytes.

What copies, shuffles and chooses examples needs no more of them than where they end. Examples in
the forms that Kaldi writes in binary are walked over, from size to size, with the checks of
`NnetExample.read`, or found by the layout that they share with earlier ones; any other is read in
full, which also says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from nnet3tools.io.held_bytes import HeldBytes
from nnet3tools.io.holder import Holder
from nnet3tools.io.stream import Reader
from nnet3tools.training.example_layout import KnownLayouts, Layout, walk_example

if TYPE_CHECKING:
    from nnet3tools.training.example import NnetExample

__all__ = ["EXAMPLE_BYTES", "ExampleBytes", "recognised", "runs_of_known"]


class ExampleBytes(HeldBytes["NnetExample"]):
    """The bytes of a `<Nnet3Eg>`; `layout` matches them, None where none is known that does."""

    __slots__ = ("layout",)

    def __init__(self, data: bytes, layout: Layout | None) -> None:
        self.data, self.layout = data, layout

    @staticmethod
    def read_whole(reader: Reader) -> NnetExample:
        """As NnetExample.read."""
        # Here, as it loads NumPy.
        from nnet3tools.training.example import NnetExample

        return NnetExample.read(reader)


_known = KnownLayouts(walk_example)


def _read(reader: Reader) -> ExampleBytes | NnetExample:
    data = reader.take(_known.end_of) if reader.binary else None
    return ExampleBytes.read_whole(reader) if data is None else ExampleBytes(data, _known.latest)


def recognised(example: ExampleBytes) -> ExampleBytes:
    """The example with its layout, if that is known by now."""
    end = _known.end_of(example.data, 0)
    return ExampleBytes(example.data, None if end is None else _known.latest)


def _entries(reader: Reader) -> Iterator[tuple[str, ExampleBytes | NnetExample]]:
    for key, data, layout in _known.entries(reader):
        yield key, ExampleBytes(data, layout)


def runs_of_known(
    reader: Reader,
) -> Iterator[tuple[str, Layout, bytes, list[tuple[int, int]]]]:
    """What `KnownLayouts.runs` takes of an archive of frame-level examples."""
    return _known.runs(reader)


def _adopt(value: object) -> ExampleBytes | NnetExample | None:
    """Examples of any form."""
    is_example = isinstance(value, ExampleBytes) or hasattr(value, "supervisions")
    return cast("ExampleBytes | NnetExample", value) if is_example else None


EXAMPLE_BYTES: Holder[ExampleBytes | NnetExample] = Holder(
    "an example",
    _read,
    lambda writer, example: example.write(writer),
    entries=_entries,
    adopt=_adopt,
)
"""The holder of tables of examples of which nothing is looked at."""

"""The format of frame-level examples and of the inputs of all examples, and tables of both.

This module does not load NumPy.
"""

from nnet3tools.io.encoded import LayoutTable, encoded_holder
from nnet3tools.io.record import INDEXES, MATRIX, WORD, Field, Record, Repeated

_MOST_USUAL = 1000

IO_RECORD = Record(
    "NnetIo",
    (Field("name", WORD), Field("indexes", INDEXES), Field("features", MATRIX)),
    ("training.example", "NnetIo"),
)
"""One input or output with its matrix."""

EXAMPLE_RECORD = Record(
    "Nnet3Eg",
    (
        Repeated(
            "io",
            IO_RECORD,
            "<NumIo>",
            usual=lambda count, _: 0 < count <= _MOST_USUAL,
            noun="inputs and outputs",
        ),
    ),
    ("training.example", "NnetExample"),
)
"""A frame-level example."""

EXAMPLE_LAYOUTS = LayoutTable(EXAMPLE_RECORD)

ENCODED_EXAMPLES = encoded_holder("an example", EXAMPLE_LAYOUTS, EXAMPLE_RECORD)
"""The holder of tables of frame-level examples that are encoded where that is possible."""

"""Tables of encoded frame-level examples. This module does not load NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools.io.encoded import EncodedRecord, LayoutTable, encoded_holder
from nnet3tools.io.holder import Holder
from nnet3tools.training.example_format import EXAMPLE_RECORD

if TYPE_CHECKING:
    from nnet3tools.training.example import NnetExample

EncodedExample = EncodedRecord["NnetExample"]

EXAMPLE_LAYOUTS = LayoutTable(EXAMPLE_RECORD)

ENCODED_EXAMPLES: Holder[NnetExample | EncodedExample] = encoded_holder(
    "an example", EXAMPLE_LAYOUTS, EXAMPLE_RECORD
)
"""The holder of tables of frame-level examples that are encoded where that is possible."""

"""Tables of encoded chain examples and supervisions. This module does not load NumPy."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from nnet3tools.chain.example_format import CHAIN_EXAMPLE_RECORD, SUPERVISION_RECORD
from nnet3tools.io.encoded import EncodedRecord, LayoutTable, encoded_holder
from nnet3tools.io.holder import Holder

if TYPE_CHECKING:
    from nnet3tools.chain.example import NnetChainExample
    from nnet3tools.chain.supervision import Supervision

EncodedChainExample = EncodedRecord["NnetChainExample"]
EncodedSupervision = EncodedRecord["Supervision"]

ACCEPTOR, DERIV_WEIGHTS = 0, 1
"""Positions in the `holes` of an encoded example."""

_SIZE_OF_FLOAT = 4


def supervision_weight(encoded: EncodedChainExample | EncodedSupervision) -> float:
    """The weight of the supervision in an encoded example or supervision of one output."""
    begin = encoded.holes[ACCEPTOR][0] - len(encoded.layout.fixed[-1]) - _SIZE_OF_FLOAT
    (weight,) = struct.unpack_from("<f", encoded.data, begin)
    return weight


CHAIN_LAYOUTS = LayoutTable(CHAIN_EXAMPLE_RECORD)

ENCODED_CHAIN_EXAMPLES: Holder[NnetChainExample | EncodedChainExample] = encoded_holder(
    "a chain example", CHAIN_LAYOUTS, CHAIN_EXAMPLE_RECORD
)
"""The holder of tables of chain examples that are encoded where that is possible."""

ENCODED_SUPERVISIONS: Holder[Supervision | EncodedSupervision] = encoded_holder(
    "a supervision", LayoutTable(SUPERVISION_RECORD), SUPERVISION_RECORD
)
"""The holder of tables of supervisions that are encoded where that is possible."""

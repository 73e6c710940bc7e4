"""Examples of chain training: inputs with supervisions, `<Nnet3ChainEg>` (nnet-chain-example.h)."""

from __future__ import annotations

from nnet3tools.chain.example_format import CHAIN_EXAMPLE_RECORD, CHAIN_OUTPUT_RECORD
from nnet3tools.chain.sequences import SequenceExample, SequenceOutput
from nnet3tools.chain.supervision import Supervision
from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io.encoded import EncodedRecord
from nnet3tools.io.holders import Holder


@dataclass(frozen=True)
class NnetChainSupervision(SequenceOutput[Supervision]):
    """The chain supervision of one output."""

    RECORD = CHAIN_OUTPUT_RECORD

    def check(self) -> None:
        """Raise DataError if sizes, indexes and weights do not agree, or a weight is negative."""
        super().check()
        if (self.deriv_weights < 0.0).any():
            raise DataError(f"'{self.name}' of an example has a negative derivative weight")


@dataclass
class NnetChainExample(SequenceExample[NnetChainSupervision]):
    """The inputs and chain supervisions of a chunk, or of a minibatch."""

    RECORD = CHAIN_EXAMPLE_RECORD


EncodedChainExample = EncodedRecord[NnetChainExample]
"""The bytes of a chain example."""

CHAIN_EXAMPLE: Holder[NnetChainExample] = Holder(
    "a chain example", NnetChainExample.read, lambda writer, example: example.write(writer)
)
"""The holder of tables of chain examples (Kaldi's KaldiObjectHolder<NnetChainExample>)."""

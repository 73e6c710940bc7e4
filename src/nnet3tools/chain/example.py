"""Examples of chain training: inputs with supervisions, `<Nnet3ChainEg>` (nnet-chain-example.h)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nnet3tools.chain.sequences import SequenceExample, SequenceOutput
from nnet3tools.chain.supervision import Supervision
from nnet3tools.errors import quoted
from nnet3tools.io.char_vector import read_vector_as_char
from nnet3tools.io.holders import Holder
from nnet3tools.io.index_vector import read_index_vector, write_index_vector
from nnet3tools.io.stream import Reader, Writer

__all__ = ["CHAIN_EXAMPLE", "NnetChainExample", "NnetChainSupervision"]


@dataclass(frozen=True)
class NnetChainSupervision(SequenceOutput[Supervision]):
    """The chain supervision of one output."""

    def write(self, writer: Writer) -> None:
        """Write as Kaldi's `<NnetChainSup>`."""
        writer.write_token("<NnetChainSup>")
        writer.write_token(self.name)
        write_index_vector(writer, self.indexes)
        self.supervision.write(writer)
        writer.write_token("<DW2>")
        writer.write_vector(self.deriv_weights)
        writer.write_token("</NnetChainSup>")

    @classmethod
    def read(cls, reader: Reader) -> NnetChainSupervision:
        """Read Kaldi's NnetChainSupervision, old ones too; DataError if its parts do not agree."""
        reader.expect_token("<NnetChainSup>")
        name = reader.read_token()
        indexes = read_index_vector(reader)
        supervision = Supervision.read(reader)
        weights = np.zeros(0, np.float32)
        if (token := reader.read_token()) != "</NnetChainSup>":
            if token == "<DW>":  # of older examples
                weights = read_vector_as_char(reader)
            elif token == "<DW2>":
                weights = reader.read_vector()
            else:
                raise reader.error(f"expected <DW2> or </NnetChainSup>, found {quoted(token)}")
            reader.expect_token("</NnetChainSup>")
        chain = cls(name, indexes, supervision, weights)
        if problem := chain._problem():
            raise reader.error(f"'{name}' of an example {problem}")
        return chain

    def _problem(self) -> str:
        """What is wrong with its sizes, indexes and weights, "" if nothing is."""
        if problem := self.rows_problem():
            return problem
        return "has a negative derivative weight" if (self.deriv_weights < 0.0).any() else ""


@dataclass
class NnetChainExample(SequenceExample[NnetChainSupervision]):
    """Inputs and chain supervisions that belong together."""

    TOKEN: ClassVar[str] = "Nnet3ChainEg"
    OUTPUT: ClassVar[type[NnetChainSupervision]] = NnetChainSupervision


CHAIN_EXAMPLE: Holder[NnetChainExample] = Holder(
    "a chain example", NnetChainExample.read, lambda writer, example: example.write(writer)
)
"""The holder of tables of chain examples (Kaldi's KaldiObjectHolder<NnetChainExample>)."""

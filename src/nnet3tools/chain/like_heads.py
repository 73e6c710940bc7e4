"""What chain examples with one head have in common, and their supervisions."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from nnet3tools.chain.example import NnetChainExample, NnetChainSupervision
from nnet3tools.chain.example_bytes import ChainExampleBytes, facts_of
from nnet3tools.chain.supervision import Supervision
from nnet3tools.fst.compact_reader import acceptors_of_bytes
from nnet3tools.fst.fst import Fst
from nnet3tools.io.index_vector import read_index_vector
from nnet3tools.io.matrix_forms import MatrixForm
from nnet3tools.io.sparse import SparseMatrix
from nnet3tools.io.stream import Reader
from nnet3tools.nnet.indexes import IndexArray
from nnet3tools.training.example import NnetIo
from nnet3tools.training.example_layout import Layout

__all__ = ["outputs_of", "prototype_of"]

_EMPTY = Fst.empty()
_SIZE_OF_DW = len(b"</Supervision> <DW2> FV ")
_SIZE_OF_FSTS = len(b"</Fsts> ")


@lru_cache(maxsize=64)
def prototype_of(head: Layout) -> NnetChainExample:
    """An example with this head, without elements and with an empty supervision."""
    inputs = []
    for fixed, form in zip(head.fixed, head.forms[:-1], strict=False):
        assert isinstance(form, MatrixForm)
        nothing = SparseMatrix.from_counts([0] * form.num_rows, [], [], form.num_cols)
        inputs.append(NnetIo(*_name_and_indexes(fixed, "<NnetIo>"), nothing))
    frames, label_dim, _ = facts_of(head)
    empty = Supervision(1.0, 1, frames, label_dim, Fst.empty())
    of_output = _name_and_indexes(head.fixed[-2], "<NnetChainSup>")
    return NnetChainExample(
        inputs, [NnetChainSupervision(*of_output, empty, np.zeros(0, np.float32))]
    )


def _name_and_indexes(fixed: bytes, token: str) -> tuple[str, IndexArray]:
    reader = Reader(io.BytesIO(fixed[fixed.index(token.encode() + b" ") :]), binary=True)
    reader.expect_token(token)
    return reader.read_token(), read_index_vector(reader)


def outputs_of(examples: Sequence[ChainExampleBytes]) -> list[NnetChainSupervision]:
    """The outputs of examples with one head, of bytes that are known to be sound."""
    head = examples[0].head
    (like,) = prototype_of(head).outputs
    frames, label_dim, is_e2e = facts_of(head)
    fsts = acceptors_of_bytes([(example.data, example.acceptor) for example in examples])
    before = len(head.fixed[-1]) + 4
    found = []
    for example, fst in zip(examples, fsts, strict=True):
        data, acceptor, tail = example.data, example.acceptor, example.tail
        (weight,) = struct.unpack_from("<f", data, acceptor - before)
        at = tail + _SIZE_OF_DW + _SIZE_OF_FSTS * is_e2e
        (size,) = struct.unpack_from("<xi", data, at)
        weights = np.frombuffer(data, "<f4", size, at + 5)
        of_kind = (_EMPTY, (fst,)) if is_e2e else (fst,)
        supervision = Supervision(weight, 1, frames, label_dim, *of_kind)
        found.append(NnetChainSupervision(like.name, like.indexes, supervision, weights))
    return found

"""Recognise requests that treat all sequences alike, so that two of them can stand for all.

Rows are "regular in n" with stride s if they come in blocks of N * s rows, N the number of
sequences, within which row i of sequence n stands s rows before that of sequence n + 1.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from nnet3tools.graph.request import ComputationRequest, IoSpecification
from nnet3tools.nnet.indexes import IndexArray, IntArray

__all__ = ["find_n_stride", "mini_request", "with_num_sequences"]


def find_n_stride(indexes: IndexArray, nodes: IntArray | None = None) -> int:
    """The stride in n of an index array (with nodes: of cindexes), 0 if it is not regular."""
    size = len(indexes)
    num_sequences = int(indexes[-1, 0]) + 1 if size else 0
    if num_sequences <= 1 or size % num_sequences or indexes[0, 0] != 0:
        return 0
    rest = indexes[:, 1:] if nodes is None else np.column_stack([indexes[:, 1:], nodes])
    per_sequence = size // num_sequences
    next_of_first = (indexes[:, 0] == 1) & (rest == rest[0]).all(axis=1)
    for stride in _candidates(np.flatnonzero(next_of_first), per_sequence):
        if per_sequence % stride == 0:
            n = indexes[:, 0].reshape(-1, num_sequences, stride)
            blocks = rest.reshape(-1, num_sequences, stride, rest.shape[1])
            if (n == np.arange(num_sequences)[:, None]).all() and (blocks == blocks[:, :1]).all():
                return stride
    return 0


def _candidates(strides: np.ndarray, per_sequence: int) -> list[int]:
    """Strides to try: the common ones first, so that ambiguity is resolved as in Kaldi."""
    candidates = [int(s) for s in strides if 0 < s <= per_sequence]
    return sorted(candidates, key=lambda s: (s != 1, s != per_sequence, s))


def with_num_sequences(indexes: IndexArray, stride: int, num_sequences: int) -> IndexArray:
    """The same rows, regular in n with this stride, for another number of sequences."""
    old = int(indexes[-1, 0]) + 1
    first = indexes.reshape(-1, old, stride, 3)[:, :1]
    out = np.repeat(first, num_sequences, axis=1)
    out[..., 0] = np.arange(num_sequences, dtype=np.int32)[:, None]
    return out.reshape(-1, 3)


def mini_request(request: ComputationRequest) -> tuple[ComputationRequest, int] | None:
    """(the request for n = 0, 1, the number of sequences) of a regular request, else None."""
    minis: list[list[IoSpecification]] = []
    numbers = set()
    for specifications in (request.inputs, request.outputs):
        minis.append([])
        for io in specifications:
            stride = find_n_stride(io.indexes)
            if stride == 0:
                return None
            numbers.add(int(io.indexes[-1, 0]) + 1)
            indexes = with_num_sequences(io.indexes, stride, 2)
            minis[-1].append(dataclasses.replace(io, indexes=indexes))
    if len(numbers) != 1 or (number := numbers.pop()) <= 2:
        return None
    return dataclasses.replace(request, inputs=minis[0], outputs=minis[1]), number

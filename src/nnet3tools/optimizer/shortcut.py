"""Recognize requests that treat all sequences alike, so that two sequences represent all.

Rows are "regular in n" with stride s if they come in blocks of N * s rows, N the number of
sequences, within which row i of sequence n stands s rows before that of sequence n + 1.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nnet3tools.fast_dataclasses import replace
from nnet3tools.graph.request import ComputationRequest, IoSpecification
from nnet3tools.nnet.indexes import IndexArray, IntArray, all_true


def find_n_stride(indexes: IndexArray, nodes: IntArray | None = None) -> int:
    """The number of rows from one sequence to the next; 0 if rows do not repeat by sequence.

    `nodes`, if given, are the nodes of the rows, and must repeat in the same way.
    """
    size = len(indexes)
    num_sequences = int(indexes[-1, 0]) + 1 if size else 0
    if num_sequences <= 1 or size % num_sequences or indexes[0, 0] != 0:
        return 0
    per_sequence = size // num_sequences
    # The common ones first, so that ambiguity is resolved as in Kaldi.
    for stride in (1, per_sequence):
        if _is_regular(indexes, nodes, num_sequences, stride):
            return stride
    next_of_first = (indexes[:, 0] == 1) & (indexes[:, 1:] == indexes[0, 1:]).all(axis=1)
    for stride in np.flatnonzero(next_of_first[: per_sequence + 1]).tolist():
        if per_sequence % stride == 0 and _is_regular(indexes, nodes, num_sequences, stride):
            return int(stride)
    return 0


def find_n_strides(indexes: Sequence[IndexArray], nodes: Sequence[IntArray]) -> list[int]:
    """For each matrix, the number of rows from one sequence to the next (0: irregular).

    indexes[i] and nodes[i] are matrix i's cindexes. Most have two sequences. Matrices of one length
    are handled together, because recurrent networks have thousands of them, with few rows.
    """
    strides = np.zeros(len(indexes), np.int64)
    of_size: dict[int, list[int]] = {}
    for number, rows in enumerate(indexes):
        of_size.setdefault(len(rows), []).append(number)
    for size, numbers in of_size.items():
        if size >= 2 and size % 2 == 0:
            cindexes = np.empty((len(numbers), size, 4), np.int32)
            cindexes[:, :, :3] = [indexes[i] for i in numbers]
            cindexes[:, :, 3] = [nodes[i] for i in numbers]
            strides[numbers] = _strides_for_two(cindexes)
    for i in np.flatnonzero(strides == 0).tolist():
        strides[i] = find_n_stride(indexes[i], nodes[i])
    return strides.tolist()


def _strides_for_two(cindexes: NDArray[np.int32]) -> NDArray[np.int64]:
    """For each of N arrays for two sequences, the rows from n = 0 to n = 1; 0 if irregular.

    `cindexes` (N, rows, 4) are (n, t, x, node).
    """
    strides = np.zeros(len(cindexes), np.int64)
    size = cindexes.shape[1]
    for stride in (size // 2, 1):  # where both fit, 1 it is
        blocks = cindexes.reshape(len(cindexes), -1, 2, stride, 4)
        steps = blocks[:, :, 1] - blocks[:, :, 0]
        regular = (steps == (1, 0, 0, 0)).all(axis=(1, 2, 3))
        strides[regular & (blocks[:, :, 0, :, 0] == 0).all(axis=(1, 2))] = stride
    return strides


def _is_regular(
    indexes: IndexArray, nodes: IntArray | None, num_sequences: int, stride: int
) -> bool:
    """Whether row i of sequence n + 1 is always `stride` after that of n, with equal t, x, node."""
    first, second = indexes[0].tolist(), indexes[stride].tolist()
    if second != [1, *first[1:]]:
        return False
    blocks = indexes.reshape(-1, num_sequences, stride, 3)
    if not all_true(blocks[..., 1:] == blocks[:, :1, :, 1:]):
        return False
    if not all_true(blocks[..., 0] == np.arange(num_sequences)[:, None]):
        return False
    of_block = None if nodes is None else nodes.reshape(-1, num_sequences, stride)
    return of_block is None or all_true(of_block == of_block[:, :1])


def with_num_sequences(indexes: IndexArray, stride: int, num_sequences: int) -> IndexArray:
    """`indexes`, whose sequences are `stride` rows apart, with `num_sequences` sequences."""
    old = int(indexes[-1, 0]) + 1
    first = indexes.reshape(-1, old, stride, 3)[:, :1]
    out = np.repeat(first, num_sequences, axis=1)
    out[..., 0] = np.arange(num_sequences, dtype=np.int32)[:, None]
    return out.reshape(-1, 3)


def mini_request(request: ComputationRequest) -> tuple[ComputationRequest, int] | None:
    """(request for n = 0, 1, number of sequences); None if sequences differ, or are 2 or fewer."""
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
            minis[-1].append(replace(io, indexes=indexes))
    if len(numbers) != 1 or (number := numbers.pop()) <= 2:
        return None
    return replace(request, inputs=minis[0], outputs=minis[1]), number

"""Vectors of Indexes and Cindexes in Kaldi's compact form (nnet3/nnet-common.cc).

In binary an element takes one byte if only t changed, by less than 125. Otherwise byte 127 and
three full integers follow. For Cindexes the limit is 124, because byte 124 is the '|' before a new
node; bytes 125 and 126 say that n changed by 0 or 1. In text an element is `<I1> n t x`.
"""

import functools
import re

import numpy as np
from numpy.typing import NDArray

from nnet3tools.io.stream import Reader, Writer
from nnet3tools.io.text import parse_numbers

Ints = NDArray[np.int32]
_FULL = 127
_NODE = ord("|")
_FULL_SIZE = 16  # byte 127 and three integers with their size bytes


def read_index_vector(reader: Reader) -> Ints:
    """Read Indexes in the form of Kaldi's WriteIndexVector: (N, 3), columns n, t, x."""
    return _read(reader, with_nodes=False)[1]


def write_index_vector(writer: Writer, indexes: Ints) -> None:
    """Write Indexes (N, 3), columns n, t, x, in the form of Kaldi's WriteIndexVector."""
    indexes = np.ascontiguousarray(indexes, np.int32).reshape(-1, 3)
    writer.write_token("<I1V>").write_int32(len(indexes))
    if writer.binary:
        writer.write_bytes(_encode_cached(indexes.tobytes()))
    else:
        writer.write_text("<I1> %d %d %d " * len(indexes) % tuple(indexes.ravel().tolist()))


def read_cindex_vector(reader: Reader) -> tuple[Ints, Ints]:
    """Read Cindexes in the form of Kaldi's WriteCindexVector: node numbers (N,), Indexes (N, 3)."""
    return _read(reader, with_nodes=True)


def write_cindex_vector(writer: Writer, nodes: Ints, indexes: Ints) -> None:
    """Write node numbers (N,) and Indexes (N, 3) in the form of Kaldi's WriteCindexVector."""
    indexes = np.ascontiguousarray(indexes, np.int32).reshape(-1, 3)
    nodes = np.ascontiguousarray(nodes, np.int32)
    writer.write_token("<I1V>").write_int32(len(indexes))
    if writer.binary or len(nodes) == 0:
        writer.write_bytes(_encode(indexes, nodes))
        return
    starts = np.flatnonzero(np.diff(nodes, prepend=nodes[0] + 1))
    for start, end in zip(starts, [*starts[1:], len(nodes)], strict=True):
        group = indexes[start:end]
        body = "<I1> %d %d %d " * len(group) % tuple(group.ravel().tolist())
        writer.write_text(f"[{nodes[start]} :{body}]")


# -- binary


@functools.lru_cache(maxsize=8)
def _encode_cached(indexes: bytes) -> bytes:
    """Encode Indexes, given as raw int32 bytes; results are cached, because examples share them."""
    return _encode(np.frombuffer(indexes, np.int32).reshape(-1, 3), None)


def _encode(indexes: Ints, nodes: Ints | None) -> bytes:
    """Encode Indexes, with node numbers if given, in the compact binary form."""
    if len(indexes) == 0:
        return b""
    limit = 125 if nodes is None else 124
    step = _steps(indexes)
    bound = np.full(len(indexes), limit)
    bound[0] = 125
    near = (step[:, 0] == 0) & (step[:, 2] == 0) & (np.abs(step[:, 1]) < bound)
    if nodes is None and near.all():
        return step[:, 1].astype(np.int8).tobytes()
    code = np.where(near, step[:, 1], _FULL)
    if nodes is not None:
        moved = (
            ~near & (step[:, 1] == 0) & (step[:, 2] == 0) & ((step[:, 0] == 0) | (step[:, 0] == 1))
        )
        code = np.where(moved, 125 + step[:, 0], code)
    full = code == _FULL
    prefixed = np.zeros(len(indexes), bool)
    if nodes is not None:
        prefixed[0] = True
        prefixed[1:] = nodes[1:] != nodes[:-1]
    lengths = 1 + 15 * full + 6 * prefixed
    ends = np.cumsum(lengths)
    out = np.zeros(int(ends[-1]), np.uint8)
    starts = ends - lengths
    if nodes is not None:
        out[starts[prefixed]] = _NODE
        _put_ints(out, starts[prefixed] + 1, nodes[prefixed][:, None])
    starts = starts + 6 * prefixed
    out[starts] = code.astype(np.int8).view(np.uint8)
    _put_ints(out, starts[full] + 1, indexes[full])
    return out.tobytes()


def _steps(indexes: Ints) -> NDArray[np.int64]:
    """Each Index minus the Index before it, (N, 3); the first row is the first Index itself."""
    wide = np.zeros((len(indexes) + 1, 3), np.int64)
    wide[1:] = indexes
    return wide[1:] - wide[:-1]


def _put_ints(out: NDArray[np.uint8], starts: NDArray, values: Ints) -> None:
    """Store rows of integers in `out` at offsets `starts`, each integer after its size byte."""
    width = values.shape[1]
    cells = np.empty((len(values), width, 5), np.uint8)
    cells[:, :, 0] = 4
    cells[:, :, 1:] = np.ascontiguousarray(values, "<i4").view(np.uint8).reshape(-1, width, 4)
    out[starts[:, None] + np.arange(5 * width)] = cells.reshape(len(values), 5 * width)


_AHEAD = 256
"""Bytes searched beyond one for each element, as most have. An element has at most 22."""

# One element, perhaps truncated at the end of the buffer.
_ELEMENT = re.compile(rb"\x7f.{0,15}|[^\x7f]", re.S)
_NODE_ELEMENT = re.compile(rb"\|.{0,5}(?:\x7f.{0,15}|[^\x7f])?|\x7f.{0,15}|[^\x7f|]", re.S)


def _read(reader: Reader, with_nodes: bool) -> tuple[Ints, Ints]:
    reader.expect_token("<I1V>")
    size = reader.read_count("a vector of indexes", "elements")
    if size == 0:
        return np.empty(0, np.int32), np.empty((0, 3), np.int32)
    if reader.binary:
        if with_nodes:
            return _decode(reader, *_split(reader, size, with_nodes), with_nodes)
        if (steady := _read_one_sequence(reader, size)) is not None:
            return np.empty(0, np.int32), steady
        return np.empty(0, np.int32), _read_cached(reader, size)
    if with_nodes:
        return _read_text_groups(reader, size)
    return np.empty(0, np.int32), _read_text_indexes(reader, size)


def _read_one_sequence(reader: Reader, size: int) -> Ints | None:
    """Read `size` Indexes of one sequence (n = x = 0, small steps of t); None for other Indexes."""
    piece = reader.buffered(size)
    if len(piece) < size or _FULL in piece:
        return None
    codes = np.frombuffer(piece, np.int8)
    if codes.min() <= -125 or codes.max() >= 125:
        return None
    reader.advance(size)
    out = np.zeros((size, 3), np.int32)
    codes.cumsum(dtype=np.int32, out=out[:, 1])
    return out


_recent_vectors: dict[int, tuple[bytes, Ints]] = {}
"""Size -> the vector of this size that was read last: its bytes, and decoded."""
_MAX_RECENT = 16


def _read_cached(reader: Reader, size: int) -> Ints:
    """Read `size` Indexes; reuse the last vector of this size if the bytes are equal.

    Minibatches of one structure have equal vectors. No encoded vector is a prefix of another one of
    its size, so equal leading bytes prove equality.
    """
    data, indexes = _recent_vectors.get(size, (b"", None))
    if indexes is not None and _follows(reader, data):
        reader.advance(len(data))
        return indexes.copy()
    data, lengths = _split(reader, size, with_nodes=False)
    indexes = _decode(reader, data, lengths, with_nodes=False)[1]
    if len(_recent_vectors) >= _MAX_RECENT:
        _recent_vectors.clear()
    _recent_vectors[size] = data, indexes
    return indexes.copy()


def _follows(reader: Reader, data: bytes) -> bool:
    """Whether `data` comes next; consumes nothing, reads no further than the first difference."""
    while True:
        piece = reader.buffered(len(data))
        if not data.startswith(piece):
            return False
        if len(piece) == len(data):
            return True
        if not reader.more():
            return False


def _split(reader: Reader, size: int, with_nodes: bool) -> tuple[bytes, NDArray]:
    """Consume `size` Indexes, or Cindexes if `with_nodes`: (all bytes, number of bytes of each)."""
    pattern = _NODE_ELEMENT if with_nodes else _ELEMENT
    pieces: list[bytes] = []
    lengths: list[int] = []
    while (missing := size - len(lengths)) > 0:
        piece = reader.buffered(missing + _AHEAD)
        elements = pattern.findall(piece)[:missing]
        if elements and not _is_complete(elements[-1], with_nodes):
            elements.pop()
        if not elements:
            if not reader.more():
                raise reader.error(
                    f"expected {size} indexes, found the end of the stream after {len(lengths)}"
                )
            continue
        new = list(map(len, elements))
        lengths += new
        pieces.append(piece[: sum(new)])
        reader.advance(len(pieces[-1]))
    return b"".join(pieces), np.array(lengths)


def _is_complete(element: bytes, with_nodes: bool) -> bool:
    rest = element[6:] if with_nodes and element[0] == _NODE else element
    return len(rest) == (_FULL_SIZE if rest[:1] == b"\x7f" else 1)


def _decode(reader: Reader, data: bytes, lengths: NDArray, with_nodes: bool) -> tuple[Ints, Ints]:
    raw = np.frombuffer(data, np.uint8)
    starts = np.cumsum(lengths) - lengths
    nodes = np.empty(0, np.int32)
    if with_nodes:
        prefixed = (raw[starts] == _NODE) & (lengths > 1)
        if not prefixed[0]:
            raise reader.error("expected '|' and a node number before the first index")
        values = _get_ints(reader, raw, starts[prefixed] + 1, 1)[:, 0]
        nodes = values[np.cumsum(prefixed) - 1]
        starts = starts + 6 * prefixed
    code = raw[starts].view(np.int8).astype(np.int64)
    full = code == _FULL
    limit = np.full(len(code), 124 if with_nodes else 125)
    limit[0] = 125
    near = np.abs(code) < limit
    moved = (code == 125) | (code == 126) if with_nodes else np.zeros(len(code), bool)
    wrong = np.flatnonzero(~(full | near | moved))
    if wrong.size:
        raise reader.error(f"unexpected byte {code[wrong[0]]} at index {wrong[0]} of the vector")
    # An element is the last full one (at first zero) plus the steps since.
    steps = np.zeros((len(code), 3), np.int64)
    steps[:, 0] = np.where(moved, code - 125, 0)
    steps[:, 1] = np.where(near, code, 0)
    total = np.cumsum(steps, axis=0)
    base = np.concatenate([np.zeros((1, 3), np.int64), _get_ints(reader, raw, starts[full] + 1, 3)])
    base[1:] -= total[full]
    return nodes, (base[np.cumsum(full)] + total).astype(np.int32)


def _get_ints(reader: Reader, raw: NDArray[np.uint8], starts: NDArray, width: int) -> Ints:
    """Load rows of `width` integers at offsets `starts` of `raw`, checking the size bytes."""
    cells = raw[starts[:, None] + np.arange(5 * width)].reshape(-1, width, 5)
    if (cells[:, :, 0] != 4).any():
        raise reader.error("expected 32-bit integers in a vector of indexes")
    return np.ascontiguousarray(cells[:, :, 1:]).view("<i4").reshape(-1, width)


# -- text

_TEXT_INDEX = rb"(?:\s*<I1>\s+[-+\d]+\s+[-+\d]+\s+[-+\d]+\s)"
_TEXT_INDEXES = re.compile(_TEXT_INDEX + rb"*")


def _read_text_indexes(reader: Reader, size: int) -> Ints:
    """Read `size` Indexes "<I1> n t x " in text form, block by block, as there is no end mark."""
    parts: list[Ints] = []
    missing = size
    while missing > 0:
        body = _TEXT_INDEXES.match(reader.buffered(64 * missing)).group()  # type: ignore[union-attr]
        if not body:
            if not reader.more():
                raise reader.error(f"expected {missing} more indexes such as <I1> 0 0 0")
            continue
        if body.count(b"<I1>") > missing:
            exact = re.compile(_TEXT_INDEX + rb"{%d}" % missing)
            body = exact.match(body).group()  # type: ignore[union-attr]
        parts.append(_parse_indexes(reader, body))
        reader.advance(len(body))
        missing -= len(parts[-1])
    return np.concatenate(parts)


def _read_text_groups(reader: Reader, size: int) -> tuple[Ints, Ints]:
    """Read groups "[node :<I1> n t x <I1> n t x ]" until there are `size` Indexes.

    Returns node numbers (N,) and Indexes (N, 3).
    """
    nodes: list[Ints] = []
    parts: list[Ints] = []
    found = 0
    while found < size:
        reader.expect_byte(b"[", "a group of cindexes")
        node = reader.read_int32()
        reader.expect_byte(b":", "a group of cindexes")
        parts.append(_parse_indexes(reader, reader.until_bracket("a group of cindexes")))
        nodes.append(np.full(len(parts[-1]), node, np.int32))
        found += len(parts[-1])
    if found != size:
        raise reader.error(f"expected {size} cindexes, found {found}")
    return np.concatenate(nodes), np.concatenate(parts)


def _parse_indexes(reader: Reader, body: bytes) -> Ints:
    count = body.count(b"<I1>")
    try:
        values = parse_numbers(body.replace(b"<I1>", b" "), np.int32)
    except ValueError as error:
        raise reader.error(f"in a vector of indexes: {error}") from None
    if values.size != 3 * count or count == 0:
        raise reader.error(f"expected {count} times <I1> and 3 numbers, found {values.size}")
    return values.reshape(-1, 3)

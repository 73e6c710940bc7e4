"""The tables of docs/formats.md: each file format in text and binary, field by field.

A small object is written in both forms by the toolkit's own writer. Its bytes are cut at the tokens
`<...>`, and each token's first occurrence in a record is a row.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from nnet3tools.chain.example import CHAIN_EXAMPLE, NnetChainExample, NnetChainSupervision
from nnet3tools.chain.supervision import Supervision
from nnet3tools.fst.fst import NOT_FINAL, Fst
from nnet3tools.graph.request import ComputationRequest, IoSpecification
from nnet3tools.io.general_matrix import compress, write_general_matrix
from nnet3tools.io.index_vector import write_cindex_vector, write_index_vector
from nnet3tools.io.sparse import SparseMatrix
from nnet3tools.io.table import TableWriter
from nnet3tools.io.writer import Writer
from nnet3tools.nnet.am_nnet import AmNnet
from nnet3tools.nnet.components.array_fields import Statistic
from nnet3tools.nnet.components.declared import Part
from nnet3tools.nnet.components.field import Field
from nnet3tools.nnet.components.registry import component_class, component_types
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.indexes import make_indexes
from nnet3tools.nnet.model_file import write_nnet
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.cache_files import save_cache
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
from nnet3tools.program.files import save_computation
from nnet3tools.training.example import EXAMPLE, NnetExample, NnetIo
from support.tiny_chain import CHAIN_TOPOLOGY, MONO_TREE, model_of

CONFIG = """
input-node name=input dim=2
component name=tanh type=TanhComponent dim=2
component-node name=tanh component=tanh input=Offset(input, -1)
output-node name=output input=tanh
"""
_TOKEN = re.compile(rb"<(/?)([A-Za-z0-9]+)> ?")
_VARYING = re.compile(rf"[0-9a-f]{{64}}|\d+(:\d+)+|nnet3tools-[\w.]+|{os.uname().machine}")
"""Digests, sizes, processors and versions, which differ between machines and commits."""
_MOST = 54


def _nnet() -> Nnet:
    return Nnet.from_config(parse_config_lines(CONFIG))


def _request() -> ComputationRequest:
    inputs = [IoSpecification("input", make_indexes(0, [-1, 0]))]
    return ComputationRequest(inputs, [IoSpecification("output", make_indexes(0, [0, 1]))])


def _write_model(path: str, binary: bool) -> None:
    write_nnet(_nnet(), path, binary)


def _write_acoustic_model(path: str, binary: bool) -> None:
    _, model = model_of(MONO_TREE, CHAIN_TOPOLOGY)
    AmNnet(model, _nnet(), 1, 0, np.array([0.25, 0.75], np.float32)).save(path, binary)


def _write_example(path: str, binary: bool) -> None:
    features = compress(np.array([[1, 2], [3, 4]], np.float32))
    targets = SparseMatrix.from_counts([1], np.array([2]), np.array([1.0]), 3)
    example = NnetExample(
        [
            NnetIo("input", make_indexes(0, [-1, 0]), features),
            NnetIo("output", make_indexes(0, [0]), targets),
        ]
    )
    with TableWriter(f"ark{'' if binary else ',t'}:{path}", EXAMPLE) as table:
        table.write("key", example)


def _write_chain_example(path: str, binary: bool) -> None:
    acceptor = Fst.from_arcs(
        0,
        np.array([NOT_FINAL, NOT_FINAL, 0.0], np.float32),
        np.array([0, 1]),
        np.array([1, 3]),
        np.array([0.5, 0.25]),
        np.array([1, 2]),
    )
    supervision = Supervision(1.0, 1, 2, 4, acceptor)
    indexes = make_indexes(0, [0, 3])
    weights = np.ones(2, np.float32)
    features = NnetIo("input", make_indexes(0, [0]), np.array([[1, 2]], np.float32))
    outputs = [NnetChainSupervision("output", indexes, supervision, weights)]
    with TableWriter(f"ark{'' if binary else ',t'}:{path}", CHAIN_EXAMPLE) as table:
        table.write("key", NnetChainExample([features], outputs))


def _write_request(path: str, binary: bool) -> None:
    with open(path, "wb") as file:
        writer = Writer(file, binary)
        writer.write_header()
        _request().write(writer)


def _write_computation(path: str, binary: bool) -> None:
    nnet = _nnet()
    save_computation(path, CachingOptimizingCompiler(nnet).compile(_request()), nnet, binary)


def _write_cache(path: str, binary: bool) -> None:
    compiler = CachingOptimizingCompiler(_nnet())
    compiler.compile(_request())
    save_cache(path, compiler, binary)


SAMPLES: dict[str, Callable[[str, bool], None]] = {
    "model": _write_model,
    "acoustic model": _write_acoustic_model,
    "example": _write_example,
    "chain example": _write_chain_example,
    "request": _write_request,
    "computation": _write_computation,
    "cache": _write_cache,
}
"""For each format, a function that writes a small file of it to a path, in text or binary."""


def _shown_text(data: bytes) -> str:
    text = _VARYING.sub("...", data.decode()).replace("\n", "\\n")
    text = text if len(text) <= _MOST else f"{text[:_MOST]}..."
    return f"`{text.strip()}`".replace("|", "\\|") if text.strip() else ""


def _shown_binary(data: bytes) -> str:
    """Bytes in hexadecimal; leading printable words as text."""
    words = re.match(rb"(?:[!-~]+[ \n]+)*", data)
    start = words.end() if words else 0
    rest = data[start:].hex(" ")
    rest = rest if len(rest) <= _MOST else f"{rest[:_MOST]}... ({len(data)} bytes)"
    head = _VARYING.sub("...", data[:start].decode()).replace("\n", "\\n").strip()
    head = head if len(head) <= _MOST else f"{head[:_MOST]}..."
    return " ".join(f"`{part}`" for part in (head, rest) if part).replace("|", "\\|")


def _pieces(text: bytes, binary: bytes) -> Iterator[tuple[str, bytes, bytes | None]]:
    """Token, text value and binary value; None for tokens that only the text has.

    The first piece, with token "", is what precedes the first token.
    """
    tokens = list(_TOKEN.finditer(text))
    known = {found[0].strip() for found in tokens}
    ends = [*(t.start() for t in tokens[1:]), len(text)]
    yield "", text[: tokens[0].start()], binary[: binary.index(tokens[0][0].strip())]
    at = 0
    for found, end in zip(tokens, ends, strict=True):
        token = found[0].strip()
        place = binary.find(token + b" ", at)
        if place < 0:
            yield token.decode(), text[found.end() : end], None
            continue
        at = place + len(token) + 1
        nexts = (t.start() for t in _TOKEN.finditer(binary, at) if t[0].strip() in known)
        yield token.decode(), text[found.end() : end], binary[at : next(nexts, len(binary))]


def _both_forms(name: str) -> tuple[bytes, bytes]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        SAMPLES[name](str(path), False)
        text = path.read_bytes()
        SAMPLES[name](str(path), True)
        return text, path.read_bytes()


def format_table(name: str, brief: tuple[str, ...] = ()) -> str:
    """The table of a format in Markdown; of records named in `brief` only the first row."""
    text_form, binary_form = _both_forms(name)
    closed = {found[2].decode() for found in _TOKEN.finditer(text_form) if found[1]}
    lines = ["| token | in text | in binary |", "|---|---|---|"]
    records: list[str] = []
    seen: set[tuple[str, ...]] = set()
    before = ""
    for token, text, binary in _pieces(text_form, binary_form):
        word = token.strip("</>")
        if token.startswith("</") and records and records[-1] == word:
            records.pop()
        place = (*records, token)
        if place not in seen and not set(records) & set(brief):
            indent = "&nbsp;&nbsp;" * len(records)
            shown = "" if binary is None else _shown_binary(binary)
            label = f"`{token}`" if token else "(start)"
            lines.append(f"| {indent}{label} | {_shown_text(text)} | {shown} |")
        seen.add(place)
        is_list_of_itself = token == before  # <MatrixDebugInfo> is a list's name and an entry's
        if word in closed and not token.startswith("</") and not is_list_of_itself:
            records.append(word)
        before = token
    return "\n".join(lines) + "\n"


_SPARSE = SparseMatrix.from_counts([1], np.array([2]), np.array([0.5]), 3)
_SINGLE = np.array([[0.5, 1]], np.float32)

VALUES: tuple[tuple[str, Callable[[Writer, Any], None], Any], ...] = (
    ("word", Writer.write_token, "output"),
    ("bool", Writer.write_bool, True),
    ("int32", Writer.write_int32, 5),
    ("size (C++: size_t)", Writer.write_size, 5),
    ("float", Writer.write_float, 0.5),
    ("double", Writer.write_double, 0.5),
    ("int32 vector", Writer.write_int32_vector, [1, 2]),
    ("int32 pairs", Writer.write_int_pairs, [[1, 2]]),
    ("vector of floats", Writer.write_vector, _SINGLE[0]),
    ("vector of doubles", Writer.write_vector, np.array([0.5])),
    ("matrix of floats", Writer.write_matrix, _SINGLE),
    ("compressed matrix", write_general_matrix, compress(np.ones((9, 1), np.float32))),
    ("sparse matrix", write_general_matrix, _SPARSE),
    ("Indexes", write_index_vector, make_indexes(0, [-1, 0, 200])),
    ("Cindexes", lambda w, v: write_cindex_vector(w, *v), ([4, 4], make_indexes(0, [0, 1]))),
)


def value_table() -> str:
    """The table of the encodings of basic values, in Markdown."""
    lines = ["| value | in text | in binary |", "|---|---|---|"]
    for kind, write, value in VALUES:
        forms = []
        for binary in (False, True):
            write(Writer(out := io.BytesIO(), binary), value)
            forms.append(out.getvalue())
        lines.append(f"| {kind} | {_shown_text(forms[0])} | {_shown_binary(forms[1])} |")
    return "\n".join(lines) + "\n"


def _kind(field: Field[Any]) -> str:
    if isinstance(field, Part):
        return f"({', '.join(_shown_fields(field.cls.FIELDS))})"
    if isinstance(field, Statistic):
        return "vector" if field.ndim == 1 else "matrix"
    method = getattr(type(field), "METHODS", ("",))[0]
    kind = method.removeprefix("read_") or type(field).__name__.strip("_")
    return kind.replace("_", " ").replace("int pairs", "int32 pairs")


def _shown_fields(fields: tuple[Field[Any], ...]) -> list[str]:
    shown = []
    for field in fields:
        if field.token is None:
            continue
        text = f"`{field.token}` {_kind(field)}" if field.token else _kind(field)
        shown.append(f"[{text}]" if field.optional else text)
    return shown


def component_field_table() -> str:
    """The table of the fields of all component types in files, in Markdown."""
    lines = ["| type | fields |", "|---|---|"]
    for name in component_types():
        lines.append(f"| `{name}` | {', '.join(_shown_fields(component_class(name).FIELDS))} |")
    return "\n".join(lines) + "\n"

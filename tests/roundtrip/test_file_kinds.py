"""Every kind of file that programs read and write: what passes through unchanged stays the same.

`KINDS` is the list of them. Each file is read and written again in its own form, byte for byte; and
in the other form (text or binary) and back, twice, the second time the same as the first.
"""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnet3tools.graph.request import ComputationRequest
from nnet3tools.io import holders
from nnet3tools.io.general_matrix import CompressionMethod, compress
from nnet3tools.io.sparse import SparseMatrix
from nnet3tools.io.stream import Reader, Writer
from nnet3tools.io.table_reader import iterate_archive
from nnet3tools.nnet.am_nnet import AmNnet
from nnet3tools.nnet.components.registry import component_types, read_component
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.hmm.topology import HmmTopology
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.program.files import read_computation, write_computation
from nnet3tools.program.seal import NETWORK
from nnet3tools.training.example import EXAMPLE
from support.component_zoo import QUANTIZED, ZOO, model_of, quantized_model_of
from support.fuzz_corpus import in_corpus

Read = Callable[[Reader], Any]
Write = Callable[[Writer, Any], None]


def _table(holder: holders.Holder) -> tuple[Read, Write]:
    def read(reader: Reader) -> list:
        return list(iterate_archive(reader, holder))

    def write(writer: Writer, items: list) -> None:
        for key, value in items:
            writer.write_text(f"{key} ")
            holder.write_object(writer, value)

    return read, write


def _method(cls: Any) -> tuple[Read, Write]:
    return cls.read, lambda writer, value: value.write(writer)


KINDS: dict[str, tuple[str, Read, Write]] = {
    "network, binary": ("final.raw", *_method(Nnet)),
    "network, text": ("final.txt", *_method(Nnet)),
    "acoustic model, binary": ("final.mdl", *_method(AmNnet)),
    "acoustic model, text": ("mdl.txt", *_method(AmNnet)),
    "examples, binary": ("egs", *_table(EXAMPLE)),
    "examples, text": ("egs.txt", *_table(EXAMPLE)),
    "minibatches": ("merged", *_table(EXAMPLE)),
    "request, binary": ("request", *_method(ComputationRequest)),
    "request, text": ("request.txt", *_method(ComputationRequest)),
    "program, binary": ("program", read_computation, write_computation),
    "program, text": ("program.txt", read_computation, write_computation),
    "features, binary": ("feats.ark", *_table(holders.MATRIX)),
    "features, text": ("feats.txt", *_table(holders.MATRIX)),
    "targets": ("targets.ark", *_table(holders.GENERAL_MATRIX)),
    "posteriors, binary": ("post.ark", *_table(holders.POSTERIOR)),
    "posteriors, text": ("post.txt", *_table(holders.POSTERIOR)),
    "words": ("utt2spk", *_table(holders.TOKEN)),
    "integer vectors": ("lengths", *_table(holders.INT32_VECTOR)),
    **{
        f"network of {kind}, {form}": (f"{kind}.{form}", *_method(Nnet))
        for kind in ZOO
        for form in ("raw", "txt")
    },
}
"""Kind -> (a file of the corpus, how it is read, how it is written)."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with in_corpus(tmp_path_factory.mktemp("corpus")) as folder:
        return folder


def from_bytes(data: bytes, read: Read, table: bool) -> tuple[Any, bool]:
    reader = Reader(io.BytesIO(data), "test")
    if not table:
        reader.read_header()
    value = read(reader)
    assert reader.at_end()
    return value, reader.binary


def to_bytes(value: Any, write: Write, binary: bool, table: bool) -> bytes:
    file = io.BytesIO()
    writer = Writer(file, binary, "test")
    if not table:
        writer.write_header()
    write(writer, value)
    return file.getvalue()


@pytest.mark.parametrize("kind", KINDS)
def test_unchanged_is_the_same_bytes(corpus: Path, kind: str) -> None:
    name, read, write = KINDS[kind]
    data = (corpus / name).read_bytes().partition(NETWORK.encode())[0]  # without the seal
    table = read.__qualname__.startswith("_table")
    binary = b"\0B" in data[:16]
    value, _ = from_bytes(data, read, table)
    assert to_bytes(value, write, binary, table) == data
    other = to_bytes(value, write, not binary, table)
    back = to_bytes(from_bytes(other, read, table)[0], write, binary, table)
    again = to_bytes(from_bytes(back, read, table)[0], write, not binary, table)
    assert again == other


@pytest.mark.parametrize("method", list(CompressionMethod))
def test_compressed_matrices(method: CompressionMethod) -> None:
    rng = np.random.default_rng(1)
    for shape in ((20, 4), (3, 5), (1, 1)):
        matrix = compress(rng.random(shape).astype(np.float32), method)
        once = to_bytes([("a", matrix)], _table(holders.GENERAL_MATRIX)[1], True, True)
        value, _ = from_bytes(once, _table(holders.GENERAL_MATRIX)[0], True)
        assert to_bytes(value, _table(holders.GENERAL_MATRIX)[1], True, True) == once


@pytest.mark.parametrize("binary", [False, True])
def test_sparse_matrices(binary: bool) -> None:
    offsets, columns = np.array([0, 2, 2, 3], np.int32), np.array([1, 4, 0], np.int32)
    sparse = SparseMatrix(offsets, columns, np.array([0.5, -1, 2], np.float32), 5)
    read, write = _table(holders.GENERAL_MATRIX)
    data = to_bytes([("a", sparse)], write, binary, True)
    assert to_bytes(from_bytes(data, read, True)[0], write, binary, True) == data


def test_topology(corpus: Path) -> None:
    value, _ = from_bytes((corpus / "topo").read_bytes(), HmmTopology.read, False)
    write = _method(HmmTopology)[1]
    for binary in (False, True):
        data = to_bytes(value, write, binary, False)
        assert to_bytes(from_bytes(data, HmmTopology.read, False)[0], write, binary, False) == data


@pytest.mark.parametrize("kind", ZOO)
def test_config_lines_of_a_network_make_the_same_nodes(kind: str) -> None:
    nnet = model_of(kind)
    lines = "\n".join(nnet.config_lines())
    again = nnet.copy()
    again.read_config(parse_config_lines(lines, "again"))
    assert again.config_lines() == nnet.config_lines()


def test_every_component_type_is_in_the_list() -> None:
    assert set(ZOO) | set(QUANTIZED) == set(component_types())


@pytest.mark.parametrize("kind", QUANTIZED)
@pytest.mark.parametrize("bits", [8, 16, 32])
def test_quantized_networks_are_the_same_bytes(kind: str, bits: int) -> None:
    read, write = _method(Nnet)
    for binary in (False, True):
        data = to_bytes(quantized_model_of(kind, bits), write, binary, False)
        assert to_bytes(from_bytes(data, read, False)[0], write, binary, False) == data


# Files of older Kaldis: what stood there -> what stands there now. Reading the old form gives the
# new one. In text form; `kind` is the component.
OLD_SPELLINGS = (
    ("AffineComponent", "</AffineComponent>", "<IsGradient> F </AffineComponent>"),
    ("AffineComponent", "<LearningRate> 0.001 ", ""),
    ("RepeatedAffineComponent", "</Rep", "<IsGradient> F </Rep"),
    ("BlockAffineComponent", "</Block", "<IsGradient> F </Block"),
    ("ConvolutionComponent", "<IsGradient> F </Conv", "</Conv"),
    ("PerElementScaleComponent", "</Per", "<IsGradient> F </Per"),
    ("PerElementOffsetComponent", "<Dim> 4 ", "<IsGradient> F <Dim> 4 "),
    (
        "NaturalGradientAffineComponent",
        "</Nat",
        "<MaxChangePerSample> 0.1 <IsGradient> F <UpdateCount> 3 <ActiveScalingCount> 1 "
        "<MaxChangeScaleStats> 2 </Nat",
    ),
    ("NormalizeComponent", "<InputDim>", "<Dim>"),
    (
        "NormalizeComponent",
        "</Norm",
        "<ValueAvg> [ 1 2 3 4 ]\n<DerivAvg> [ 1 2 3 4 ]\n<Count> 3 </Norm",
    ),
    ("SumGroupComponent", "</SumGroupComponent>", "<SumGroupComponent>"),
    ("TanhComponent", "<OderivRms>  [ ]\n<OderivCount> 0 ", ""),
    ("TanhComponent", "<NumDimsSelfRepaired> 0 <NumDimsProcessed> 0 ", ""),
    ("ClipGradientComponent", "<NumSelfRepaired> 0 <NumBackpropped> 0 ", ""),
    ("BackpropTruncationComponent", "<Scale> 1 ", ""),
    ("DropoutComponent", "<TestMode> F ", ""),
    ("DropoutComponent", "<DropoutPerFrame> F ", ""),
    (
        "NoOpComponent",
        "<BackpropScale> 1 ",
        "<ValueAvg> [ ]\n<DerivAvg> [ ]\n<Count> 0 <OderivRms> [ ]\n<OderivCount> 0 "
        "<NumDimsSelfRepaired> 0 <NumDimsProcessed> 0 ",
    ),
    ("TdnnComponent", "<AlphaInOut> 4 4 ", "<Alpha> 4 "),
)


@pytest.mark.parametrize(("kind", "now", "then"), OLD_SPELLINGS)
def test_old_files(kind: str, now: str, then: str) -> None:
    new = to_bytes(model_of(kind), _method(Nnet)[1], False, False)
    assert new.count(now.encode()) == 1, new
    old = new.replace(now.encode(), then.encode())
    assert to_bytes(from_bytes(old, Nnet.read, False)[0], _method(Nnet)[1], False, False) == new


def test_old_permutations_are_floats() -> None:
    file = io.BytesIO()
    writer = Writer(file, True, "test")
    writer.write_token("<PermuteComponent>")
    writer.write_token("<ColumnMap>")
    writer.write_vector(np.array([2, 0, 1], np.float32))
    writer.write_token("</PermuteComponent>")
    component = read_component(Reader(io.BytesIO(file.getvalue()), "test", True))
    assert component.column_map.tolist() == [2, 0, 1]  # type: ignore[attr-defined]

"""Small good files of the kinds that the corpus of programs (fuzz_corpus.py) lacks."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from nnet3tools.io.compressed import CompressedMatrix, CompressionMethod
from nnet3tools.io.files import open_output
from nnet3tools.io.general_matrix import write_general_matrix
from nnet3tools.io.holders import (
    BOOL,
    DOUBLE,
    FLOAT,
    INT32,
    INT32_VECTOR,
    POSTERIOR,
    TOKEN,
    TOKEN_VECTOR,
    VECTOR,
)
from nnet3tools.io.posterior import Posterior
from nnet3tools.io.sparse import SparseMatrix
from nnet3tools.io.writer import Writer
from nnet3tools.nnet.am_nnet import AmNnet
from nnet3tools.training.lda import LdaStats
from support.programs import write_table, write_tables

FORMS = (("bin", True), ("txt", False))
_TABLES = {
    "bool": (BOOL, {"a": True, "b": False}),
    "int": (INT32, {"a": 1, "b": -2, "c": 3}),
    "float": (FLOAT, {"a": 1.5, "b": -2e10}),
    "double": (DOUBLE, {"a": 1.5, "b": -2e10}),
    "ints": (INT32_VECTOR, {"a": np.arange(4, dtype=np.int32), "b": np.zeros(0, np.int32)}),
    "word": (TOKEN, {"a": "x", "b": "y"}),
    "words": (TOKEN_VECTOR, {"a": ["x", "yy"], "b": []}),
}
_OPTIONS = """# options of nnet3-merge-egs
--minibatch-size=4=2:4,8/100=1
--compress=false   # a comment
--verbose=1
"""
_FORMULA = """input-node name=input dim=4
component name=f type=ExpressionComponent dim=4 params=alpha:4:init=0.25 expression="{}"
component-node name=f component=f input=input
output-node name=output input=f
"""
_FORMULAS = (
    "max(x, 0) + alpha * min(x, 0)",
    "softmax(x) * row_sum(exp(x - row_max(x))) + alpha",
    "tanh(x) ** 2 / (1 + abs(alpha)) - 1e-3 * (x > 0.5)",
    "concatenate(slice(x, 0, 2), slice(x, 2, 4))",
)
_DESCRIPTOR = """input-node name=input dim=4
input-node name=ivector dim=2
component name=a type=TanhComponent dim=4
component-node name=a component=a input=input
component-node name=b component=a input=a
output-node name=output input={}
"""
_DESCRIPTORS = (
    "Append(Offset(input, -1), input, ReplaceIndex(ivector, t, 0))",
    "Sum(Scale(0.5, a), IfDefined(Offset(b, -3)), Const(1.0, 4))",
    "Switch(Failover(a, Round(b, 3)), Offset(a, 1, 2))",
    "Append(Sum(a, Failover(Offset(a, 5), b)), Const(-2, 3))",
)
_SPECIFIERS = (
    "ark:x",
    "scp,p,s,cs:x y",
    "ark,t:-",
    "ark,scp:a,b",
    "x|",
    "|y",
    "ark,bg:z:12[0:9,1:2]",
)
_MESSAGES = (
    '{"config": {"sample_rate": 8000.0, "words": true, "max_alternatives": 3}}',
    '{"config": {"sample_rate": "8000", "phrase_list": ["a", "b"]}}',
    '{"eof" : 1}',
)
_SIZES = ("64:128,256", "128=64:128,256/256=32:64,128", "7")


def make_samples() -> None:
    """Write the files into the working directory."""
    _matrices()
    for name, (holder, items) in _TABLES.items():
        write_tables(f"{name}.table", items, holder)
    _archives()
    Path("ranges").write_text("u0 0 0 2 6 1\nu1 0 0 0 5 2\nu1 1 1 4 5 0\n")
    Path("list").write_text("u0 extra\nu2\n")
    Path("options").write_text(_OPTIONS)
    for kind, text, parts in (
        ("formula", _FORMULA, _FORMULAS),
        ("descriptor", _DESCRIPTOR, _DESCRIPTORS),
        ("specifier", "{}", _SPECIFIERS),
        ("sizes", "{}", _SIZES),
        ("message", "{}", _MESSAGES),
    ):
        for number, part in enumerate(parts):
            Path(f"{kind}.{number}").write_text(text.format(part))
    np.savez("parameters.npz", w=np.ones((2, 3), np.float32), b=np.zeros((1, 3), np.float32))
    _statistics()
    _transition_model()


def _written(name: str, write: Callable[[Writer], object], binary: bool) -> None:
    with open_output(name, binary) as writer:
        write(writer)


def _matrices() -> None:
    rng = np.random.default_rng(8)
    full = rng.normal(size=(9, 3)).astype(np.float32)
    for method in (2, 3, 5):
        compressed = CompressedMatrix.from_dense(full, CompressionMethod(method))
        _written(f"matrix.cm{method}", lambda w, m=compressed: write_general_matrix(w, m), True)
    sparse = SparseMatrix.from_dense(full * (full > 0.5))
    for form, binary in FORMS:
        _written(f"matrix.{form}", lambda w: w.write_matrix(full), binary)
        _written(f"matrix64.{form}", lambda w: w.write_matrix(full.astype(np.float64)), binary)
        _written(f"vector.{form}", lambda w: w.write_vector(full[0]), binary)
        _written(f"sparse.{form}", lambda w: write_general_matrix(w, sparse), binary)
        _written(f"packed.{form}", lambda w: w.write_packed(full[:3] + full[:3].T), binary)


def _archives() -> None:
    rng = np.random.default_rng(9)
    feats = {f"u{i}": rng.normal(size=(3 + i, 2)).astype(np.float32) for i in range(3)}
    write_table("ark,scp:mats.ark,mats.scp", feats)
    Path("ranges.scp").write_text(
        "u0 mats.ark:3[0:1]\nu1 mats.ark:3[1:2,0:0]\nu2 cat matrix.txt|\nu3 matrix.cm2\n"
    )
    write_table("ark,t:vecs.txt", {key: value[0] for key, value in feats.items()}, VECTOR)
    post = Posterior.from_counts(np.array([1, 2, 0]), np.array([3, 1, 2]), np.array([1, 0.5, 0.5]))
    write_tables("posts", {"u0": post}, POSTERIOR)


def _statistics() -> None:
    rng = np.random.default_rng(10)
    stats = LdaStats.empty(3, 2)
    rows = np.arange(6)
    data = rng.normal(size=(6, 2)).astype(np.float32)
    stats.accumulate(data, rows, rows % 3, np.ones(6, np.float32))
    for form, binary in FORMS:
        stats.save(f"lda.{form}", binary)


def _transition_model() -> None:
    model = AmNnet.load("final.mdl").transition_model
    for form, binary in FORMS:
        _written(f"transitions.{form}", model.write, binary)

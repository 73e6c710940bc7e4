"""What users call, by name: every operator of the package."""

from __future__ import annotations

from nnet3tools.expression import binary as _binary  # noqa: F401
from nnet3tools.expression import unary as _unary
from nnet3tools.expression.control import (
    callback,
    checkpoint,
    choose,
    clip_gradient,
    debug,
    lambda_,
    stop_gradient,
)
from nnet3tools.expression.elementwise import KINDS
from nnet3tools.expression.losses import cross_entropy, dropout, dropout_mask, unlikelihood
from nnet3tools.expression.moves import (
    atleast_nd,
    concatenate,
    contiguous,
    flatten,
    flatten_2d,
    narrow,
    repeat,
    reshape,
    shift,
    slice_,
    stack,
    swap_axes,
    transpose,
)
from nnet3tools.expression.node import Expr, Operand
from nnet3tools.expression.norm import layer_norm, rms_norm
from nnet3tools.expression.order import argmax, argmin, cumsum, sort, topk
from nnet3tools.expression.products import affine, bdot, dot
from nnet3tools.expression.reductions import (
    logsumexp,
    max_,
    mean,
    min_,
    prod,
    scalar_product,
    std,
    sum_,
    var,
    weighted_average,
)
from nnet3tools.expression.select import cols, gather, index_select, rows, scatter
from nnet3tools.expression.softmax import log_softmax, softmax
from nnet3tools.expression.sparse import csr_dot, dot_csr
from nnet3tools.tensor.functional import Type

__all__ = [
    "abs_", "affine", "and_", "argmax", "argmin", "atleast_nd", "bdot", "bump", "callback",
    "cast", "ceil", "checkpoint", "choose", "clip", "clip_gradient", "cols", "concatenate",
    "contiguous", "cos", "cross_entropy", "csr_dot", "cumsum", "debug", "dot", "dot_csr",
    "dropout", "dropout_mask", "eq", "erf", "exp", "flatten", "flatten_2d", "floor", "gather",
    "ge", "gelu", "gt", "highway", "index_select", "lambda_", "layer_norm", "le", "leaky_relu",
    "log", "log_softmax", "logaddexp", "logsumexp", "lt", "max_", "maximum", "mean", "min_",
    "minimum", "narrow", "ne", "neg", "not_", "or_", "pow_", "prelu", "prod", "relu", "repeat",
    "reshape", "rms_norm", "round_", "rows", "scalar_product", "scatter", "sgn", "shift",
    "sigmoid", "sin", "slice_", "softmax", "softplus", "sort", "sqr", "sqrt", "stack", "std",
    "stop_gradient", "sum_", "swap_axes", "swish", "tan", "tanh", "topk", "transpose",
    "unlikelihood", "var", "weighted_average", "where",
]  # fmt: skip

abs_ = KINDS["abs"].make
and_ = KINDS["and"].make
bump = KINDS["bump"].make
ceil = KINDS["ceil"].make
cos = KINDS["cos"].make
eq = KINDS["eq"].make
erf = KINDS["erf"].make
exp = KINDS["exp"].make
floor = KINDS["floor"].make
ge = KINDS["ge"].make
gelu = KINDS["gelu"].make
gt = KINDS["gt"].make
highway = KINDS["highway"].make
le = KINDS["le"].make
leaky_relu = KINDS["leaky_relu"].make
log = KINDS["log"].make
logaddexp = KINDS["logaddexp"].make
lt = KINDS["lt"].make
maximum = KINDS["max"].make
minimum = KINDS["min"].make
ne = KINDS["ne"].make
neg = KINDS["neg"].make
not_ = KINDS["not"].make
or_ = KINDS["or"].make
pow_ = KINDS["pow"].make
prelu = KINDS["prelu"].make
relu = KINDS["relu"].make
round_ = KINDS["round"].make
sgn = KINDS["sgn"].make
sigmoid = KINDS["sigmoid"].make
sin = KINDS["sin"].make
softplus = KINDS["softplus"].make
sqr = KINDS["sqr"].make
sqrt = KINDS["sqrt"].make
swish = KINDS["swish"].make
tan = KINDS["tan"].make
tanh = KINDS["tanh"].make
where = KINDS["where"].make


def cast(x: Expr, to: Type) -> Expr:
    """x as another element type."""
    return x if x.type is to else x.graph.add(_unary.Cast(x, to))


def clip(x: Expr, low: Operand, high: Operand | None = None) -> Expr:
    """x limited to [low, high]; with one number c to [-c, c], and not at all if c is 0."""
    if high is not None:
        return KINDS["clip"].make(x, low, high)
    if isinstance(low, (int, float)) and low == 0:
        return x
    return KINDS["clip"].make(x, -low, low)

"""Operators over arrays of any device: the manual for those who write components.

Nothing above this package calls numpy or cupy for maths on matrices. Views, slices and `reshape`
are fine (`x[:, :d]`, `x.T`, `x.reshape(n, groups, size)` of something contiguous); strided views
are worked on in place, without copies. Operators write their results into their first operand.

**Elementwise maths** is a formula over placeholders, `_1` being the output (which may be read too).
Make it once, where the module is loaded, and call it often:

    _swish = tensor.element("_1 = _2 * sigmoid(_2)")
    _swish(out, x)                                   # or run = _swish.bind(out, x); run(); run()
    _add_deriv = tensor.element("_1 += _2 * (_3 > 0)")
    _affine = tensor.element("_1 = _2 * _3 + _4")    # _3, _4 may be (N, D), (D,), (1, D), (N, 1)
    _affine(out, x, scale_row, 0.5)                  # or plain numbers
    _cell = tensor.element("s = sigmoid(x); c = s * g; m = tanh(c) * s", "c m x g")

The last one calls its operands by names, given in the order of the call, and has two outputs. A
later statement sees what an earlier one assigned. Outputs have the full shape; an operand may be an
output itself (in place). A formula is written as in Python: + - * / ** and unary minus, < <= > >=
== !=, `and`, `or`, `not`. Functions: max min clip abs sgn sqr sqrt pow exp log sin cos tan tanh erf
round floor ceil, where(condition, a, b), sigmoid softplus logaddexp relu leaky_relu prelu gelu
swish bump, and relu_back leaky_relu_back prelu_back; float32(x), int32(x), ... convert. See
tensor.formulas for the same in Python form, for derivatives and for types. A formula is one pass
over memory: put as much into one as belongs together.

row_sum, row_mean, row_max and row_min reduce the whole row, along the last axis; their value, like
an (N, 1) operand's, is the same for all of the row's elements, and may be assigned to such an
operand:

    _softmax = tensor.element("p = exp(x - row_max(x)); out = p * (1 / row_sum(p))", "out x")

col_sum and col_mean reduce the columns, along all other axes. Their value is the same for all rows
and may be assigned to a (D,) operand.

**Reductions** take a formula of the inputs `_1`, `_2`, ... without assignment:

    _column_sums = tensor.aggregate("_1", "sum", axis=0)
    _column_sums(out, x, alpha=1.0, beta=1.0)        # out = beta * out + alpha * sum; out (D,)
    _sum_squares = tensor.aggregate("sqr(_1 - _2)", "mean", axis=0)        # (x, mean_row)
    _row_dots = tensor.aggregate("_1 * _2", "sum", axis=1)                 # out (N,) or (N, 1)
    _count_active = tensor.aggregate("_1 > 0", "sum", axis=None)           # returns a float

sum, mean, max, min, prod, logsumexp. Give a float64 `out` for statistics: sums are float64 then.

**Products**: `prod(out, a, b, trans_a=, trans_b=, alpha=, beta=)` is BLAS straight into a view,
also for accumulating (beta=1). More of Kaldi's matrix vocabulary in these terms:

    AddMat, AddVecToRows           add(out, x, alpha)                      # x (N, D) or (D,)
    AddMatDiagVec, MulColsVec      element("_1 += _2 * _3")(out, x, vector)            # (D,)
    MulRowsVec, AddDiagVecMat      element("_1 *= _2")(out, vector[:, None])           # (N, 1)
    AddDiagMat2, AddDiagMatMat     aggregate("_1 * _2", "sum", axis=1 or 0)(out, a, b, beta=1.0)
    AddRowSumMat, AddColSumMat     aggregate("_1", "sum", axis=0 or 1)(out, x, alpha=, beta=)
    TraceMatMat(a, b, kTrans)      dot(a, b)
    SymAddMat2, X^T X              prod(out, x, x, trans_a=True, beta=)
    AddToDiag                      element("_1 += _2")(out.reshape(-1)[:: n + 1], value)
    AddVecVec (outer product)      prod(out, a[:, None], b[None, :], alpha=, beta=1.0)
    ApplyFloor, Heaviside          element("_1 = max(_1, _2)"), element("_1 = _2 > 0")
    SumColumns of groups           aggregate("_1", "sum", axis=2)(out, x.reshape(n, g, size))
    AddMatBlocks, group broadcast  element over x.reshape(n, blocks, d) with (n, 1, d) or (1, b, 1)
    GroupPnorm(p)                  aggregate("abs(_1) ** _2", "sum", axis=2), then "_1 = _1 ** _2"
    batch of small products        prod on arrays with three axes

**Rows**: copy_rows, add_rows, add_row_ranges and the _multi forms move rows by index arrays (-1: no
row); copy_cols likewise. Bind them if they run often: rows at equal distances become one
strided copy.

**Axes**: `transpose(out, src, axes)`, `add_transposed`; `concatenate(out, parts, axis)`,
`split(src, parts, axis)`, `add_split`; for any number of axes. A view (`x.T`, `x[:, a:b]`) is
cheaper where an operator can read it.

**Special operators**, each with its derivative: softmax, log_softmax, layer_norm (also as RMS norm;
scale and offset included), normalize_per_row, batch_norm, lstm_nonlinearity and gru_nonlinearity,
which are formulas; and what other modules of this package declare.

**Memory**: `with scratch(shape, like=x) as tmp:` for temporaries, `empty`, `zeros`, `asarray`,
`to_host` at the borders; `constant` for host arrays that never change (index arrays need nothing:
row operators upload them once), `persistent_array` for memos. **Random numbers**: tensor.random,
Kaldi's generator. **Decisions and counts of the host**: tensor.recording; numbers that depend on
data: tensor.number.

**A new operator**: if formulas can express it, a function under `@operator_of_formulas` that yields
calls of them, in a file here (softmax.py); it runs on every device. Otherwise a folder in
`operators/`, which says what is in it. `bind` raises UnsupportedOperator if a device has no
implementation of an operator.
"""

from __future__ import annotations

from nnet3tools.tensor import formulas
from nnet3tools.tensor.aggregate import Aggregate, aggregate
from nnet3tools.tensor.arrays import (
    Array,
    asarray,
    constant,
    empty,
    padded_scratch,
    persistent_array,
    scratch,
    to_host,
    zeros,
)
from nnet3tools.tensor.basics import add, copy, dot, fill, precise_products, prod, scale
from nnet3tools.tensor.cells import (
    gru_nonlinearity,
    gru_nonlinearity_backprop,
    lstm_nonlinearity,
    lstm_nonlinearity_backprop,
)
from nnet3tools.tensor.element import Element, element
from nnet3tools.tensor.norms import (
    batch_norm,
    batch_norm_backprop,
    diff_normalize_per_row,
    layer_norm,
    layer_norm_backprop,
    normalize_per_row,
)
from nnet3tools.tensor.operators import random
from nnet3tools.tensor.operators.concatenate import add_split, concatenate, split
from nnet3tools.tensor.operators.rows import (
    add_row_ranges,
    add_rows,
    add_rows_multi,
    add_to_rows_multi,
    copy_cols,
    copy_rows,
    copy_rows_multi,
    copy_to_rows_multi,
)
from nnet3tools.tensor.operators.transpose import add_transposed, transpose
from nnet3tools.tensor.registry import UnsupportedOperator
from nnet3tools.tensor.softmax import log_softmax, log_softmax_backprop, softmax, softmax_backprop

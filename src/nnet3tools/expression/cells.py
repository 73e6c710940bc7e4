"""Marian's recurrent cells and attention, composed of elementwise nodes.

After marian-dev (rnn/cells.h). In all cells, x is the input times its weights, s the state times
its weights and b the bias; each has a block of columns per gate. Where the mask is 0, the state is
kept. Kaldi's cells are LstmNonlinearityComponent and GruNonlinearityComponent.
"""

from __future__ import annotations

from nnet3tools.expression.elementwise import apply
from nnet3tools.expression.help_text import described
from nnet3tools.expression.moves import narrow
from nnet3tools.expression.node import Node
from nnet3tools.expression.reductions import scalar_product, sum_
from nnet3tools.expression.shapes import ExpressionError


def _gates(cell: str, state: Node, count: int, *parts: Node) -> list[list[Node]]:
    """For each of `parts`, its `count` column blocks as wide as `state`; errors name the `cell`."""
    size = state.shape[-1]
    for part in parts:
        if part.shape[-1] != count * size:
            shown = ", ".join(p.describe() for p in (state, *parts))
            raise ExpressionError(f"{cell}: the operands do not fit together: {shown}")
    return [[narrow(p, -1, i * size, size) for i in range(count)] for p in parts]


def keep_masked(new: Node, old: Node, mask: Node | None) -> Node:
    """`new` where the mask is 1, `old` where it is 0; `new` if there is no mask."""
    return new if mask is None else mask * new + (1 - mask) * old


@described("that of the formula", "state (.., d), x, s and b (.., 3 d), value (.., d)")
def gru(
    state: Node, x: Node, s: Node, b: Node, mask: Node | None = None, final: bool = False
) -> Node:
    """The next state of Marian's GRU, whose reset gate acts after the product with the state.

    x is the input times its weights, s the state times its weights, b the bias; their column blocks
    are reset gate, update gate, candidate. Where `mask` is 0, the state is kept. With `final` the
    reset gate also scales the candidate's bias.
    """
    (xr, xz, xh), (sr, sz, sh), (br, bz, bh) = _gates("gru", state, 3, x, s, b)
    reset, update = apply("sigmoid", xr + sr + br), apply("sigmoid", xz + sz + bz)
    inner = xh + (sh + bh) * reset if final else xh + sh * reset + bh
    candidate = apply("tanh", inner)
    return keep_masked((1 - update) * candidate + update * state, state, mask)


@described("that of the formula", "cell (.., d), x, s and b (.., 4 d), value (.., d)")
def lstm_cell(cell: Node, x: Node, s: Node, b: Node, mask: Node | None = None) -> Node:
    """The next cell of Marian's LSTM, in which rows where `mask` is 0 keep the values of `cell`.

    x is the input times its weights, s the output of the last step times its weights, b the bias;
    their column blocks are forget gate, input gate, candidate, output gate.
    """
    (xf, xi, xc, _), (sf, si, sc, _), (bf, bi, bc, _) = _gates("lstm_cell", cell, 4, x, s, b)
    forget, enter = apply("sigmoid", xf + sf + bf), apply("sigmoid", xi + si + bi)
    return keep_masked(forget * cell + enter * apply("tanh", xc + sc + bc), cell, mask)


@described("that of the formula", "cell (.., d), x, s and b (.., 4 d), value (.., d)")
def lstm_output(cell: Node, x: Node, s: Node, b: Node) -> Node:
    """The output of Marian's LSTM from the next cell and the x, s and b given to `lstm_cell`."""
    gates = [part[3] for part in _gates("lstm_output", cell, 4, x, s, b)]
    return apply("sigmoid", gates[0] + gates[1] + gates[2]) * apply("tanh", cell)


@described("that of the formula", "cell, x, f and both values (.., d)")
def ssru(cell: Node, x: Node, f: Node, mask: Node | None = None) -> tuple[Node, Node]:
    """(output, next cell) of a simple recurrent unit (Kim et al. 2019), given the last cell.

    x and f are the input times the weights of the candidate and of the forget gate. Rows where
    `mask` is 0 become 0, as in Marian.
    """
    made = apply("highway", cell, x, f)
    output = apply("relu", made)
    return (output, made) if mask is None else (mask * output, mask * made)


@described(
    "with t = tanh(context + state): adj * t by va, adj * va * (1 - t * t) by context and state",
    "va (.., d), context and state broadcast to (.., d), value (.., 1)",
)
def attention(va: Node, context: Node, state: Node) -> Node:
    """Scores (.., 1) of additive attention, before the softmax: tanh(context + state) . va.

    context (.., D) is the projected encoder output, `state` the projected decoder state, va a
    vector.
    """
    energy = apply("tanh", context + state)
    if va.shape == energy.shape:
        return scalar_product(energy, va, -1)
    return sum_(energy * va, -1)

"""Layers of networks, composed of operators: embedding, dense, recurrent and transformer layers.

A layer makes its parameters when it is first used. Their names begin with the layer's: dense(x, 8,
"out") has out_W and out_b. A second use of the name shares them. Initial values are drawn from
`tensor.random`, so that an equal seed gives an equal network. Values are (batch, time, columns).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable

import numpy as np

from nnet3tools.expression import initial
from nnet3tools.expression.cells import gru, keep_masked, lstm_cell, lstm_output
from nnet3tools.expression.elementwise import apply
from nnet3tools.expression.joins import stack
from nnet3tools.expression.losses import dropout
from nnet3tools.expression.moves import flatten, narrow, reshape, transpose
from nnet3tools.expression.node import Node, NodeGraph
from nnet3tools.expression.norm import layer_norm
from nnet3tools.expression.products import affine, bdot, dot
from nnet3tools.expression.select import rows
from nnet3tools.expression.shapes import ExpressionError, Shape
from nnet3tools.expression.softmax import softmax
from nnet3tools.fast_dataclasses import dataclass


class Cell(enum.Enum):
    """Kind of cell of a recurrent layer."""

    GRU = "gru"
    LSTM = "lstm"


@dataclass(frozen=True)
class Transformer:
    """Options of transformer layers (Vaswani et al. 2017)."""

    heads: int = 8
    dim_feed_forward: int = 2048
    dropout: float = 0.1
    pre_norm: bool = False
    """Whether layer norm precedes each sublayer instead of following the sum with its input."""
    activation: str = "relu"
    """An elementwise function."""


def dense(
    x: Node, dim: int, name: str, init: Callable[[Shape], np.ndarray] = initial.glorot_uniform
) -> Node:
    """x (.., n) times <name>_W (n, dim), made by `init`, plus <name>_b (1, dim), 0 at first."""
    weights = x.graph.weights(f"{name}_W", (x.shape[-1], dim), init)
    return affine(x, weights, x.graph.weights(f"{name}_b", (1, dim), initial.zeros))


def embedding(indexes: Node, vocabulary: int, dim: int, name: str) -> Node:
    """Rows of the parameter `name`_E, (vocabulary, dim), one for each index: (.., dim)."""
    table = indexes.graph.weights(
        f"{name}_E", (vocabulary, dim), lambda shape: initial.glorot_uniform(shape, fan_out=True)
    )
    return reshape(rows(table, flatten(indexes)), (*indexes.shape, dim))


def add_positions(x: Node, name: str = "", longest: int = 0) -> Node:
    """x (batch, time, dim) times sqrt(dim), plus an embedding of the times.

    Columns of the embedding are sines, then cosines, of wavelengths from 2 pi to 20000 pi; with a
    `name` it is a parameter for `longest` times instead.
    """
    _, time, dim = x.shape
    if name:
        table = narrow(x.graph.weights(f"{name}_P", (longest, dim)), 0, 0, time)
    else:
        scales = 10000.0 ** -(np.arange(dim // 2) / max(1, dim // 2 - 1))
        angles = np.arange(time)[:, None] * scales
        waves = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
        table = x.graph.constant(np.pad(waves, [(0, 0), (0, dim % 2)]), x.type)
    return x * math.sqrt(dim) + table


def normalized(x: Node, name: str) -> Node:
    """Layer norm of x with new parameters for columns: `name`_scale (1 at first), _offset (0)."""
    shape = (1, x.shape[-1])
    scale = x.graph.weights(f"{name}_scale", shape, initial.ones)
    return layer_norm(x, scale, x.graph.weights(f"{name}_offset", shape, initial.zeros), 1e-6)


def recurrent(
    x: Node,
    dim: int,
    name: str,
    cell: Cell = Cell.GRU,
    mask: Node | None = None,
    backwards: bool = False,
) -> Node:
    """The outputs (batch, time, dim) of a recurrent layer, whose state is 0 at first.

    At times where `mask` (batch, time, 1) is 0, the state is kept. With `backwards` the layer
    begins at the last time.
    """
    graph, (batch, time, _) = x.graph, x.shape
    width = dim * (4 if cell is Cell.LSTM else 3)
    inputs = dot(x, graph.weights(f"{name}_W", (x.shape[-1], width)))
    weights = graph.weights(f"{name}_U", (dim, width))
    bias = graph.weights(f"{name}_b", (1, width), initial.zeros)
    state = memory = graph.constant(np.zeros((batch, dim)), x.type)
    outputs = []
    for t in range(time)[:: -1 if backwards else 1]:
        now = reshape(narrow(inputs, 1, t, 1), (batch, width))
        kept = None if mask is None else reshape(narrow(mask, 1, t, 1), (batch, 1))
        recurrence = dot(state, weights)
        if cell is Cell.LSTM:
            memory = lstm_cell(memory, now, recurrence, bias, kept)
            state = keep_masked(lstm_output(memory, now, recurrence, bias), state, kept)
        else:
            state = gru(state, now, recurrence, bias, kept)
        outputs.append(state)
    return stack(outputs[::-1] if backwards else outputs, 1)


def causal_mask(graph: NodeGraph, time: int) -> Node:
    """A mask (1, 1, time, time) that lets each time attend to itself and to earlier times."""
    return graph.constant(np.tril(np.ones((1, 1, time, time), bool)))


def multi_head_attention(
    x: Node, memory: Node, heads: int, name: str, mask: Node | None = None, p: float = 0.0
) -> Node:
    """For each time of x (batch, time, dim), a weighted sum of values of `memory`.

    Weights are the softmax of scaled products of queries of x and keys of memory (batch, time',
    ..), 0 where `mask`, which broadcasts to (batch, heads, time, time'), is 0. p: their dropout.
    """
    dim = x.shape[-1]
    if dim % heads:
        raise ExpressionError(f"{name}: {heads} heads do not divide {dim} columns")

    def projected(source: Node, part: str) -> Node:
        made = dense(source, dim, f"{name}_{part}")
        return transpose(reshape(made, (*source.shape[:2], heads, dim // heads)), (0, 2, 1, 3))

    scores = bdot(
        projected(x, "query"), projected(memory, "key"), trans_b=True,
        scalar=math.sqrt(heads / dim),
    )  # fmt: skip
    weights = _dropped(softmax(scores, mask=mask), p)
    found = transpose(bdot(weights, projected(memory, "value")), (0, 2, 1, 3))
    return dense(reshape(found, x.shape), dim, f"{name}_output")


def _dropped(x: Node, p: float) -> Node:
    return x if x.graph.inference else dropout(x, p)


def transformer_layer(
    x: Node,
    options: Transformer,
    name: str,
    mask: Node | None = None,
    memory: Node | None = None,
    memory_mask: Node | None = None,
) -> Node:
    """A layer of self-attention and feed-forward network; with `memory`, a decoder's layer.

    A decoder's layer also attends to `memory` (batch, time', dim), the encoder's output. Masks are
    those of multi_head_attention. Names of parameters begin with `name`.
    """

    def add(x: Node, part: str, sublayer: Callable[[Node], Node]) -> Node:
        norm = f"{name}_{part}_norm"
        if options.pre_norm:
            return x + _dropped(sublayer(normalized(x, norm)), options.dropout)
        return normalized(x + _dropped(sublayer(x), options.dropout), norm)

    def attend(part: str, query: Node, source: Node, mask: Node | None) -> Node:
        heads, p = options.heads, options.dropout
        return multi_head_attention(query, source, heads, f"{name}_{part}", mask, p)

    def feed_forward(x: Node) -> Node:
        hidden = apply(options.activation, dense(x, options.dim_feed_forward, f"{name}_ffn1"))
        return dense(_dropped(hidden, options.dropout), x.shape[-1], f"{name}_ffn2")

    x = add(x, "self", lambda q: attend("self", q, q, mask))
    if memory is not None:
        x = add(x, "context", lambda q: attend("context", q, memory, memory_mask))
    return add(x, "ffn", feed_forward)

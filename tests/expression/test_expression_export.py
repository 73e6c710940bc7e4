"""Graphs as ONNX models, run by onnxruntime, and as Graphviz text."""

import numpy as np
import pytest

from nnet3tools import expression as ex
from nnet3tools.expression.graphviz import graphviz
from nnet3tools.expression.node import Node
from support.expression_checks import normal


def sparse(x):
    """The parts of a sparse 3 x 4 matrix whose values are the first elements of x."""
    values = ex.narrow(ex.flatten(x), 0, 0, 4)
    indexes, offsets = ([1, 3, 0, 2], [0, 2, 2, 4])
    return values, x.graph.constant(indexes), x.graph.constant(offsets)


CASES = {
    "arithmetic": lambda x, y: (x + y * 2 - 1) / (ex.sqr(y) + 1) + x**2,
    "functions": lambda x, y: ex.tanh(x) + ex.sigmoid(y) * ex.erf(x) + ex.sin(x) * ex.cos(y),
    "activations": lambda x, y: ex.relu(x) + ex.swish(y) + ex.gelu(x) + ex.leaky_relu(y),
    "more": lambda x, y: ex.softplus(x) + ex.logaddexp(x, y) + ex.prelu(x, y) + ex.sgn(x),
    "logic": lambda x, y: ex.where((x > 0) & ~(y < 0), x, y) + (x <= y) * 1.5,
    "limits": lambda x, y: ex.maximum(x, y) * ex.minimum(x, 0.5) + ex.clip(x, -0.3, 0.6),
    "rounding": lambda x, y: ex.floor(x) + ex.ceil(y) + ex.round_(x) + ex.abs_(y),
    "reductions": lambda x, y: ex.concatenate(
        [f(x, 1) for f in (ex.sum_, ex.mean, ex.max_, ex.min_, ex.prod, ex.logsumexp, ex.std)], 1
    ),
    "columns": lambda x, y: ex.var(x, 0) + ex.sum_(x, None),
    "softmax": lambda x, y: ex.softmax(x) + ex.log_softmax(y) + ex.softmax(x, axis=0),
    "products": lambda x, y: ex.dot(x, y, trans_b=True, scalar=0.5) + ex.dot(x, x, False, True),
    "affine": lambda x, y: ex.affine(x, y, x.graph.constant(np.ones(4, np.float32)), trans_b=True),
    "moves": lambda x, y: ex.transpose(
        ex.reshape(
            ex.concatenate([ex.narrow(x, 1, 1, 2), ex.slice_(y, 1, None, None, -1)], 1), (5, 4)
        )
    ),
    "shift": lambda x, y: ex.shift(x, (1, -1), 0.5),
    "picks": lambda x, y: ex.rows(x, [2, 0]) + ex.gather(y, 0, np.array([[0, 1, 2], [3, 3, 0]])),
    "order": lambda x, y: ex.sort(x, 1)[0]
    + ex.topk(y, 1, 0, False)[0]
    + ex.cumsum(x, 1, True, True),
    "norms": lambda x, y: ex.layer_norm(x, y, x) + ex.rms_norm(y) + ex.batch_norm(x),
    "average": lambda x, y: ex.weighted_average(x, ex.exp(y), 1),
    "highway": lambda x, y: ex.highway(x, y, ex.stop_gradient(ex.checkpoint(x * y))),
    "loss": lambda x, y: ex.cross_entropy(
        x, x.graph.constant(np.array([0, 1, 2, 1], np.int32)), 0.1
    ),
    "sparse": lambda x, y: (
        ex.csr_dot((3, 4), *sparse(y), x)
        + ex.transpose(ex.dot_csr(ex.transpose(y), (3, 4), *sparse(x), True))
    ),
    "sparse_transposed": lambda x, y: (
        ex.dot_csr(y, (3, 4), *sparse(x))
        + ex.transpose(ex.csr_dot((3, 4), *sparse(y), ex.transpose(y), True))
    ),
    "casts": lambda x, y: ex.cast(ex.cast(x * 3, ex.Type.INT32), x.type) * y,
}


@pytest.mark.parametrize("name", CASES)
def test_onnxruntime_computes_the_same(name):
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    from nnet3tools.expression.onnx_export import export_onnx

    g = ex.Graph(inference=True)
    nodes = [g.input(n, (4, 3), ex.Type.FLOAT32) for n in ("x", "y")]
    scale = g.param("scale", np.array([0.5, 1.5, 1.0], np.float32))
    given = {"x": normal(4, 3).astype(np.float32), "y": normal(4, 3, seed=2).astype(np.float32)}
    root = ex.cast(CASES[name](nodes[0] * scale, nodes[1]), ex.Type.FLOAT32)
    g.forward(root, *nodes, **given)
    model = export_onnx({"out": root})
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    wanted = {i.name for i in session.get_inputs()}
    (found,) = session.run(["out"], {n: a for n, a in given.items() if n in wanted})
    np.testing.assert_allclose(found, root.value, 1e-4, 1e-5)


NOT_IN_ONNX = {"choose", "dropout_mask", "lambda"}
"""What depends on a function of the caller's, or on chance."""


def test_every_kind_of_node_is_exported_or_known_not_to_be():
    pytest.importorskip("onnx")
    from nnet3tools.expression.onnx_nodes import NODES

    kinds, found = [Node], set()
    while kinds:
        kind = kinds.pop()
        kinds.extend(kind.__subclasses__())
        if "type_name" in vars(kind) and not kind.is_leaf:
            found.add(kind.type_name)
    assert found == set(NODES) | NOT_IN_ONNX


def test_what_onnx_cannot_say_is_an_error():
    pytest.importorskip("onnx")
    from nnet3tools.expression.onnx_export import export_onnx

    g = ex.Graph()
    x = g.input("x", (2, 2))
    for root in (ex.dropout(x, 0.5), ex.lambda_([x], (2, 2), x.type, lambda out, inputs: None)):
        with pytest.raises(ex.ExpressionError, match="cannot be exported to ONNX"):
            export_onnx({"y": root})


def test_graphviz_shows_nodes_shapes_and_edges():
    g = ex.Graph()
    x, w = g.input("x", (4, 3)), g.param("w", np.ones((3, 2), np.float32))
    text = graphviz([ex.relu(ex.dot(x, w) * 2).named('the "root"')])
    assert text.startswith("digraph")
    assert text.endswith("}\n")
    for part in ("n0 -> n2", "n1 -> n2", "(4 x 2) float32", "mul(2)", r"the \"root\"", "param"):
        assert part in text
    assert text.count("{") == text.count("}")


def test_sparse_places_that_are_fed_cannot_be_exported():
    from nnet3tools.expression.onnx_export import export_onnx

    pytest.importorskip("onnx")
    g = ex.Graph()
    at, starts = g.input("at", (2,), ex.Type.INT32), g.constant([0, 1, 2])
    y = ex.csr_dot((2, 3), g.ones((2,)), at, starts, g.ones((3, 2)))
    with pytest.raises(ex.ExpressionError, match="places as constants, found"):
        export_onnx({"y": y})

"""Collapsing: the network's output stays the same, and only the permitted components are merged."""

import numpy as np
import pytest

from nnet3tools.errors import DataError
from nnet3tools.nnet.arithmetic import set_batchnorm_test_mode, set_test_modes
from nnet3tools.nnet.collapse import CollapseOptions, collapse_model
from nnet3tools.nnet.components.batchnorm import BatchNormComponent
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.indexes import make_indexes
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.nnet.nodes import ComponentNode, DescriptorNode, DimRangeNode

ALL = CollapseOptions(True, True, True, True)


def evaluate(nnet: Nnet, node: int, t: int, inputs: dict[int, np.ndarray]) -> np.ndarray:
    """Compute a node's row at time t recursively, as a reference."""
    match nnet.nodes[node]:
        case ComponentNode():
            in_row = evaluate(nnet, node - 1, t, inputs)[None, :].astype(np.float32)
            component = nnet.component_of_node(node)
            out = np.zeros((1, component.output_dim), np.float32)
            component.propagate(None, in_row, out)
            return out[0]
        case DimRangeNode(source, dim_offset, dim):
            return evaluate(nnet, source, t, inputs)[dim_offset : dim_offset + dim]
        case DescriptorNode(descriptor):
            parts = []
            for part in descriptor.parts:
                total: np.ndarray | float = part.constant
                for leaf in part.leaves:
                    nodes, where = leaf.map_to_input(make_indexes(0, t))
                    row = evaluate(nnet, int(nodes[0]), int(where[0, 1]), inputs)
                    total = total + leaf.row_scales(make_indexes(0, t))[0] * row
                parts.append(total)
            return np.concatenate(parts)
    return inputs[t]


def make(text: str) -> Nnet:
    nnet = Nnet.from_config(parse_config_lines(text))
    rng = np.random.default_rng(3)
    for component in nnet.components:
        if isinstance(component, BatchNormComponent):
            component.store_statistics = True  # type: ignore[attr-defined]
            x = rng.normal(1.0, 2.0, size=(20, component.input_dim)).astype(np.float32)
            y = np.empty_like(x)
            component.store_stats(x, y, component.propagate(None, x, y))
    set_test_modes(nnet)
    return nnet


def check(text: str, num_components: int, options: CollapseOptions = ALL) -> Nnet:
    """Collapse the network; fail if its output changes or another number of components remains."""
    nnet = make(text)
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(21, nnet.input_dim("input"))).astype(np.float32)
    inputs = {t: rows[t + 10] for t in range(-10, 11)}
    before = evaluate(nnet, nnet.node_index("output"), 0, inputs)
    collapse_model(nnet, options)
    after = evaluate(nnet, nnet.node_index("output"), 0, inputs)
    np.testing.assert_allclose(after, before, rtol=2e-4, atol=2e-4)
    assert len(nnet.components) == num_components, nnet.component_names
    return nnet


HEAD = "input-node name=input dim=4\noutput-node name=output input=b\n"
SPLICE = "component-node name=b component=b input=Append(Offset(a, -2), a, Offset(a, 3))\n"


def pair(first: str, second: str, splice: bool = False) -> str:
    """Config of a network that applies component a to the input, and component b to the result."""
    b_input = SPLICE if splice else "component-node name=b component=b input=a\n"
    return (
        f"{HEAD}component name=a {first}\ncomponent name=b {second}\n"
        f"component-node name=a component=a input=Offset(input, 1)\n{b_input}"
    )


AFFINE = "type=AffineComponent input-dim={} output-dim={}"


@pytest.mark.parametrize("kind", ["AffineComponent", "NaturalGradientAffineComponent"])
@pytest.mark.parametrize("splice", [False, True])
def test_affine_into_affine(kind: str, splice: bool) -> None:
    second = AFFINE.format(15 if splice else 5, 3)
    nnet = check(pair(f"type={kind} input-dim=4 output-dim=5", second, splice), 1)
    assert nnet.component_names == ["a.b"]
    assert nnet.components[0].type_name == "AffineComponent"
    if splice:
        assert nnet.config_lines()[-1].endswith(
            "input=Append(Offset(input, -1), Offset(input, 1), Offset(input, 4))"
        )


def test_affine_that_narrows_is_left_alone() -> None:
    check(pair(AFFINE.format(4, 3), AFFINE.format(3, 5)), 2)


def test_affine_into_fixed_scale_keeps_its_type() -> None:
    first = "type=NaturalGradientAffineComponent input-dim=4 output-dim=3"
    nnet = check(pair(first, "type=FixedScaleComponent dim=3 scale=0.5"), 1)
    assert nnet.components[0].type_name == "NaturalGradientAffineComponent"


@pytest.mark.parametrize(
    "second", [AFFINE.format(12, 3), "type=LinearComponent input-dim=12 output-dim=3"]
)
def test_batchnorm_into_affine_or_linear(second: str) -> None:
    text = pair("type=BatchNormComponent dim=4", second, splice=True)
    nnet = check(text, 1)
    assert nnet.components[0].type_name == "AffineComponent"
    check(text, 2, CollapseOptions())  # batch norm is not collapsed by default


def test_batchnorm_over_blocks() -> None:
    check(pair("type=BatchNormComponent dim=4 block-dim=2", AFFINE.format(4, 3)), 1)


def test_batchnorm_must_be_in_test_mode() -> None:
    nnet = make(pair("type=BatchNormComponent dim=4", AFFINE.format(4, 3)))
    set_batchnorm_test_mode(nnet, False)
    with pytest.raises(DataError, match="test mode"):
        collapse_model(nnet, ALL)


def test_one_component_for_several_nodes() -> None:
    text = pair(AFFINE.format(4, 5), AFFINE.format(5, 3)).replace("input=b\n", "input=Sum(b, c)\n")
    nnet = check(text + "component-node name=c component=b input=Offset(a, 4)\n", 1)
    assert nnet.component_names == ["a.b"]


@pytest.mark.parametrize(
    "b_input", ["Sum(a, Offset(a, 1))", "IfDefined(a)", "Scale(0.5, a)", "Round(a, 2)"]
)
def test_other_expressions_are_left_alone(b_input: str) -> None:
    text = pair(AFFINE.format(4, 5), AFFINE.format(5, 3))
    check(text.replace("component=b input=a", f"component=b input={b_input}"), 2)


def test_chain_collapses_wholly() -> None:
    text = (
        f"{HEAD}component name=a {AFFINE.format(4, 5)}\ncomponent name=c {AFFINE.format(5, 6)}\n"
        f"component name=d {AFFINE.format(6, 2)}\ncomponent name=b type=FixedScaleComponent dim=2"
        " scale=3.0\ncomponent-node name=a component=a input=input\n"
        "component-node name=c component=c input=a\ncomponent-node name=d component=d input=c\n"
        "component-node name=b component=b input=d\n"
    )
    check(text, 1)

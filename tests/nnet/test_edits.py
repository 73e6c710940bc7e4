"""Edit commands, network arithmetic, SVD."""

import numpy as np
import pytest

from nnet3tools.errors import ConfigError, DataError
from nnet3tools.nnet import arithmetic
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.edits import edit_network
from nnet3tools.nnet.nnet import Nnet

CONFIG = """
input-node name=input dim=6
input-node name=unused dim=2
component name=a1 type=NaturalGradientAffineComponent input-dim=6 output-dim=5 max-change=0.5
component name=d type=DropoutComponent dim=5 dropout-proportion=0.5
component name=bn type=BatchNormComponent dim=5
component name=a2 type=AffineComponent input-dim=10 output-dim=5 learning-rate-factor=2.0
component name=spare type=AffineComponent input-dim=5 output-dim=5
component-node name=a1 component=a1 input=input
component-node name=d component=d input=a1
component-node name=bn component=bn input=d
component-node name=a2 component=a2 input=Append(Offset(bn, -1), Scale(0.5, d))
component-node name=lonely component=spare input=a1
dim-range-node name=range input-node=a2 dim-offset=0 dim=3
output-node name=output input=Sum(a2, Offset(a2, 1))
output-node name=output-2 input=range objective=quadratic
"""


@pytest.fixture
def nnet() -> Nnet:
    return Nnet.from_config(parse_config_lines(CONFIG, "net.config"))


def test_orphans_are_removed_but_inputs_only_on_request(nnet: Nnet) -> None:
    edit_network(nnet, "remove-orphans")
    assert "lonely" not in nnet.node_names
    assert "lonely_input" not in nnet.node_names
    assert "spare" not in nnet.component_names
    assert "unused" in nnet.node_names
    edit_network(nnet, "remove-orphan-nodes remove-orphan-inputs=true")
    assert "unused" not in nnet.node_names
    assert nnet.config_lines()[-2:] == [
        "output-node name=output input=Sum(a2, Offset(a2, 1)) objective=linear",
        "output-node name=output-2 input=range objective=quadratic",
    ]


def test_learning_rates_by_pattern(nnet: Nnet) -> None:
    edit_network(nnet, "set-learning-rate name=a* learning-rate=0.25")
    rates = {name: c.learning_rate for name, c in nnet.updatable_components()}
    assert rates == {"a1": 0.25, "a2": 0.5, "spare": pytest.approx(0.001)}
    edit_network(nnet, "set-learning-rate-factor learning-rate-factor=0.5")
    assert all(c.learning_rate_factor == 0.5 for _, c in nnet.updatable_components())
    assert nnet.components[0].learning_rate == 0.25  # type: ignore[attr-defined]


def test_a_factor_multiplies_the_learning_rate_in_single_precision(nnet: Nnet) -> None:
    # 5 * 0.001 in double precision is another float32, 0x3ba3d70a
    edit_network(nnet, "set-learning-rate-factor learning-rate-factor=5")
    edit_network(nnet, "set-learning-rate learning-rate=0.001")
    for _, component in nnet.updatable_components():
        assert np.float32(component.learning_rate).view(np.uint32) == 0x3BA3D70B
        assert component.learning_rate == np.float32(component.learning_rate)


def test_rename_keeps_references(nnet: Nnet) -> None:
    edit_network(nnet, "rename-node old-name=bn new-name=norm\nrename-node old-name=a2 new-name=b")
    lines = nnet.config_lines()
    assert (
        "component-node name=b component=a2 input=Append(Offset(norm, -1), Scale(0.5, d))" in lines
    )
    assert "norm_input" in nnet.node_names


def test_convert_to_fixed_affine(nnet: Nnet) -> None:
    edit_network(nnet, "convert-to-fixed-affine name=a*")
    assert [c.type_name for c in nnet.components] == [
        "FixedAffineComponent",
        "DropoutComponent",
        "BatchNormComponent",
        "FixedAffineComponent",
        "AffineComponent",
    ]


def test_outputs_and_dropout(nnet: Nnet) -> None:
    edit_network(nnet, "remove-output-nodes name=*-2; ".replace(";", "\n"))
    assert [nnet.node_names[n] for n in nnet.output_nodes()] == ["output"]
    edit_network(nnet, "set-dropout-proportion proportion=0.25")
    assert nnet.components[1].dropout_proportion == 0.25  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("remove-orphan", "remove-orphan.*did you mean"),
        ("set-learning-rate", "'learning-rate'"),
        ("set-learning-rate learning-rate=0.1 nam=x", "nam=x"),
        ("rename-node old-name=a new-name=b", "no node named 'a'"),
        ("rename-node old-name=a1 new-name=a2", "'a2' already"),
        ("rename-node old-name=a1 new-name=a/2", "a/2"),
        ("rename-node old-name=a1_input new-name=x", "a1_input"),
        ("remove-output-nodes name=*", "all output nodes"),
        ("set-dropout-proportion name=d", "proportion"),
        ("set-dropout-proportion proportion=1.5", "between 0 and 1, found 1.5"),
        ("apply-svd name=a1", "bottleneck-dim"),
        ("reduce-rank name=a1 rank=0", "positive"),
    ],
)
def test_wrong_command_names_its_line(nnet: Nnet, command: str, what: str) -> None:
    with pytest.raises(ConfigError, match=rf"^edits:2: .*{what}"):
        edit_network(nnet, f"\n{command}", "edits")


def test_reduce_rank_gives_the_nearest_matrix_of_that_rank(nnet: Nnet) -> None:
    before = nnet.components[0].linear_params.astype(np.float64)  # type: ignore[attr-defined]
    edit_network(nnet, "reduce-rank name=a1 rank=2")
    after = nnet.components[0].linear_params  # type: ignore[attr-defined]
    assert np.linalg.matrix_rank(after, tol=1e-4) == 2
    singular = np.linalg.svd(before, compute_uv=False)
    assert np.linalg.norm(before - after) == pytest.approx(np.sqrt((singular[2:] ** 2).sum()), 1e-4)


def test_apply_svd_splits_nodes_and_keeps_the_function(nnet: Nnet) -> None:
    edit_network(nnet, "reduce-rank name=a1 rank=2")
    old = nnet.components[0].copy()
    edit_network(nnet, "apply-svd name=a1 bottleneck-dim=2")
    assert "a1" not in nnet.node_names
    assert "a1" not in nnet.component_names
    assert "component-node name=a1_b component=a1_b input=a1_a" in nnet.config_lines()
    assert "component-node name=d component=d input=a1_b" in nnet.config_lines()
    linear = nnet.components[nnet.component_index("a1_a")]
    affine = nnet.components[nnet.component_index("a1_b")]
    product = affine.linear_params @ linear.params  # type: ignore[attr-defined]
    np.testing.assert_allclose(product, old.linear_params, atol=1e-5)  # type: ignore[attr-defined]
    assert affine.max_change == 0.5  # type: ignore[attr-defined]


def test_apply_svd_by_energy_and_shrinkage(nnet: Nnet) -> None:
    rng = np.random.default_rng(0)
    left, _ = np.linalg.qr(rng.normal(size=(5, 5)))
    right, _ = np.linalg.qr(rng.normal(size=(6, 5)))
    matrix = (left * [10.0, 5.0, 0.1, 0.1, 0.1]) @ right.T
    nnet.components[0].linear_params[...] = matrix  # type: ignore[attr-defined]
    edit_network(nnet, "apply-svd name=a1 energy-threshold=0.9 shrinkage-threshold=0.5")
    assert "a1" in nnet.component_names, "2 * (6 + 5) / 30 is above the threshold"
    edit_network(nnet, "apply-svd name=a1 energy-threshold=0.9")
    assert nnet.components[nnet.component_index("a1_a")].output_dim == 2


# -- arithmetic


def test_vector_operations_agree_with_the_parameter_vector(nnet: Nnet) -> None:
    other = nnet.copy()
    for _, component in other.updatable_components():
        v = component.vectorize()
        component.unvectorize(v + 0.5 * np.sin(np.arange(len(v))))
    v, w = arithmetic.vectorize(nnet), arithmetic.vectorize(other)
    assert len(v) == arithmetic.num_parameters(nnet) == 5 * 7 + 5 * 11 + 5 * 6
    parts = arithmetic.component_dot_products(nnet, other)
    assert parts.sum() == pytest.approx(float(v @ w), 1e-4)
    parts = arithmetic.component_dot_products(nnet, nnet)
    assert parts.sum() == pytest.approx(float(v @ v), 1e-4)
    text = arithmetic.format_per_component(nnet, [1.0, 2.5, 1e-7])
    assert text == "[ a1:1 a2:2.5 spare:1e-07 ]"
    arithmetic.add_nnet(nnet, other, -2.0)
    np.testing.assert_allclose(arithmetic.vectorize(nnet), v - 2.0 * w, rtol=1e-5, atol=1e-6)
    arithmetic.scale_nnet(nnet, 0.0)
    assert not arithmetic.vectorize(nnet).any()
    arithmetic.unvectorize(nnet, v)
    np.testing.assert_array_equal(arithmetic.vectorize(nnet), v)


def test_scale_zero_clears_nan(nnet: Nnet) -> None:
    nnet.components[0].linear_params[0, 0] = np.nan  # type: ignore[attr-defined]
    arithmetic.scale_nnet(nnet, 0.0)
    assert not arithmetic.vectorize(nnet).any()


def test_networks_of_other_structure_are_not_added(nnet: Nnet) -> None:
    other = nnet.copy()
    other.components.pop()
    other.component_names.pop()
    with pytest.raises(DataError, match="5 and 4 components"):
        arithmetic.add_nnet(nnet, other)
    other = Nnet.from_config(
        parse_config_lines(
            CONFIG.replace("name=spare type=AffineComponent", "name=spare type=LinearComponent")
        )
    )
    with pytest.raises(DataError, match="component 'spare'"):
        arithmetic.add_nnet(nnet, other)

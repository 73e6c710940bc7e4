"""Natural gradient in factored form gives what preconditioning inputs and derivatives gives."""

import numpy as np
import pytest

from nnet3tools.nnet.components import two_sided
from nnet3tools.nnet.components.array_fields import Side
from nnet3tools.nnet.components.base import BackpropArgs
from nnet3tools.nnet.components.tdnn import TdnnComponent
from nnet3tools.nnet.components.two_sided import TwoSidedNaturalGradient
from nnet3tools.nnet.natural_gradient import OnlineNaturalGradient
from support.harness import make
from support.time_aware import Ordered, grid, inputs_for

FACTORED = TwoSidedNaturalGradient._update_factored


def random_rows(kind: str, rng: np.random.Generator, num_rows: int, dim: int) -> np.ndarray:
    rows = rng.normal(size=(num_rows, dim)) * (1 + np.arange(dim) % 5)
    if kind == "one direction":  # preconditioning removes nearly all of it
        rows = 1e-3 * rows + 5.0
    return rows.astype(np.float32)


@pytest.mark.parametrize("kind", ["many directions", "one direction"])
@pytest.mark.parametrize("widths", [(300,), (100, 199, 1)])
def test_factors_of_parts_are_what_is_taken_off_the_whole(kind, widths) -> None:
    rng = np.random.default_rng(0)
    whole, factored = (OnlineNaturalGradient(rank=12, update_period=4) for _ in range(2))
    for _ in range(14):
        x = random_rows(kind, rng, 150, 300)
        parts = np.split(x, np.cumsum(widths)[:-1], axis=1)
        expected = x.copy()
        scale = whole.precondition(expected)
        with factored.factored(parts) as found:
            got = x - found.h @ found.w
            got_scale = found.scale
        size = np.linalg.norm(expected)
        assert np.linalg.norm(got - expected) < 1e-3 * size
        assert got_scale == pytest.approx(scale, rel=1e-3)
    np.testing.assert_allclose(factored.d, whole.d, rtol=1e-2)


def parameters_after_updates(
    component, side: Side, monkeypatch, factored: bool
) -> list[np.ndarray]:
    """The component's parameters after some updates in the form that `side` and `factored` say."""

    def update_factored(self, linear, bias, parts, derivs):
        if factored:
            assert FACTORED(self, linear, bias, parts, derivs)
            num_in = linear.shape[1] + (bias is not None)
            assert self._factored_side(len(derivs), num_in, derivs.shape[1]) is side
        return factored

    monkeypatch.setattr(TwoSidedNaturalGradient, "_update_factored", update_factored)
    rng = np.random.default_rng(3)
    outputs = grid(20, range(8))
    indexes, num_rows = None, 160
    if isinstance(component, TdnnComponent):
        ordered = Ordered(component, inputs_for(component, outputs), outputs)
        indexes, num_rows = ordered.rows.indexes, len(ordered.inputs)
    for _ in range(6):
        x = rng.normal(0.5, size=(num_rows, component.input_dim)).astype(np.float32)
        y = rng.normal(size=(160, component.output_dim)).astype(np.float32)
        component.update(BackpropArgs("", indexes, x, None, y, None, None, None))
    return [np.array(p) for p in component.parameters().values()]


EXPECTED = {
    "type=TdnnComponent input-dim=60 output-dim=8 time-offsets=-1,0 rank-in=5 use-bias=false":
        Side.COLUMNS,
    "type=TdnnComponent input-dim=60 output-dim=8 time-offsets=-1,0 rank-in=5": Side.COLUMNS,
    "type=TdnnComponent input-dim=8 output-dim=90 time-offsets=0,1 rank-out=9": Side.ROWS,
    "type=NaturalGradientAffineComponent input-dim=90 output-dim=7 rank-in=6": Side.COLUMNS,
    "type=NaturalGradientAffineComponent input-dim=7 output-dim=90 rank-out=6": Side.ROWS,
    "type=LinearComponent input-dim=7 output-dim=90 rank-out=6": Side.ROWS,
}  # fmt: skip


@pytest.mark.parametrize("config", EXPECTED)
def test_parameters_are_those_of_preconditioning_both_sides(config, monkeypatch) -> None:
    monkeypatch.setattr(two_sided, "WORTH", 0)
    component = make(config)
    sides = [
        parameters_after_updates(component.copy(), EXPECTED[config], monkeypatch, factored)
        for factored in (True, False)
    ]
    for a, b in zip(*sides, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


def test_square_matrices_are_preconditioned_in_place() -> None:
    component = make("type=NaturalGradientAffineComponent input-dim=50 output-dim=50")
    assert component._factored_side(1000, 51, 50) is None


def test_small_matrices_are_preconditioned_in_place() -> None:
    component = make("type=NaturalGradientAffineComponent input-dim=500 output-dim=20")
    assert component._factored_side(100, 501, 20) is None
    assert component._factored_side(2000, 501, 20) is Side.COLUMNS

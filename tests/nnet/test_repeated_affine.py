"""nnet3-copy --convert-repeated-to-block does not change the network's output."""

import numpy as np
import pytest

from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.edits import convert_repeated_to_block_affine
from nnet3tools.nnet.nnet import Nnet


@pytest.mark.parametrize("kind", ["RepeatedAffine", "NaturalGradientRepeatedAffine"])
@pytest.mark.parametrize("inside_composite", [False, True])
def test_block_affine_computes_the_same(kind: str, inside_composite: bool) -> None:
    line = f"type={kind}Component input-dim=6 output-dim=9 num-repeats=3 learning-rate=0.5"
    if inside_composite:
        line = f"type=CompositeComponent num-components=1 component1='{line}'"
    nnet = Nnet.from_config(
        parse_config_lines(
            f"component name=c {line}\ninput-node name=input dim=6\n"
            "component-node name=c component=c input=input\noutput-node name=output input=c\n"
        )
    )
    x = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
    before, after = np.zeros((4, 9), np.float32), np.zeros((4, 9), np.float32)
    nnet.components[0].propagate(None, x, before)
    convert_repeated_to_block_affine(nnet)
    nnet.components[0].propagate(None, x, after)
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)
    component = nnet.components[0]
    if inside_composite:
        (component,) = component.components  # type: ignore[attr-defined]
    assert component.type_name == "BlockAffineComponent"
    assert component.learning_rate == 0.5  # type: ignore[attr-defined]

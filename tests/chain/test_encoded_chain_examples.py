"""Supervisions that the reader of encoded chain examples must refuse as the full reader does.

training/test_encoded_examples.py tests all that frame and chain examples have in common.
"""

from dataclasses import replace

import numpy as np
import pytest

from nnet3tools.chain.example import (
    CHAIN_EXAMPLE,
)
from nnet3tools.chain.example_format import ENCODED_CHAIN_EXAMPLES
from nnet3tools.chain.supervision import Supervision
from support.chain_examples import LABEL_DIM, acceptor, chain_example
from support.example_archives import archive, outcome


def unsound(name: str) -> Supervision:
    """A supervision that the full reader refuses."""
    fst = acceptor(4)
    labels, weights, targets = fst.ilabels.copy(), fst.weights.copy(), fst.nextstates.copy()
    at = len(labels) // 2
    match name:
        case "a label above the dimension":
            labels[at] = LABEL_DIM + 1
        case "a negative label":
            labels[at] = -2
        case "a weight that is no number":
            weights[at] = np.nan
        case "a weight of minus infinity":
            weights[at] = -np.inf
        case "a state that is not there":
            targets[at] = fst.num_states
    fst = replace(fst, ilabels=labels, olabels=labels, weights=weights, nextstates=targets)
    return Supervision(1.0, 1, 4, LABEL_DIM, replace(fst, properties=0x56A5A95A0000))


@pytest.mark.parametrize(
    "name",
    [
        "a label above the dimension",
        "a negative label",
        "a weight that is no number",
        "a weight of minus infinity",
        "a state that is not there",
    ],
)
def test_unsound_acceptors_have_the_error_of_the_full_reader(name) -> None:
    sound = chain_example(0, False)
    output = replace(sound.outputs[0], supervision=unsound(name))
    data = archive([sound] * 9 + [replace(sound, outputs=[output])])
    found, error = outcome(ENCODED_CHAIN_EXAMPLES, data)
    assert (len(found), error) == (9, outcome(CHAIN_EXAMPLE, data)[1])
    assert error


def test_a_negative_derivative_weight_is_refused() -> None:
    sound = chain_example(1, False)
    (output,) = sound.outputs
    output = replace(output, deriv_weights=-output.deriv_weights)
    data = archive([sound] * 9 + [replace(sound, outputs=[output])])
    assert "negative derivative weight" in outcome(ENCODED_CHAIN_EXAMPLES, data)[1]

"""The table of Marian's operators and the example of a network in docs/expression.md both work."""

import re
from pathlib import Path

import numpy as np
import pytest

from nnet3tools import expression as ex
from support.expression_checks import check, run
from support.marian_operators import TRIALS

TEXT = (Path(__file__).parents[2] / "docs" / "expression.md").read_text()
TABLE = TEXT[TEXT.index("## Marian's operators") :]
ROWS = dict(re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", TABLE, re.M))


def test_the_table_has_what_is_tried():
    assert len(ROWS) == len(re.findall(r"^\| `", TABLE, re.M))
    assert ROWS.keys() == TRIALS.keys()


@pytest.mark.parametrize("name", ROWS)
def test_names_of_the_table_exist(name):
    for ours in re.findall(r"\w{2,}(?=\()", ROWS[name]):
        assert ours in ex.__all__ or hasattr(ex.Graph, ours), ours


@pytest.mark.parametrize("name", TRIALS)
def test_operators_of_the_table(name):
    build, formula, arrays = TRIALS[name]
    check(build, formula, *arrays, tolerance=1e-5)


def gradients(build, *arrays):
    value, grads = run(build, [np.array(a, float) for a in arrays])
    value, grads = run(build, [np.array(a, float) for a in arrays], np.ones(value.shape))
    return [g.tolist() for g in grads]


def test_conventions_are_those_of_the_documentation():
    assert gradients(ex.maximum, [1, 2], [1, 3]) == [[1, 0], [0, 1]]
    assert gradients(ex.minimum, [1, 2], [1, 3]) == [[1, 1], [0, 0]]
    assert gradients(lambda x: ex.max_(x, 0), [2, 1, 2]) == [[1, 0, 1]]
    assert gradients(lambda x: ex.min_(x, 0), [1, 1, 2]) == [[1, 1, 0]]
    assert gradients(lambda x: ex.clip(x, 1), [-2, -1, 0, 1, 2]) == [[0, 1, 1, 1, 0]]
    assert run(lambda x: ex.bump(x, 1.0), [np.array([-2.0, -1, 1, 2])])[0].tolist() == [0, 1, 1, 0]
    for function in (ex.relu, ex.abs_):
        assert gradients(function, [0.0]) == [[0]]
    for function in (ex.std, ex.var):
        assert gradients(function, [3.0]) == [[0]]

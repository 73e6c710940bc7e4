"""DistributeComponent: which block of an input row each output row copies, and the derivatives."""

import numpy as np
import pytest

from nnet3tools.errors import RequestError
from support.harness import check_component, forward, make, rows_of
from support.time_aware import check_dependencies, check_precomputed, grid, tuples


def distribute(options: str = "input-dim=6 output-dim=2"):
    return make(f"type=DistributeComponent {options}")


@pytest.mark.parametrize("keep", [1.0, 0.6])
def test_blocks_become_rows(keep: float) -> None:
    component = distribute()
    inputs, outputs = grid(2, range(3), x=2), grid(2, range(3), x=6)
    rng = np.random.default_rng(0)
    outputs = rng.permutation(outputs)[: int(keep * len(outputs))]
    rows = rows_of(component, 0, inputs, outputs)
    check_precomputed(rows.indexes)
    x = rng.normal(size=(len(inputs), 6)).astype(np.float32)
    y, _ = forward(component, x, rows)
    frames = dict(zip(tuples(inputs), x, strict=True))
    for (n, t, k), row in zip(tuples(outputs), y, strict=True):
        assert np.array_equal(row, frames[n, t, k // 3][2 * (k % 3) : 2 * (k % 3) + 2])
    check_component(component, rows)


def test_negative_x_goes_to_the_block_below() -> None:
    outputs = np.array([[0, 0, x] for x in range(-4, 4)], np.int32)
    check_dependencies(
        distribute(),
        outputs,
        lambda o: [(o[0], o[1], o[2] // 3)],
        lambda o, wanted, there: wanted[0] in there,
    )
    inputs = np.array([[0, 0, x] for x in (-2, -1, 0, 1)], np.int32)
    indexes = distribute().precompute_indexes(inputs, outputs, True)
    assert indexes.pairs.tolist() == [
        [0, 4], [1, 0], [1, 2], [1, 4], [2, 0], [2, 2], [2, 4], [3, 0]
    ]  # fmt: skip


def test_missing_input_names_the_output() -> None:
    with pytest.raises(
        RequestError, match=r"DistributeComponent: no input for output \(n=0, t=0, x=3"
    ):
        distribute().precompute_indexes(grid(1, [0]), grid(1, [0], x=6), True)

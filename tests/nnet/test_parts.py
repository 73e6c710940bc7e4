"""Products with parts that are ranges of rows of one matrix equal those with their columns."""

import numpy as np
import pytest

from nnet3tools.nnet.parts import JoinedParts, product_with, transposed_product


@pytest.mark.parametrize("starts", [[0, 3, 5], [5, 0], [2]])
@pytest.mark.parametrize("step", [1, 3])
def test_joined_parts_lose_no_column_and_no_row(starts: list[int], step: int) -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((30 * step, 7)).astype(np.float32)[::step]
    parts = JoinedParts(rows, starts, 25)
    whole = np.concatenate([rows[s : s + 25] for s in starts], axis=1)
    wide = rng.standard_normal((4, whole.shape[1])).astype(np.float32)
    left = rng.standard_normal((25, 4)).astype(np.float32)
    for beta in (0.0, 1.0):
        out, out_wide = np.ones((25, 4), np.float32), np.ones_like(wide)
        product_with(parts, wide, out, beta)
        transposed_product(left, parts, out_wide, alpha=2.0, beta=beta)
        np.testing.assert_allclose(out, whole @ wide.T + beta, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(out_wide, 2.0 * left.T @ whole + beta, rtol=1e-4, atol=1e-5)

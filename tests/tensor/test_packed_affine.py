"""Products of few rows with packed weights: the affine map, independent of the number of rows."""

import numpy as np
import pytest

from nnet3tools.tensor.cpu.jobs import run_compiling
from nnet3tools.tensor.operators.packed_affine import BATCHES, packed, packed_affine
from nnet3tools.tensor.operators.packed_affine.cpu import affine_jobs
from support.native_kernels import needs_compiler


def operands(num_rows, outputs, columns, parts, stride, seed=1):
    rng = np.random.default_rng(seed)
    starts = [int(s) for s in rng.permutation(parts + 2)[:parts]]
    rows = rng.normal(size=(max(starts) + stride * num_rows, columns + 3)).astype(np.float32)
    matrix = rng.normal(size=(outputs, parts * columns)).astype(np.float32)
    bias = rng.normal(size=outputs).astype(np.float32)
    return rows[:, 1:-2], matrix, bias, starts


@needs_compiler
@pytest.mark.parametrize("num_rows", [1, *BATCHES, 13])
def test_kernel_and_reference_are_the_affine_map(num_rows):
    """Outputs that fill no vector and no panel; parts with strides; views; with or without bias."""
    for outputs, columns, parts, stride in ((1, 1, 1, 1), (37, 5, 3, 1), (96, 33, 2, 3)):
        rows, matrix, bias, starts = operands(num_rows, outputs, columns, parts, stride)
        for adds, given in ((False, bias), (True, bias), (True, None), (False, None)):
            exact = np.full((num_rows, outputs), float(adds))
            exact += 0.0 if given is None else given
            for p, start in enumerate(starts):
                part = matrix[:, p * columns : (p + 1) * columns].astype(float)
                exact += rows[start::stride][:num_rows].astype(float) @ part.T
            weights = packed(matrix, parts)
            options = dict(bias=given, starts=starts, stride=stride, adds=adds)
            plain = np.ones((num_rows, outputs), np.float32)
            packed_affine.reference(plain, rows, weights, **options)
            view = np.ones((num_rows, outputs + 2), np.float32)
            assert run_compiling(affine_jobs(view[:, 1:-1], rows, weights, **options)[0])
            assert (view[:, [0, -1]] == 1).all()
            np.testing.assert_allclose(view[:, 1:-1], exact, rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(plain, exact, rtol=1e-5, atol=1e-5)


@needs_compiler
def test_a_row_has_the_same_bytes_in_every_batch():
    rows, matrix, bias, _ = operands(9, 45, 70, 1, 1)
    weights = packed(matrix, 1)
    whole = np.empty((9, 45), np.float32)
    run_compiling(affine_jobs(whole, rows[:9], weights, bias)[0])
    for size in range(1, 9):
        part = np.empty((size, 45), np.float32)
        run_compiling(affine_jobs(part, rows[:size], weights, bias)[0])
        assert part.tobytes() == whole[:size].tobytes()

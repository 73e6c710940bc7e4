"""Integer products: exact sums, the same bytes by every path, no overflow at the bounds."""

import numpy as np
import pytest

from nnet3tools.tensor.cpu.jobs import run_compiling
from nnet3tools.tensor.operators.integer_affine import (
    LEVELS,
    MAX_LANE_SUM,
    MAX_ROW_SUM,
    PackedWeights,
    excess,
    integer_affine,
    quantize_rows,
)
from nnet3tools.tensor.operators.integer_affine.cpu import affine_jobs, quantize_jobs
from support.native_kernels import needs_compiler

DTYPES = (np.int8, np.int16)


def weights_of(rng, outputs, columns, dtype, parts=1):
    most = {np.int8: 30, np.int16: 300}[dtype]
    matrix = rng.integers(-most, most + 1, size=(outputs, columns * parts)).astype(dtype)
    return matrix, PackedWeights.pack(matrix, rng.random(outputs).astype(np.float32), parts)


def quantized(src, weights, limits=None):
    rows = np.full((len(src), weights.row_width), 99, weights.row_type)
    ranges = np.empty((len(src), 2), np.float32)
    quantize_rows.reference(rows, ranges, src, limits)
    return rows, ranges


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("adds", [False, True])
def test_the_result_is_the_affine_map_of_what_the_integers_stand_for(dtype, adds):
    rng = np.random.default_rng(1)
    src = rng.normal(size=(9, 21)).astype(np.float32)
    matrix, weights = weights_of(rng, 13, 21, dtype)
    rows, ranges = quantized(src, weights)
    bias, out = rng.random(13).astype(np.float32), np.ones((9, 13), np.float32)
    integer_affine.reference(out, rows, ranges, weights, bias, adds=adds)
    meant = (rows[:, :21].astype(float) - ranges[:, 1:]) * ranges[:, :1]
    assert np.abs(meant - src).max() <= ranges[:, 0].max() * 0.51
    exact = meant @ (matrix * weights.scales[:, None].astype(float)).T + bias + adds
    np.testing.assert_allclose(out, exact, rtol=1e-5, atol=1e-5)


@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_path_gives_the_bytes_of_the_reference(dtype):
    """Numbers of rows and outputs that are no multiples of 8; parts with strides; limits; views."""
    rng = np.random.default_rng(2)
    cases = (
        (1, 1, 1, 1, 1),
        (7, 5, 16, 1, 1),
        (8, 8, 8, 1, 1),
        (70, 19, 37, 3, 1),
        (13, 40, 33, 2, 3),
    )
    for num_rows, outputs, columns, parts, stride in cases:
        starts = [int(s) for s in rng.permutation(parts + 2)[:parts]]
        src = rng.normal(size=(max(starts) + stride * num_rows, columns)).astype(np.float32)
        src[0] = 0.0
        _, weights = weights_of(rng, outputs, columns, dtype, parts)
        bias = rng.random(outputs).astype(np.float32)
        for limits in (None, np.array([-0.5, 2.0], np.float32)):
            rows, ranges = quantized(src, weights, limits)
            found = np.full_like(rows, 55), np.full_like(ranges, 55)
            assert run_compiling(quantize_jobs(*found, src, limits)[0])
            assert (found[0] == rows).all()
            assert (found[1] == ranges).all()
            for adds, given in ((False, bias), (True, None)):
                start = rng.random((num_rows, outputs + 3)).astype(np.float32)[:, 1:-2]
                options = dict(bias=given, starts=starts, stride=stride, adds=adds)
                expected, bound = start.copy(), start.copy()
                integer_affine.reference(expected, rows, ranges, weights, **options)
                integer_affine(bound, rows, ranges, weights, **options)
                assert (bound == expected).all()
                for is_plain in (False, True):
                    view = np.zeros((num_rows, outputs + 3), np.float32)[:, 1:-2]
                    view[...] = start
                    jobs = affine_jobs(view, rows, ranges, weights, **options, is_plain=is_plain)
                    assert run_compiling(jobs[0])
                    assert (view == expected).all()
                    assert (view.base[:, [0, -1]] == 0).all()


@needs_compiler
@pytest.mark.parametrize("sign", [1, -1])
def test_nothing_saturates_at_the_bounds(sign):
    """All lanes of a step at the bound: rows of the largest value, weights of one sign."""
    for dtype, lane in ((np.int8, [127, 55]), (np.int16, [])):
        columns = 64
        if dtype is np.int8:  # in each lane 127 + 55 + 0 + 0 = 182
            one = np.zeros(8, np.int8)
            one[[0, 1]] = one[[2, 3]] = lane
            matrix = np.tile(one, (8, columns // 8)) * np.int8(sign)
            assert excess(matrix.astype(np.int16), matrix.dtype).max() == 1.0
        else:
            matrix = np.full((8, columns), sign * (MAX_ROW_SUM // columns), np.int16)
        weights = PackedWeights.pack(matrix, np.ones(8, np.float32))
        rows = np.full((3, weights.row_width), LEVELS[np.dtype(dtype)], weights.row_type)
        ranges = np.tile(np.array([1, 0], np.float32), (3, 1))
        exact = np.float32(rows[0, 0] * matrix[0].sum(dtype=np.int64))
        for is_plain in (False, True):
            out = np.zeros((3, 8), np.float32)
            run_compiling(affine_jobs(out, rows, ranges, weights, is_plain=is_plain)[0])
            assert (out == exact).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_number_that_is_not_finite_shows_in_its_row_only(dtype):
    rng = np.random.default_rng(3)
    src = rng.normal(size=(4, 40)).astype(np.float32)
    src[1, 3], src[2, 39] = np.nan, np.inf
    _, weights = weights_of(rng, 9, 40, dtype)
    for quantize in (quantize_rows.reference, quantize_rows):
        rows = np.zeros((4, weights.row_width), weights.row_type)
        ranges, out = np.zeros((4, 2), np.float32), np.zeros((4, 9), np.float32)
        quantize(rows, ranges, src)
        integer_affine(out, rows, ranges, weights)
        assert np.isnan(out[1:3]).all()
        assert np.isfinite(out[[0, 3]]).all()


def test_lane_sums_are_those_of_every_alignment():
    rng = np.random.default_rng(4)
    matrix = rng.integers(-50, 50, size=(3, 41))
    wide = np.pad(matrix, ((0, 0), (16, 16)))
    lanes = np.array([0, 1, 4, 5])
    sums = [
        [
            max(np.maximum(side[j + lanes], 0).sum() for j in range(len(row) - 5))
            for side in (row, -row)
        ]
        for row in wide
    ]
    expected = np.max(sums, axis=1) / MAX_LANE_SUM
    np.testing.assert_allclose(excess(matrix, np.dtype(np.int8)), expected)

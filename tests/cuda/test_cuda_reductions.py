"""Reductions on the emulated device: each element once, for rows of all lengths and layouts."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.tensor.cuda.launches import launches_of, slices_of
from support.emulated_cuda import fetch, needs_compiler, to_device

pytestmark = needs_compiler

_sum_all = tensor.aggregate("_1 * _2", "sum", axis=None)
_largest = tensor.aggregate("_1", "max", axis=None)
_by_axis = {axis: tensor.aggregate("_1 + _2", "sum", axis=axis) for axis in (0, 1, 2)}


def whole_numbers(shape):
    """Numbers whose sums are exact in any order."""
    return np.random.default_rng(5).integers(-8, 9, shape).astype(np.float32)


def layouts(array):
    """Views on the device with the array's elements: contiguous, padded, misaligned, transposed."""
    *outer, last = array.shape
    for pad, skip in ((0, 0), (-last % 4 + 4, 0), (3, 1)):
        wide = np.full((*outer, last + pad), np.nan, np.float32)
        wide[..., skip : skip + last] = array
        yield to_device(wide)[..., skip : skip + last]
    yield to_device(np.ascontiguousarray(array.swapaxes(-1, -2))).swapaxes(-1, -2)


@pytest.mark.parametrize("last", [1, 3, 63, 64, 65, 66, 67, 300, 1537])
@pytest.mark.parametrize("outer", [(1,), (7,), (90,), (3, 5)], ids=str)
def test_each_element_is_reduced_once(device, outer, last):
    array = whole_numbers((*outer, last))
    for x in layouts(array):
        assert float(tensor.dot(x, x)) == np.square(array).sum()
        assert float(_sum_all(x, x)) == np.square(array).sum()
        assert float(_largest(x)) == array.max()
        for axis in range(array.ndim):
            expected = 2.0 * array.sum(axis=axis)
            out = to_device(np.zeros_like(expected))
            _by_axis[axis](out, x, x)
            np.testing.assert_array_equal(fetch(out), expected)


def test_long_rows_are_reduced_in_chunks(device):
    """A chunk may begin and end within a row; the last elements of a row belong to one chunk."""
    for shape in ((2, 50001), (3, 8190), (40, 1030)):
        array = whole_numbers(shape)
        for x in layouts(array):
            assert float(tensor.dot(x, x)) == np.square(array).sum()


def test_a_square_norm_reads_its_matrix_once(device):
    x = to_device(whole_numbers((9, 80)))
    (launch,) = launches_of(tensor.dot.bind(x, x))
    assert sum(a.shape == x.shape for a in launch.reads) == 1
    (launch,) = launches_of(tensor.dot.bind(x, to_device(fetch(x))))
    assert sum(a.shape == x.shape for a in launch.reads) == 2


@pytest.mark.parametrize(
    ("rows", "columns", "slices"),
    [(2432, 768, 32), (14016, 1536, 22), (640, 256, 33), (100, 64, 13)],
)
def test_sums_of_columns_keep_all_processors_busy(rows, columns, slices):
    """Several blocks a processor, but few slices for the last block of a tile to add up."""
    assert slices_of(rows, columns, 132) == (slices, columns // 32)

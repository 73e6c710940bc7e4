"""Compiled kernels for tests: jobs of many calls, made by one run of the compiler."""

import numpy as np
import pytest

from nnet3tools.tensor.call import Call
from nnet3tools.tensor.cpu.calls import jobs_of
from nnet3tools.tensor.cpu.compiler import find_compiler
from nnet3tools.tensor.cpu.jobs import CompiledJobs
from nnet3tools.tensor.number import Number

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler")


def unexpected() -> None:
    raise AssertionError("NumPy was asked to do it")


class Bound:
    """An operator bound to copies of operands, on both sides."""

    def __init__(self, operator, *operands, **options):
        self.operator = operator
        self.plain = [copied(o) for o in operands], {k: copied(v) for k, v in options.items()}
        self.native = [copied(o) for o in operands], {k: copied(v) for k, v in options.items()}
        self.number = Number(np.full(1, np.nan))
        self.returned = None
        jobs = jobs_of(Call(operator.name, *self.native, operator, self.number))
        assert jobs is not None, f"{operator} has no kernels for these operands"
        self.run_native = CompiledJobs(jobs, lambda: unexpected)

    def arrays(self):
        """(NumPy's, the kernels') of all arrays, and of the number that is returned."""
        plain, native = ([*side[0], *side[1].values()] for side in (self.plain, self.native))
        found = [pair for p, n in zip(plain, native, strict=True) for pair in _pairs(p, n)]
        if self.returned is not None:
            found.append((np.array([self.returned]), self.number.array))
        return found

    def run(self):
        """Both, NumPy first."""
        self.returned = self.operator(*self.plain[0], **self.plain[1])
        self.run_native()


def copied(operand):
    """A copy with the strides of the original."""
    if isinstance(operand, (list, tuple)):
        return [copied(o) for o in operand]
    if not isinstance(operand, np.ndarray) or not operand.size:
        return operand
    base = operand if operand.base is None else operand.base
    if not isinstance(base, np.ndarray) or operand.size == base.size:
        return operand.copy(order="K")
    whole = base.copy(order="K")
    offset = operand.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    return np.ndarray(operand.shape, operand.dtype, whole, offset, operand.strides)


def _pairs(plain, native):
    if isinstance(plain, np.ndarray):
        return [(plain, native)]
    if isinstance(plain, list):
        return [pair for p, n in zip(plain, native, strict=True) for pair in _pairs(p, n)]
    return []


def check(bound, tolerance=2e-6):
    """All alike: the same NaN and infinity, the other numbers within a tolerance."""
    for one in bound:
        one.run()
        for expected, found in one.arrays():
            with np.errstate(all="ignore"):
                np.testing.assert_allclose(
                    found, expected, rtol=tolerance, atol=tolerance, err_msg=repr(one.operator)
                )

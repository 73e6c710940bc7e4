"""How the NumPy backend writes functions that have no fast ufunc, in terms of those that do."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nnet3tools.tensor.formulas import FUNCTIONS, Expr, Type

_f = FUNCTIONS

# erf(x) = x P(x^2) / Q(x^2) for |x| <= 3.92, beyond which it is 1 in float32; least-squares fit of
# the relative error (2.2e-8).
_P32 = (
    1.1283791611310365, 0.18870877929203833, 0.05253012273767109,
    0.0036950068503254765, 0.0002836795270225244, 2.0678013318650957e-06,
)  # fmt: skip
_Q32 = (
    1.0, 0.5005718064342807, 0.1134128936677751,
    0.0148267741350305, 0.0011461764900114323, 3.821317283610769e-05,
)  # fmt: skip

# Taylor series of erf(x) / x in x^2, to 2e-16 for |x| <= 1
_CENTRE64 = (
    1.1283791670955126, -0.37612638903183754, 0.11283791670955126, -0.026866170645131252,
    0.005223977625442188, -0.0008548327023450852, 0.00012055332981789664,
    -1.4925650358406252e-05, 1.6462114365889246e-06, -1.6365844691234924e-07,
    1.4807192815879217e-08, -1.2290555301717926e-09, 9.422759064650411e-11,
    -6.7113668551641105e-12, 4.4632242632864773e-13, -2.7835162072109217e-14,
    1.6342614095367153e-15, -9.063970842808672e-17,
)  # fmt: skip

# log(erfc(x) exp(x^2) / t) as a polynomial in y = (2 t - 1.25) / 0.75, t = 1 / (1 + x / 2), for
# 0 <= x <= 6, to 2e-15; a least-squares fit at Chebyshev nodes, in 60-digit arithmetic.
_TAIL64 = (
    -0.5014367259211944, 0.5153126870212928, 0.005570761974904368, -0.021523642466183848,
    0.000493531719116589, 0.0020287640643375736, -0.00033021997676895725,
    -0.00019494579201092405, 8.14699789090972e-05, 9.024745696962465e-06,
    -1.3600516666096513e-05, 2.1113371940777255e-06, 1.407170559365881e-06,
    -6.77798070811418e-07, -4.664454521489417e-09, 7.535564650564827e-08,
    -3.3173602158704846e-08, 2.5020335669978536e-08, 9.022187441587456e-09,
    -2.3226857592817407e-08, -1.9441358745098146e-09, 9.466748451814061e-09,
    2.7939677238464385e-10, -1.6763806343078626e-09,
)  # fmt: skip


def _polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    value: Expr = x * coefficients[-1] + coefficients[-2]
    for c in reversed(coefficients[:-2]):
        value = value * x + c
    return value


def _erf32(x: Expr) -> Expr:
    z = _f["clip"](x, -3.92, 3.92)
    u = _f["sqr"](z)
    return z * _polynomial(u, _P32) / _polynomial(u, _Q32)


def _erf64(x: Expr) -> Expr:
    size = _f["min"](_f["abs"](x), 6.0)
    t = 1.0 / (1.0 + 0.5 * size)
    tail = t * _f["exp"](_polynomial((2.0 * t - 1.25) / 0.75, _TAIL64) - _f["sqr"](size))
    near = _f["clip"](x, -1.0, 1.0)
    centre = near * _polynomial(_f["sqr"](near), _CENTRE64)
    return _f["where"](size < 1.0, centre, _f["sgn"](x) * (1.0 - tail))


def _sigmoid(x: Expr) -> Expr:
    # exp overflows to inf for x < -88, which the division turns into the right 0
    return 1.0 / (1.0 + _f["exp"](-x))


def _logaddexp32(a: Expr, b: Expr) -> Expr:
    # numpy.logaddexp is 10 times slower. The minimum keeps inf - inf from being nan.
    gap = _f["abs"](a - b)
    bounded = _f["where"](gap < 100.0, gap, 100.0)
    return _f["max"](a, b) + _f["log"](1.0 + _f["exp"](-bounded))


_ANY: dict[str, Callable[..., Expr]] = {"sigmoid": _sigmoid}
_BY_TYPE: dict[tuple[str, Type], Callable[..., Expr]] = {
    ("erf", Type.FLOAT32): _erf32,
    ("erf", Type.FLOAT64): _erf64,
    ("logaddexp", Type.FLOAT32): _logaddexp32,
}


def rewrite(name: str, compute: Type) -> Callable[..., Expr] | None:
    """A definition (operands -> Expr) of `name` that is faster in NumPy for this type, or None."""
    held_in = Type.FLOAT64 if compute is Type.WEAK_FLOAT else compute
    return _ANY.get(name) or _BY_TYPE.get((name, held_in))

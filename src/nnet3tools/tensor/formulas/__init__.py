"""Functional expressions: `_1`, `_2`, ... with Python's operators and named functions, or as text.

from nnet3tools.tensor import formulas as F
F._2 * F.sigmoid(F._3)                 # an expression
F.parse("_2 * sigmoid(_3)")            # the same object
F.parse("x * sigmoid(x)", {"x": F._2}) # with named operands
F.derivative(expression, F._2)         # symbolic, simplified
"""

from __future__ import annotations

from nnet3tools.tensor.formulas.derivative import derivative, derivatives
from nnet3tools.tensor.formulas.expr import Apply, Cast, Constant, Expr, Placeholder, as_expr
from nnet3tools.tensor.formulas.functions import CASTS, FUNCTIONS, Function, cast
from nnet3tools.tensor.formulas.parse import (
    Assignments,
    FormulaError,
    assign,
    parse,
    parse_statements,
)
from nnet3tools.tensor.formulas.simplify import simplify
from nnet3tools.tensor.formulas.types import Rule, Type, dtype_of, promote, type_of_dtype

for _function in FUNCTIONS.values():
    # names that Python keeps for itself get a trailing underscore: and_, or_, not_, max_ ...
    globals()[_function.name] = _function
    globals()[_function.name + "_"] = _function
for _number in range(1, 13):
    globals()[f"_{_number}"] = Placeholder(_number)

"""Calls: operators with their operands, the entries of recordings and of operators of formulas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ParamSpec, cast

from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.tensor.operands import is_number
from nnet3tools.tensor.registry import FLOATS, Operator, operator

P = ParamSpec("P")


@dataclass(frozen=True, eq=False)
class Call:
    """An operator with operands and options (keyword arguments), to run now, or again in a replay.

    `operator` is None for work that was given as a callable. `result`, if given, is a Number that
    is set to the number that the operator returns. `bound` does the work; if it is None, `bind()`
    binds the operator when needed.
    """

    name: str
    operands: Sequence[Any] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    operator: Any = None
    result: Any = None
    bound: Callable[[], Any] | None = None

    @classmethod
    def of(cls, operator: Any, *operands: Any, **options: Any) -> Call:
        """A Call of `operator(*operands, **options)`; the operator must not return a number."""
        return cls(operator.name, operands, options, operator)

    def bind(self) -> Callable[[], Any]:
        """A callable that does the work of this call, without compiled CPU kernels."""
        if self.bound is not None:
            return self.bound
        work = bind(self.operator, self.operands, self.options)
        return work if self.result is None else partial(self.result.set_to_result, work)

    def __repr__(self) -> str:
        values = (*self.operands, *self.options.values())
        return f"{self.name}({', '.join(_shown(value) for value in values)})"


Recording = tuple[Call, ...]
"""The calls of a step, in order, for one sequence of outcomes of its decisions."""


def in_turn(works: Iterable[Callable[[], Any]]) -> Callable[[], Any]:
    """A callable that calls all `works` in order; if there is only one, that callable itself."""
    all_works = tuple(works)
    if len(all_works) == 1:
        return all_works[0]

    def run() -> None:
        for work in all_works:
            work()

    return run


def operator_of_formulas(
    writes: Iterable[str] = ("out",),
    types: tuple[str, ...] = FLOATS,
    compiled_when_live: bool = True,
) -> Callable[[Callable[P, Iterable[Call]]], Operator[P, None]]:  # fmt: skip
    """Decorator that declares an operator for all devices, from a function that yields Calls.

    The Calls are of formulas and other operators, and are made in order. `writes` names the
    operands that the operator writes, `types` the element types that it accepts. A device may
    register a faster implementation. Without `compiled_when_live`, compiled kernels are used only
    for replays of recorded calls.
    """

    def declare(calls: Callable[P, Iterable[Call]]) -> Operator[P, None]:
        def bind(*args: P.args, **kwargs: P.kwargs) -> Callable[[], Any]:
            return in_turn(call.bind() for call in calls(*args, **kwargs))

        made = operator(writes, types)(cast("Callable[P, None]", calls))
        made.bind_formulas, made.compiled_when_live = bind, compiled_when_live
        return made

    return declare


def bind(operator: Any, operands: Sequence[Any], options: Mapping[str, Any]) -> Callable[[], Any]:
    """A callable that runs the operator on the operands.

    It reads the values of operands that are Numbers in the host's memory each time it is called.
    """
    values = (*operands, *options.values())
    if operator.takes_numbers or not any([is_number(v) for v in values]):
        return cast("Callable[[], Any]", operator.bind(*operands, **options))

    def call_with_numbers() -> object:
        named = {name: _present_value(v) for name, v in options.items()}
        return operator(*map(_present_value, operands), **named)

    return call_with_numbers


def _present_value(operand: Any) -> Any:
    return operand.value() if is_number(operand) else operand


def _shown(operand: Any) -> str:
    if hasattr(operand, "dtype"):
        return f"{operand.dtype}[{' x '.join(map(str, operand.shape))}]"
    if isinstance(operand, (list, tuple)):
        return f"[{', '.join(_shown(item) for item in operand)}]"
    return repr(operand)

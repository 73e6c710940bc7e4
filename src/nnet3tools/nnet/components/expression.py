"""ExpressionComponent: a formula of a config line as a trainable component (not in Kaldi).

    component name=swish type=ExpressionComponent dim=64 expression="x * sigmoid(x)"
    component name=glu type=ExpressionComponent input-parts=a:64,b:64 expression="a * sigmoid(b)"
    component name=p type=ExpressionComponent dim=64 params="alpha:64:init=0.25"
        expression="max(x, 0) + alpha * min(x, 0)"

The input's columns are `x`, or with input-parts are cut into named parts. A parameter is
name:dim or name:rows x cols (`w:32x64`), with :init=, :mean= and :stddev=. Formulas: see
expression/formula.py. Updates are plain SGD with the usual options of updatable components.
"""

from __future__ import annotations

import functools
import math
import re
from typing import Any, Self

import numpy as np

from nnet3tools.errors import UserError
from nnet3tools.expression.row_function import RowFunction
from nnet3tools.io.stream import Reader, Writer
from nnet3tools.nnet.components.array_fields import Vector
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    Component,
    Indexes,
    Memo,
    PrecomputedIndexes,
    Properties,
)
from nnet3tools.nnet.components.common import random_normal
from nnet3tools.nnet.components.field import Field
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.components.summary import parameter_stats
from nnet3tools.nnet.components.updatable import UpdatableComponent
from nnet3tools.nnet.config import ConfigLine, parse_float
from nnet3tools.number_text import parse_int

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_WORDS = frozenset({"and", "or", "not", "true", "false", "inf", "nan", "pi"})

_MAX_SIZE = 1 << 28
"""Limit on the size of parts and parameters."""


class _Sizes(Field[dict[str, Any]]):
    """Field for a dictionary from names to sizes; files store the number of entries first."""

    def read_value(self, reader: Reader) -> dict[str, Any]:
        number, read_size = _count(reader), getattr(reader, self.METHODS[0])
        return {_name(reader): read_size() for _ in range(number)}

    def write_value(self, writer: Writer, value: dict[str, Any]) -> None:
        writer.write_int32(len(value))
        for name, size in value.items():
            writer.write_token(name)
            getattr(writer, self.METHODS[1])(size)


class _Parts(_Sizes):
    """Field for a dict: name of an input part -> its dimension; info lines omit a lone part `x`."""

    METHODS = "read_int32", "write_int32", ""

    def config_value(self, line: ConfigLine) -> dict[str, int]:
        if "input-parts" not in line:
            key = "input-dim" if "input-dim" in line else "dim"
            return {"x": _dim(line, key, line.get_string(key))}
        parts: dict[str, int] = {}
        for text in line.get_string("input-parts").split(","):
            name, _, dim = text.strip().partition(":")
            if name in parts:
                raise line.error(f"part '{name}' appears twice")
            parts[_check_name(line, name)] = _dim(line, name, dim)
        total = sum(parts.values())
        for key in ("input-dim", "dim"):
            if line.get_int(key, total) != total:
                raise line.error(f"{key} differs from the sum of the input-parts, {total}")
        return parts

    def problem(self, value: dict[str, int]) -> str | None:
        good = value and all(0 < dim < _MAX_SIZE for dim in value.values())
        return None if good else "must have positive dimensions"

    def info(self, owner: ExpressionComponent) -> str:
        parts = ",".join(f"{name}:{dim}" for name, dim in owner.parts.items())
        return "" if list(owner.parts) == ["x"] else f"{self.key}={parts}"


class _Shapes(_Sizes):
    """Field for the shape of each named parameter."""

    METHODS = "read_int32_vector", "write_int32_vector", ""

    def read_value(self, reader: Reader) -> dict[str, tuple[int, ...]]:
        return {name: tuple(shape.tolist()) for name, shape in super().read_value(reader).items()}

    def problem(self, value: dict[str, tuple[int, ...]]) -> str | None:
        for name, shape in value.items():
            if len(shape) not in (1, 2) or min(shape) <= 0 or math.prod(shape) >= _MAX_SIZE:
                return f"has an impossible parameter '{name}' {shape}"
        return None


class _Formula(Field[str]):
    """Field for a formula, stored in files as the number of its words and the words."""

    def read_value(self, reader: Reader) -> str:
        return " ".join(reader.read_token() for _ in range(_count(reader)))

    def write_value(self, writer: Writer, value: str) -> None:
        words = value.split()
        writer.write_int32(len(words))
        for word in words:
            writer.write_token(word)

    def config_value(self, line: ConfigLine) -> str:
        return " ".join(line.get_string(str(self.config)).split())

    def text(self, value: str) -> str:
        return f'"{value}"'


MAX_PARAMETERS = 1 << 26
"""Limit on the elements of a parameter: 256 MB, more than any layer has."""


@register
class ExpressionComponent(UpdatableComponent):
    """Computes a formula of parts of the input's columns and of parameters, joined in `values`."""

    FORMULA = "y = expression(x, params)"
    KEYS = "[dim] [input-dim] [output-dim] [input-parts] [params]"
    parts = _Parts("<InputParts>", "input-parts")
    params = _Shapes("<ParamShapes>")
    values = Vector("<Params>")
    expression = _Formula("<Expression>", "expression")

    @functools.cached_property
    def function(self) -> RowFunction:
        """The compiled formula; UserError if the formula is wrong."""
        return RowFunction(self.expression, self.parts, self.params)

    @property
    def input_dim(self) -> int:
        return sum(self.parts.values())

    @property
    def output_dim(self) -> int:
        return self.function.output_dim

    @property
    def couples_rows(self) -> bool:
        """True for formulas that are not elementwise, because they may reduce over rows."""
        return not self.function.is_fused

    @property
    def properties(self) -> Properties:
        found = Properties.SIMPLE
        if self.params:
            found |= Properties.UPDATABLE
        if self.function.needs_input:
            found |= Properties.BACKPROP_NEEDS_INPUT
        if self.function.needs_output:
            found |= Properties.BACKPROP_NEEDS_OUTPUT
        if not self.function.is_fused:
            found |= Properties.USES_MEMO
        if self.function.in_place:
            found |= Properties.PROPAGATE_IN_PLACE | Properties.BACKPROP_IN_PLACE
        return found

    def parameters(self) -> dict[str, Array]:
        found, start = {}, 0
        for name, shape in self.params.items():
            end = start + math.prod(shape)
            found[name] = self.values[start:end].reshape(shape)
            start = end
        return found

    # -- config lines, files, info lines

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        whole = _with_params_quoted(line)
        component = super().from_config(whole)
        if whole is not line:  # keys were read from `whole`, but `line` is checked later
            for key in ("name", "type"):
                whole.get_string(key, "")
            whole.check_all_used()
            for key in line.unused_keys():
                line.get_string(key)
        return component

    def init_from_config(self, line: ConfigLine) -> None:
        """Make the parameters of params=, and check output-dim if it is given."""
        specs = [_param(line, text) for text in line.get_string("params", "").split(",") if text]
        names = [*self.parts, *(name for name, _, _ in specs)]
        if len(set(names)) != len(names):
            raise line.error(f"parts and parameters must have different names: {names}")
        self.params = {name: shape for name, shape, _ in specs}
        if specs:
            self.values = np.concatenate([value.reshape(-1) for _, _, value in specs])
        if (problem := self.problem()) is not None:
            raise line.error(problem)
        if (dim := line.get_int("output-dim", self.output_dim)) != self.output_dim:
            raise line.error(f"the expression has {self.output_dim} columns, not {dim}")

    def problem(self) -> str | None:
        if self.parts.keys() & self.params.keys():
            return "parts and parameters must have different names"
        size = sum(math.prod(shape) for shape in self.params.values())
        if len(self.values) != size:
            return f"expected {size} parameters, found {len(self.values)}"
        try:
            good = self.output_dim > 0
        except UserError as error:
            return str(error)
        return None if good else "the formula has no columns"

    def info(self) -> str:
        names = (UpdatableComponent if self.params else Component).INFO
        text = f"{self.type_name}, {self.info_of(names + ' parts expression')}"
        stats = (parameter_stats(n, v, include_mean=True) for n, v in self.parameters().items())
        return ", ".join([text, *stats])

    # -- running

    def _cut(self, matrix: Array) -> dict[str, Array]:
        """Views of the named input parts in a matrix with the input's columns."""
        found, start = {}, 0
        for name, dim in self.parts.items():
            found[name] = matrix[:, start : start + dim]
            start += dim
        return found

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        return self.function.forward({**self._cut(in_value), **self.parameters()}, out_value)

    def infer(self, indexes: PrecomputedIndexes | None, in_value: Array, out_value: Array) -> None:
        self.function.infer({**self._cut(in_value), **self.parameters()}, out_value)

    def backprop(self, args: BackpropArgs) -> None:
        operands = self.parameters()
        if args.in_value is not None:
            operands |= self._cut(args.in_value)
        gradients, rate = None, 1.0
        if args.to_update is not None and self.params:
            assert isinstance(args.to_update, ExpressionComponent)
            gradients, rate = args.to_update.parameters(), args.to_update.rate
        derivs = None if args.in_deriv is None else self._cut(args.in_deriv)
        self.function.backward(
            operands, args.out_value, args.out_deriv, args.memo, derivs, gradients, rate
        )


# -- config lines


def _with_params_quoted(line: ConfigLine) -> ConfigLine:
    """A config line with quotes around the value of params=, so that the value ends at a blank.

    Without quotes the `=` in params=a:3:init=1 would extend the value to the rest of the line.
    """
    text = re.sub(r"""(\sparams=)(?!["'])(\S+)""", r'\1"\2"', line.text)
    return line if text == line.text else ConfigLine(text, line.file, line.line_number)


def _check_name(line: ConfigLine, name: str) -> str:
    if not _IDENTIFIER.match(name) or name in _WORDS:
        raise line.error(f"'{name}' cannot be the name of a part or parameter")
    return name


def _dim(line: ConfigLine, name: str, text: str) -> int:
    if (dim := parse_int(text, 1, _MAX_SIZE - 1)) is None:
        raise line.error(f"expected a positive dimension for '{name}', found '{text}'")
    return dim


def _param(line: ConfigLine, text: str) -> tuple[str, tuple[int, ...], Array]:
    """Parse a parameter's description name:shape:key=value:... into name, shape, initial value."""
    name, *fields = text.strip().split(":")
    if not fields:
        raise line.error(f"expected name:dim for a parameter, found '{text}'")
    shape = tuple(_dim(line, name, n) for n in re.split("[xX]", fields[0]))
    if len(shape) > 2:
        raise line.error(f"parameter '{name}' has more than two dimensions: '{fields[0]}'")
    if math.prod(shape) > MAX_PARAMETERS:
        raise line.error(
            f"parameter '{name}' has {math.prod(shape)} numbers: at most {MAX_PARAMETERS}"
        )
    options = {"init": 0.0, "mean": 0.0, "stddev": 0.0}
    for field in fields[1:]:
        key, _, value = field.partition("=")
        number = parse_float(value)
        if key not in options or number is None or (key == "stddev" and number < 0.0):
            raise line.error(f"parameter '{name}': expected init=, mean= or stddev=, got '{field}'")
        options[key] = number
    mean = options["init"] + options["mean"]
    if options["stddev"] == 0.0:
        initial = np.full(shape, mean, np.float32)
    else:
        initial = random_normal(shape, options["stddev"], mean)
    return _check_name(line, name), shape, initial


# -- files


def _count(reader: Reader) -> int:
    if not 0 <= (count := reader.read_int32()) < 1 << 20:
        raise reader.error(f"expected a count, found {count}")
    return count


def _name(reader: Reader) -> str:
    name = reader.read_token()
    if not _IDENTIFIER.match(name) or name in _WORDS:
        raise reader.error(f"'{name}' cannot be the name of a part or parameter")
    return name

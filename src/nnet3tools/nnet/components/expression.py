"""ExpressionComponent: a formula of a config line as a trainable component (not in Kaldi).

    component name=swish type=ExpressionComponent dim=64 expression="x * sigmoid(x)"
    component name=glu type=ExpressionComponent input-parts=a:64,b:64 expression="a * sigmoid(b)"
    component name=p type=ExpressionComponent dim=64 params="alpha:64:init=0.25"
        expression="max(x, 0) + alpha * min(x, 0)"

The input's columns are `x`, or with input-parts are cut into named parts. A parameter is
name:dim or name:rows x cols (`w:32x64`), with :init=, :mean= and :stddev=. What a formula may say:
expression/formula.py. Updates are plain SGD with the usual options of updatable components.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Self

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import ConfigError, UserError
from nnet3tools.expression.row_function import RowFunction
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    Component,
    Indexes,
    Memo,
    PrecomputedIndexes,
    Properties,
    UpdatableComponent,
)
from nnet3tools.nnet.components.common import random_normal, read_field, require, write_field
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.components.summary import parameter_stats
from nnet3tools.nnet.config import ConfigLine, parse_float

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer

__all__ = ["ExpressionComponent"]

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_WORDS = frozenset({"and", "or", "not", "true", "false", "inf", "nan", "pi"})

_MAX_SIZE = 1 << 28
"""Parts and parameters larger than this are refused."""


@register
class ExpressionComponent(UpdatableComponent):
    """y = a formula of the input's parts and of parameters, which lie in one vector `values`."""

    def __init__(
        self,
        expression: str = "x",
        parts: dict[str, int] | None = None,
        params: dict[str, tuple[int, ...]] | None = None,
    ) -> None:
        self.expression = " ".join(expression.split())
        self.parts = parts or {"x": 1}
        self.params = params or {}
        self.function = RowFunction(self.expression, self.parts, self.params)
        self.values: Array = tensor.zeros((sum(math.prod(s) for s in self.params.values()),))

    @property
    def input_dim(self) -> int:
        return sum(self.parts.values())

    @property
    def output_dim(self) -> int:
        return self.function.output_dim

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

    # -- config lines and files

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        whole = _with_params_quoted(line)
        parts = _parts(whole)
        specs = [_param(whole, text) for text in whole.get_string("params", "").split(",") if text]
        names = [*parts, *(name for name, _, _ in specs)]
        if len(set(names)) != len(names):
            raise whole.error(f"parts and parameters must have different names: {names}")
        try:
            component = cls(
                whole.get_string("expression"), parts, {name: shape for name, shape, _ in specs}
            )
        except ConfigError:
            raise
        except UserError as error:
            raise whole.error(str(error)) from None
        component.read_updatable_config(whole)
        dim = whole.get_int("output-dim", component.output_dim)
        if dim != component.output_dim:
            raise whole.error(f"the expression has {component.output_dim} columns, not {dim}")
        initial = [value.reshape(-1) for _, _, value in specs]
        if initial:
            component.values = np.concatenate(initial)
        if whole is not line:
            _mark_used(line, whole)
        return component

    @classmethod
    def read(cls, reader: Reader) -> Self:
        shared = cls()
        shared.read_updatable_common(reader)
        reader.expect_token("<InputParts>")
        parts = {}
        for _ in range(_count(reader)):
            name = _name(reader)
            parts[name] = reader.read_int32()
            require(reader, 0 < parts[name] < _MAX_SIZE, "expected a positive dimension")
        reader.expect_token("<ParamShapes>")
        params = {}
        for _ in range(_count(reader)):
            name = _name(reader)
            shape = tuple(int(n) for n in reader.read_int32_vector())
            fits = len(shape) in (1, 2) and min(shape) > 0 and math.prod(shape) < _MAX_SIZE
            require(reader, fits and name not in parts, f"impossible parameter '{name}' {shape}")
            params[name] = shape
        values = read_field(reader, "<Params>", reader.read_vector)
        size = sum(math.prod(s) for s in params.values())
        require(reader, len(values) == size, f"expected {size} parameters, found {len(values)}")
        reader.expect_token("<Expression>")
        text = " ".join(reader.read_token() for _ in range(_count(reader)))
        try:
            component = cls(text, parts, params)
        except UserError as error:
            raise reader.error(str(error)) from None
        for key in ("learning_rate", "learning_rate_factor", "max_change", "l2_regularize"):
            setattr(component, key, getattr(shared, key))
        component.is_gradient, component.values = shared.is_gradient, values
        reader.expect_token(f"</{cls.type_name}>")
        return component

    def write(self, writer: Writer) -> None:
        self.write_updatable_common(writer)
        write_field(writer, "<InputParts>", len(self.parts))
        for name, dim in self.parts.items():
            writer.write_token(name)
            writer.write_int32(dim)
        write_field(writer, "<ParamShapes>", len(self.params))
        for name, shape in self.params.items():
            writer.write_token(name)
            writer.write_int32_vector(np.array(shape, np.int32))
        write_field(writer, "<Params>", self.values)
        words = self.expression.split()
        write_field(writer, "<Expression>", len(words))
        for word in words:
            writer.write_token(word)
        writer.write_token(f"</{self.type_name}>")

    def info(self) -> str:
        text = super().info() if self.params else Component.info(self)
        if list(self.parts) != ["x"]:
            text += ", input-parts=" + ",".join(f"{n}:{d}" for n, d in self.parts.items())
        text += f', expression="{self.expression}"'
        for name, value in self.parameters().items():
            text += parameter_stats(name, value, include_mean=True)
        return text

    # -- running

    def _cut(self, matrix: Array) -> dict[str, Array]:
        """A matrix with the input's columns as parts by name."""
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
            gradients, rate = args.to_update.parameters(), args.to_update.learning_rate
        derivs = None if args.in_deriv is None else self._cut(args.in_deriv)
        self.function.backward(
            operands, args.out_value, args.out_deriv, args.memo, derivs, gradients, rate
        )


# -- config lines


def _with_params_quoted(line: ConfigLine) -> ConfigLine:
    """The line such that params=a:3:init=1 ends at a blank.

    The `=` inside makes Kaldi's grammar take all that follows as its value unless it is quoted.
    """
    text = re.sub(r"""(\sparams=)(?!["'])(\S+)""", r'\1"\2"', line.text)
    return line if text == line.text else ConfigLine(text, line.file, line.line_number)


def _mark_used(line: ConfigLine, whole: ConfigLine) -> None:
    """What is unused is an error of the whole line; in the other one, nothing is left then."""
    for key in ("name", "type"):
        whole.get_string(key, "")
    whole.check_all_used()
    for key in line.unused_keys():
        line.get_string(key)


def _check_name(line: ConfigLine, name: str) -> str:
    if not _IDENTIFIER.match(name) or name in _WORDS:
        raise line.error(f"'{name}' cannot be the name of a part or parameter")
    return name


def _dim(line: ConfigLine, name: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or not 0 < int(text) < _MAX_SIZE:
        raise line.error(f"expected a positive dimension for '{name}', found '{text}'")
    return int(text)


def _parts(line: ConfigLine) -> dict[str, int]:
    """Names and dimensions of the input's parts."""
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


def _param(line: ConfigLine, text: str) -> tuple[str, tuple[int, ...], Array]:
    """Name, shape and initial value of name:shape:key=value:..."""
    name, *fields = text.strip().split(":")
    if not fields:
        raise line.error(f"expected name:dim for a parameter, found '{text}'")
    shape = tuple(_dim(line, name, n) for n in re.split("[xX]", fields[0]))
    if len(shape) > 2:
        raise line.error(f"parameter '{name}' has more than two dimensions: '{fields[0]}'")
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
    count = reader.read_int32()
    require(reader, 0 <= count < 1 << 20, f"expected a count, found {count}")
    return count


def _name(reader: Reader) -> str:
    name = reader.read_token()
    fits = _IDENTIFIER.match(name) is not None and name not in _WORDS
    require(reader, fits, f"'{name}' cannot be the name of a part or parameter")
    return name

"""CompositeComponent: several simple components in sequence, without storing intermediate values.

As in Kaldi (nnet-simple-component.cc), backprop repeats the forward pass for a part of the rows at
a time, which bounds the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

from nnet3tools import tensor
from nnet3tools.errors import UserError
from nnet3tools.io.stream import Reader, Writer
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    Component,
    Indexes,
    Memo,
    Properties,
)
from nnet3tools.nnet.components.common import get_positive
from nnet3tools.nnet.components.field import Field
from nnet3tools.nnet.components.fields import Int
from nnet3tools.nnet.components.registry import component_class, read_component, register
from nnet3tools.nnet.components.updatable import UpdatableComponent
from nnet3tools.nnet.config import ConfigLine
from nnet3tools.nnet.natural_gradient import OnlineNaturalGradient

_MAX_COMPONENTS = 100000
_NESTED = "a CompositeComponent cannot contain another one"


class _Components(Field[list[Component]]):
    """Field for a composite's inner components; its operations apply to each of them."""

    def read_value(self, reader: Reader) -> list[Component]:
        number = reader.read_int32()
        if not 0 < number <= _MAX_COMPONENTS:
            raise reader.error(f"{self.token} {number} is impossible")
        return [_read_part(reader) for _ in range(number)]

    def write_value(self, writer: Writer, value: list[Component]) -> None:
        writer.write_int32(len(value))
        for component in value:
            component.write(writer)

    def config_value(self, line: ConfigLine) -> list[Component]:
        number = get_positive(line, str(self.config))
        return [_component_from_config(line, f"component{i}") for i in range(1, number + 1)]

    def structure(self, owner: CompositeComponent) -> object:
        return [[component.type_name, component.structure()] for component in owner.components]

    def map_arrays(self, owner: CompositeComponent, function: Callable[[Any], Any]) -> None:
        for component in owner.components:
            component.map_arrays(function)

    def scale(self, owner: CompositeComponent, scale: float) -> None:
        for component in owner.components:
            component.scale(scale)

    def add(self, owner: CompositeComponent, alpha: float, other: CompositeComponent) -> None:
        for mine, theirs in zip(owner.components, other.components, strict=True):
            mine.add(alpha, theirs)

    def zero_stats(self, owner: CompositeComponent) -> None:
        for component in owner.components:
            component.zero_stats()

    def num_bytes(self, owner: CompositeComponent) -> int:
        return sum(component.num_bytes() for component in owner.components)

    def preconditioners(self, owner: CompositeComponent) -> list[tuple[OnlineNaturalGradient, int]]:
        return [pair for component in owner.components for pair in component.preconditioners()]

    def freeze_natural_gradient(self, owner: CompositeComponent, freeze: bool) -> None:
        for component in owner.updatable:
            component.freeze_natural_gradient(freeze)


@register
class CompositeComponent(UpdatableComponent):
    """Applies `components` in sequence to at most `max_rows_process` rows at a time (0: all)."""

    FORMULA = "y = f_n(... f_2(f_1(x)))"
    KEYS = (
        "num-components component1 [component2] "
        "-learning-rate -learning-rate-factor -max-change -l2-regularize"
    )
    max_rows_process = Int("<MaxRowsProcess>", "max-rows-process", 4096)
    components = _Components("<NumComponents>", "num-components")

    @property
    def input_dim(self) -> int:
        return self.components[0].input_dim

    @property
    def output_dim(self) -> int:
        return self.components[-1].output_dim

    @property
    def updatable(self) -> list[UpdatableComponent]:
        """The inner components with parameters."""
        return [
            c
            for c in self.components
            if isinstance(c, UpdatableComponent) and Properties.UPDATABLE in c.properties
        ]

    @property
    def properties(self) -> Properties:
        first, last = self.components[0].properties, self.components[-1].properties
        flags = Properties.SIMPLE | Properties.BACKPROP_NEEDS_INPUT
        flags |= last & (
            Properties.PROPAGATE_ADDS
            | Properties.BACKPROP_NEEDS_OUTPUT
            | Properties.OUTPUT_CONTIGUOUS
        )
        flags |= first & (Properties.BACKPROP_ADDS | Properties.INPUT_CONTIGUOUS)
        if self.updatable:
            flags |= Properties.UPDATABLE
        if Properties.STORES_STATS in last:  # backprop stores them
            flags |= Properties.BACKPROP_NEEDS_OUTPUT
        return flags

    @property
    def is_quantized(self) -> bool:
        return any(component.is_quantized for component in self.components)

    @property
    def couples_rows(self) -> bool:
        """Whether in any inner component an output row may depend on rows of other utterances."""
        return any(component.couples_rows for component in self.components)

    def parameters(self) -> dict[str, Array]:
        return {
            f"{k}.{name}": value
            for k, component in enumerate(self.updatable)
            for name, value in component.parameters().items()
        }

    def init_from_config(self, line: ConfigLine) -> None:
        """Reject learning rates and similar keys, which belong to the inner components' lines."""
        for field in UpdatableComponent.FIELDS:
            if field.config is not None and field.config in line:
                raise line.error(f"{field.config} belongs in the line of a component")

    def problem(self) -> str | None:
        for k, component in enumerate(self.components):
            flags = component.properties
            if Properties.SIMPLE not in flags or Properties.RANDOM in flags:
                return f"a CompositeComponent cannot contain a {component.type_name}"
            if isinstance(component, CompositeComponent):
                return _NESTED
            if k > 0 and component.input_dim != self.components[k - 1].output_dim:
                return (
                    f"component{k} has output-dim={self.components[k - 1].output_dim} but "
                    f"component{k + 1} has input-dim={component.input_dim}"
                )
        return None

    def info(self) -> str:
        parts = (
            f"sub-component{k} = {{ {component.info()} }}"
            for k, component in enumerate(self.components, start=1)
        )
        return f"{self.type_name} {', '.join(parts)}"

    # -- running

    def _parts(self, num_rows: int) -> Iterator[slice]:
        """Split range(num_rows) into slices of at most max_rows_process rows."""
        size = self.max_rows_process if self.max_rows_process > 0 else max(num_rows, 1)
        for start in range(0, num_rows, size):
            yield slice(start, min(start + size, num_rows))

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        return sum(part.propagate_flops(rows, None) for part in self.components)

    def natural_gradient_flops(self, rows: int) -> int:
        parts = (part for part in self.components if isinstance(part, UpdatableComponent))
        return sum(part.natural_gradient_flops(rows) for part in parts)

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        for rows in self._parts(in_value.shape[0]):
            with ExitStack() as stack:
                value = in_value[rows]
                for component in self.components[:-1]:
                    value, _ = _propagated(component, value, stack)
                self.components[-1].propagate(None, value, out_value[rows])

    def backprop(self, args: BackpropArgs) -> None:
        for rows in self._parts(args.out_deriv.shape[0]):
            out_value = None if args.out_value is None else args.out_value[rows]
            in_deriv = None if args.in_deriv is None else args.in_deriv[rows]
            self._backprop_part(
                args._replace(
                    in_value=args.in_value[rows],
                    out_value=out_value,
                    out_deriv=args.out_deriv[rows],
                    in_deriv=in_deriv,
                )
            )

    def _backprop_part(self, args: BackpropArgs) -> None:
        assert args.to_update is None or isinstance(args.to_update, CompositeComponent)
        last = len(self.components) - 1
        with ExitStack() as stack:
            values, memos = [args.in_value], []
            for k, component in enumerate(self.components):
                memo = None
                if k < last or Properties.USES_MEMO in component.properties:
                    value, memo = _propagated(component, values[-1], stack)
                    values.append(value)
                memos.append(memo)
            # The last value is the caller's, which may be None.
            values = [*values[: last + 1], args.out_value]
            deriv = args.out_deriv
            for k in range(last, -1, -1):
                component = self.components[k]
                updated = None if args.to_update is None else args.to_update.components[k]
                if updated is not None and Properties.STORES_STATS in component.properties:
                    updated.store_stats(values[k], values[k + 1], memos[k])
                if k > 0:
                    target = _matrix_for(component.input_dim, values[k], stack)
                    if Properties.BACKPROP_ADDS in component.properties:
                        tensor.fill(target, 0.0)
                else:
                    target = args.in_deriv
                if target is not None or Properties.UPDATABLE in component.properties:
                    matrices = values[k], values[k + 1], deriv
                    component.backprop(
                        BackpropArgs(args.debug_info, None, *matrices, memos[k], updated, target)
                    )
                deriv = target

    # training: settings are forwarded to the components

    def set_as_gradient(self) -> None:
        super().set_as_gradient()
        for component in self.updatable:
            component.set_as_gradient()

    def set_underlying_learning_rate(self, rate: float) -> None:
        super().set_underlying_learning_rate(rate)
        for component in self.updatable:
            component.set_underlying_learning_rate(self.learning_rate)


def _read_part(reader: Reader) -> Component:
    """Read one inner component; a nested composite is rejected, to bound recursion."""
    if reader.peek_token() == f"<{CompositeComponent.type_name}>":
        raise reader.error(_NESTED)
    return read_component(reader)


def _component_from_config(line: ConfigLine, key: str) -> Component:
    """Make an inner component from the value of `key`, as in component1='type=... dim=...'."""
    nested = ConfigLine(line.get_string(key), line.file, line.line_number)
    if nested.first_token:
        raise line.error(f"{key} must hold key=value pairs only")
    try:
        component = component_class(nested.get_string("type")).from_config(nested)
    except UserError as error:
        raise line.error(f"{key}: {error}") from None
    if unused := nested.unused_keys():
        raise line.error(f"{key}: unused keys {unused}")
    return component


def _matrix_for(dim: int, like: Array, stack: ExitStack) -> Array:
    """A scratch matrix (as many rows as `like`, `dim` columns), valid until `stack` is closed."""
    return stack.enter_context(tensor.scratch((like.shape[0], dim), like=like))


def _propagated(component: Component, value: Array, stack: ExitStack) -> tuple[Array, object]:
    """Apply a component to `value`: (output in scratch memory of `stack`, memo)."""
    out = _matrix_for(component.output_dim, value, stack)
    if Properties.PROPAGATE_ADDS in component.properties:
        tensor.fill(out, 0.0)
    return out, component.propagate(None, value, out)

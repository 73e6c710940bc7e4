"""The base of all layers (options, input, outputs), their config lines, and the names in scope."""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Protocol

from nnet3tools.errors import ConfigError, TextError
from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.grammars.descriptor_syntax import Expression
from nnet3tools.nnet.config import is_valid_name, nearest_hint
from nnet3tools.xconfig.options import (
    ANY,
    Option,
    Value,
    XconfigLine,
    check_value,
    options,
    read_values,
)


def flag(value: Value) -> str:
    """The value as "true" or "false", as config lines spell truth values."""
    return "true" if value else "false"


def delayed(node: str, delay: Value) -> str:
    """The descriptor of a node `delay` frames later (earlier if < 0), zero outside the data."""
    return f"IfDefined(Offset({node}, {delay}))"


class ConfigLines:
    """Collects the config lines of one layer.

    Components and nodes are named by the layer and a suffix: `.affine` for `tdnn1.affine`. Keyword
    arguments are written as `key=value` with `-` for `_`; texts are appended as they are.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix, self.lines = prefix, list[str]()

    def add(self, *words: str) -> None:
        """Add a line of `words`; empty words are left out."""
        self.lines.append(" ".join(" ".join(words).split()))

    def component(self, suffix: str, kind: str, *texts: str, **settings: Value) -> None:
        """Add component <layer><suffix> of type `kind`: `settings` as key=value, then `texts`."""
        pairs = [f"{key.replace('_', '-')}={value}" for key, value in settings.items()]
        self.add("component", f"name={self.prefix}{suffix}", f"type={kind}", *pairs, *texts)

    def node(self, suffix: str, source: str, component: str | None = None) -> str:
        """Add component-node <layer><suffix> with input `source`; return its name.

        Its component is <layer><component>, by default <layer><suffix>.
        """
        name = f"{self.prefix}{suffix}"
        used = name if component is None else f"{self.prefix}{component}"
        self.add("component-node", f"name={name}", f"component={used}", f"input={source}")
        return name

    def step(self, suffix: str, kind: str, source: str, *texts: str, **settings: Value) -> str:
        """Add component <layer><suffix> and its node with input `source`; return the node's name.

        `kind`, `texts` and `settings` are the arguments of `component`.
        """
        self.component(suffix, kind, *texts, **settings)
        return self.node(suffix, source)

    def matrix(
        self, suffix: str, kind: str, source: str, dims: tuple[Value, Value], *texts: str
    ) -> str:
        """Add component <layer><suffix> of `dims` (input, output) and its node; return its name."""
        return self.step(suffix, kind, source, *texts, input_dim=dims[0], output_dim=dims[1])

    def dim_range(self, suffix: str, source: str, dim: Value, offset: Value = 0) -> str:
        """Add a node for `dim` columns of <layer><source> from `offset` on; return its name."""
        name = f"{self.prefix}{suffix}"
        self.add(
            "dim-range-node",
            f"name={name}",
            f"input-node={self.prefix}{source}",
            f"dim-offset={offset}",
            f"dim={dim}",
        )
        return name


def descriptor_text(expression: Expression, node_of: Callable[[str], str]) -> str:
    """The text of a descriptor for config files, with `node_of(name)` in place of each name."""
    if not expression.operator:
        return node_of(expression.name)
    arguments = [descriptor_text(child, node_of) for child in expression.children]
    arguments += [expression.name] if expression.name else []
    arguments += map(str, expression.numbers)
    if expression.operator in ("Scale", "Const"):
        arguments.insert(0, str(expression.alpha))
    return f"{expression.operator}({', '.join(arguments)})"


def dimension(expression: Expression, dim_of: Callable[[str], int]) -> int:
    """The number of columns of a descriptor; `dim_of(name)` gives the columns of a layer.

    ConfigError if arguments that need equal dimensions have different ones.
    """
    if not expression.operator:
        return dim_of(expression.name)
    if expression.operator == "Const":
        return expression.numbers[0]
    dims = [dimension(child, dim_of) for child in expression.children]
    if expression.operator == "Append":
        return sum(dims)
    if len(set(dims)) > 1:
        shown = descriptor_text(expression, str)
        raise ConfigError(f"the arguments of {shown} have dimensions {', '.join(map(str, dims))}")
    return dims[0]


CONFIGS = ("init", "ref", "final")
"""The configs: the part before LDA, the network without matrix files, the network."""

MAX_ENTRIES = 1 << 24
"""The largest number of entries of a matrix or permutation that a layer writes out."""

INPUT = options(input=Option("[-1]", ANY))


@dataclass(frozen=True)
class Output:
    """An output of a layer for use by other layers: its descriptor in configs, its columns."""

    node: str
    dim: int


@dataclass(frozen=True)
class LayerInput:
    """The input of a layer: its descriptor and its number of columns.

    `node` is the descriptor for configs, `normalized` has layers' names in place of nodes' names.
    """

    node: str
    normalized: str
    dim: int


class Named(Protocol):
    """A layer, or a node of an existing model, that descriptors can name.

    `used` collects the names of its outputs that other layers read.
    """

    name: str
    used: set[str]

    def outputs(self) -> Mapping[str, Output]:
        """The outputs by the name after `<layer>.`; "" is the main output."""


@dataclass
class ExistingNode:
    """A node of a model to which layers are added; `used` is {""} if a layer reads the node."""

    name: str
    dim: int
    used: set[str] = field(default_factory=set)

    def outputs(self) -> dict[str, Output]:
        """A dictionary with the node itself as the main output ""."""
        return {"": Output(self.name, self.dim)}


class Scope:
    """The names that a line can use: nodes of an existing model, and the layers before it."""

    def __init__(self, existing: Iterable[ExistingNode] = ()) -> None:
        self._existing: list[Named] = list(existing)
        self.layers: list[Layer] = []

    def parse_input(self, text: str) -> LayerInput:
        """Parse the descriptor `text` of a layer's input.

        TextError for malformed text; ConfigError for unknown names and unequal dimensions.
        """
        from nnet3tools.grammars.descriptor import read_descriptor

        expression = read_descriptor(text, [layer.name for layer in self.layers])
        dim = dimension(expression, lambda name: self._output(name).dim)
        node = descriptor_text(expression, lambda name: self._output(name).node)
        return LayerInput(node, descriptor_text(expression, str), dim)

    def _output(self, name: str) -> Output:
        owner, part = self._owner(name)
        outputs = owner.outputs()
        if part not in outputs:
            known = [f"{owner.name}.{output}" if output else owner.name for output in outputs]
            expected = f"; it has {' and '.join(known)}" if known else ""
            what = f"output '{part}'" if part else "output that other layers may use"
            raise ConfigError(f"layer '{owner.name}' has no {what}{expected}")
        owner.used.add(part)
        return outputs[part]

    def _owner(self, name: str) -> tuple[Named, str]:
        """The layer or node that `name` refers to, and the name of its output ("" if main)."""
        known = [*self._existing, *self.layers]
        for named in known:
            if named.name == name:
                return named, ""
        stem, _, part = name.partition(".")
        for named in known:
            if part and named.name == stem:
                return named, part
        hint = nearest_hint(name, [named.name for named in known])
        raise ConfigError(f"no layer or input before this line is called '{name}'{hint}")


class Layer:
    """One line of an xconfig file.

    A subclass declares `TYPES` and `OPTIONS`. `derive` sets options that depend on others, `check`
    refuses values that do not fit together, and `write` writes the config lines and returns the
    descriptor of the main output. A subclass overrides `dim` if that output has another dimension,
    and `outputs` if other layers may use other outputs.
    """

    TYPES: ClassVar[tuple[str, ...]] = ()
    OPTIONS: ClassVar[Mapping[str, Option]] = INPUT

    def __init__(self, line: XconfigLine, scope: Scope) -> None:
        self.line, self.type = line, line.layer_type
        self.used: set[str] = set()
        self.name = self._checked_name(scope)
        self.values: dict[str, Any] = dict(read_values(line, self.OPTIONS))
        try:
            if "input" in self.OPTIONS:
                self.input = scope.parse_input(self.values["input"])
        except (ConfigError, TextError) as error:
            raise line.error(f"option 'input': {error}") from None
        self.derive()
        for key, option in self.OPTIONS.items():
            check_value(line, key, self.values[key], option.check)
        self.check()

    def _checked_name(self, scope: Scope) -> str:
        name = self.line.values.get("name", "")
        if not is_valid_name(name):
            raise self.line.error(
                f"option 'name': expected a name such as tdnn1, found '{name}'"
                if "name" in self.line.values
                else f"{self.type} needs a name: name=..."
            )
        if any(layer.name == name for layer in scope.layers):
            raise self.line.error(f"option 'name': another layer is called '{name}' already")
        return name

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def given(self, keys: str) -> str:
        """The text `key=value ...` of the blank-separated options `keys` whose value is not ""."""
        return " ".join(f"{key}={self[key]}" for key in keys.split() if self[key] != "")

    def require(self, condition: bool, message: str) -> None:
        """Raise ConfigError about this line, with `message`, unless the condition holds."""
        if not condition:
            raise self.line.error(message)

    def require_size(self, entries: int) -> None:
        """ConfigError if `entries`, the count of numbers to be written, is above MAX_ENTRIES."""
        self.require(entries <= MAX_ENTRIES, f"{entries} numbers would be written: too many")

    def derive(self) -> None:
        """Set options that depend on others; here `dim`, by default the input's columns."""
        if "dim" in self.values and self["dim"] <= 0:
            self.values["dim"] = self.input.dim

    def check(self) -> None:
        """Raise ConfigError if option values do not fit together."""

    @property
    def operations(self) -> list[str]:
        """The operations that the layer's type names, such as ["relu", "batchnorm"]."""
        return [word for word in self.type.split("-")[:-1] if word != "noconv"]

    @property
    def dim(self) -> int:
        """Columns of the main output: the option `dim` or, without it, the input's columns."""
        return self["dim"] if "dim" in self.values else self.input.dim

    def outputs(self) -> dict[str, Output]:
        """The layer's outputs for others, by the name after `<layer>.`; "" is the main output.

        By default, the main output only.
        """
        return {"": Output(self._written[0], self.dim)}

    def write(self, out: ConfigLines) -> str:
        """Add the layer's config lines to `out`; return the descriptor of the main output.

        The result is "" if `outputs` does not use it.
        """
        raise NotImplementedError

    @functools.cached_property
    def _written(self) -> tuple[str, list[str]]:
        """The descriptor of the main output, and the config lines."""
        out = ConfigLines(self.name)
        return self.write(out), out.lines

    def configs(self) -> dict[str, list[str]]:
        """The layer's lines by config: init (only with include-in-init), ref and final."""
        _, lines = self._written
        init = lines if self.values.get("include-in-init") else []
        return {"init": init, "ref": lines, "final": lines}

    def files(self) -> dict[str, str]:
        """The text, by path, of files that the config lines refer to."""
        return {}

    def expanded(self, normalized: bool) -> str:
        """The xconfig line with all options; if `normalized`, `input` names layers, not nodes."""
        values = dict(self.values)
        if normalized and "input" in values:
            values["input"] = self.input.normalized
        quoted = {
            key: f'"{value}"' if "=" in str(value) else value for key, value in values.items()
        }
        pairs = [f"{key}={value}" for key, value in sorted(quoted.items())]
        return " ".join([self.type, f"name={self.name}", *pairs])

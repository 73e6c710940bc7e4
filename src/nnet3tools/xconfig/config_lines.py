"""Writing config lines: components and nodes in the order in which a layer adds them."""

from __future__ import annotations

from nnet3tools.xconfig.options import Value

__all__ = ["ConfigLines", "delayed", "flag"]


def flag(value: Value) -> str:
    """A truth value as config lines spell it."""
    return "true" if value else "false"


def delayed(node: str, delay: Value) -> str:
    """A node at an earlier (delay < 0) or later time, where that is within the data."""
    return f"IfDefined(Offset({node}, {delay}))"


class ConfigLines:
    """The config lines of one layer.

    A `part` is what follows the layer's name in the name of a component or node: `.affine` for
    `tdnn1.affine`, nothing for `tdnn1` itself. Settings are printed as `key=value` with `-` for
    `_`, then the texts, which hold settings already.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix, self.lines = prefix, list[str]()

    def add(self, *words: str) -> None:
        """A line of these words; empty ones are left out."""
        self.lines.append(" ".join(" ".join(words).split()))

    def component(self, part: str, kind: str, *texts: str, **settings: Value) -> None:
        """A component line."""
        pairs = [f"{key.replace('_', '-')}={value}" for key, value in settings.items()]
        self.add("component", f"name={self.prefix}{part}", f"type={kind}", *pairs, *texts)

    def node(self, part: str, source: str, component: str | None = None) -> str:
        """A component-node line, by default for the component of the same name; the node's name."""
        name = f"{self.prefix}{part}"
        used = name if component is None else f"{self.prefix}{component}"
        self.add("component-node", f"name={name}", f"component={used}", f"input={source}")
        return name

    def step(self, part: str, kind: str, source: str, *texts: str, **settings: Value) -> str:
        """A component and its node; the node's name."""
        self.component(part, kind, *texts, **settings)
        return self.node(part, source)

    def dim_range(self, part: str, source: str, dim: Value, offset: Value = 0) -> str:
        """A dim-range-node line for columns of another part; the node's name."""
        name = f"{self.prefix}{part}"
        self.add(
            "dim-range-node",
            f"name={name}",
            f"input-node={self.prefix}{source}",
            f"dim-offset={offset}",
            f"dim={dim}",
        )
        return name

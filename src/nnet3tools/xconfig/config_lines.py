"""Writing of config lines: components and nodes in the order in which a layer adds them."""

from nnet3tools.xconfig.options import Value


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
        """Add component <layer><suffix> and its node with input `source`; return its name."""
        self.component(suffix, kind, *texts, **settings)
        return self.node(suffix, source)

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

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

    A `part` is the end of the name of a component or node after the layer's name: `.affine` for
    `tdnn1.affine`, "" for `tdnn1`. Keyword arguments are written as `key=value` with `-` for `_`;
    texts are appended as they are.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix, self.lines = prefix, list[str]()

    def add(self, *words: str) -> None:
        """Add a line of `words`; empty words are left out."""
        self.lines.append(" ".join(" ".join(words).split()))

    def component(self, part: str, kind: str, *texts: str, **settings: Value) -> None:
        """Add a component line; `kind` is the type, `part` and `settings` are as in the class."""
        pairs = [f"{key.replace('_', '-')}={value}" for key, value in settings.items()]
        self.add("component", f"name={self.prefix}{part}", f"type={kind}", *pairs, *texts)

    def node(self, part: str, source: str, component: str | None = None) -> str:
        """Add a component-node line and return the node's name.

        The component has the same part name, unless `component` gives another name.
        """
        name = f"{self.prefix}{part}"
        used = name if component is None else f"{self.prefix}{component}"
        self.add("component-node", f"name={name}", f"component={used}", f"input={source}")
        return name

    def step(self, part: str, kind: str, source: str, *texts: str, **settings: Value) -> str:
        """Add a component of type `kind`, and its node with input `source`; return its name."""
        self.component(part, kind, *texts, **settings)
        return self.node(part, source)

    def dim_range(self, part: str, source: str, dim: Value, offset: Value = 0) -> str:
        """Add a dim-range-node for `dim` columns of node `source`; return the new node's name."""
        name = f"{self.prefix}{part}"
        self.add(
            "dim-range-node",
            f"name={name}",
            f"input-node={self.prefix}{source}",
            f"dim-offset={offset}",
            f"dim={dim}",
        )
        return name

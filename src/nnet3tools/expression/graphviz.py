"""A graph as Graphviz text (`dot -Tsvg` draws it)."""

from __future__ import annotations

from collections.abc import Sequence

from nnet3tools.expression.elementwise import Elementwise
from nnet3tools.expression.node import Node
from nnet3tools.expression.schedule import topological
from nnet3tools.expression.shapes import shape_text

_STYLE = {
    "const": "shape=box, style=dashed",
    "param": 'shape=box, style=filled, fillcolor="#ffd8a8"',
    "input": 'shape=box, style=filled, fillcolor="#a5d8ff"',
    "checkpoint": "shape=doubleoctagon",
}


def _quote(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def graphviz(roots: Sequence[Node], name: str = "expression") -> str:
    """A Graphviz drawing of the nodes that the roots depend on; nodes without gradient are gray."""
    lines = [f'digraph "{_quote(name)}" {{', "  node [shape=ellipse];"]
    for node in topological(roots):
        title = f"{node.name}\\n{node.type_name}" if node.name else node.type_name
        numbers = [str(o) for o in getattr(node, "operands", ()) if not isinstance(o, Node)]
        if isinstance(node, Elementwise) and numbers:
            title += f"({', '.join(numbers)})"
        label = f"{_quote(title)}\\n{shape_text(node.shape)} {node.type.value}"
        style = _STYLE.get(node.type_name, "")
        colour = "" if node.trainable else 'color="#868e96"'
        peripheries = "peripheries=2" if node in roots else ""
        extra = "".join(f", {s}" for s in (style, colour, peripheries) if s)
        lines.append(f'  n{node.number} [label="{label}"{extra}];')
        for number, child in enumerate(node.children):
            edge = f' [label="{number}"]' if len(node.children) > 1 else ""
            lines.append(f"  n{child.number} -> n{node.number}{edge};")
    return "\n".join([*lines, "}"]) + "\n"

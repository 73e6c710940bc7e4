"""A network as a picture: layers from inputs to outputs, arrows with time offsets.

A chain of nodes without branches (affine, ReLU, batch norm) is one box with their common prefix.
"""

from __future__ import annotations

import os

from nnet3tools.recipe.report.charts import text_of
from nnet3tools.recipe.report.network import NetworkFacts, NodeFacts

_BOX_WIDTH, _LINE_HEIGHT, _PADDING = 188, 15, 9
_GAP_X, _GAP_Y = 26, 40
_MOST_BOXES = 400
_KINDS = {
    "NaturalGradientAffine": "affine",
    "Affine": "affine",
    "RectifiedLinear": "ReLU",
    "BatchNorm": "batch norm",
    "LogSoftmax": "log-softmax",
    "TimeHeightConvolution": "convolution",
    "StatisticsExtraction": "statistics",
    "StatisticsPooling": "pooling",
}

Edges = dict[tuple[int, int], tuple[int, ...]]
"""(From box, to box) -> time offsets that are read."""


Box = tuple[NodeFacts, ...]
"""The nodes of a box."""
Place = tuple[float, float, float]
"""Left, top and height of a box."""


def network_picture(network: NetworkFacts) -> str:
    """An SVG picture of the network; "" if it has no boxes, or too many to be readable."""
    boxes = _boxes(network)
    if not 0 < len(boxes) <= _MOST_BOXES:
        return ""
    edges = _edges(boxes)
    ranks = _ranks(len(boxes), edges)
    rows = _ordered_rows(ranks, edges)
    texts = [_lines_of(box, network) for box in boxes]
    places, width, height = _places(rows, [len(lines) for lines in texts])
    parts = [
        _arrow(places[a], places[b], offsets, ranks[b] - ranks[a])
        for (a, b), offsets in edges.items()
    ]
    parts += [_box(box, places[i], texts[i]) for i, box in enumerate(boxes)]
    head = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path class="tip" d="M0 0L8 4L0 8Z"/></marker></defs>'
    )
    return (
        f'<svg class="network" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="the network">{head}{"".join(parts)}</svg>'
    )


# -- boxes


def _boxes(network: NetworkFacts) -> list[Box]:
    """Make the boxes of the picture; a chain of nodes without branches is one box."""
    nodes = {node.name: node for node in network.nodes}
    readers: dict[str, list[str]] = {}
    for node in network.nodes:
        for source, _ in node.sources:
            readers.setdefault(source, []).append(node.name)

    def follows(node: NodeFacts) -> str:
        """The name of the node before `node` in the same box; "" if `node` begins a box."""
        if node.kind != "component" or len(node.sources) != 1:
            return ""
        source, offsets = node.sources[0]
        alone = readers.get(source) == [node.name] and offsets == (0,) and source in nodes
        return source if alone and nodes[source].kind == "component" else ""

    chains: dict[str, list[NodeFacts]] = {}
    for node in network.nodes:
        before = follows(node)
        if before in chains and _layer(before) == _layer(node.name):
            chains[node.name] = chains.pop(before)
        else:
            chains[node.name] = []
        chains[node.name].append(node)
    return [tuple(chain) for chain in chains.values()]


def _layer(name: str) -> str:
    return name.split(".")[0]


def _edges(boxes: list[Box]) -> Edges:
    where = {node.name: i for i, box in enumerate(boxes) for node in box}
    return {
        (where[source], i): offsets
        for i, box in enumerate(boxes)
        for source, offsets in box[0].sources
        if source in where
    }


def _ranks(count: int, edges: Edges) -> list[int]:
    """The row number of each of `count` boxes, which is below all boxes that it reads.

    `edges` has keys (read box, reader). Boxes are in the order of the file; an edge from a later
    box to an earlier one closes a loop and is ignored.
    """
    ranks = [0] * count
    forward = sorted((b, a) for a, b in edges if a < b)
    for b, a in forward:  # sorted by reader: the ranks of its sources are final
        ranks[b] = max(ranks[b], ranks[a] + 1)
    return ranks


def _ordered_rows(ranks: list[int], edges: Edges) -> list[list[int]]:
    """Numbers of the boxes in each row (`ranks`: box -> row), by mean place of boxes they read."""
    rows: list[list[int]] = [[] for _ in range(max(ranks) + 1)]
    for i, rank in enumerate(ranks):
        rows[rank].append(i)
    place: dict[int, float] = {}
    for row in rows:

        def middle(i: int) -> float:
            above = [place[a] for a, b in edges if b == i and a in place]
            return sum(above) / len(above) if above else 0.0

        row.sort(key=middle)
        place.update({i: k - (len(row) - 1) / 2 for k, i in enumerate(row)})
    return rows


# -- text and lines


def _lines_of(box: Box, network: NetworkFacts) -> list[str]:
    names = [node.name for node in box]
    name = os.path.commonprefix(names).rstrip(".") if len(names) > 1 else names[0]
    components = [network.components.get(node.component) for node in box]
    types = [c.type.removesuffix("Component") for c in components if c is not None]
    kinds = [_KINDS.get(kind, kind) for kind in types]
    dim = next((node.dim for node in reversed(box) if node.dim), 0)
    first = box[0]
    what = ", ".join(kinds) if kinds else {"range": "columns"}.get(first.kind, first.kind)
    sizes = f"{dim}" if dim else ""
    component = components[0]
    if component is not None and "input-dim" in component.fields:
        size = component.fields["input-dim"][:12]
        sizes = f"{size} → {sizes}" if sizes else f"{size} in"
    lines = [name, *_wrapped(what)]
    own = [_offsets_text(c.time_offsets) for c in components if c is not None and c.time_offsets]
    lines += _wrapped(f"frames {'; '.join(own)}") if own else []
    return [*lines, sizes] if sizes else lines


def _wrapped(text: str, width: int = 30) -> list[str]:
    """Break a text after commas into lines of about `width` characters."""
    lines = [""]
    for word in text.split(", "):
        longer = f"{lines[-1]}, {word}" if lines[-1] else word
        lines = [*lines[:-1], longer] if len(longer) <= width else [*lines, word]
    return lines


def _places(rows: list[list[int]], num_lines: list[int]) -> tuple[list[Place], int, int]:
    """(Place of each box, picture's width, height); rows have box numbers; num_lines is by box."""
    widest = max(len(row) for row in rows)
    width = widest * _BOX_WIDTH + (widest - 1) * _GAP_X + 2 * _GAP_X
    heights = [n * _LINE_HEIGHT + 2 * _PADDING for n in num_lines]
    places = [(0.0, 0.0, 0.0)] * len(num_lines)
    top = 4.0
    for row in rows:
        left = (width - len(row) * _BOX_WIDTH - (len(row) - 1) * _GAP_X) / 2
        for k, i in enumerate(row):
            places[i] = (left + k * (_BOX_WIDTH + _GAP_X), top, heights[i])
        top += max(heights[i] for i in row) + _GAP_Y
    return places, width, round(top - _GAP_Y + 4)


def _box(box: Box, place: Place, lines: list[str]) -> str:
    left, top, height = place
    kind = box[0].kind
    rows = []
    for k, line in enumerate(lines):
        short = line if len(line) <= 32 else line[:31] + "…"
        style = "name" if k == 0 else "what"
        y = top + _PADDING + 11.5 + k * _LINE_HEIGHT
        place_of = f'x="{left + _BOX_WIDTH / 2:.0f}" y="{y:.0f}"'
        rows.append(f'<text class="{style}" {place_of}>{text_of(short)}</text>')
    title = text_of(", ".join(node.name for node in box))
    return (
        f'<g class="box {kind}"><title>{title}</title><rect x="{left:.0f}" y="{top:.0f}" '
        f'width="{_BOX_WIDTH}" height="{height:.0f}" rx="5"/>{"".join(rows)}</g>'
    )


def _arrow(source: Place, target: Place, offsets: tuple[int, ...], num_rows: int) -> str:
    """SVG of an arrow between two boxes, `num_rows` rows apart, labelled with time offsets.

    The arrow is bent if it passes boxes or leads back (`num_rows` <= 0).
    """
    past = num_rows > 1 and abs(source[0] - target[0]) < _BOX_WIDTH
    if num_rows <= 0:
        path, at = _bow(source, target, _BOX_WIDTH, 20)
    elif past:
        path, at = _bow(source, target, 0, -22)
    else:
        x1, y1 = source[0] + _BOX_WIDTH / 2, source[1] + source[2]
        x2, y2 = target[0] + _BOX_WIDTH / 2, target[1]
        half = (y1 + y2) / 2
        path = f"M{x1:.0f} {y1:.0f}C{x1:.0f} {half:.0f} {x2:.0f} {half:.0f} {x2:.0f} {y2:.0f}"
        at = ((x1 + x2) / 2 + 6, half + 4)
    label = _offsets_text(offsets)
    text = f'<text class="at" x="{at[0]:.0f}" y="{at[1]:.0f}">{label}</text>' if label else ""
    style = "arrow back" if num_rows <= 0 else "arrow"
    return f'<path class="{style}" d="{path}" marker-end="url(#tip)"/>{text}'


def _bow(source: Place, target: Place, side: int, out: int) -> tuple[str, tuple[float, float]]:
    """A bent arrow between two boxes: its SVG path, and the position of its label.

    It begins and ends `side` pixels right of the boxes' left edges, and bends `out` pixels further
    (negative: to the left).
    """
    x1, x2 = source[0] + side, target[0] + side
    y1, y2 = source[1] + source[2] / 2, target[1] + target[2] / 2
    bend = (max(x1, x2) if out > 0 else min(x1, x2)) + out
    path = f"M{x1:.0f} {y1:.0f}C{bend:.0f} {y1:.0f} {bend:.0f} {y2:.0f} {x2:.0f} {y2:.0f}"
    return path, (bend - 4, (y1 + y2) / 2)


def _offsets_text(offsets: tuple[int, ...]) -> str:
    """The text of time offsets for a label; "" if the only offset is 0."""
    text = "" if offsets == (0,) else ", ".join(f"{t:+d}" if t else "0" for t in offsets)
    if len(text) > 24:
        return f"{offsets[0]:+d} … {offsets[-1]:+d} ({len(offsets)})"
    return text

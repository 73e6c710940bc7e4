"""docs/pictures/descriptors.svg: for each form of descriptor, lines from rows to what they take."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from nnet3tools.nnet.descriptor import Descriptor
from support.descriptor_rows import FORMS, NODES, TIMES, PartOfRow, Term, rows_of

_WIDTH, _HEIGHT, _PER_LINE = 262, 128, 4
_FIRST, _LAST = -2, 5
_LANES = {("a", 0): 84, ("b", 0): 104, ("a", 1): 116}
_STYLE = """
text { font: 9.5px monospace; fill: #222 } .out { fill: #222 }
.a { fill: #3b6fb6; stroke: #3b6fb6 } .b { fill: #c46a1b; stroke: #c46a1b }
.none { fill: none; stroke: #999 } .scaled { stroke-dasharray: 3 2 }
@media (prefers-color-scheme: dark) { text, .out { fill: #ddd } }
"""


def _x(t: int) -> float:
    return 40 + 24 * (t - _FIRST)


def _circle(x: float, y: float, kind: str) -> str:
    return f'<circle cx="{x:g}" cy="{y:g}" r="4" class="{kind}"/>'


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:g}" y="{y:g}">{escape(text)}</text>'


def _lanes(terms: list[Term]) -> Iterator[str]:
    """The rows of the nodes that the descriptor names; rows that do not exist are hollow."""
    for (node, x), y in _LANES.items():
        if not any((term.node, term.x) == (node, x) for term in terms):
            continue
        yield _text(4, y + 4, node if x == 0 else "x=1")
        for t in range(_FIRST, _LAST + 1):
            yield _circle(_x(t), y, node if node == "a" or t % 2 == 0 else "none")


def _lines(t: int, parts: tuple[PartOfRow, ...]) -> Iterator[str]:
    """A requested row with a line to each row that it takes, and its constant."""
    top = 36
    computable = all(part.computable for part in parts)
    yield _circle(_x(t), top, "out" if computable else "none")
    if not computable:
        return
    for part in parts:
        for term in part.terms:
            kind = term.node if term.scale == 1.0 else f"{term.node} scaled"
            ends = f'x1="{_x(t):g}" y1="{top + 4}" x2="{_x(term.t):g}"'
            yield f'<line {ends} y2="{_LANES[term.node, term.x] - 4}" class="{kind}"/>'
        if part.constant or not part.terms:
            yield _text(_x(t) + 5, top + 12, f"{part.constant:g}")


def _panel(form: str) -> Iterator[str]:
    rows = rows_of(Descriptor.parse(form, NODES))
    yield _text(4, 14, form)
    yield from (_text(_x(t) - 3, 28, str(t)) for t in TIMES)
    for t, parts in zip(TIMES, rows, strict=True):
        yield from _lines(t, parts)
    yield from _lanes([term for parts in rows for part in parts for term in part.terms])


def descriptor_picture() -> str:
    """The picture as SVG, with a panel for each form."""
    num_lines = -(-len(FORMS) // _PER_LINE)
    width, height = _WIDTH * _PER_LINE, _HEIGHT * num_lines
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">']
    parts.append(f"<style>{_STYLE}</style>")
    for k, form in enumerate(FORMS):
        line, column = divmod(k, _PER_LINE)
        place = f"translate({column * _WIDTH} {line * _HEIGHT})"
        parts.append(f'<g transform="{place}">{"".join(_panel(form))}</g>')
    return "\n".join([*parts, "</svg>", ""])

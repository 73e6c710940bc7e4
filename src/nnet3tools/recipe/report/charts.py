"""Charts as SVG, tables as HTML; the style sheet of the page has colours for light and dark."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence

from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.recipe.report.history import Curve

_WIDTH, _HEIGHT = 440, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 10, 40
_MOST_POINTS = 400


@dataclass(frozen=True)
class Line:
    """A curve of a chart with its name; `style` is a CSS class of the page."""

    name: str
    points: Curve
    style: str = "s0"


@dataclass(frozen=True)
class Band:
    """The area between two curves."""

    low: Curve
    high: Curve


def text_of(text: str) -> str:
    """Convert text to HTML: escaped, with control characters replaced by U+FFFD."""
    clean = "".join(c if c.isprintable() or c == " " else "\ufffd" for c in text)
    return html.escape(clean)


def cells(values: Iterable[object], tag: str = "td") -> str:
    """HTML of the cells of a table row; values must be HTML already."""
    return "".join(f"<{tag}>{value}</{tag}>" for value in values)


def bar(part: float, whole: float) -> str:
    """HTML of a table cell with a bar, which fills the share `part` / `whole`."""
    return f'<td class="bar"><i style="width:{100 * part / max(whole, 1e-9):.1f}%"></i></td>'


def table(kind: str, rows: Iterable[str]) -> str:
    """HTML of a table with the CSS class `kind`; each row is HTML of its cells."""
    return f'<table class="{kind}"><tr>{"</tr><tr>".join(rows)}</tr></table>'


def scrolling(text: str) -> str:
    """Put HTML into a box that scrolls if it is too wide; "" for no text."""
    return f'<div class="scrolling" tabindex="0">{text}</div>' if text else ""


def readable(value: float) -> str:
    """Format a number with four digits, and without exponent below ten million."""
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e7 else f"{value:.4g}"


@dataclass(frozen=True)
class _Axis:
    """A linear map from values (`low` to `high`) to positions (`start` to `end`) in a chart."""

    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, most: int) -> list[float]:
        """About `most` round numbers on the axis, for its labels."""
        least = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(least))
        size = next(f * power for f in (1, 2, 5, 10, 20) if f * power >= least * (1 - 1e-9))
        first = math.ceil(self.low / size - 1e-9)
        return [i * size for i in range(first, math.floor(self.high / size + 1e-9) + 1)]


def _axis(values: Sequence[float], start: float, end: float, zero: bool) -> _Axis:
    """Make an axis from position `start` to `end` for all values; with `zero`, it includes zero."""
    low, high = min(values), max(values)
    low = min(low, 0.0) if zero else low
    # Values that are nearly equal get a margin in proportion to their size.
    apart = high - low > 1e-6 * max(abs(low), abs(high))
    room = (high - low) * 0.05 if apart else abs(high) * 0.05 or 0.5
    return _Axis(low if zero and low == 0 else low - room, high + room, start, end)


def line_chart(
    title: str,
    lines: Sequence[Line],
    band: Band | None = None,
    zero: bool = False,
    x_end: float = 1.0,
    y_end: float | None = None,
    settled: float = 0.0,
) -> str:
    """SVG text of a chart over iterations 0 to `x_end`: lines with a legend, and a shaded `band`.

    The vertical scale fits the values from iteration `settled` on, because the first values may be
    outliers. With `zero` it includes zero, with `y_end` it includes `y_end`.
    """
    shown = [Line(line.name, _thinned(line.points), line.style) for line in lines]
    values = [v for line in shown for i, v in line.points if i >= settled]
    values = values or [v for line in shown for _, v in line.points]
    if band is not None:
        values += [v for _, v in (*band.low, *band.high)]
    if not values:
        return ""
    x = _Axis(0.0, max(x_end, 1.0), _LEFT, _WIDTH - _RIGHT)
    y = _axis([*values, *([y_end] if y_end else [])], _HEIGHT - _BOTTOM, _TOP, zero)
    parts = [_band(band, x, y) if band else ""]
    parts += [_curve(line, x, y) for line in shown]
    names = [f'<span class="{line.style}">{text_of(line.name)}</span>' for line in shown]
    legend = f'<span class="names">{"".join(names)}</span>' if len(shown) > 1 else ""
    legend += _outside(shown, y)
    inside = f'width="{_WIDTH - _LEFT - _RIGHT + 8}" height="{_HEIGHT - _TOP - _BOTTOM + 8}"'
    return (
        f'<figure class="chart"><figcaption>{text_of(title)}{legend}</figcaption>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{text_of(title)}">'
        f'{_grid(x, y)}<svg x="{_LEFT - 4}" y="{_TOP - 4}" {inside} '
        f'viewBox="{_LEFT - 4} {_TOP - 4} {_WIDTH - _LEFT - _RIGHT + 8} '
        f'{_HEIGHT - _TOP - _BOTTOM + 8}">{"".join(parts)}</svg></svg></figure>'
    )


def _thinned(points: Curve) -> Curve:
    """Thin out the points of a curve to about 400, keeping the last point."""
    step = -(-len(points) // _MOST_POINTS) or 1
    return [*points[:-1:step], *points[-1:]]


def _grid(x: _Axis, y: _Axis) -> str:
    out = []
    for value in y.ticks(4):
        at = y.place(value)
        out.append(f'<path class="grid" d="M{_LEFT} {at:.1f}H{_WIDTH - _RIGHT}"/>')
        out.append(f'<text class="y" x="{_LEFT - 6}" y="{at + 4:.1f}">{readable(value)}</text>')
    for value in x.ticks(6):
        if value == int(value):
            at = x.place(value)
            at_tick = f'x="{at:.1f}" y="{_HEIGHT - 22}"'
            out.append(f'<text class="x" {at_tick}>{value:.0f}</text>')
    middle = (x.start + x.end) / 2
    out.append(f'<text class="x" x="{middle:.0f}" y="{_HEIGHT - 4}">iteration</text>')
    return "".join(out)


def _outside(lines: Sequence[Line], y: _Axis) -> str:
    """HTML of a note about the values that are outside the vertical scale; "" if there are none."""
    values = [v for line in lines for _, v in line.points if not y.low <= v <= y.high]
    if not values:
        return ""
    ends = sorted({readable(min(values)), readable(max(values))}, key=float)
    points = "1 point is" if len(values) == 1 else f"{len(values)} points are"
    return f'<span class="note">{points} off the scale: {" to ".join(ends)}</span>'


def _band(band: Band, x: _Axis, y: _Axis) -> str:
    outline = [*_thinned(band.low), *reversed(_thinned(band.high))]
    places = "L".join(f"{x.place(i):.1f} {y.place(v):.1f}" for i, v in outline)
    return f'<path class="band" d="M{places}Z"/>'


def _curve(line: Line, x: _Axis, y: _Axis) -> str:
    if not line.points:
        return ""
    places = [(x.place(i), y.place(v)) for i, v in line.points]
    text = "L".join(f"{a:.1f} {b:.1f}" for a, b in places)
    radius = 2 if len(places) < 60 else 0.5
    dots = "".join(
        f'<circle class="{line.style}" cx="{a:.1f}" cy="{b:.1f}" r="{radius}">'
        f"<title>{text_of(line.name)}, {i:g}: {readable(v)}</title></circle>"
        for (a, b), (i, v) in zip(places, line.points, strict=True)
    )
    return f'<path class="line {line.style}" d="M{text}"/>{dots}'


def spark_line(points: Curve, low: float, high: float, x_end: float, log: bool = False) -> str:
    """SVG text of a small curve without axes: x from 0 to `x_end`, y from `low` to `high`.

    With `log` the vertical scale is logarithmic, and values up to 0 are left out.
    """
    kept = _thinned(points)
    if log:
        kept = [(i, math.log10(v)) for i, v in kept if v > 0]
        low, high = math.log10(low), math.log10(high)
    if not kept:
        return ""
    x = _Axis(0.0, max(x_end, 1.0), 2, 138)
    y = _Axis(low, high if high > low else low + 1, 26, 2)
    text = "L".join(f"{x.place(i):.1f} {y.place(v):.1f}" for i, v in kept)
    last, value = kept[-1]
    return (
        '<svg class="spark" viewBox="0 0 140 28" aria-hidden="true">'
        f'<path class="line s0" d="M{text}"/>'
        f'<circle class="s0" cx="{x.place(last):.1f}" cy="{y.place(value):.1f}" r="2"/></svg>'
    )

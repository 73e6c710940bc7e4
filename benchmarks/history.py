"""Draws how the ratios of benchmarks/run changed over its runs.

    python benchmarks/history.py [--rows WORD...] [--folder benchmarks/results] --out OUT.svg

One panel for each row of the table whose name has one of the words: time over that of the
reference, by date and commit; the dashed line is the target. Runs on different processors have
different colours. Needs matplotlib (extra `recipe`).
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Point:
    """One row of one run: its name in the picture is date and commit."""

    run: str
    processor: str
    ratio: float
    target: float


def points(folder: Path, words: list[str]) -> dict[str, list[Point]]:
    """The ratios of each row ("work, beside reference") in all runs of a folder, by date."""
    found: dict[str, list[Point]] = defaultdict(list)
    for path in sorted(folder.glob("*.json")):
        for run in json.loads(path.read_text()):
            about: dict[str, Any] = run["about"]
            name = f"{path.stem} {about.get('commit', '')[:8]}".strip()
            for row in run["rows"]:
                work = f"{row['work']}, beside {row['reference']}"
                if row["theirs"] and any(word in work for word in words or [""]):
                    processor = about.get("processor") or about["machine"]
                    point = Point(name, processor, row["ours"] / row["theirs"], row["target"])
                    found[work].append(point)
    return dict(found)


def draw(found: dict[str, list[Point]], out: Path) -> None:
    """Write one panel for each row, three in a line."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    height = -(-len(found) // 3)
    figure, panels = plt.subplots(height, 3, figsize=(15, 2.6 * height), squeeze=False)
    processors = sorted({point.processor for row in found.values() for point in row})
    for panel, (work, row) in zip(panels.flat, found.items(), strict=False):
        for i, processor in enumerate(processors):
            chosen = [(at, p.ratio) for at, p in enumerate(row) if p.processor == processor]
            if chosen:
                panel.plot(*zip(*chosen, strict=True), "o-", color=f"C{i}", label=processor)
        panel.axhline(row[-1].target, linestyle="--", color="grey")
        panel.set_title(work, fontsize=8)
        panel.set_xticks(range(len(row)), [p.run for p in row], rotation=60, fontsize=5)
        panel.set_ylim(0, 1.1 * max(row[-1].target, *(p.ratio for p in row)))
    for panel in list(panels.flat)[len(found) :]:
        panel.set_axis_off()
    panels[0][0].legend(fontsize=5)
    figure.tight_layout()
    figure.savefig(out)


def main() -> None:
    """Read the runs and draw them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rows", nargs="+", default=[])
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    found = points(options.folder, options.rows)
    if not found:
        raise SystemExit(f"{options.folder}: no run has such a row")
    draw(found, options.out)


if __name__ == "__main__":
    main()

"""The statements of the founding documents on docs/seeds.md, and their numbers by verdict."""

import re
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parents[2] / "docs" / "seeds.md"
SEEDS = Path(__file__).parents[3] / "shared" / "seeds"
VERDICTS = ("holds", "differs")


class Statement(NamedTuple):
    """A row: number of the document and of the statement in it, line, text, verdict, place here."""

    document: int
    number: int
    line: int
    text: str
    verdict: str
    place: str


def statements() -> list[Statement]:
    """The rows of the page's tables of statements."""
    rows = re.findall(
        r"^\| (\d)\.(\d+) \| (\d+) \| (.*?) \| (\w+) \| (.*) \|$", PAGE.read_text(), re.M
    )
    return [Statement(int(d), int(k), int(line), *rest) for d, k, line, *rest in rows]


def count_table() -> str:
    """The table of numbers by document and verdict, in Markdown."""
    titles = dict(re.findall(r"^### (\d)\. (.*)$", PAGE.read_text(), re.M))
    lines = [f"| document | statements | {' | '.join(VERDICTS)} |", "|---|---|---|---|"]
    found = statements()
    for title, rows in [
        *((titles[d], [s for s in found if s.document == int(d)]) for d in sorted(titles)),
        ("all", found),
    ]:
        counts = [sum(s.verdict == verdict for s in rows) for verdict in VERDICTS]
        lines.append(f"| {title} | {len(rows)} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines) + "\n"

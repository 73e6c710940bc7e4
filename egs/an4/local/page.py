"""A page about a run: both systems' word error rates, curves, confusions and worst utterances.

usage: page.py EXP_DIR > EXP_DIR/index.html
"""

import sys
from html import escape
from pathlib import Path

NUM_CONFUSIONS = 25
STYLE = (
    "body { font: 16px sans-serif; max-width: 60em; margin: 2em auto; } pre { font-size: 13px; }"
)
SYSTEMS = {
    "flat": "Flat start: monophones, end-to-end LF-MMI",
    "chain": "Second model: left biphones, trained on alignments of the first",
}


def section(folder, title):
    """What there is of a system; links to the page of its training."""
    parts = [f"<h2>{escape(title)}</h2>"]
    wer = folder / "decode" / "wer"
    if wer.exists():
        rate, errors, words = wer.read_text().split()
        parts.append(f"<p>Word error rate {rate}&nbsp;%: {errors} errors in {words} words.</p>")
    report = f"{folder.name}/report.html"
    parts.append(f'<p><a href="{report}">Curves, network and times of training</a></p>')
    for name, heading in (
        ("confusions.txt", "What was taken for what"),
        ("worst.txt", "The utterances with the most errors"),
    ):
        path = folder / "decode" / name
        if path.exists():
            lines = path.read_text().splitlines()
            if name == "confusions.txt":
                lines = lines[:NUM_CONFUSIONS]
            text = escape("\n".join(lines))
            parts.append(f"<h3>{heading}</h3><pre>{text}</pre>")
    return "\n".join(parts)


def main():
    root = Path(sys.argv[1])
    print(f"<!doctype html><meta charset=utf-8><title>AN4</title><style>{STYLE}</style>")
    print("<h1>AN4: from sound to words</h1>")
    for name, title in SYSTEMS.items():
        if (root / name).exists():
            print(section(root / name, title))


if __name__ == "__main__":
    main()

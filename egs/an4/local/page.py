"""A page about a run: word error rates, curves, confusions, the worst utterances word by word.

usage: page.py EXP_DIR   writes EXP_DIR/index.html
"""

import sys
from collections import Counter
from importlib import resources
from pathlib import Path

from score import aligned, read_text

from nnet3tools.recipe.report.charts import Line, line_chart, text_of
from nnet3tools.recipe.report.history import read_history

NUM_CONFUSIONS, NUM_WORST = 20, 10
SYSTEMS = {
    "flat": ("Flat start", "monophones, end-to-end LF-MMI"),
    "chain": ("Second model", "left biphones, trained on alignments of the first"),
}


class Scores:
    """What was said and heard of every utterance, word by word."""

    def __init__(self, reference, recognised):
        self.pairs = {
            key: aligned(said, recognised.get(key, [])) for key, said in reference.items()
        }
        self.errors = {key: sum(a != b for a, b in pairs) for key, pairs in self.pairs.items()}
        every = [pair for pairs in self.pairs.values() for pair in pairs]
        self.confusions = Counter(pair for pair in every if pair[0] != pair[1])
        self.words = sum(bool(said) for said, _ in every)

    def kinds(self):
        """Numbers for the table: rate, errors, substituted, deleted, inserted, utterances right."""
        deleted = sum(n for (_, heard), n in self.confusions.items() if not heard)
        inserted = sum(n for (said, _), n in self.confusions.items() if not said)
        total = sum(self.errors.values())
        right = sum(n == 0 for n in self.errors.values())
        rate, utterances = f"{100 * total / self.words:.2f} %", f"{right} of {len(self.pairs)}"
        return rate, total, total - deleted - inserted, deleted, inserted, utterances

    def worst(self):
        return sorted(self.errors, key=lambda key: (-self.errors[key], key))[:NUM_WORST]


def shown(word):
    return text_of(word) or "&mdash;"


def row(cells, tag="td"):
    return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"


def summary(scores):
    heads = ("", "word errors", "errors", "wrong word", "missed", "too many", "utterances right")
    rows = [row((SYSTEMS[name][0], *found.kinds())) for name, found in scores.items()]
    table = f'<table class="kinds">{row(heads, "th")}{"".join(rows)}</table>'
    return f'<section class="figures"><div class="scrolling">{table}</div></section>'


def curves(folder):
    """Objectives by pass: while training, and of what is kept out and what is trained on."""
    history = read_history(folder)
    lines = [Line("while training", history.training_objectives().get("output", []), "s0")]
    for part, title, style in (("train", "trained on", "s2"), ("valid", "held out", "s1")):
        lines.append(Line(title, history.diagnostics(part, "objectives").get("output", []), style))
    chart = line_chart("objective by pass", lines, x_end=history.num_iterations, settled=2.0)
    return f'<div>{chart}<p><a href="{folder.name}/report.html">More of its training</a></p></div>'


def confusions(scores):
    found = scores.confusions.most_common(NUM_CONFUSIONS)
    most = max((n for _, n in found), default=1)
    rows = [
        f"<tr><td>{n}</td><td>{shown(said)} &rarr; {shown(heard)}</td>"
        f'<td class="bar"><i style="width:{100 * n / most:.0f}%"></i></td></tr>'
        for (said, heard), n in found
    ]
    return f'<div><h3>Said &rarr; heard</h3><table class="confusions">{"".join(rows)}</table></div>'


def words(pairs):
    return "".join(
        f"<span{' class=wrong' if said != heard else ''}>"
        f"<i>{shown(said)}</i><b>{shown(heard)}</b></span>"
        for said, heard in pairs
    )


def section(folder, scores):
    title, what = SYSTEMS[folder.name]
    parts = [f"<section><h2>{title}: {what}</h2>", f'<div class="wide">{curves(folder)}']
    if scores is None:
        return "".join([*parts, "</div></section>"])
    parts.append(f"{confusions(scores)}</div><h3>Most errors: said above, heard below</h3>")
    for key in scores.worst():
        parts.append(f'<div class="key">{text_of(key)}, {scores.errors[key]} errors</div>')
        parts.append(f'<div class="words">{words(scores.pairs[key])}</div>')
    return "".join([*parts, "</section>"])


def main():
    root = Path(sys.argv[1])
    reference = read_text(root / "data" / "test" / "text")
    folders = [root / name for name in SYSTEMS if (root / name).exists()]
    scores = {
        folder.name: Scores(reference, read_text(folder / "decode" / "text"))
        for folder in folders
        if (folder / "decode" / "text").exists()
    }
    colors = resources.files("nnet3tools.program") / "page" / "colors.css"
    style = resources.files("nnet3tools.recipe.report") / "page" / "style.css"
    own = Path(__file__).with_name("page.css")
    styles = "".join(path.read_text("utf-8") for path in (colors, style, own))
    body = "\n".join(section(folder, scores.get(folder.name)) for folder in folders)
    page = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>AN4</title>\n<style>\n{styles}</style>\n"
        f"</head>\n<body>\n<header><h1>AN4: from sound to words</h1></header>\n<main>\n"
        f"{summary(scores)}\n{body}\n</main>\n</body>\n</html>\n"
    )
    (root / "index.html").write_text(page, "utf-8")


if __name__ == "__main__":
    main()

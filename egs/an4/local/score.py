"""Word error rate of recognised text, with what was confused and the worst utterances aligned.

usage: score.py REFERENCE RECOGNISED DIR
writes DIR/confusions.txt and DIR/worst.txt; prints the rate in percent, errors and words.
"""

import sys
from collections import Counter
from pathlib import Path

NUM_WORST = 10


def read_text(path):
    rows = (line.split() for line in Path(path).read_text().splitlines())
    return {row[0]: row[1:] for row in rows if row}


def aligned(reference, recognised):
    """Pairs of words, "" where one is missing, with the fewest errors."""
    costs = [list(range(len(recognised) + 1))]
    for word in reference:
        row = [costs[-1][0] + 1]
        for j, other in enumerate(recognised):
            row.append(min(costs[-1][j] + (word != other), costs[-1][j + 1] + 1, row[j] + 1))
        costs.append(row)
    pairs = []
    i, j = len(reference), len(recognised)
    while i or j:
        substitution = i and j and costs[i - 1][j - 1] + (reference[i - 1] != recognised[j - 1])
        if i and j and costs[i][j] == substitution:
            i, j = i - 1, j - 1
            pairs.append((reference[i], recognised[j]))
        elif i and costs[i][j] == costs[i - 1][j] + 1:
            i -= 1
            pairs.append((reference[i], ""))
        else:
            j -= 1
            pairs.append(("", recognised[j]))
    return pairs[::-1]


def shown(pairs):
    """Two lines, each word above its partner, *** for one that is missing."""
    columns = [(a or "***", b or "***") for a, b in pairs]
    widths = [max(len(a), len(b)) for a, b in columns]
    lines = []
    for side in (0, 1):
        words = zip(columns, widths, strict=True)
        lines.append(" ".join(column[side].ljust(width) for column, width in words).rstrip())
    return f"  ref {lines[0]}\n  hyp {lines[1]}\n"


def main():
    reference, recognised = read_text(sys.argv[1]), read_text(sys.argv[2])
    folder = Path(sys.argv[3])
    errors, words, confusions = {}, 0, Counter()
    alignments = {}
    for key, said in reference.items():
        pairs = alignments[key] = aligned(said, recognised.get(key, []))
        wrong = [pair for pair in pairs if pair[0] != pair[1]]
        errors[key] = len(wrong)
        confusions.update(wrong)
        words += len(said)
    lines = (
        f"{n:4d}  {a or '(inserted)'} -> {b or '(deleted)'}"
        for (a, b), n in confusions.most_common()
    )
    (folder / "confusions.txt").write_text("".join(f"{line}\n" for line in lines))
    worst = sorted(errors, key=lambda key: (-errors[key], key))[:NUM_WORST]
    text = "\n".join(f"{key}: {errors[key]} errors\n{shown(alignments[key])}" for key in worst)
    (folder / "worst.txt").write_text(text)
    total = sum(errors.values())
    print(f"{100 * total / words:.2f} {total} {words}")


if __name__ == "__main__":
    main()

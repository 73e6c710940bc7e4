"""A dictionary with probabilities: how training utterances were said, by their alignments.

A pronunciation is as probable, beside the most frequent one of its word, as it was said.  Of words
that sound alike ("O", "OH"), between which a language model of equally likely words cannot
choose, the rarer ones get less, by how often they occur.  All counts have one added.

usage: pronunciations.py DICT TEXT ALIGNED PHONES OUT
ALIGNED has the phones (numbers of the table PHONES) of each utterance of TEXT, silence included;
OUT becomes DICT with lexiconp.txt for lexicon.txt.  Prints the share of pauses between words.
"""

import shutil
import sys
from collections import Counter, defaultdict
from pathlib import Path

from score import read_text

LEAST = 1e-4
"""What is left of a pronunciation that nearly nobody uses: none may be impossible."""


def read_lexicon(path):
    """The pronunciations of each word, as tuples of phones."""
    lexicon = defaultdict(list)
    for line in Path(path).read_text().splitlines():
        word, *phones = line.split()
        lexicon[word].append(tuple(phones))
    return lexicon


def said(words, phones, lexicon, silence):
    """(word, pronunciation, whether silence followed) of each word; None if phones do not fit."""
    if phones[:1] == [silence]:
        phones = phones[1:]
    if not words:
        return None if phones else []
    for pronunciation in lexicon.get(words[0], ()):
        size = len(pronunciation)
        if tuple(phones[:size]) == pronunciation:
            rest = said(words[1:], phones[size:], lexicon, silence)
            if rest is not None:
                return [(words[0], pronunciation, phones[size : size + 1] == [silence]), *rest]
    return None


def probabilities(lexicon, counts):
    """(word, pronunciation) -> probability."""
    of_words = Counter()
    for (word, _), count in counts.items():
        of_words[word] += count
    most_alike = Counter()
    for word, pronunciations in lexicon.items():
        for phones in pronunciations:
            most_alike[phones] = max(most_alike[phones], of_words[word])
    found = {}
    for word, pronunciations in lexicon.items():
        most = max(counts[word, phones] for phones in pronunciations)
        for phones in pronunciations:
            alike = (of_words[word] + 1) / (most_alike[phones] + 1)
            found[word, phones] = alike * (counts[word, phones] + 1) / (most + 1)
    return found


def main():
    folder, text, aligned, table, out = map(Path, sys.argv[1:])
    names = {number: name for name, (number,) in read_text(table).items()}
    lexicon = read_lexicon(folder / "lexicon.txt")
    (silence,) = (folder / "optional_silence.txt").read_text().split()
    words_of = read_text(text)
    counts, pauses, boundaries, unknown = Counter(), 0, 0, 0
    for key, numbers in read_text(aligned).items():
        rows = said(words_of[key], [names[number] for number in numbers], lexicon, silence)
        unknown += rows is None
        counts.update((word, phones) for word, phones, _ in rows or [])
        pauses += sum(pause for _, _, pause in (rows or [])[:-1])
        boundaries += max(len(rows or []) - 1, 0)
    shutil.copytree(folder, out, dirs_exist_ok=True)
    (out / "lexicon.txt").unlink()
    found = probabilities(lexicon, counts)
    lines = (
        f"{word} {max(found[word, phones], LEAST):.4f} {' '.join(phones)}\n"
        for word, pronunciations in lexicon.items()
        for phones in pronunciations
    )
    (out / "lexiconp.txt").write_text("".join(lines))
    print(f"{pauses / max(boundaries, 1):.3f} of {boundaries} boundaries, {unknown} not understood")


if __name__ == "__main__":
    main()

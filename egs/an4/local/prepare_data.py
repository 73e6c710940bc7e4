"""Kaldi data directories and a dictionary of the AN4 corpus.

With --held-out every eighth training speaker is kept out of training and stands in for the test
set, so that what is to be chosen can be chosen without it.

usage: prepare_data.py CORPUS DATA [--held-out]   writes DATA/{train,test} and DATA/lexicon.txt
"""

import re
import sys
from pathlib import Path

HELD_OUT_EVERY = 8  # speakers


def utterances(corpus, part):
    """(utterance, speaker, words, wav file) of the train or test part."""
    ids = (corpus / "etc" / f"an4_{part}.fileids").read_text().split()
    lines = (corpus / "etc" / f"an4_{part}.transcription").read_text().splitlines()
    for name, line in zip(ids, lines, strict=True):
        text, end = re.fullmatch(r"(.*)\((\S+)\)\s*", line).groups()
        if not name.endswith("/" + end):
            sys.exit(f"transcription '{line}' is not that of {name}")
        words = " ".join(word for word in text.split() if word not in ("<s>", "</s>"))
        speaker = name.split("/")[1]
        yield f"{speaker}-{end}", speaker, words, corpus / "wav" / f"{name}.wav"


def write_lines(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


def write_data(folder, rows):
    rows = sorted(rows)
    write_lines(folder / "text", (f"{key} {words}" for key, _, words, _ in rows))
    write_lines(folder / "utt2spk", (f"{key} {speaker}" for key, speaker, _, _ in rows))
    write_lines(folder / "wav.scp", (f"{key} {path}" for key, _, _, path in rows))
    speakers = {}
    for key, speaker, _, _ in rows:
        speakers.setdefault(speaker, []).append(key)
    lines = (f"{speaker} {' '.join(keys)}" for speaker, keys in sorted(speakers.items()))
    write_lines(folder / "spk2utt", lines)


def without_held_out(rows):
    """What is trained on, and what every eighth speaker said."""
    held_out = set(sorted({speaker for _, speaker, _, _ in rows})[::HELD_OUT_EVERY])
    return (
        [row for row in rows if row[1] not in held_out],
        [row for row in rows if row[1] in held_out],
    )


def lexicon(corpus):
    """The lines of lexicon.txt: the corpus's dictionary without the numbers of pronunciations."""
    for line in (corpus / "etc" / "an4.dic").read_text().splitlines():
        if fields := line.split():
            yield " ".join([re.sub(r"\(\d+\)$", "", fields[0]), *fields[1:]])


def main():
    held_out = "--held-out" in sys.argv
    corpus, data = (Path(word).resolve() for word in sys.argv[1:] if word != "--held-out")
    if not (corpus / "etc" / "an4.dic").is_file():
        sys.exit(f"{corpus}: expected the AN4 corpus, found no etc/an4.dic there")
    train, test = list(utterances(corpus, "train")), list(utterances(corpus, "test"))
    if held_out:
        train, test = without_held_out(train)
    write_data(data / "train", train)
    write_data(data / "test", test)
    write_lines(data / "lexicon.txt", lexicon(corpus))
    print(f"{len(train)} training utterances, {len(test)} test utterances")


if __name__ == "__main__":
    main()

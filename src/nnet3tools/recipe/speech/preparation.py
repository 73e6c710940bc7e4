"""The first stage: checks of all input, the held-out part, and files for the other stages."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from nnet3tools.errors import DataError, quoted
from nnet3tools.io import files
from nnet3tools.io.checked import exists
from nnet3tools.recipe.own_data.checks import CheckedData, check_data, split_held_out
from nnet3tools.recipe.own_data.corpus import read_corpus
from nnet3tools.recipe.own_data.faults import Fault, FaultList, read_text
from nnet3tools.recipe.own_data.pronunciations import WordList, read_word_list, write_dictionary
from nnet3tools.recipe.own_data.recordings import write_data_dir
from nnet3tools.recipe.plan import WriteText, write_lines
from nnet3tools.recipe.speech.options import RecognizerTrainingOptions
from nnet3tools.recipe.speech.setup import DICT, HELD_OUT, LM, TEST, TRAIN, WORK, Facts
from nnet3tools.recipe.speech.sizes import NUM_CEPSTRA, size_for

_INPUTS = WORK / "inputs.json"
_FEWEST_UTTERANCES = 4


def prepare_data(options: RecognizerTrainingOptions, data: str, lexicon: str, base: str) -> Facts:
    """Check all input; write data directories, dictionary, text or LM, mfcc.conf; return its Facts.

    Relative names in a data directory's wav.scp start from the folder `base`. DataError, after a
    list of all faults, if the input cannot be used.
    """
    faults = FaultList()
    words = read_word_list(lexicon, faults)
    parts = [read_corpus(path, faults, base) for path in (data, options.test) if path]
    checked, *tested = (check_data(corpus, words, faults, options.check) for corpus in parts)
    lm_words = _language_words(options, words, checked, faults)
    faults.report()
    train, held_out = split_held_out(checked, options.held_out_share)
    if min(len(train), _FEWEST_UTTERANCES * len(held_out)) < _FEWEST_UTTERANCES:
        raise DataError(
            f"{data}: expected at least {_FEWEST_UTTERANCES} utterances for training and one to "
            f"hold out, found {len(train)} and {len(held_out)}"
        )
    write_dictionary(DICT, words.dictionary({*checked.words, *lm_words}))
    write_data_dir(TRAIN, train, checked.rate)
    write_data_dir(HELD_OUT, held_out, checked.rate)
    for test in tested:
        write_data_dir(TEST, test.utterances, checked.rate)
    mfcc_options = (
        "--use-energy=false",
        f"--num-mel-bins={NUM_CEPSTRA}",
        f"--num-ceps={NUM_CEPSTRA}",
        "--low-freq=20",
        "--high-freq=-400",
        f"--sample-frequency={checked.rate}",
        "--allow-downsample=true",
    )
    write_lines(Path("mfcc.conf"), mfcc_options)
    texts = [*_files(lexicon), options.arpa, options.extra_text]
    texts += [name for corpus in parts for name in corpus.files]
    sounds = (u.sound.name for corpus in parts for u in corpus.utterances)
    _record_inputs(filter(None, texts), sounds)
    seconds = [checked.facts[utterance.name].seconds for utterance in train]
    size = size_for(options.size, sum(seconds) / 3600).name
    return Facts(checked.rate, len(train), sum(seconds), words.unknown_word, size)


def _files(lexicon: str) -> list[str]:
    """The files that make up a lexicon: a single file, or the files of a dictionary folder."""
    path = Path(lexicon)
    return [str(name) for name in (sorted(path.iterdir()) if path.is_dir() else [path])]


def _language_words(
    options: RecognizerTrainingOptions, words: WordList, data: CheckedData, faults: FaultList
) -> set[str]:
    """Copy --arpa or --extra-text to work/lm; returns its words that have pronunciations.

    `faults` gets unusable text, its words that the lexicon lacks, spoken words that --arpa lacks.
    """
    found: set[str] = set()
    if options.arpa:
        lines = _arpa_lines(options.arpa, faults)
        write_lines(LM / "lm.arpa", lines)
        found = set(_unigrams(lines))
        if not found:
            faults.add(Fault.BAD_ARPA, options.arpa, f"{quoted(' '.join(lines[:1]), 40)}")
        _note_words(faults, options.arpa, "the model lacks", data.words - found)
    elif options.extra_text:
        sentences = [
            [form for word in line.split() if (form := words.normalized(word))]
            for line in read_text(options.extra_text, faults)
        ]
        write_lines(LM / "extra.txt", (" ".join(sentence) for sentence in sentences if sentence))
        found = {word for sentence in sentences for word in sentence}
    unknown = {word for word in found if not words.num_phones(word)}
    _note_words(faults, options.arpa or options.extra_text, "the lexicon lacks", unknown)
    return found - unknown


def _note_words(faults: FaultList, path: str, what: str, words: set[str]) -> None:
    if words:
        examples = ", ".join(quoted(word) for word in sorted(words)[:5])
        faults.add(Fault.LM_WORDS, path, f"{what} {len(words)} words, such as {examples}")


def _arpa_lines(path: str, faults: FaultList) -> list[str]:
    """Lines of an ARPA or .gz file; wrong UTF-8 goes to `faults` or, of .gz, is a DataError."""
    if not path.endswith(".gz"):
        return read_text(path, faults)
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            return file.read().splitlines()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read '{path}': {error}") from None


def _unigrams(lines: list[str]) -> Iterator[str]:
    """Yield the words of an ARPA model's unigrams, without <s> and </s>."""
    is_unigram = False
    for line in lines:
        if line.startswith("\\"):
            is_unigram = line.strip() == "\\1-grams:"
        elif is_unigram and len(fields := line.split()) >= 2 and fields[1] not in ("<s>", "</s>"):
            yield fields[1]


# -- changes between calls


def _record_inputs(texts: Iterable[str], sounds: Iterable[str]) -> None:
    """Record contents of files `texts`, and sizes and times of files `sounds`, in inputs.json.

    A missing text file is recorded as missing. Sound from pipes is left out.
    """
    found: dict[str, object] = {name: _digest(name) for name in texts}
    found |= {name: _stamp(name) for name in sounds if exists(name)}
    WriteText(_INPUTS, json.dumps(found, indent=0, sort_keys=True) + "\n").do()


def check_unchanged(hint: str) -> None:
    """DataError, ending in `hint`, if an input file has changed since the training began.

    A sound file may be missing, because the first stage has copied the sound.
    """
    for name, before in json.loads(files.read_text(str(_INPUTS))).items():
        if exists(name):
            now = _stamp(name) if isinstance(before, list) else _digest(name)
            if now != before:
                raise DataError(f"'{name}' has changed since this training began: {hint}")


def _digest(name: str) -> str:
    if not exists(name):
        return "missing"
    with open(name, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _stamp(name: str) -> list[int]:
    status = os.stat(name)
    return [status.st_size, status.st_mtime_ns]

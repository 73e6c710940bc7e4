"""The first stage: checks of the data, the held-out part, and Kaldi data directories."""

from __future__ import annotations

from pathlib import Path

from nnet3tools.errors import DataError
from nnet3tools.recipe.own_data.checks import CheckedData, CheckOptions, check_data
from nnet3tools.recipe.own_data.corpus import read_corpus
from nnet3tools.recipe.own_data.data_writer import write_data_dir
from nnet3tools.recipe.own_data.faults import FaultList
from nnet3tools.recipe.own_data.held_out import split_held_out
from nnet3tools.recipe.own_data.pronunciations import WordList, all_words, read_word_list
from nnet3tools.recipe.speech.networks import NUM_CEPSTRA
from nnet3tools.recipe.speech.options import RecognizerTrainingOptions
from nnet3tools.recipe.speech.setup import DICT, HELD_OUT, TEST, TRAIN, Facts, write_lines
from nnet3tools.recipe.speech.sizes import size_for

_FEWEST_UTTERANCES = 4


def prepare_data(options: RecognizerTrainingOptions, data: str, lexicon: str, base: str) -> Facts:
    """Check all data, and write data directories, dictionary and mfcc.conf.

    Relative names in a data directory's wav.scp start from the folder `base`. DataError, after a
    list of all faults, if the data cannot be used.
    """
    faults = FaultList()
    words = read_word_list("" if lexicon == "none" else lexicon, faults)
    checked = _checked(options, data, words, faults, base)
    tested = None
    if options.test:
        tested = _checked(options, options.test, words, FaultList(), base)
    train, held_out = split_held_out(checked, options.held_out_share)
    if min(len(train), _FEWEST_UTTERANCES * len(held_out)) < _FEWEST_UTTERANCES:
        raise DataError(
            f"{data}: expected at least {_FEWEST_UTTERANCES} utterances for training and one to "
            f"hold out, found {len(train)} and {len(held_out)}"
        )
    words.write(DICT, all_words(u.words for u in checked.utterances))
    write_data_dir(TRAIN, train, checked.rate)
    write_data_dir(HELD_OUT, held_out, checked.rate)
    if tested is not None:
        write_data_dir(TEST, tested.utterances, checked.rate)
    _write_mfcc_conf(checked.rate)
    seconds = [checked.facts[utterance.name].seconds for utterance in train]
    size = size_for(options.size, sum(seconds) / 3600)
    return Facts(
        checked.rate,
        len(train),
        sum(seconds),
        min(seconds),
        max(seconds),
        words.unknown_word,
        size.name,
    )


def _checked(
    options: RecognizerTrainingOptions, data: str, words: WordList, faults: FaultList, base: str
) -> CheckedData:
    """The utterances of `data` that can be used; DataError, after a list, for errors."""
    corpus = read_corpus(data, faults, base)
    limits = CheckOptions(max_seconds=options.max_seconds, num_threads=options.run.num_jobs)
    checked = check_data(corpus, words, faults, limits)
    faults.report()
    return checked


def _write_mfcc_conf(rate: int) -> None:
    lines = (
        "--use-energy=false",
        f"--num-mel-bins={NUM_CEPSTRA}",
        f"--num-ceps={NUM_CEPSTRA}",
        "--low-freq=20",
        "--high-freq=-400",
        "--dither=0",
        f"--sample-frequency={rate}",
    )
    write_lines(Path("mfcc.conf"), lines)

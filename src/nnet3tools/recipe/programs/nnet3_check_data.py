"""nnet3-check-data: check recordings and transcripts before a training."""

from __future__ import annotations

from nnet3tools.cli.options import OptionGroup, option_group, program
from nnet3tools.io import log
from nnet3tools.recipe.options import CheckOptions

USAGE = """Checks recordings, transcripts and dictionary as nnet3-train-recognizer does before its
training, and lists all faults (docs/own-data.md has the kinds).  The status is 0 if there are no
errors.

Usage:  nnet3-check-data [options] <data> [<lexicon>]

<data> is a Kaldi data directory with sound (wav.scp, text, perhaps segments and utt2spk), or a
manifest of sound files (.tsv, .csv, .jsonl).  <lexicon> is a lexicon.txt, lexiconp.txt, CMU
dictionary or dictionary folder.  Without it, or with 'none', letters are phones.

e.g.:
 nnet3-check-data recordings.tsv lexicon.txt
 nnet3-check-data data/train
"""


class Options(OptionGroup):
    check: CheckOptions = option_group("", CheckOptions)


@program("nnet3-check-data", USAGE, Options, num_args=(1, 2))
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.recipe.own_data.checks import check_data
    from nnet3tools.recipe.own_data.corpus import read_corpus
    from nnet3tools.recipe.own_data.faults import FaultList
    from nnet3tools.recipe.own_data.pronunciations import read_word_list

    data, lexicon = [*args, "none"][:2]
    faults = FaultList()
    words = read_word_list(lexicon, faults)
    checked = check_data(read_corpus(data, faults), words, faults, options.check)
    faults.report()
    log.log(str(checked))

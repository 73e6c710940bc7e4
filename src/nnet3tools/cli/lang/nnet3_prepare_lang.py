"""nnet3-prepare-lang: make the lang folder for a dictionary."""

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.io import log

USAGE = """Makes a lang folder of a dictionary, as Kaldi's utils/prepare_lang.sh does: symbol tables
words.txt and phones.txt, lists of phones under phones/, the lexicon FSTs L.fst and
L_disambig.fst (with disambiguation symbols, for decoding graphs), and the topology topo.

Usage:  nnet3-prepare-lang [options] <dict-dir> <oov-word> <lang-dir>

<dict-dir> holds lexicon.txt (a word and its phones a line; or lexiconp.txt, with the
pronunciation's probability after the word), silence_phones.txt, nonsilence_phones.txt,
optional_silence.txt, and perhaps extra_questions.txt.  <oov-word>, a word of the lexicon,
stands for words that are not in it.

e.g.:
 nnet3-prepare-lang --position-dependent-phones=false --chain-topology=true \\
   data/local/dict "<UNK>" data/lang
"""


class Options(OptionGroup):
    position_dependent_phones: bool = option(
        True, "If true, phones are called by their position in words, with _B, _I, _E and _S"
    )
    sil_prob: float = option(0.5, "Probability of silence between words and at the ends, below 1")
    num_sil_states: int = option(5, "Number of states of silence phones (1, or at least 3)")
    num_nonsil_states: int = option(3, "Number of states of other phones")
    share_silence_phones: bool = option(False, "If true, share pdfs of all silence phones")
    chain_topology: bool = option(
        False, "If true, all phones have the topology of chain models (and no number of states)"
    )


@program("nnet3-prepare-lang", USAGE, Options, num_args=3)
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.lang.dictionary import Dictionary
    from nnet3tools.lang.lang_dir import LangOptions, prepare_lang

    dict_dir, oov, lang_dir = args
    prepare_lang(Dictionary.load(dict_dir), oov, lang_dir, LangOptions(**vars(options)))
    log.log(f"Wrote the lang folder {lang_dir}")

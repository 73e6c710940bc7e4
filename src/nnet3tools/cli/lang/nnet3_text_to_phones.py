"""nnet3-text-to-phones: convert transcripts to phones, and count phones."""

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import DataError
from nnet3tools.io import log

USAGE = """Writes the phones of transcripts, with silence at random at the ends and between words,
for the phone language model of end-to-end chain training (chain-est-phone-lm).  Of several
pronunciations of a word the last one of the lang folder's align_lexicon.txt is taken.

Usage:  nnet3-text-to-phones [options] <lang-dir> <text-in> <phones-out>

e.g.:
 nnet3-text-to-phones --between-silprob=0.1 data/lang data/train/text data/phones.txt
 chain-est-phone-lm ark:data/phones.txt phone_lm.fst

With --phone-counts it also counts phones and pairs of them, for gmm-init-biphone:
 nnet3-text-to-phones --edge-silprob=0 --between-silprob=0 --phone-counts=counts.txt \\
   data/lang data/train/text /dev/null
"""


class Options(OptionGroup):
    edge_silprob: float = option(0.8, "Probability of optional silence at the beginning and end.")
    between_silprob: float = option(0.2, "Probability of optional silence between the words.")
    srand: int = option(0, "Seed of the random numbers (Python's, as in Kaldi's script)")
    symbols: bool = option(False, "If true, write phones by name, not by number")
    phone_counts: str = option("", "File to write counts of phones and of pairs of phones to")


@program("nnet3-text-to-phones", USAGE, Options, num_args=3)
def main(options: Options, args: list[str]) -> None:
    import random

    from nnet3tools.io.files import open_output, read_text_lines
    from nnet3tools.lang.symbols import SymbolTable, read_sets
    from nnet3tools.lang.text_to_phones import (
        PhoneStatistics,
        TextToPhones,
        load_align_lexicon,
        only_word,
    )

    lang, text_in, phones_out = args
    silence, oov = only_word(f"{lang}/phones/optional_silence.txt"), only_word(f"{lang}/oov.txt")
    lexicon = load_align_lexicon(f"{lang}/phones/align_lexicon.txt")
    probabilities = options.edge_silprob, options.between_silprob
    maker = TextToPhones(lexicon, silence, oov, *probabilities, random.Random(options.srand))
    table = SymbolTable.load(f"{lang}/phones.txt")
    statistics = PhoneStatistics(read_sets(f"{lang}/phones/sets.int"))
    lines = []
    for place, line in enumerate(read_text_lines(text_in), start=1):
        if not (words := line.split()):
            raise DataError(f"{text_in}:{place}: expected an utterance and its words")
        phones = maker.phones(words[1:])
        numbers = table.sequence(phones)
        statistics.add(numbers)
        lines.append(" ".join([words[0], *(phones if options.symbols else map(str, numbers))]))
    for name, written in ((phones_out, lines), (options.phone_counts, statistics.lines())):
        if name:
            with open_output(name, binary=False) as writer:
                writer.write_text("".join(line + "\n" for line in written))
    log.log(f"Done. {maker.num_unknown} out of {maker.num_words} were OOVs.")

"""nnet3-make-lm: estimate an n-gram language model from text."""

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import OptionError, naming
from nnet3tools.io import log

USAGE = """Estimates an n-gram language model from text, with interpolated modified Kneser-Ney
smoothing (as KenLM's lmplz), and writes it in ARPA format.  The text has one sentence in each
line, its words separated by blanks.  Several texts are counted together.

Usage:  nnet3-make-lm [options] [<text-in>...] <arpa-out>

e.g.:
 nnet3-make-lm --order=3 --transcripts=data/train/text extra.txt lm.arpa
 nnet3-make-lm --vocab=data/lang/words.txt --heldout=dev.txt train.txt - | gzip -c > lm.arpa.gz
 arpa2fst --disambig-symbol=#0 --read-symbol-table=data/lang/words.txt lm.arpa G.fst

An order whose counts are too few for the discounts of modified Kneser-Ney gets the discounts 0.5, 1
and 1.5 (lmplz --discount_fallback); a LOG line says so.
"""


class Options(OptionGroup):
    order: int = option(3, "Length of the longest n-grams, 1 to 4")
    transcripts: tuple[str, ...] = option(
        (),
        "Text whose lines begin with an utterance's id, as in Kaldi's data directories (this "
        "option may be repeated)",
    )
    vocab: str = option(
        "",
        "Words of the model: a symbol table (words.txt), or one word in each line.  Other words of "
        "the text count as --unk (default: all words of the text, and --unk)",
    )
    unk: str = option("<unk>", "Word that stands for unknown words")
    heldout: str = option("", "Text to compute the perplexity of, one sentence in each line")
    heldout_transcripts: str = option("", "The same for text whose lines begin with an id")


@program("nnet3-make-lm", USAGE, Options, num_args=(1, None))
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.io.files import open_output
    from nnet3tools.lang.ngram_estimation import MAX_ORDER, estimate
    from nnet3tools.lang.ngram_model import read_sentences, read_vocabulary

    *texts, arpa_out = args
    if not 1 <= options.order <= MAX_ORDER:
        raise OptionError(f"--order={options.order}: expected 1 to {MAX_ORDER}")
    if not texts and not options.transcripts:
        raise OptionError("expected a text or --transcripts, found only the output")
    vocabulary = read_vocabulary(options.vocab) if options.vocab else None
    heldout = [(name, False) for name in [options.heldout] if name]
    heldout += [(name, True) for name in [options.heldout_transcripts] if name]
    held = {name: read_sentences(name, with_keys) for name, with_keys in heldout}
    sentences = [line for name in options.transcripts for line in read_sentences(name, True)]
    sentences += [line for name in texts for line in read_sentences(name)]
    with naming(" ".join([*options.transcripts, *texts])):
        model = estimate(sentences, options.order, vocabulary, options.unk)
    with open_output(arpa_out, binary=False) as writer:
        for line in model.arpa_lines():
            writer.write_text(f"{line}\n")
    sizes = ", ".join(f"{len(ngrams.keys)}" for ngrams in model.orders)
    log.log(f"Wrote n-grams of orders 1 to {len(model.orders)}: {sizes}")
    for name, lines in (("the text itself", sentences), *held.items()):
        log.log(f"Perplexity of {name}: {model.perplexity(lines)}")

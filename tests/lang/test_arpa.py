"""Language models as acceptors: costs of sentences by the ARPA rules, and broken files."""

import itertools
import math

import pytest

from nnet3tools.errors import DataError
from nnet3tools.fst.fst import Fst
from nnet3tools.lang.arpa import ArpaOptions, arpa_fst
from support.sentence_costs import best_cost

WORDS = {"<eps>": 0, "a": 1, "b": 2, "#0": 3, "<s>": 4, "</s>": 5}
BIGRAM = """\\data\\
ngram 1=4
ngram 2=3

\\1-grams:
-99\t<s>\t-0.2
-0.6\ta\t-0.3
-0.7\tb\t-0.4
-0.5\t</s>

\\2-grams:
-0.1\t<s> a
-0.15\ta b
-0.05\tb </s>

\\end\\
"""


def grammar(text: str, disambig: int = 3) -> Fst:
    return arpa_fst(text.split("\n"), ArpaOptions(WORDS, 4, 5, disambig), "g.arpa")


@pytest.mark.parametrize(
    ("sentence", "log10"),
    [
        ([1, 2], -0.1 - 0.15 - 0.05),
        ([2], -0.2 - 0.7 - 0.05),  # <s> b backs off
        ([1], -0.1 - 0.3 - 0.5),  # a </s> backs off
        ([2, 1, 2], -0.2 - 0.7 - 0.4 - 0.6 - 0.15 - 0.05),
    ],
)
def test_sentences_cost_what_the_model_says(sentence: list[int], log10: float) -> None:
    assert best_cost(grammar(BIGRAM), sentence) == pytest.approx(-log10 * math.log(10), rel=1e-5)


def test_without_a_disambiguation_symbol_sentence_ends_are_words() -> None:
    cost = best_cost(grammar(BIGRAM, disambig=0), [4, 1, 2, 5], silent=(0,))
    assert cost == pytest.approx(0.3 * math.log(10), rel=1e-5)


def test_back_off_arcs_read_the_symbol_and_write_nothing() -> None:
    fst = grammar(BIGRAM)
    silent = fst.olabels == 0
    assert silent.any()
    assert set(fst.ilabels[silent].tolist()) == {3}


def test_ngrams_with_unknown_words_are_left_out_with_a_warning(
    capfd: pytest.CaptureFixture[str],
) -> None:
    text = BIGRAM.replace("ngram 1=4", "ngram 1=5").replace("-0.7\tb", "-0.4\tc\n-0.7\tb")
    assert best_cost(grammar(text), [1, 2]) == best_cost(grammar(BIGRAM), [1, 2])
    assert "'c' not in symbol table" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\\data\\", "data", "section missing"),
        ("ngram 2=3", "ngram 2=2", "header said there would be 2"),
        ("\\2-grams:", "\\3-grams:", "expecting '\\\\2-grams:'"),
        ("-0.15\ta b", "-0.15\ta", "Invalid n-gram data line"),
        ("-0.15", "x", "line 13"),
        ("\\end\\", "", "expecting \\\\end"),
        ("-0.6\ta", "-0.6\t#0", "illegal in ARPA"),
        ("-99\t<s>\t-0.2\n", "", "beginning-of-sentence"),
    ],
)
def test_broken_models_are_told_by_line(old: str, new: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as error:
        grammar(BIGRAM.replace(old, new))
    assert str(error.value).startswith("g.arpa: ")


def test_words_of_a_model_are_added_in_the_order_of_the_text() -> None:
    words = {"<eps>": 0, "</s>": 1}
    arpa_fst(BIGRAM.split("\n"), ArpaOptions(words, 2, 1, 0, adds_words=True), "g.arpa")
    assert list(words) == ["<eps>", "</s>", "<s>", "a", "b"]
    assert list(words.values()) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("text", ["", "ngram 1=1\n\\1-grams:\n", "\\data\\"])
def test_lines_without_end_are_refused(text: str) -> None:
    lines = itertools.chain(text.split("\n"), itertools.repeat(""))
    with pytest.raises(DataError, match="found 1000000 other lines"):
        arpa_fst(lines, ArpaOptions(WORDS, 4, 5, 3), "g.arpa")


def test_ngrams_without_end_are_refused_at_once() -> None:
    lines = itertools.chain(BIGRAM.split("\n")[:8], itertools.repeat("-1 a"))
    with pytest.raises(DataError, match="there would be 4 n-grams of order 1"):
        arpa_fst(lines, ArpaOptions(WORDS, 4, 5, 3), "g.arpa")


def test_a_model_larger_than_the_memory_is_refused_by_its_header() -> None:
    text = BIGRAM.replace("ngram 2=3", "ngram 2=2147483647")
    with pytest.raises(DataError, match="2147483651 n-grams need 214748365100 bytes of memory"):
        grammar(text)

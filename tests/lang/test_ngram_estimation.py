"""Language models from text: equal to those of lmplz and of the formulas; the program."""

import math
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnet3tools.errors import DataError
from nnet3tools.fst.files import load_fst
from nnet3tools.lang.ngram_estimation import estimate
from nnet3tools.lang.ngram_model import NGramModel, read_sentences
from nnet3tools.lang.symbols import SymbolTable
from support.programs import run
from support.sentence_costs import best_cost

TEXT = "one two three\ntwo three\none\nfour five six one two\n"

LMPLZ = """-1.0694214	<unk>	0
-1.0694214	</s>	0
-0.8141489	one	-0.30103
-0.8837849	three	-0.30103
-0.67927164	one </s>	0
-0.2655093	three </s>	0
-0.4858448	<s> one	-0.30103
-0.23904662	six one	-0.30103
-0.6952843	<s> two	-0.30103
-0.38717604	one two	-0.30103
-0.72046787	<s> four	-0.30103
-0.4502121	<s> one </s>
-0.11277283	two three </s>
-0.10327969	five six one
-0.34197053	<s> one two
-0.15179922	six one two
-0.3474277	one two three
-0.10642107	four five six
"""
"""From `lmplz -o 3 --discount_fallback` (KenLM 4cb443e) of TEXT: discounts 0.5, 1.25 and 3 for the
unigrams, the fallback for the others."""


def sentences_of(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def entries(model: NGramModel) -> dict[str, tuple[float, float]]:
    """Log10 probability and back-off weight by n-gram, from the ARPA file's lines."""
    found = {}
    for line in model.arpa_lines():
        fields = line.split("\t")
        if len(fields) > 1:
            found[fields[1]] = float(fields[0]), float(fields[2]) if len(fields) > 2 else 0.0
    return found


def test_equal_to_lmplz() -> None:
    found = entries(estimate(sentences_of(TEXT), 3))
    for line in LMPLZ.splitlines():
        prob, ngram, *backoff = line.split("\t")
        assert found[ngram] == pytest.approx((float(prob), float((*backoff, 0)[0])), abs=1e-6)


class Formulas:
    """The formulas of Chen and Goodman for one sentence list, by dictionaries."""

    def __init__(self, sentences: list[list[str]], order: int) -> None:
        self.order = order
        self.vocabulary = {w for s in sentences for w in s} | {"</s>", "<unk>"}
        raw: dict[int, Counter[tuple[str, ...]]] = defaultdict(Counter)
        for sentence in sentences:
            words = ("<s>", *sentence, "</s>")
            for size in range(1, order + 1):
                raw[size].update(zip(*(words[i:] for i in range(size)), strict=False))
        self.counts: dict[int, dict[tuple[str, ...], int]] = {order: dict(raw[order])}
        self.counts[order].pop(("<s>",), None)
        for size in range(1, order):
            left = Counter(gram[1:] for gram in raw[size + 1])
            self.counts[size] = {
                gram: count if gram[0] == "<s>" else left[gram]
                for gram, count in raw[size].items()
                if gram != ("<s>",)
            }
        self.discounts = {size: self._discounts(c) for size, c in self.counts.items()}

    @staticmethod
    def _discounts(counts: dict[tuple[str, ...], int]) -> tuple[float, float, float]:
        n1, n2, n3, n4 = (list(counts.values()).count(i) for i in (1, 2, 3, 4))
        if n1 * n2 * n3:
            y = n1 / (n1 + 2 * n2)
            found = 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3
            if min(found) > 0:
                return found
        return 0.5, 1.0, 1.5

    def prob(self, words: tuple[str, ...]) -> float:
        """The probability of the last word after those before it."""
        if not words:
            return 1 / len(self.vocabulary)
        counts, discounts = self.counts[len(words)], self.discounts[len(words)]
        after = {gram: c for gram, c in counts.items() if gram[:-1] == words[:-1]}
        if not after:
            return self.prob(words[1:])
        total = sum(after.values())
        rest = sum(discounts[min(count, 3) - 1] for count in after.values()) / total
        own = counts.get(words, 0)
        own_share = (own - discounts[min(own, 3) - 1]) / total if own else 0.0
        return own_share + rest * self.prob(words[1:])

    def log10_prob(self, sentence: list[str]) -> float:
        words = ("<s>", *sentence, "</s>")
        ends = range(2, len(words) + 1)
        return sum(math.log10(self.prob(words[max(e - self.order, 0) : e])) for e in ends)


WORDS = st.lists(st.sampled_from("abcde"), min_size=1, max_size=7)


@settings(max_examples=60, deadline=None)
@given(st.lists(WORDS, min_size=3, max_size=40), st.integers(1, 4), WORDS)
def test_sentences_have_the_probabilities_of_the_formulas(
    sentences: list[list[str]], order: int, other: list[str]
) -> None:
    if order > max(map(len, sentences)) + 2:
        return
    formulas, model = Formulas(sentences, order), estimate(sentences, order)
    for sentence in (other, ["e", "f"], *sentences[:3]):
        shown = [word if word in formulas.vocabulary else "<unk>" for word in sentence]
        wanted = formulas.log10_prob(shown)
        score = model.perplexity([sentence])
        unknown = [i for i, word in enumerate(shown) if word == "<unk>"]
        assert (score.num_predicted, score.num_unknown) == (
            len(sentence) + 1 - len(unknown),
            len(unknown),
        )
        padded = ("<s>", *shown, "</s>")
        for i in unknown:
            wanted -= math.log10(formulas.prob(padded[max(i + 2 - order, 0) : i + 2]))
        assert score.log10_prob == pytest.approx(wanted, abs=1e-9)


def test_words_outside_the_vocabulary_are_the_unknown_word() -> None:
    listed = estimate(sentences_of(TEXT), 2, ["one", "two", "three", "seven", "<unk>"])
    replaced = TEXT.replace("four", "<unk>").replace("five", "<unk>").replace("six", "<unk>")
    same = estimate(sentences_of(replaced), 2, listed.words)
    assert entries(listed) == entries(same)
    assert "seven" in entries(listed)
    assert "<unk> one" in entries(listed)


def test_without_an_unknown_word_ngrams_with_other_words_are_left_out() -> None:
    model = estimate(sentences_of(TEXT), 2, ["one", "two", "three"])
    assert {word for gram in entries(model) for word in gram.split()} == set(model.words)
    assert "one two" in entries(model)


def test_equal_sentences_give_a_usable_model(tmp_path: Path) -> None:
    sentences = [[word] for word in "zero one two three".split()] * 6
    model = estimate(sentences, 4)
    assert len(model.orders) == 3  # <s> zero </s>
    assert model.perplexity(sentences).perplexity < 3.0
    (tmp_path / "g.arpa").write_text("\n".join(model.arpa_lines()) + "\n")
    table = SymbolTable.of(["<eps>", "zero", "one", "two", "three", "<unk>", "#0", "<s>", "</s>"])
    table.save(str(tmp_path / "words.txt"))
    read = f"--read-symbol-table={tmp_path}/words.txt"
    assert run("arpa2fst", "--disambig-symbol=#0", read, tmp_path / "g.arpa", tmp_path / "g") == 0
    fst = load_fst(str(tmp_path / "g"))
    for sentence in (["zero"], ["one", "two"], ["<unk>", "three", "three"]):
        cost = best_cost(fst, table.sequence(sentence), (0, table.number("#0")))
        wanted = Formulas(sentences, 3).log10_prob(sentence)
        assert cost == pytest.approx(-wanted * math.log(10), abs=1e-4)


def test_two_texts_are_counted_together(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text").write_text("utt1 one two\nutt2 two three\n")
    (tmp_path / "extra").write_text("three one\n\n<s> two two </s>\r\n")
    (tmp_path / "dev").write_text("u one two\nu four\n")
    options = f"--transcripts={tmp_path}/text", f"--heldout-transcripts={tmp_path}/dev", "--order=2"
    assert run("nnet3-make-lm", *options, tmp_path / "extra", tmp_path / "lm.arpa") == 0
    model = estimate([["one", "two"], ["two", "three"], ["three", "one"], ["two", "two"]], 2)
    assert (tmp_path / "lm.arpa").read_text() == "\n".join(model.arpa_lines()) + "\n"
    shown = f"dev: {model.perplexity([['one', 'two'], ['four']])}"
    assert "without 1 unknown words" in shown
    assert shown in capfd.readouterr().err


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (b"", "expected sentences"),
        (b"\n  \n", "expected sentences"),
        (b"a\nb \xe9 c\n", ":2: expected UTF-8"),
        (b"a <s> b\n", ":1: expected words, found <s>"),
    ],
)
def test_a_bad_text_is_named(contents: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(contents)
    with pytest.raises(DataError, match=message):
        estimate(read_sentences(str(path)), 3)


def test_nothing_is_written_if_an_option_is_wrong(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text").write_text(TEXT)
    for option in ("--order=5", "--order=0", "--vocab=nosuch", "--heldout=nosuch"):
        assert run("nnet3-make-lm", option, tmp_path / "text", tmp_path / "lm.arpa") != 0
        assert option.split("=")[1] in capfd.readouterr().err
    assert run("nnet3-make-lm", tmp_path / "lm.arpa") != 0
    assert not (tmp_path / "lm.arpa").exists()


def test_the_vocabulary_may_be_a_symbol_table_or_a_list(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text").write_text(TEXT)
    SymbolTable.of(["<eps>", "one", "two", "#1x", "#0", "<s>", "</s>"]).save(f"{tmp_path}/words")
    (tmp_path / "list").write_text("one\n\ntwo\n#1x\n")
    for name in ("words", "list"):
        vocab, out = f"--vocab={tmp_path}/{name}", tmp_path / f"{name}.arpa"
        assert run("nnet3-make-lm", "--order=2", vocab, tmp_path / "text", out) == 0
        assert "5 words are not in the vocabulary, which lacks '<unk>'" in capfd.readouterr().err
    assert (tmp_path / "words.arpa").read_text() == (tmp_path / "list.arpa").read_text()
    wanted = estimate(sentences_of(TEXT), 2, ["one", "two", "#1x"])
    assert (tmp_path / "list.arpa").read_text() == "\n".join(wanted.arpa_lines()) + "\n"
    for wrong in ("one 1 2\n", "one two\n", "<eps> 0\n#0 1\n"):
        (tmp_path / "list").write_text(wrong)
        vocab = f"--vocab={tmp_path}/list"
        assert run("nnet3-make-lm", vocab, tmp_path / "text", tmp_path / "x") == 255
        assert f"{tmp_path}/list" in capfd.readouterr().err
    assert not (tmp_path / "x").exists()

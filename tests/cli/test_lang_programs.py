"""Lang folders and graphs from a dictionary: by expected files and accepted sequences."""

import math
import struct
from pathlib import Path

import numpy as np
import pytest

from nnet3tools import draws
from nnet3tools.fst.files import FST, load_fst
from nnet3tools.fst.fst import NOT_FINAL, Fst
from nnet3tools.io.holders import INT32_VECTOR, MATRIX, TOKEN_VECTOR
from nnet3tools.lang.gaussians import Gaussian
from nnet3tools.nnet.hmm.transition_model import TransitionModel
from support.shell import Shell

LEXICON = """<UNK> SPN
TWO t u
TO t u
TOO t u u
U u
A u
A ey
"""
ARPA = """\\data\\
ngram 1=6

\\1-grams:
-99 <s>
-0.5 TWO
-0.6 TO
-0.7 TOO
-0.8 A
-0.1 </s>

\\end\\
"""


@pytest.fixture
def dictionary(shell: Shell) -> Path:
    folder = Path("dict")
    folder.mkdir()
    files = {
        "lexicon.txt": LEXICON,
        "silence_phones.txt": "SIL\nSPN\n",
        "nonsilence_phones.txt": "ey\nt\nu\n",
        "optional_silence.txt": "SIL\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def lang(shell: Shell, dictionary: Path) -> Path:
    plain = "--position-dependent-phones=false"
    shell("nnet3-prepare-lang", plain, "--chain-topology=true", "dict", "<UNK>", "lang")
    return Path("lang")


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def best_path(fst: Fst, read: list[int]) -> tuple[float, tuple[int, ...]]:
    """The least cost of a path with these input labels, and the path's output labels."""
    lists, finals = fst.arc_lists(), fst.finals.tolist()

    def closed(here: dict) -> dict:
        queue = list(here)
        for state in queue:
            cost, written = here[state]
            for ilabel, olabel, weight, target in lists[state]:
                after = (cost + weight, (*written, olabel) if olabel else written)
                if not ilabel and after < here.get(target, (math.inf, ())):
                    here[target] = after
                    queue.append(target)
        return here

    here = closed({fst.start: (0.0, ())})
    for label in read:
        after: dict = {}
        for state, (cost, written) in here.items():
            for ilabel, olabel, weight, target in lists[state]:
                if ilabel == label:
                    found = (cost + weight, (*written, olabel) if olabel else written)
                    after[target] = min(after.get(target, (math.inf, ())), found)
        here = closed(after)
    ends = [(c + finals[s], w) for s, (c, w) in here.items() if finals[s] != NOT_FINAL]
    return min(ends, default=(math.inf, ()))


# -- the lang folder


def test_the_lang_folder_by_hand(lang: Path) -> None:
    words = "<eps> <UNK> A TO TOO TWO U #0 <s> </s>".split()
    assert lines(lang / "words.txt") == [f"{w} {i}" for i, w in enumerate(words)]
    # #1, #2 for the homophones t u; two for the homophones u; and one for silence
    phones = "<eps> SIL SPN ey t u #0 #1 #2 #3".split()
    assert lines(lang / "phones.txt") == [f"{p} {i}" for i, p in enumerate(phones)]
    assert lines(lang / "phones" / "silence.csl") == ["1:2"]
    assert lines(lang / "phones" / "disambig.int") == ["6", "7", "8", "9"]
    assert lines(lang / "phones" / "sets.int") == ["1", "2", "3", "4", "5"]
    assert lines(lang / "phones" / "roots.txt")[0] == "shared split SIL"
    assert lines(lang / "phones" / "align_lexicon.txt")[0] == "<UNK> <UNK> SPN"
    assert lines(lang / "phones" / "align_lexicon.int")[1] == "0 0 1"
    assert lines(lang / "oov.int") == ["1"]
    assert not (lang / "phones" / "word_boundary.txt").exists()


def test_the_lexicon_reads_phones_and_writes_words(lang: Path) -> None:
    fst = load_fst(str(lang / "L.fst"))
    cost, written = best_path(fst, [4, 5, 1, 3])  # t u SIL ey
    assert written in ((3, 2), (5, 2))
    assert cost == pytest.approx(3 * -math.log(0.5), rel=1e-5)
    assert (np.diff(fst.olabels)[fst.sources[1:] == fst.sources[:-1]] >= 0).all()


def test_with_disambiguation_a_pronunciation_is_of_one_word(lang: Path) -> None:
    fst = load_fst(str(lang / "L_disambig.fst"))
    assert best_path(fst, [4, 5, 7])[1] == (5,)  # t u #1: TWO
    assert best_path(fst, [4, 5, 8])[1] == (3,)  # t u #2: TO
    assert best_path(fst, [6, 4, 5, 5])[1] == (7, 4)  # #0 passes through
    assert best_path(fst, [4, 5])[0] == math.inf


def test_phones_by_position(shell: Shell, dictionary: Path) -> None:
    shell("nnet3-prepare-lang", "dict", "<UNK>", "lang")
    phones = Path("lang/phones")
    found = lines(phones / "align_lexicon.txt")
    assert {"TOO TOO t_B u_I u_E", "U U u_S", "<eps> <eps> SIL"} <= set(found)
    assert lines(phones / "silence.txt")[:5] == ["SIL", "SIL_B", "SIL_E", "SIL_I", "SIL_S"]
    assert lines(phones / "sets.txt")[2] == "ey_B ey_E ey_I ey_S"
    assert {"SIL nonword", "u_B begin", "u_I internal"} <= set(lines(phones / "word_boundary.txt"))
    assert lines(phones / "extra_questions.txt")[0] == "ey_B t_B u_B"
    topology = (Path("lang") / "topo").read_text()
    assert topology.count("<PdfClass>") == 3 + 5  # three states of word phones, five of silence


def test_pronunciation_probabilities_are_costs(shell: Shell, dictionary: Path) -> None:
    (dictionary / "lexiconp.txt").write_text("<UNK> 1.0 SPN\nA 0.25 u\nA 1 ey\n")
    options = ["--position-dependent-phones=false", "--sil-prob=0"]
    shell("nnet3-prepare-lang", *options, "dict", "<UNK>", "lang")
    fst = load_fst("lang/L.fst")
    assert best_path(fst, [5])[0] == pytest.approx(-math.log(0.25), rel=1e-5)
    assert best_path(fst, [3])[0] == 0.0


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("lexicon.txt", "A ey\nB zz\n", "phone 'zz' of word 'B' is neither in"),
        ("lexicon.txt", "A ey\nB\n", "lexicon.txt:2: word 'B' has no phones"),
        ("lexicon.txt", "A ey\n<s> ey\n", "lexicon.txt:2: '<s>' cannot be a word"),
        ("lexicon.txt", "A ey\n", "'<UNK>', is not in the lexicon"),
        ("optional_silence.txt", "ey\n", "expected one phone of silence_phones.txt"),
        ("silence_phones.txt", "SIL\nSPN\nu\n", "phone 'u' is in the lists of phones twice"),
        ("nonsilence_phones.txt", "#1\n", "'#1' cannot be a phone"),
    ],
)
def test_dictionaries_that_do_not_fit(
    shell: Shell, dictionary: Path, name: str, text: str, message: str
) -> None:
    (dictionary / name).write_text(text)
    assert message in shell.error("nnet3-prepare-lang", "dict", "<UNK>", "lang")
    assert not Path("lang/L.fst").exists()


# -- phones of transcripts


def test_silence_comes_in_as_pythons_random_numbers_say(shell: Shell, lang: Path) -> None:
    import random

    Path("text").write_text("u1 TO A\nu2 NEVER\nu3 TOO\n")
    shell("nnet3-text-to-phones", "--srand=3", "--symbols=true", "lang", "text", "phones")
    draws = random.Random(3)

    def silence(probability: float) -> list[str]:
        return ["SIL"] if draws.random() < probability else []

    expected = []
    for key, words in (("u1", ["t u", "u"]), ("u2", ["SPN"]), ("u3", ["t u u"])):
        found = [key, *silence(0.8)]
        for i, word in enumerate(words):
            found += [*word.split(), *silence(0.8 if i == len(words) - 1 else 0.2)]
        expected.append(" ".join(found))
    assert lines(Path("phones")) == expected
    assert "NEVER not found in lexicon, replacing with <UNK>" in shell.log


def test_phones_and_pairs_are_counted(shell: Shell, lang: Path) -> None:
    Path("text").write_text("u1 TO TO\nu2 U\n")
    silent = ["--edge-silprob=0", "--between-silprob=0"]
    shell("nnet3-text-to-phones", *silent, "--phone-counts=counts", "lang", "text", "phones")
    assert lines(Path("phones")) == ["u1 4 5 4 5", "u2 5"]
    assert lines(Path("counts")) == ["0 4 1", "0 5 1", "4 5 2", "5 4 1", "4 2", "5 3"]


def test_a_lang_folder_with_broken_files(shell: Shell, lang: Path) -> None:
    Path("text").write_text("u1 NEVER\n")
    args = ["lang", "text", "phones"]
    (lang / "oov.txt").write_text("NONE\n")
    assert "'NONE', is not in the lexicon" in shell.error("nnet3-text-to-phones", *args)
    (lang / "oov.txt").write_text("\n")
    assert "oov.txt: expected one word, found 0" in shell.error("nnet3-text-to-phones", *args)
    (lang / "oov.txt").write_text("<UNK>\n")
    (lang / "phones" / "sets.int").write_text("1\nx\n")
    assert "sets.int:2: expected numbers" in shell.error("nnet3-text-to-phones", *args)
    Path("text").write_text("u1 TO\n\n")
    (lang / "phones" / "sets.int").write_text("1\n2\n3\n4\n5\n")
    assert "text:2: expected an utterance" in shell.error("nnet3-text-to-phones", *args)
    assert not Path("phones").exists()


# -- trees and graphs


@pytest.fixture
def model(shell: Shell, lang: Path) -> TransitionModel:
    shell("gmm-init-mono", "--shared-phones=lang/phones/sets.int", "lang/topo", 3, "0.mdl", "tree")
    return TransitionModel.load("0.mdl")


def ids_of(model: TransitionModel, phone: int, size: int) -> list[int]:
    """Transition ids of a phone of `size` frames: the exit from its state, then self-loops."""
    (state,) = np.flatnonzero(model.tuples[:, 0] == phone)
    return [2 * int(state) + 2] + [2 * int(state) + 1] * (size - 1)


def test_a_flat_start_has_a_gaussian_for_each_pdf(shell: Shell, model: TransitionModel) -> None:
    shell("tree-info", "tree")
    assert "num-pdfs 10" in shell.out
    shell("gmm-init-mono", "--binary=false", "lang/topo", 3, "text.mdl", "text.tree")
    text = Path("text.mdl").read_text()
    assert text.count("<DiagGMM>") == 10
    constant = -1.5 * math.log(2 * math.pi) - 1.5
    assert f"<GCONSTS>  [ {constant:.7g} ]" in text
    features = {"u": np.array([[1, 2, 3], [3, 2, 5], [2, 5, 1]], np.float32)}
    feats = shell.write("feats", MATRIX, features)
    shell("gmm-init-mono", "--binary=false", f"--train-feats={feats}", "lang/topo", 3, "f", "t")
    scaled = features["u"].mean(0) / features["u"].var(0)
    shown = " ".join(f"{value:.5g}" for value in scaled)
    found = Path("f").read_text().split("<MEANS_INVVARS>  [\n")[1].split("]")[0].split()
    assert " ".join(f"{float(value):.5g}" for value in found) == shown


def test_perturbed_means_are_kaldis(shell: Shell, lang: Path) -> None:
    """The means must be those of Kaldi's gmm-init-mono, which draws from rand() in this order."""
    draws.seed(1)
    perturb = ("--binary=false", "--perturb-factor=0.1")
    shell("gmm-init-mono", *perturb, "lang/topo", 3, "perturbed", "tree")
    pdfs = Path("perturbed").read_text().split("<DiagGMM>")[1:]
    assert len(pdfs) == 10
    for text, constant, means in (
        (pdfs[0], "-4.246599", "0.9535108 1.020956 1.013919"),
        (pdfs[1], "-4.053949", "1.016898 0.8490558 0.9161279"),
    ):
        assert f"<GCONSTS>  [ {constant} ]" in text
        assert f"<MEANS_INVVARS>  [\n  {means} ]" in text
    features = {"u": np.array([[1e-25, 2, 3], [0, 5, 7]], np.float32)}
    feats = "--train-feats=" + shell.write("feats", MATRIX, features)
    error = shell.error("gmm-init-mono", feats, "lang/topo", 3, "none", "none.tree")
    assert "a Gaussian's constant is not a number" in error
    assert not Path("none").exists()


def test_a_perturbation_is_a_part_of_the_standard_deviation() -> None:
    inverse = np.repeat(np.array([0.25, 16.0], np.float32), 5000)
    moved = Gaussian(np.zeros(10_000, np.float32), inverse).perturbed(0.5)
    in_deviations = (moved.scaled_mean / np.sqrt(inverse)).reshape(2, 5000)
    np.testing.assert_allclose(in_deviations.std(axis=1), 0.5, rtol=0.05)
    np.testing.assert_allclose(in_deviations.mean(axis=1), 0.0, atol=0.03)


def test_training_graphs_accept_their_words_with_silence(
    shell: Shell, lang: Path, model: TransitionModel
) -> None:
    text = shell.write("words", INT32_VECTOR, {"u1": np.array([3, 2]), "u2": np.array([4])})
    shell("compile-train-graphs", "tree", "0.mdl", "lang/L.fst", text, "ark:graphs")
    graphs = shell.read("graphs", FST)
    sil, ey, t, u = (lambda n, p=p: ids_of(model, p, n) for p in (1, 3, 4, 5))
    cost, written = best_path(graphs["u1"], [*t(2), *u(1), *sil(3), *ey(4)])
    assert written == (3, 2)
    assert cost == pytest.approx(3 * math.log(2.0), abs=0.01)  # silence or none, 3 times
    assert best_path(graphs["u1"], [*sil(1), *t(1), *u(3), *u(1)])[1] == (3, 2)
    assert best_path(graphs["u1"], [*t(1), *u(1)])[0] == math.inf
    assert best_path(graphs["u2"], [*t(1), *u(1), *u(2), *sil(1)])[1] == (4,)


def test_transition_probabilities_come_in_with_their_scales(
    shell: Shell, lang: Path, model: TransitionModel
) -> None:
    text = shell.write("words", INT32_VECTOR, {"u": np.array([2])})
    scales = ["--transition-scale=1.0", "--self-loop-scale=1.0"]
    shell("compile-train-graphs", *scales, "tree", "0.mdl", "lang/L.fst", text, "ark:graphs")
    cost, _ = best_path(shell.read("graphs", FST)["u"], ids_of(model, 3, 4))
    assert cost == pytest.approx((2 + 4) * math.log(2.0), abs=0.01)


def test_one_unknown_word_costs_one_utterance_only(
    shell: Shell, lang: Path, model: TransitionModel
) -> None:
    text = shell.write("text", TOKEN_VECTOR, {"u1": ["TO"], "u2": ["NEVER", "TO"]})
    table = "--word-symbol-table=lang/words.txt"
    args = ["tree", "0.mdl", "lang/L.fst", text, "ark:graphs"]
    log = shell("compile-train-graphs", table, *args)
    assert "symbol 'NEVER' is not in lang/words.txt" in log
    assert list(shell.read("graphs", FST)) == ["u1"]
    shell("compile-train-graphs", table, "--oov-word=<UNK>", *args)
    assert best_path(shell.read("graphs", FST)["u2"], ids_of(model, 2, 1) + ids_of(model, 4, 1))[0]
    only = shell.write("only", TOKEN_VECTOR, {"u2": ["NEVER"]})
    args[3] = only
    shell("compile-train-graphs", table, *args, status=1)


def test_a_lexicon_with_phones_that_the_topology_lacks(
    shell: Shell, lang: Path, model: TransitionModel
) -> None:
    text = (lang / "topo").read_text().replace("1 2 3 4 5 \n", "1 2 3 4 \n")
    Path("topo").write_text(text)
    shell("gmm-init-mono", "topo", 3, "few.mdl", "few.tree")
    words = shell.write("words", INT32_VECTOR, {"u1": np.array([3])})
    args = ["few.tree", "few.mdl", "lang/L.fst", words, "ark:graphs"]
    error = shell.error("compile-train-graphs", *args)
    assert "key 'u1': phone 5 is none of the topology's" in error


@pytest.fixture
def grammar(shell: Shell, lang: Path) -> None:
    Path("lm.arpa").write_text(ARPA)
    words = ["--disambig-symbol=#0", "--read-symbol-table=lang/words.txt"]
    shell("arpa2fst", *words, "lm.arpa", "lang/G.fst")


@pytest.mark.parametrize("tree", ["mono", "biphone"])
def test_the_decoding_graph_accepts_sentences_at_their_cost(
    shell: Shell, lang: Path, grammar: None, tree: str
) -> None:
    shell(f"gmm-init-{tree}", "lang/topo", 3, "0.mdl", "tree")
    shell("nnet3-make-graph", "--self-loop-scale=1.0", "lang", "tree", "0.mdl", "graph")
    fst = load_fst("graph/HCLG.fst")
    if tree == "biphone":
        assert fst.num_arcs
        return
    model = TransitionModel.load("0.mdl")
    read = [*ids_of(model, 4, 2), *ids_of(model, 5, 1), *ids_of(model, 3, 2)]
    cost, written = best_path(fst, read)
    assert written == (5, 2)
    language_model = (0.5 + 0.8 + 0.1) * math.log(10)
    silences, frames = 3 * math.log(2), 5 * math.log(2)
    assert cost == pytest.approx(language_model + silences + frames, abs=0.02)
    assert {"words.txt", "phones.txt", "num_pdfs"} <= {
        path.name for path in Path("graph").iterdir()
    }
    shell("nnet3-make-graph", "lang", "tree", "0.mdl", "graph")
    assert "chain models need" in shell.log


def test_unknown_words_can_be_left_out_of_the_graph(shell: Shell, lang: Path) -> None:
    Path("lm.arpa").write_text(ARPA.replace("1=6", "1=7").replace("-0.8 A", "-0.8 A\n-0.8 <UNK>"))
    words = ["--disambig-symbol=#0", "--read-symbol-table=lang/words.txt"]
    shell("arpa2fst", *words, "lm.arpa", "lang/G.fst")
    shell("gmm-init-mono", "lang/topo", 3, "0.mdl", "tree")
    model = TransitionModel.load("0.mdl")
    for option, found in (("false", True), ("true", False)):
        scale = "--self-loop-scale=1.0"
        shell("nnet3-make-graph", scale, f"--remove-oov={option}", "lang", "tree", "0.mdl", "graph")
        cost, _ = best_path(load_fst("graph/HCLG.fst"), ids_of(model, 2, 1))
        assert (cost < math.inf) == found


def test_symbols_of_a_model_without_a_table(shell: Shell) -> None:
    Path("lm.arpa").write_text(ARPA)
    shell("arpa2fst", "--disambig-symbol=#0", "--write-symbol-table=w.txt", "lm.arpa", "G.fst")
    names = [line.split()[0] for line in lines(Path("w.txt"))]
    assert names == ["<eps>", "#0", "<s>", "</s>", "TWO", "TO", "TOO", "A"]


def _table_as_openfst_writes_it(name: str, symbols: dict[str, int]) -> bytes:
    """OpenFst's bytes: magic number, name, next number, count, symbols with numbers."""

    def text(word: str) -> bytes:
        return len(word).to_bytes(4, "little") + word.encode()

    sizes = struct.pack("<qq", max(symbols.values()) + 1, len(symbols))
    entries = b"".join(text(symbol) + struct.pack("<q", n) for symbol, n in symbols.items())
    return struct.pack("<i", 2125658996) + text(name) + sizes + entries


def _with_symbols(plain: bytes, table: bytes) -> bytes:
    """A vector file with set symbol flags and two copies of a table after the header."""
    flags_at, header = 4 + 4 + 6 + 4 + 8 + 4, 4 + 4 + 6 + 4 + 8 + 40
    return (
        plain[:flags_at] + b"\3\0\0\0" + plain[flags_at + 4 : header] + 2 * table + plain[header:]
    )


def test_symbols_that_no_file_has_are_kept_in_the_fst(shell: Shell) -> None:
    Path("lm.arpa").write_text(ARPA)
    shell("arpa2fst", "--write-symbol-table=w.txt", "lm.arpa", "plain.fst")
    shell("arpa2fst", "lm.arpa", "G it's.fst")
    names = ["<eps>", "<s>", "</s>", "TWO", "TO", "TOO", "A"]
    table = _table_as_openfst_writes_it('"G it\'s.fst"', {n: i for i, n in enumerate(names)})
    plain = Path("plain.fst").read_bytes()
    assert Path("G it's.fst").read_bytes() == _with_symbols(plain, table)
    assert load_fst("G it's.fst").num_arcs == load_fst("plain.fst").num_arcs


def test_symbols_of_a_file_are_kept_by_number_if_asked_for(shell: Shell) -> None:
    Path("lm.arpa").write_text(ARPA)
    Path("words.txt").write_text("TOO 9\nTO 2\n<s> 4\n<eps> 0\nTWO 7\n")
    options = ("--read-symbol-table=words.txt", "--ilabel-sort=false", "--keep-symbols")
    for kept, out in ((f"{options[2]}=false", "plain.fst"), (f"{options[2]}=true", "G.fst")):
        shell("arpa2fst", *options[:2], kept, "lm.arpa", out)
    symbols = {"<eps>": 0, "TO": 2, "<s>": 4, "TWO": 7, "TOO": 9, "</s>": 10}
    table = _table_as_openfst_writes_it("words.txt", symbols)
    assert Path("G.fst").read_bytes() == _with_symbols(Path("plain.fst").read_bytes(), table)

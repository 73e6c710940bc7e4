"""The graphs of the AN4 corpus equal those of Kaldi's programs, arc for arc."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from nnet3tools.fst.files import FST, load_fst
from nnet3tools.fst.fst import Fst
from support.shell import Shell

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
CORPUS, GOLDENS = SHARED / "data" / "an4", SHARED / "goldens"

pytestmark = pytest.mark.skipif(
    not (CORPUS.exists() and GOLDENS.exists()), reason="no AN4 corpus and Kaldi's graphs of it"
)


@pytest.fixture
def lang(shell: Shell) -> None:
    script = ROOT / "egs" / "an4" / "local" / "prepare_data.py"
    spec = importlib.util.spec_from_file_location("prepare_an4", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    entries = [line.split() for line in module.lexicon(CORPUS)]
    Path("dict").mkdir()
    lines = ["<UNK> SPN", *(" ".join(words) for words in entries)]
    phones = sorted({phone for _, *words in entries for phone in words})
    for name, found in (
        ("lexicon", lines),
        ("nonsilence_phones", phones),
        ("silence_phones", ["SIL", "SPN"]),
        ("optional_silence", ["SIL"]),
    ):
        Path(f"dict/{name}.txt").write_text("".join(f"{line}\n" for line in found))
    plain = ["--position-dependent-phones=false", "--chain-topology=true"]
    shell("nnet3-prepare-lang", *plain, "dict", "<UNK>", "lang")
    shell("gmm-init-mono", "--shared-phones=lang/phones/sets.int", "lang/topo", 10, "mdl", "tree")


def assert_same(ours: Fst, kaldis: Fst) -> None:
    assert ours.start == kaldis.start
    for name in ("offsets", "ilabels", "olabels", "nextstates"):
        assert np.array_equal(getattr(ours, name), getattr(kaldis, name))
    np.testing.assert_allclose(ours.weights, kaldis.weights, atol=1e-5)
    np.testing.assert_allclose(ours.finals, kaldis.finals, atol=1e-5)


def test_the_decoding_graph(shell: Shell, lang: None) -> None:
    words = ["--disambig-symbol=#0", "--read-symbol-table=lang/words.txt"]
    shell("arpa2fst", *words, CORPUS / "etc" / "an4.lm", "lang/G.fst")
    shell("nnet3-make-graph", "--self-loop-scale=1.0", "lang", "tree", "mdl", "graph")
    case = GOLDENS / "decode" / "an4-latgen-mono"
    assert_same(load_fst("graph/HCLG.fst"), load_fst(str(case / "HCLG.fst")))
    assert Path("graph/words.txt").read_text() == (case / "words.txt").read_text()


def test_training_graphs(shell: Shell, lang: None) -> None:
    graphs = shell.read(str(GOLDENS / "chain" / "an4-e2e-get-egs-mono" / "trfsts.ark"), FST)
    text = {}
    ids = (CORPUS / "etc" / "an4_train.fileids").read_text().split()
    lines = (CORPUS / "etc" / "an4_train.transcription").read_text().splitlines()
    for name, line in zip(ids, lines, strict=True):
        _, speaker, utterance = name.split("/")
        words = line.rsplit("(", 1)[0].split()
        text[f"{speaker}-{utterance}"] = " ".join(w for w in words if w not in ("<s>", "</s>"))
    Path("text").write_text("".join(f"{key} {text[key[4:]]}\n" for key in graphs))
    names = ["--word-symbol-table=lang/words.txt", "tree", "mdl", "lang/L.fst", "ark:text"]
    shell("compile-train-graphs", *names, "ark:graphs")
    for key, ours in shell.read("graphs", FST).items():
        assert_same(ours, graphs[key])

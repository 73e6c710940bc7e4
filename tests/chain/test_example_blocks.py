"""Chain examples made and normalized a block at a time: the bytes that one after another gives."""

from pathlib import Path

import numpy as np
import pytest

from nnet3tools.chain import assembly, example_normalization
from nnet3tools.chain.native.supervisor import compiled_library
from nnet3tools.chain.supervision import SUPERVISION
from nnet3tools.fst.files import FST
from nnet3tools.fst.fst import NOT_FINAL, Fst
from nnet3tools.io.files import open_output
from nnet3tools.io.holders import INT32_PAIR_VECTOR, INT32_VECTOR, MATRIX, VECTOR
from nnet3tools.tensor.cpu import choice
from support.programs import read_table, run, write_table
from support.tiny_chain import BIPHONE_TREE, CHAIN_TOPOLOGY, model_of

pytestmark = pytest.mark.skipif(compiled_library() is None, reason="there is no C compiler")

FACTOR = "--frame-subsampling-factor=3"
CONTEXT = ("--left-context=2", "--right-context=1", FACTOR)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Features, supervisions and more, and a normalization FST that allows a part of them."""
    path = tmp_path_factory.mktemp("blocks")
    (path / "tree").write_text(BIPHONE_TREE)
    with open_output(f"{path}/trans.mdl") as writer:
        model_of(BIPHONE_TREE, CHAIN_TOPOLOGY)[1].write(writer)
    rng = np.random.default_rng(0)
    keys = [f"u{i}" for i in range(9)]
    pairs = {
        key: np.stack([rng.integers(1, 3, 6), rng.integers(1, 9, 6)], axis=1).astype(np.int32)
        for key in keys
    }
    frames = {key: int(pairs[key][:, 1].sum()) for key in keys}
    tables = {
        "ali": (pairs, INT32_PAIR_VECTOR),
        "phones": ({key: pairs[key][:, 0].copy() for key in keys[:2]}, INT32_VECTOR),
        "feats": (
            {key: rng.standard_normal((frames[key], 4)).astype(np.float32) for key in keys},
            MATRIX,
        ),
        "ivectors": ({key: rng.standard_normal((2, 3)).astype(np.float32) for key in keys}, MATRIX),
        "weights": (
            {key: rng.random(-(-frames[key] // 3)).astype(np.float32) for key in keys},
            VECTOR,
        ),
    }
    for name, (values, holder) in tables.items():
        write_table(f"ark:{path}/{name}", values, holder)
    words = ("--ngram-order=3", "--num-extra-lm-states=1", f"ark:{path}/phones", f"{path}/lm")
    assert run("chain-est-phone-lm", *words) == 0
    words = ("tree", "trans.mdl", "lm", "den.fst", "normalization.fst")
    assert run("chain-make-den-fst", *(f"{path}/{word}" for word in words)) == 0
    words = (f"{path}/tree", f"{path}/trans.mdl", f"ark:{path}/ali", f"ark:{path}/sup")
    assert run("chain-get-supervision", FACTOR, "--left-tolerance=2", *words) == 0
    return path


@pytest.fixture
def both_ways(monkeypatch, capfd):
    """Runs a program in small blocks, and without compiled code: what is written and logged."""
    monkeypatch.setattr(assembly, "_BLOCK", 4)
    monkeypatch.setattr(example_normalization, "_BLOCK", 4)

    def work(output: Path, *words: str) -> None:
        found = []
        for kind in choice.CpuKernels:
            capfd.readouterr()
            with monkeypatch.context() as context:
                context.setattr(choice, "_chosen", kind)
                assert run(*words) == 0
            # Blocks tell of the lengths of several utterances before they tell of supervisions.
            lines = sorted(line.split(")", 1)[-1] for line in capfd.readouterr().err.splitlines())
            found.append((output.read_bytes(), lines))
        assert found[0][0] == found[1][0]
        assert found[0][1] == found[1][1]

    return work


@pytest.mark.parametrize(
    "flags",
    [
        ("--num-frames=12,6,9",),
        ("--num-frames=12", "--compress=false"),
        ("--num-frames=9", "--left-context-initial=0", "--right-context-final=3"),
        ("--num-frames=12,6", "--online-ivectors=ark:{}/ivectors", "--online-ivector-period=20"),
        (
            *("--num-frames=6", "--compress=false", "--online-ivectors=ark:{}/ivectors"),
            "--online-ivector-period=20",
        ),
        ("--num-frames=9", "--deriv-weights-rspecifier=ark:{}/weights", "--long-key=true"),
        ("--num-frames=3",),
    ],
)
@pytest.mark.parametrize("is_normalized", [False, True])
def test_examples_are_those_made_one_by_one(folder, both_ways, flags, is_normalized):
    normalization = [f"{folder}/normalization.fst"] * is_normalized
    options = [flag.format(folder) for flag in flags]
    words = (f"ark:{folder}/feats", f"ark:{folder}/sup", f"ark:{folder}/egs")
    both_ways(folder / "egs", "nnet3-chain-get-egs", *CONTEXT, *options, *normalization, *words)


def test_in_text_and_of_text(folder, both_ways):
    write_table(
        f"ark,t:{folder}/sup.txt", read_table(f"ark:{folder}/sup", SUPERVISION), SUPERVISION
    )
    for source in ("sup", "sup.txt"):
        words = (f"ark:{folder}/feats", f"ark:{folder}/{source}", f"ark,t:{folder}/egs.txt")
        both_ways(folder / "egs.txt", "nnet3-chain-get-egs", *CONTEXT, "--num-frames=12", *words)


@pytest.mark.parametrize("is_normalized", [False, True])
def test_features_that_are_compressed_already_keep_their_form(folder, both_ways, is_normalized):
    tables = (f"ark:{folder}/feats", f"ark:{folder}/feats.small")
    assert run("copy-feats", "--compress=true", *tables) == 0
    normalization = [f"{folder}/normalization.fst"] * is_normalized
    words = (*normalization, tables[1], f"ark:{folder}/sup", f"ark:{folder}/small")
    both_ways(folder / "small", "nnet3-chain-get-egs", *CONTEXT, "--num-frames=12,6", *words)


@pytest.mark.parametrize("scale", ["1.0", "0.5"])
def test_normalized_examples_are_those_made_one_by_one(folder, both_ways, scale):
    words = (f"ark:{folder}/feats", f"ark:{folder}/sup", f"ark:{folder}/raw")
    assert run("nnet3-chain-get-egs", *CONTEXT, "--num-frames=12,6", *words) == 0
    flag = f"--normalization-fst-scale={scale}"
    words = (f"{folder}/normalization.fst", f"ark:{folder}/raw", f"ark:{folder}/later")
    both_ways(folder / "later", "nnet3-chain-normalize-egs", flag, *words)


@pytest.mark.parametrize(
    "flags",
    [(), ("--compress=false", "--online-ivectors=ark:{}/ivectors", "--online-ivector-period=20")],
)
@pytest.mark.parametrize("is_normalized", [False, True])
def test_end_to_end_examples_are_those_made_one_by_one(folder, both_ways, flags, is_normalized):
    features, model = read_table(f"ark:{folder}/feats"), model_of(BIPHONE_TREE, CHAIN_TOPOLOGY)[1]
    ids = model.transitions()
    entering = np.flatnonzero((ids.phones == 1) & ~ids.is_self_loop).tolist()
    graphs = {}
    for i, (key, matrix) in enumerate(features.items()):
        first, other = entering[i % len(entering)], entering[0]
        arcs = [
            [(first, 3, 0.5, 1)],
            [(first + 1, 0, 0.0, 1), (0, 0, 0.1, 2)],
            [(other, 1, 0.0, 2)],
        ]
        graphs[key] = Fst.from_lists(0, [NOT_FINAL, NOT_FINAL, 1.0], arcs)
        if i == 5:  # too long
            graphs[key] = Fst.linear([other] * len(matrix))
        if i == 7:  # reads nothing, but writes
            graphs[key] = Fst.from_lists(0, [NOT_FINAL, 0.0], [[(0, 1, 0.0, 1)], []])
    write_table(f"ark:{folder}/graphs", graphs, FST)
    lengths = ",".join(str(len(matrix)) for matrix in features.values())
    normalization = [f"{folder}/normalization.fst"] * is_normalized
    words = (f"ark:{folder}/feats", f"ark:{folder}/graphs", f"{folder}/trans.mdl")
    options = [flag.format(folder) for flag in flags]
    command = ("nnet3-chain-e2e-get-egs", *CONTEXT, f"--num-frames={lengths}", *options)
    both_ways(folder / "e2e", *command, *normalization, *words, f"ark:{folder}/e2e")
    if is_normalized:
        return
    words = (f"{folder}/normalization.fst", f"ark:{folder}/e2e", f"ark:{folder}/e2e.later")
    both_ways(folder / "e2e.later", "nnet3-chain-normalize-egs", *words)


@pytest.mark.parametrize("kind", choice.CpuKernels)
def test_features_that_cannot_be_compressed_are_told_with_their_utterance(
    folder, kind, monkeypatch, capfd
):
    monkeypatch.setattr(choice, "_chosen", kind)
    ivectors = {key: value.copy() for key, value in read_table(f"ark:{folder}/ivectors").items()}
    ivectors["u0"][:] = np.nan
    write_table(f"ark:{folder}/not-finite", ivectors, MATRIX)
    flags = (f"--online-ivectors=ark:{folder}/not-finite", "--online-ivector-period=20")
    words = (f"ark:{folder}/feats", f"ark:{folder}/sup", f"ark:{folder}/egs.none")
    assert run("nnet3-chain-get-egs", *CONTEXT, "--num-frames=12,6", *flags, *words) == 255
    assert "utterance 'u0': cannot compress a matrix that has NaNs" in capfd.readouterr().err

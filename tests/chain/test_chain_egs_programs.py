"""The programs that make chain graphs and examples: through all of them, and what they refuse."""

from pathlib import Path

import numpy as np
import pytest

from nnet3tools import draws
from nnet3tools.chain.example import CHAIN_EXAMPLE
from nnet3tools.chain.supervision import SUPERVISION
from nnet3tools.fst.files import FST, load_fst, save_fst
from nnet3tools.fst.fst import NOT_FINAL, Fst
from nnet3tools.io.files import open_output
from nnet3tools.io.holders import INT32_PAIR_VECTOR, INT32_VECTOR, MATRIX
from nnet3tools.tensor.cpu import choice
from nnet3tools.training.splitting import ExampleGenerationOptions, UtteranceSplitter
from support.native_kernels import needs_compiler
from support.programs import read_table, run, write_table
from support.tiny_chain import BIPHONE_TREE, CHAIN_TOPOLOGY, MONO_TREE, model_of

FACTOR = "--frame-subsampling-factor=3"
CONTEXT = ("--left-context=2", "--right-context=1", "--num-frames=12", FACTOR)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Trees, a model, alignments, features, and all that the programs make of them."""
    path = tmp_path_factory.mktemp("chain")
    (path / "tree").write_text(BIPHONE_TREE)
    (path / "mono.tree").write_text(MONO_TREE)
    model = model_of(BIPHONE_TREE, CHAIN_TOPOLOGY)[1]
    with open_output(f"{path}/trans.mdl") as writer:
        model.write(writer)
    rng = np.random.default_rng(0)
    alignments = {
        f"u{i}": np.stack([rng.integers(1, 3, 6), rng.integers(2, 9, 6)], axis=1).astype(np.int32)
        for i in range(5)
    }
    phones = {key: pairs[:, 0].copy() for key, pairs in alignments.items()}
    features = {
        key: rng.standard_normal((int(pairs[:, 1].sum()), 4)).astype(np.float32)
        for key, pairs in alignments.items()
    }
    write_table(f"ark:{path}/ali", alignments, INT32_PAIR_VECTOR)
    write_table(f"ark:{path}/phones", phones, INT32_VECTOR)
    write_table(f"ark:{path}/feats", features, MATRIX)
    assert run("chain-est-phone-lm", "--ngram-order=3", f"ark:{path}/phones", f"{path}/lm") == 0
    lm, den, normalization = (f"{path}/{name}" for name in ("lm", "den.fst", "normalization.fst"))
    made = run("chain-make-den-fst", f"{path}/tree", f"{path}/trans.mdl", lm, den, normalization)
    assert made == 0
    words = (f"{path}/tree", f"{path}/trans.mdl", f"ark:{path}/ali", f"ark:{path}/sup")
    assert run("chain-get-supervision", FACTOR, *words) == 0
    words = (f"ark:{path}/feats", f"ark:{path}/sup")
    assert run("nnet3-chain-get-egs", *CONTEXT, normalization, *words, f"ark:{path}/egs") == 0
    assert run("nnet3-chain-get-egs", *CONTEXT, *words, f"ark:{path}/raw") == 0
    return path


def test_all_chunks_come_with_their_supervision(folder):
    examples = read_table(f"ark:{folder}/egs", CHAIN_EXAMPLE)
    assert len(examples) >= 5
    for example in examples.values():
        (output,) = example.outputs
        assert output.supervision.frames_per_sequence == 4
        assert example.inputs[0].features.shape == (15, 4)
        assert output.supervision.state_times()[-1] == 4


def test_normalizing_later_gives_the_same(folder):
    words = (f"{folder}/normalization.fst", f"ark:{folder}/raw", f"ark:{folder}/later")
    assert run("nnet3-chain-normalize-egs", *words) == 0
    assert (folder / "later").read_bytes() == (folder / "egs").read_bytes()


def test_long_keys_and_derivative_weights(folder):
    frames = {key: s.frames_per_sequence for key, s in read_sup(folder).items()}
    weights = {key: np.linspace(0, 1, count, dtype=np.float32) for key, count in frames.items()}
    from nnet3tools.io.holders import VECTOR

    write_table(f"ark:{folder}/dw", weights, VECTOR)
    words = (f"ark:{folder}/feats", f"ark:{folder}/sup", f"ark:{folder}/weighted")
    flags = ("--long-key=true", f"--deriv-weights-rspecifier=ark:{folder}/dw")
    assert run("nnet3-chain-get-egs", *CONTEXT, *flags, *words) == 0
    examples = read_table(f"ark:{folder}/weighted", CHAIN_EXAMPLE)
    plain = read_table(f"ark:{folder}/raw", CHAIN_EXAMPLE)
    for key, example in examples.items():
        utterance, first, left, size, right, version = key.split("-")
        assert (left, size, right, version) == ("2", "12", "1", "v1")
        begin = int(first) // 3
        whole = plain[f"{utterance}-{first}"].outputs[0].deriv_weights
        expected = weights[utterance][begin : begin + 4] * whole
        np.testing.assert_allclose(example.outputs[0].deriv_weights, expected)


def test_every_chunk_takes_a_draw_so_that_sizes_are_kaldis(folder):
    """NnetChainSupervision::Swap draws whether it checks itself, between utterances' sizes."""
    words = (f"ark:{folder}/feats", f"ark:{folder}/sup", f"ark:{folder}/sizes")
    flags = ("--num-frames=12,6,9", "--frame-subsampling-factor=3", "--srand=3", "--long-key=true")
    assert run("nnet3-chain-get-egs", *flags, *words) == 0
    found = [tuple(key.split("-")[::3]) for key in read_table(f"ark:{folder}/sizes", CHAIN_EXAMPLE)]
    options = ExampleGenerationOptions(num_frames="12,6,9", frame_subsampling_factor=3)
    splitter, expected = UtteranceSplitter(options), []
    features = read_table(f"ark:{folder}/feats")
    draws.seed(3)
    for key, supervision in read_sup(folder).items():
        num_frames = min(len(features[key]), 3 * supervision.frames_per_sequence)
        for chunk in splitter.split(num_frames):
            expected.append((key, str(chunk.num_frames)))
            draws.rand_int(0, 5)
    assert found == expected


def read_sup(folder: Path) -> dict:
    return read_table(f"ark:{folder}/sup", SUPERVISION)


def test_merged_minibatches_have_rows_frame_by_frame(folder):
    assert (
        run("nnet3-chain-merge-egs", "--minibatch-size=4", f"ark:{folder}/egs", f"ark:{folder}/mb")
        == 0
    )
    example = next(iter(read_table(f"ark:{folder}/mb", CHAIN_EXAMPLE).values()))
    (output,) = example.outputs
    assert output.indexes[:5].tolist() == [[0, 0, 0], [1, 0, 0], [2, 0, 0], [3, 0, 0], [0, 3, 0]]
    assert output.supervision.num_sequences == 4
    assert output.supervision.state_times()[-1] == 16
    inputs = example.inputs[0].indexes
    assert inputs[:15, 0].tolist() == [0] * 15


def test_copying_shifts_cuts_weights_and_renames(folder):
    keys = list(read_table(f"ark:{folder}/egs", CHAIN_EXAMPLE))
    (folder / "names").write_text("".join(f"{key} output-0\n" for key in keys))
    (folder / "weights").write_text("".join(f"{key} 0.25\n" for key in keys))
    flags = (f"--outputs=ark:{folder}/names", f"--weights=ark:{folder}/weights")
    words = ("--frame-shift=2", "--left-context=1", f"ark:{folder}/egs", f"ark:{folder}/changed")
    assert run("nnet3-chain-copy-egs", *flags, *words) == 0
    for example in read_table(f"ark:{folder}/changed", CHAIN_EXAMPLE).values():
        (output,) = example.outputs
        assert output.name == "output-0"
        assert output.supervision.weight == 0.25
        assert output.first_frame == 3  # 2 rounded to a multiple of 3
        assert example.inputs[0].indexes[0, 1] == 2


def test_languages_in_keys_name_the_outputs(folder):
    examples = read_table(f"ark:{folder}/egs", CHAIN_EXAMPLE)
    tagged = {f"{key}?lang={'ab'[i % 2]}": e for i, (key, e) in enumerate(examples.items())}
    write_table(f"ark:{folder}/tagged", tagged, CHAIN_EXAMPLE)
    words = ("--multilingual-eg=true", "--minibatch-size=1:2")
    assert run("nnet3-chain-merge-egs", *words, f"ark:{folder}/tagged", f"ark:{folder}/two") == 0
    for key, example in read_table(f"ark:{folder}/two", CHAIN_EXAMPLE).items():
        assert key.endswith(f"?lang={example.outputs[0].name.removeprefix('output-')}")


def test_end_to_end_examples(folder):
    model = model_of(BIPHONE_TREE, CHAIN_TOPOLOGY)[1]
    features = read_table(f"ark:{folder}/feats")
    ids = model.transitions()
    entering = int(np.flatnonzero((ids.phones == 1) & ~ids.is_self_loop)[0])
    graph = Fst.from_lists(
        0, [NOT_FINAL, 0.0], [[(entering, 3, 0.5, 1)], [(entering + 1, 0, 0.0, 1)]]
    )
    write_table(f"ark,t:{folder}/graphs", dict.fromkeys(features, graph), FST)
    lengths = ",".join(str(len(matrix)) for matrix in features.values())
    words = (f"ark:{folder}/feats", f"ark:{folder}/graphs", f"{folder}/trans.mdl")
    flags = (f"--num-frames={lengths}", FACTOR)
    assert run("nnet3-chain-e2e-get-egs", *flags, *words, f"ark:{folder}/e2e") == 0
    examples = read_table(f"ark:{folder}/e2e", CHAIN_EXAMPLE)
    assert examples.keys() == features.keys()
    for example in examples.values():
        assert example.outputs[0].supervision.e2e_fsts[0].num_states == 2


# -- what is refused: one line, no file


def refused(capfd, *words: object, status: int = 255) -> str:
    capfd.readouterr()
    assert run(*words) == status
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("ERROR")]
    assert len(lines) == 1
    return lines[0]


def test_a_tree_of_another_model(folder, capfd):
    words = (f"{folder}/mono.tree", f"{folder}/trans.mdl", f"{folder}/lm")
    outs = (f"{folder}/no.fst", f"{folder}/no2.fst")
    assert "do not belong together" in refused(capfd, "chain-make-den-fst", *words, *outs)
    assert not (folder / "no.fst").exists()


def test_phones_of_another_model(folder, capfd):
    write_table(f"ark:{folder}/bad.ali", {"u9": np.array([[5, 3]], np.int32)}, INT32_PAIR_VECTOR)
    words = (f"{folder}/tree", f"{folder}/trans.mdl", f"ark:{folder}/bad.ali", f"ark:{folder}/no")
    line = refused(capfd, "chain-get-supervision", *words)
    assert "u9" in line
    assert "phone 5" in line


@pytest.mark.parametrize(
    ("fst", "why"),
    [
        (Fst.linear([1, 0]), "epsilon"),
        (Fst.from_lists(0, [0.0], [[(1, 2, 0.0, 0)]]), "acceptor"),
        (Fst.empty(), "empty"),
    ],
)
def test_a_normalization_fst_that_is_none(folder, capfd, fst, why):
    save_fst(f"{folder}/bad.fst", fst)
    words = (f"{folder}/bad.fst", f"ark:{folder}/raw", f"ark:{folder}/no")
    line = refused(capfd, "nnet3-chain-normalize-egs", *words)
    assert "bad.fst" in line
    assert why in line


@pytest.mark.parametrize("kernels", ["numpy", pytest.param("native", marks=needs_compiler)])
def test_end_to_end_supervision_where_plain_is_needed(folder, capfd, monkeypatch, kernels):
    monkeypatch.setattr(choice, "_chosen", choice.CpuKernels(kernels))
    supervisions = {
        key: example.outputs[0].supervision
        for key, example in read_table(f"ark:{folder}/raw", CHAIN_EXAMPLE).items()
    }
    piece = next(iter(supervisions.values()))
    from dataclasses import replace

    e2e = replace(piece, fst=Fst.empty(), e2e_fsts=(Fst.linear([1] * 4),))
    write_table(f"ark:{folder}/bad.sup", {"u0": e2e}, SUPERVISION)
    write_table(f"ark:{folder}/short", {"u0": np.ones((12, 4), np.float32)})
    words = (f"ark:{folder}/short", f"ark:{folder}/bad.sup", f"ark:{folder}/no")
    assert "plain" in refused(capfd, "nnet3-chain-get-egs", *CONTEXT, *words)


def test_truncated_examples(folder, capfd):
    (folder / "cut").write_bytes((folder / "egs").read_bytes()[:-40])
    for program in ("nnet3-chain-copy-egs", "nnet3-chain-shuffle-egs", "nnet3-chain-merge-egs"):
        line = refused(capfd, program, f"ark:{folder}/cut", f"ark:{folder}/no")
        assert "cut" in line


def test_merging_what_is_merged(folder, capfd):
    words = ("--minibatch-size=2", f"ark:{folder}/mb2", f"ark:{folder}/no")
    assert (
        run("nnet3-chain-merge-egs", "--minibatch-size=2", f"ark:{folder}/egs", f"ark:{folder}/mb2")
        == 0
    )
    assert "merged already" in refused(capfd, "nnet3-chain-merge-egs", *words)


def test_fst_tables_in_text_and_back(folder):
    write_table(f"ark:{folder}/one", {"den": load_fst(f"{folder}/den.fst")}, FST)
    assert run("fstcopy", f"ark:{folder}/one", f"ark,t:{folder}/one.txt") == 0
    assert run("fstcopy", f"ark:{folder}/one.txt", f"ark:{folder}/two") == 0
    one, two = (read_table(f"ark:{folder}/{name}", FST)["den"] for name in ("one", "two"))
    assert one.start == two.start
    np.testing.assert_array_equal(one.nextstates, two.nextstates)
    np.testing.assert_allclose(one.weights, two.weights, rtol=1e-5)

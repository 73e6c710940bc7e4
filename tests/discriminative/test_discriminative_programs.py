"""The nnet3-discriminative programs: from lattices to a better network, and what they refuse."""

import numpy as np
import pytest

from nnet3tools.discriminative.example import DISCRIMINATIVE_EXAMPLE
from nnet3tools.fst.lattice_files import LATTICE
from nnet3tools.io.files import open_output
from nnet3tools.io.holders import INT32_VECTOR, MATRIX
from nnet3tools.nnet.am_nnet import AmNnet
from nnet3tools.nnet.model_file import read_nnet
from support.lattice_paths import MODEL, all_paths, random_lattice
from support.programs import read_table

FACTOR = 3
CONFIG = f"""input-node name=input dim=4
component name=a type=AffineComponent learning-rate=0.02 input-dim=12 output-dim={MODEL.num_pdfs}
component-node name=a component=a input=Append(Offset(input, -1), input, Offset(input, 1))
output-node name=output input=a
component name=x type=LogSoftmaxComponent dim={MODEL.num_pdfs}
component-node name=x component=x input=a
output-node name=output-xent input=x
"""
GET = ("--left-context=1", "--right-context=1", "--num-frames=12", "--acoustic-scale=0.5")
EGS = ("nnet3-discriminative-get-egs", *GET, f"--frame-subsampling-factor={FACTOR}")


@pytest.fixture
def data(shell):
    """a.mdl, features, lattices, alignments; examples, and minibatches of them."""
    rng = np.random.default_rng(0)
    (shell.folder / "config").write_text(CONFIG)
    shell("nnet3-init", "--srand=1", "config", "a.raw")
    with open_output("a.mdl") as writer:
        AmNnet(MODEL, read_nnet("a.raw")).write(writer)
    lattices = {f"u{i}": random_lattice(rng, 8 + i) for i in range(4)}
    alignments = {
        key: lattice.fst.ilabels[list(all_paths(lattice)[0][0])]
        for key, lattice in lattices.items()
    }
    features = {
        key: rng.standard_normal((len(ali) * FACTOR, 4)).astype(np.float32)
        for key, ali in alignments.items()
    }
    shell.write("lat", LATTICE, lattices)
    shell.write("ali", INT32_VECTOR, alignments)
    shell.write("feats", MATRIX, features)
    shell(*EGS, "a.mdl", "ark:feats", "ark:lat", "ark:ali", "ark:degs")
    shell("nnet3-discriminative-merge-egs", "--minibatch-size=3", "ark:degs", "ark:mb")
    return shell


def objective(shell, criterion, model):
    log = shell(
        "nnet3-discriminative-compute-objf",
        f"--criterion={criterion}",
        "--acoustic-scale=0.5",
        model,
        "ark:mb",
    )
    (line,) = [line for line in log.splitlines() if "Overall" in line]
    return float(line.split(" is ")[1].split()[0])


@pytest.mark.parametrize("criterion", ["mmi", "smbr", "mpfe"])
def test_training_raises_the_objective(data, criterion):
    options = (f"--criterion={criterion}", "--acoustic-scale=0.5", "--use-gpu=no")
    log = data("nnet3-discriminative-train", *options, "a.mdl", "ark:mb", "b.raw")
    assert f"{criterion}-per-frame=" in log
    data("nnet3-am-copy", "--set-raw-nnet=b.raw", "a.mdl", "b.mdl")
    assert objective(data, criterion, "b.mdl") > objective(data, criterion, "a.mdl") + 1e-3


def test_the_whole_change_is_limited_and_cross_entropy_trained_beside(data):
    options = ("--max-param-change=0.001", "--xent-regularize=0.1", "--use-gpu=no")
    log = data("nnet3-discriminative-train", *options, "a.mdl", "ark:mb", "b.raw")
    assert "> --max-param-change=0.001, scaling by" in log
    assert "Overall average objective function for 'output-xent' is -" in log
    change = 0.0
    for name, component in read_nnet("a.raw").updatable_components():
        trained = dict(read_nnet("b.raw").updatable_components())[name]
        for key, array in component.parameters().items():
            change += ((trained.parameters()[key] - array) ** 2).sum()
    num_minibatches = len(read_table("ark:mb", DISCRIMINATIVE_EXAMPLE))
    assert 0.0 < np.sqrt(change) <= 0.00101 * num_minibatches


def test_training_with_programs_compiled_ahead_compiles_nothing(data):
    data("nnet3-compile", "--egs=ark:mb", "a.raw", "cache")
    options = ("--use-gpu=no", "--read-cache=cache", "--verbose=2")
    log = data("nnet3-discriminative-train", *options, "a.mdl", "ark:mb", "b.raw")
    assert "Read computation cache from cache" in log
    assert "total for" not in log


def test_copies_are_the_same_in_text_and_binary_and_move_in_time(data):
    copy = "nnet3-discriminative-copy-egs"
    data(copy, "ark:degs", "ark,t:text")
    data(copy, "ark,t:text", "ark:again")
    before, after = (data.read(name, DISCRIMINATIVE_EXAMPLE) for name in ("degs", "again"))
    assert before.keys() == after.keys()
    for key, example in before.items():
        one, other = example.outputs[0].supervision, after[key].outputs[0].supervision
        assert one.num_ali.tolist() == other.num_ali.tolist()
        np.testing.assert_allclose(one.den_lat.fst.weights, other.den_lat.fst.weights, rtol=1e-5)
    data(copy, "--frame-shift=2", "ark:degs", "ark:moved")
    for key, example in data.read("moved", DISCRIMINATIVE_EXAMPLE).items():
        was = before[key]
        assert (example.inputs[0].indexes - was.inputs[0].indexes)[:, 1].tolist() == [2] * 14
        assert set((example.outputs[0].indexes - was.outputs[0].indexes)[:, 1]) == {3}


def test_shuffled_chosen_and_computed(data):
    data("nnet3-discriminative-shuffle-egs", "--srand=1", "ark:degs", "ark:shuffled")
    data("nnet3-discriminative-subset-egs", "--n=2", "ark:shuffled", "ark:few")
    keys = set(data.read("degs", DISCRIMINATIVE_EXAMPLE))
    assert set(data.read("shuffled", DISCRIMINATIVE_EXAMPLE)) == keys
    assert len(data.read("few", DISCRIMINATIVE_EXAMPLE)) == 2
    compute = ("nnet3-discriminative-compute-from-egs", "--use-gpu=no")
    data(*compute, "a.raw", "ark:mb", "ark:out")
    data(*compute, "--apply-exp=true", "a.raw", "ark:mb", "ark:exp")
    plain, exp = data.read("out"), data.read("exp")
    for key, example in data.read("mb", DISCRIMINATIVE_EXAMPLE).items():
        assert plain[key].shape == (len(example.outputs[0].indexes), MODEL.num_pdfs)
        np.testing.assert_allclose(exp[key], np.exp(plain[key]), rtol=1e-5)


def test_utterances_that_do_not_fit_are_left_out_with_a_warning(data):
    rng = np.random.default_rng(1)
    lattices = data.read("lat", LATTICE)
    lattices["u1"] = random_lattice(rng, 3)  # not as long as its alignment
    del lattices["u2"]
    alignments = data.read("ali", INT32_VECTOR)
    alignments["u3"] = alignments["u3"][:-2]
    data.write("lat", LATTICE, lattices)
    data.write("ali", INT32_VECTOR, alignments)
    log = data(*EGS, "a.mdl", "ark:feats", "ark:lat", "ark:ali", "ark:few")
    assert "No denominator lattice for key u2" in log
    assert "Not producing egs for utterance u1: the lattice has 3 frames, expected 9" in log
    assert "u3: the lattice has 11 frames, expected 9" in log
    assert "3 utterances had errors" in log
    assert {key.split("-")[0] for key in data.read("few", DISCRIMINATIVE_EXAMPLE)} == {"u0"}


def test_other_models_and_broken_files_have_one_line(data):
    (data.folder / "small").write_text(CONFIG.replace(f"={MODEL.num_pdfs}", "=3"))
    data("nnet3-init", "small", "small.raw")
    with open_output("small.mdl") as writer:
        AmNnet(MODEL, read_nnet("small.raw")).write(writer)
    train = ("nnet3-discriminative-train", "--use-gpu=no")
    assert "a column for each of 6 pdfs" in data.error(*train, "small.mdl", "ark:mb", "b.raw")
    assert not (data.folder / "b.raw").exists()
    whole = (data.folder / "degs").read_bytes()
    (data.folder / "cut").write_bytes(whole[: len(whole) // 2])
    data.error("nnet3-discriminative-merge-egs", "ark:cut", "ark:mb2")
    assert "expected one of" in data.error(*train, "--criterion=mce", "a.mdl", "ark:mb", "b.raw")
    data.error(*train, "a.mdl", "ark:feats", "b.raw")

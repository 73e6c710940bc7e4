"""A recipe from features to decisions, with a network of formulas and with a built-in one."""

import numpy as np
import pytest

from nnet3tools.io.holders import MATRIX, POSTERIOR
from nnet3tools.io.posterior import Posterior
from nnet3tools.io.table import SequentialTableReader, TableWriter
from support.programs import run

DIM, CLASSES, HIDDEN, FRAMES = 12, 9, 48, 15

LAYERS = """
input-node name=input dim={dim}
component name=a1 {affine} input-dim={spliced} output-dim={hidden} max-change=0.75
component name=f1 {activation}
component name=n1 {norm}
component name=a2 {affine} input-dim={spliced2} output-dim={hidden} max-change=0.75
component name=f2 {activation}
component name=n2 {norm}
component name=a3 {affine} input-dim={hidden} output-dim={classes} max-change=1.5
component name=s {softmax}
component-node name=a1 component=a1 input=Append(Offset(input, -1), input, Offset(input, 1))
component-node name=f1 component=f1 input=a1
component-node name=n1 component=n1 input=f1
component-node name=a2 component=a2 input=Append(Offset(n1, -2), n1, Offset(n1, 2))
component-node name=f2 component=f2 input=a2
component-node name=n2 component=n2 input=f2
component-node name=a3 component=a3 input=n2
component-node name=s component=s input=a3
output-node name=output input=s {objective}
"""
KINDS = {
    "built-in": {
        "activation": f"type=RectifiedLinearComponent dim={HIDDEN}",
        "norm": f"type=NormalizeComponent dim={HIDDEN}",
        "softmax": f"type=LogSoftmaxComponent dim={CLASSES}",
        "objective": "objective=linear",
    },
    "formulas": {
        "activation": f"type=ExpressionComponent dim={HIDDEN} params=alpha:{HIDDEN}:init=0.25 "
        'learning-rate-factor=0.5 max-change=0.1 expression="max(x, 0) + alpha * min(x, 0)"',
        "norm": f"type=ExpressionComponent dim={HIDDEN} params=g:{HIDDEN}:init=1,b:{HIDDEN} "
        'l2-regularize=0.001 expression="layer_norm(x, g, b, 1e-5)"',
        "softmax": f'type=ExpressionComponent dim={CLASSES} expression="x - logsumexp(x, axis=1)"',
        "objective": 'objective=expression expression="target * output"',
    },
}


def write_data(name: str, count: int, seed: int) -> list[int]:
    """Utterances whose class shows in how their frames move, under much noise; their classes."""
    rng, movements = np.random.default_rng(seed), np.random.default_rng(0)
    starts, slopes = movements.normal(size=(2, CLASSES, DIM))
    classes = rng.integers(0, CLASSES, count).tolist()
    ones = np.ones(FRAMES, np.float32)
    with TableWriter(f"ark:{name}.feats", MATRIX) as feats:
        with TableWriter(f"ark:{name}.post", POSTERIOR) as posts:
            for i, label in enumerate(classes):
                times = np.linspace(-1, 1, FRAMES)[:, None]
                clean = 0.5 * starts[label] + times * slopes[label]
                noisy = clean + 2.2 * rng.normal(size=(FRAMES, DIM))
                feats.write(f"utt{i:03d}", noisy.astype(np.float32))
                labels = np.full(FRAMES, label, np.int32)
                offsets = np.arange(FRAMES + 1, dtype=np.int32)
                posts.write(f"utt{i:03d}", Posterior(offsets, labels, ones))
    return classes


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with training and test data."""
    folder = tmp_path_factory.mktemp("recipe")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_data("train", 200, 1)
        classes = write_data("test", 120, 2)
    return folder, classes


def accuracy(kind: str, classes: list[int]) -> float:
    """Train for some passes; how many of the test utterances are classified right."""
    sizes = {"dim": DIM, "spliced": 3 * DIM, "hidden": HIDDEN, "spliced2": 3 * HIDDEN}
    affine = "type=NaturalGradientAffineComponent"
    with open(f"{kind}.config", "w") as file:
        file.write(LAYERS.format(**KINDS[kind], **sizes, affine=affine, classes=CLASSES))
    assert run("nnet3-init", "--srand=3", f"{kind}.config", f"{kind}.0") == 0
    context = ("--left-context=3", "--right-context=3", "--num-frames=5")
    tables = ("ark:train.feats", "ark:train.post", "ark:egs")
    assert run("nnet3-get-egs", f"--num-pdfs={CLASSES}", *context, *tables) == 0
    for step in range(4):
        rate = 0.005 * 0.6**step
        assert run("nnet3-copy", f"--learning-rate={rate}", f"{kind}.{step}", f"{kind}.now") == 0
        assert run("nnet3-shuffle-egs", f"--srand={step}", "ark:egs", "ark:shuffled") == 0
        assert run("nnet3-merge-egs", "--minibatch-size=32", "ark:shuffled", "ark:merged") == 0
        options = ("--use-gpu=no", f"--srand={step}")
        assert run("nnet3-train", *options, f"{kind}.now", "ark:merged", f"{kind}.{step + 1}") == 0
    assert run("nnet3-compute", "--use-gpu=no", f"{kind}.4", "ark:test.feats", "ark:out") == 0
    with SequentialTableReader("ark:out", MATRIX) as reader:
        found = [int(np.argmax(matrix.sum(axis=0))) for _, matrix in reader]
    return float(np.mean(np.array(found) == np.array(classes)))


def test_formulas_do_as_well_as_built_in_components(data, monkeypatch):
    folder, classes = data
    monkeypatch.chdir(folder)
    reached = {kind: accuracy(kind, classes) for kind in KINDS}
    assert reached["built-in"] > 0.75
    assert reached["formulas"] > reached["built-in"] - 0.07

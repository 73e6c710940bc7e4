"""Examples, minibatches and training from Python against the programs."""

from pathlib import Path

import numpy as np
import pytest

import nnet3tools
from nnet3tools.tensor.cpu import choice
from nnet3tools.training.example import EXAMPLE
from support.api_networks import frames, network
from support.native_kernels import needs_compiler
from support.programs import run, write_table


def utterance(number: int, num_frames: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Features, and the classes that can be told from them."""
    rng = np.random.default_rng(number)
    classes = rng.integers(0, 4, num_frames)
    centres = np.array([[2, 0, 0], [0, 2, 0], [0, 0, 2], [-2, -2, -2]])
    return rng.normal(size=(num_frames, 3)) + centres[classes], classes


def examples() -> list[nnet3tools.NnetExample]:
    """The examples of ten utterances."""
    return [
        example
        for number in range(10)
        for example in nnet3tools.make_examples(
            *utterance(number), 4, num_frames=8, left_context=1, right_context=1
        )
    ]


def test_examples_are_those_of_nnet3_get_egs() -> None:
    features, classes = utterance(1)
    posterior = nnet3tools.Posterior.from_frames([[(int(c), 1.0)] for c in classes])
    write_table("ark:feats.ark", {"u": features.astype(np.float32)})
    with nnet3tools.TableWriter("ark:post.ark", "posterior") as table:
        table.write("u", posterior)
    options = "--num-pdfs=4", "--left-context=1", "--right-context=2", "--num-frames=8"
    assert run("nnet3-get-egs", *options, "ark:feats.ark", "ark:post.ark", "ark:egs") == 0
    with nnet3tools.TableReader("ark:egs", "egs") as egs:
        want = [example for _, example in egs]
    for targets in (classes, posterior):
        found = nnet3tools.make_examples(
            features, targets, 4, left_context=1, right_context=2, num_frames=8
        )
        write_table("ark:a", dict(zip("abcde", found, strict=True)), EXAMPLE)
        write_table("ark:b", dict(zip("abcde", want, strict=True)), EXAMPLE)
        assert Path("a").read_bytes() == Path("b").read_bytes()


def test_the_trained_model_is_that_of_nnet3_train() -> None:
    network().write("0.raw")
    write_table("ark:egs", {str(i): e for i, e in enumerate(examples())}, EXAMPLE)
    assert run("nnet3-merge-egs", "--minibatch-size=16", "ark:egs", "ark:merged") == 0
    assert run("nnet3-train", "--use-gpu=no", "--srand=3", "0.raw", "ark:merged", "1.raw") == 0
    from_table, from_list = (nnet3tools.Nnet.read("0.raw") for _ in range(2))
    first = nnet3tools.Trainer(from_table, seed=3).train("ark:merged")
    minibatches = nnet3tools.merge_examples(examples(), 16)
    assert nnet3tools.Trainer(from_list, seed=3).train(minibatches) == first
    for trained in (from_table, from_list):
        trained.write("2.raw")
        assert Path("2.raw").read_bytes() == Path("1.raw").read_bytes()


def test_the_objective_is_of_the_call_and_grows() -> None:
    nnet, minibatches = network(), nnet3tools.merge_examples(examples(), 16)
    nnet.edit("set-learning-rate learning-rate=0.05")
    trainer = nnet3tools.Trainer(nnet, nnet3tools.TrainerOptions(momentum=0.5))
    values = [trainer.train(minibatches)["output"] for _ in range(10)]
    assert values[-1] > values[0] + 0.5
    features, classes = utterance(99, 200)
    assert (nnet.compute(features).argmax(axis=1) == classes).mean() > 0.6


@pytest.mark.parametrize("kernels", ["numpy", pytest.param("native", marks=needs_compiler)])
def test_trainers_do_not_influence_each_other(
    kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "_chosen", choice.CpuKernels(kernels))
    minibatches = nnet3tools.merge_examples(examples(), 16)
    alone = network()
    trainer = nnet3tools.Trainer(alone)
    for _ in range(3):
        trainer.train(minibatches)
    nets = [network(), network()]
    trainers = [nnet3tools.Trainer(nnet) for nnet in nets]
    for _ in range(3):
        for trainer in trainers:
            trainer.train(minibatches)
            nets[0].compute(frames(9))
    for nnet in nets:
        for name, values in alone.parameters().items():
            np.testing.assert_array_equal(nnet.parameters()[name], values)


def test_mistakes_are_user_errors() -> None:
    features, classes = utterance(1)
    with pytest.raises(nnet3tools.DataError, match="40 frames of features have 39 targets"):
        nnet3tools.make_examples(features, classes[1:], 4)
    with pytest.raises(nnet3tools.DataError, match="expected integers"):
        nnet3tools.make_examples(features, classes / 2, 4)
    with pytest.raises(nnet3tools.DataError, match="0 to 1"):
        nnet3tools.make_examples(features, classes, 2)
    trainer = nnet3tools.Trainer(network())
    with pytest.raises(nnet3tools.EmptyError, match="no examples"):
        trainer.train([])
    wrong = nnet3tools.make_examples(features[:, :2], classes, 4)
    with pytest.raises(nnet3tools.UserError, match="example '0'"):
        trainer.train(wrong)
    with pytest.raises(nnet3tools.OptionError, match="momentum"):
        nnet3tools.Trainer(network(), nnet3tools.TrainerOptions(momentum=2.0))

"""What goes between host and device in training: the examples, once each, and nothing else."""

import itertools

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.io.table import TableWriter
from nnet3tools.nnet.arithmetic import vectorize
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.device import move_nnet
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.tensor.cuda.launches import zero_tickets
from nnet3tools.training.example import EXAMPLE, NnetExample, for_each_example, frames_io
from nnet3tools.training.merging import merge_examples
from nnet3tools.training.trainer import NnetTrainer, NnetTrainerOptions
from support.component_zoo import ZOO
from support.emulated_cuda import counts_transfers, needs_compiler, to_device
from support.training_helpers import minibatch, network, one_hot

pytestmark = needs_compiler

PERIODS = {"StatisticsExtractionComponent": "input-dim=4 input-period=1 output-period=1"}


def like():
    return to_device(np.zeros(0, np.float32))


def network_with(kind: str) -> tuple[Nnet, int]:
    """A component between affine ones, as far as it can be; and the input's dimension."""
    config, dim = ZOO[kind]
    config = PERIODS.get(kind, config)
    lines, source, input_dim = [], "a", 3
    if kind == "StatisticsPoolingComponent":
        lines.append(
            "component name=e type=StatisticsExtractionComponent input-dim=3 input-period=1 "
            "output-period=1\ncomponent-node name=e component=e input=input"
        )
        source = "e"
    elif kind == "StatisticsExtractionComponent":  # nothing but the input may come before it
        source, input_dim = "input", dim
    if source == "a":
        lines.append(f"component name=a type=AffineComponent input-dim=3 output-dim={dim}")
        lines.append("component-node name=a component=a input=input")
    lines.insert(0, f"input-node name=input dim={input_dim}")
    lines.append(f"component name=c type={kind} {config}")
    lines.append(f"component-node name=c component=c input={source}")
    whole = parse_config_lines("\n".join([*lines, "output-node name=output input=c"]))
    dim = (found := Nnet.from_config(whole)).dim(found.node_index("output"))
    lines.append(f"component name=o type=AffineComponent input-dim={dim} output-dim=5")
    lines.append("component-node name=o component=o input=c")
    lines.append("component name=ls type=LogSoftmaxComponent dim=5")
    lines.append("component-node name=ls component=ls input=o\noutput-node name=output input=ls")
    return Nnet.from_config(parse_config_lines("\n".join(lines))), input_dim


def chunks(dim: int, seed: int) -> NnetExample:
    rng, parts = np.random.default_rng(seed), []
    for _ in range(2):
        features = rng.normal(size=(10, dim)).astype(np.float32)
        targets = one_hot(rng.integers(0, 5, 2).tolist(), 5)
        parts.append(
            NnetExample([frames_io("input", -4, features), frames_io("output", 0, targets)])
        )
    return merge_examples(parts, False)


def transfers(device, nnet: Nnet, examples: list[NnetExample], **options) -> list[tuple[int, int]]:
    """(uploads, downloads) of each minibatch but for the store of counters of graphs' kernels."""
    tensor.random.seed(0)
    zero_tickets(1)
    trainer = NnetTrainer(NnetTrainerOptions(print_interval=1000, **options), nnet, like())
    counts = [(device.uploads, device.downloads)]
    for example in examples:
        trainer.train(example)
        counts.append((device.uploads, device.downloads))
    return [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(counts)]


@counts_transfers
@pytest.mark.parametrize("kind", sorted(ZOO))
def test_after_the_first_minibatches_only_examples_are_sent(device, kind):
    """Flags may be sent in the third minibatch; natural gradient's graphs are captured later."""
    nnet, dim = network_with(kind)
    found = transfers(device, nnet, [chunks(dim, i) for i in range(7)])
    if any(component.preconditioners() for component in nnet.components):
        assert [downloads for _, downloads in found[2:]] == [0] * 5
        assert found[-1] == (1, 0)
    else:
        assert found[2][1] == 0
        assert found[3:] == [(1, 0)] * 4


@counts_transfers
def test_objectives_of_every_kind_stay_on_the_device(device):
    for objective in ("linear", "quadratic", 'expression expression="-0.5 * sqr(target - output)"'):
        for sparse in (True, False):
            examples = [minibatch(seed=i % 2) for i in range(5)]
            if not sparse:
                examples = [dense(example) for example in examples]
            found = transfers(device, network(objective=objective), examples)
            assert found[2][1] == 0
            assert found[3:] == [(1, 0)] * 2, (objective, sparse)


def dense(example: NnetExample) -> NnetExample:
    """The same with dense targets."""
    features, targets = example.io
    return NnetExample(
        [features, type(targets)(targets.name, targets.indexes, targets.features.to_dense())]
    )


@counts_transfers
def test_objectives_are_fetched_when_they_are_logged(device, capsys):
    trainer = NnetTrainer(NnetTrainerOptions(print_interval=2), network(), like())
    for i in range(4):
        before = device.downloads
        trainer.train(minibatch(seed=i))
        if i == 2:  # the first of a phase logs the one before
            assert device.downloads > before
        elif i:
            assert device.downloads == before
    assert capsys.readouterr().err.count("Average objective function") == 1


@pytest.mark.parametrize("backstitch", [0.0, 0.3])
def test_reading_ahead_trains_the_same_model(device, tmp_path, backstitch):
    path = f"ark:{tmp_path}/egs"
    with TableWriter(path, EXAMPLE) as writer:
        for i in range(7):
            example = minibatch(size=2 + i % 3, seed=i)
            writer.write(f"key-{i}", example.compressed() if i % 2 else example)
    models = []
    for ahead in (False, True):
        nnet = network()
        tensor.random.seed(3)
        options = NnetTrainerOptions(backstitch_training_scale=backstitch)
        trainer = NnetTrainer(options, nnet, like())
        seen: list[str] = []

        def train(key: str, example: NnetExample, trainer=trainer, seen=seen) -> None:
            trainer.train(example)
            seen.append(key)

        assert trainer.ahead is not None
        count = for_each_example(path, train, trainer.ahead if ahead else None)
        assert seen == [f"key-{i}" for i in range(count)]
        move_nnet(nnet)
        models.append(vectorize(nnet))
    np.testing.assert_array_equal(models[0], models[1])

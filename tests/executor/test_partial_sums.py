"""Sums over rows that an LSTM makes in the steps of a recurrence: as by one pass at the end."""

from dataclasses import replace

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.executor import binding
from nnet3tools.executor.binding import bind_program
from nnet3tools.executor.partial_sums import find_parts
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.program.analysis import Analysis
from nnet3tools.program.commands import MatrixAdd
from nnet3tools.program.computation import Computation
from nnet3tools.training.example import NnetExample
from nnet3tools.training.merging import merge_examples
from nnet3tools.training.running import computation_request
from nnet3tools.training.trainer import NnetTrainer, NnetTrainerOptions
from support.training_helpers import example

CONFIG = """
input-node name=input dim=3
component name=w type=NaturalGradientAffineComponent input-dim=7 output-dim=16 learning-rate=0.1
component name=lstm type=LstmNonlinearityComponent cell-dim=4 {options} learning-rate=0.2
component name=a type=AffineComponent input-dim=4 output-dim=5 learning-rate=0.05
component name=g type=LogSoftmaxComponent dim=5
component-node name=w component=w input=Append(input, IfDefined(Offset(m, -{delay})))
component-node name=lstm component=lstm input=Append(w, IfDefined(Offset(c, -{delay})))
dim-range-node name=c input-node=lstm dim-offset=0 dim=4
dim-range-node name=m input-node=lstm dim-offset=4 dim=4
component-node name=a component=a input=m
component-node name=g component=g input=a
output-node name=output input=g objective=linear
"""
REPAIRED = "self-repair-scale=0.01 sigmoid-self-repair-threshold=0.24"


def network(delay: int = 1, options: str = REPAIRED) -> Nnet:
    tensor.random.seed(1)
    return Nnet.from_config(parse_config_lines(CONFIG.format(delay=delay, options=options)))


def minibatch(seed: int) -> NnetExample:
    parts = [example(7, context=2, seed=10 * seed + i) for i in range(3)]
    return merge_examples(parts, False)


def request(nnet: Nnet) -> ComputationRequest:
    return computation_request(nnet, minibatch(0), True, True)


def parts(computation: Computation, nnet: Nnet) -> dict[int, int]:
    """The parts found in a program whose matrices have memory."""
    program = bind_program(computation, nnet, nnet)
    return find_parts(program, Analysis(computation, nnet))


def trained(delay: int) -> Nnet:
    nnet = network(delay)
    tensor.random.seed(5)
    trainer = NnetTrainer(NnetTrainerOptions(momentum=0.3), nnet)
    for seed in range(6):
        trainer.train(minibatch(seed))
    return nnet


@pytest.mark.parametrize("delay", [1, 2])
def test_training_gives_the_same_as_without_sums_in_parts(delay, monkeypatch):
    with_parts = trained(delay)
    monkeypatch.setattr(binding, "find_parts", lambda *_: {})
    without = trained(delay)
    names = dict(with_parts.updatable_components())
    for name, component in without.updatable_components():
        np.testing.assert_allclose(names[name].vectorize(), component.vectorize(), 1e-3, 1e-5)
    ours, theirs = names["lstm"], dict(without.updatable_components())["lstm"]
    assert ours.count == theirs.count > 0
    assert theirs.self_repair_total.any()
    np.testing.assert_array_equal(ours.self_repair_total, theirs.self_repair_total)
    np.testing.assert_allclose(ours.value_sum, theirs.value_sum, 1e-4, 1e-3)
    np.testing.assert_allclose(ours.deriv_sum, theirs.deriv_sum, 1e-4, 1e-3)


def test_the_parts_are_the_steps_of_the_recurrence():
    nnet = network()
    found = parts(CachingOptimizingCompiler(nnet).compile(request(nnet)), nnet)
    assert len(found) > 5
    assert len({*found.values()}) == 1


def test_a_program_that_updates_at_each_step_has_no_parts():
    nnet = network()
    options = OptimizeOptions(optimize=False)
    assert not parts(CachingOptimizingCompiler(nnet, options).compile(request(nnet)), nnet)


def test_a_program_without_model_derivative_has_no_parts():
    nnet = network()
    plain = computation_request(nnet, minibatch(0), False, False)
    assert not parts(CachingOptimizingCompiler(nnet).compile(plain), nnet)


def test_rows_that_no_step_reads_are_not_left_out_of_the_sums():
    nnet = network()
    computation = CachingOptimizingCompiler(nnet).compile(request(nnet))
    first = min(parts(computation, nnet))
    left = [c for i, c in enumerate(computation.commands) if i != first]
    assert not parts(replace(computation, commands=left), nnet)


def test_rows_that_change_after_their_step_are_not_summed_before():
    nnet = network()
    computation = CachingOptimizingCompiler(nnet).compile(request(nnet))
    first, update = min(parts(computation, nnet).items())
    commands = list(computation.commands)
    read = getattr(commands[first], "out_deriv")  # noqa: B009 (commands have different operands)
    commands.insert(update, MatrixAdd(dest=read, src=read, alpha=1.0))
    assert not parts(replace(computation, commands=commands), nnet)

"""The LF-MMI objective and its use: slopes, what fails, training, diagnostics and combination."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.chain.den_graph import DenominatorGraph
from nnet3tools.chain.diagnostics import ChainComputeProb
from nnet3tools.chain.objective import compute_chain_objective
from nnet3tools.chain.options import ChainTrainingOptions
from nnet3tools.chain.output_objective import ChainOutputObjective
from nnet3tools.errors import DataError, OptionError
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.training.diagnostics_options import ComputeProbOptions
from nnet3tools.training.trainer import NnetTrainer, NnetTrainerOptions
from support.chain_helpers import (
    FRAMES,
    GRAPH,
    NETWORK,
    PDFS,
    SEQUENCES,
    example,
    network,
    supervision,
)

OPTIONS = ChainTrainingOptions(leaky_hmm_coefficient=0.1, l2_regularize=0.01)


@pytest.mark.parametrize("kind", ["plain", "end-to-end"])
def test_derivative_is_the_slope_of_objective_and_l2_term(kind):
    rng = np.random.default_rng(2)
    output = rng.normal(size=(SEQUENCES * FRAMES, PDFS))
    given = supervision(kind, 1.0)
    deriv, posteriors = np.empty_like(output), np.empty_like(output)
    found = compute_chain_objective(OPTIONS, GRAPH, given, output, deriv, posteriors)
    assert found.weight == SEQUENCES * FRAMES
    np.testing.assert_allclose(posteriors.sum(axis=1), 1.0, 1e-9)
    direction, step, values = rng.normal(size=output.shape), 1e-5, []
    for sign in (1, -1):
        moved = compute_chain_objective(OPTIONS, GRAPH, given, output + sign * step * direction)
        values.append(moved.objective + moved.l2_term)
    np.testing.assert_allclose(
        (deriv * direction).sum(), (values[0] - values[1]) / (2 * step), 1e-6
    )
    alone = np.empty_like(output)
    tensor.random.seed(3)
    compute_chain_objective(OPTIONS, GRAPH, given, output, alone)
    np.testing.assert_allclose(alone, deriv, 1e-9, 1e-12)


def test_a_minibatch_that_overflows_costs_its_objective_only(capsys):
    output = np.full((SEQUENCES * FRAMES, PDFS), np.nan, np.float32)
    deriv, posteriors = np.empty_like(output), np.empty_like(output)
    found = compute_chain_objective(
        ChainTrainingOptions(leaky_hmm_coefficient=0.1),
        *(GRAPH, supervision("plain"), output, deriv, posteriors),
    )
    assert found.objective == -10.0 * 0.5 * SEQUENCES * FRAMES
    assert not deriv.any()
    assert not posteriors.any()
    assert "setting objective function to -10 per frame" in capsys.readouterr().err


def test_outputs_out_of_range_are_warned_of_in_one_of_a_hundred_minibatches(capsys):
    output = np.full((SEQUENCES * FRAMES, PDFS), 31.0)
    tensor.random.seed(0)
    for _ in range(300):
        compute_chain_objective(OPTIONS, GRAPH, supervision("plain"), output)
    assert 1 <= capsys.readouterr().err.count("31, 31 outside the range [-30,30]") <= 9


def test_a_supervision_of_other_length_is_refused():
    with pytest.raises(DataError, match="is for 15 rows, the output has 12"):
        compute_chain_objective(OPTIONS, GRAPH, supervision("plain"), np.zeros((12, PDFS)))


@pytest.mark.parametrize("leak", [0.0, 1.0])
def test_a_leak_that_makes_no_sense_is_refused(leak):
    with pytest.raises(OptionError, match="leaky-hmm-coefficient"):
        ChainTrainingOptions(leaky_hmm_coefficient=leak).check()


@pytest.mark.parametrize("kind", ["plain", "end-to-end"])
@pytest.mark.parametrize("xent", [0.0, 0.1])
def test_training_raises_the_objective(kind, xent, capsys):
    options = ChainTrainingOptions(leaky_hmm_coefficient=0.1, xent_regularize=xent)
    nnet = network()

    def value() -> float:
        prob = ChainComputeProb(ComputeProbOptions(), options, GRAPH, nnet)
        prob.compute(example(kind))
        assert prob.print_total_stats()
        assert set(prob.totals) == {"output", "output-xent"} if xent else {"output"}
        totals = prob.totals["output"]
        return totals.objective / totals.weight

    before = value()
    objective = ChainOutputObjective(options, GRAPH)
    trainer = NnetTrainer(NnetTrainerOptions(), nnet, objective=objective)
    for _ in range(20):
        trainer.train(example(kind))
    assert trainer.print_total_stats()
    assert value() > before + 0.01
    assert "Overall log-probability for 'output' is" in capsys.readouterr().err


def test_derivative_of_the_model_is_the_slope_of_the_objective():
    """That of combination: without weights of frames, and nothing from the cross-entropy."""
    options = ChainTrainingOptions(leaky_hmm_coefficient=0.1, xent_regularize=0.3)
    nnet = network()
    prob = ChainComputeProb(ComputeProbOptions(), options, GRAPH, nnet, compute_deriv=True)
    prob.compute(example("plain"))
    assert prob.deriv_nnet is not None
    component = nnet.component(nnet.component_index("b"))
    deriv = prob.deriv_nnet.component(prob.deriv_nnet.component_index("b")).linear_params
    xent = prob.deriv_nnet.component(prob.deriv_nnet.component_index("x")).linear_params
    assert not xent.any()
    direction = np.random.default_rng(6).normal(size=deriv.shape).astype(np.float32)
    kept, values = component.linear_params.copy(), []
    for step in (1e-2, -1e-2):
        component.linear_params[...] = kept + step * direction
        moved = ChainComputeProb(ComputeProbOptions(), options, GRAPH, nnet)
        moved.compute(example("plain"))
        values.append(moved.totals["output"].objective)
    slope = (values[0] - values[1]) / 2e-2
    np.testing.assert_allclose((deriv * direction).sum(), slope, 2e-2)


def test_an_output_that_the_network_lacks_is_named():
    trainer = NnetTrainer(
        NnetTrainerOptions(), network(), objective=ChainOutputObjective(OPTIONS, GRAPH)
    )
    with pytest.raises(DataError, match="output named 'output-2', but no such output node"):
        trainer.train(example("plain", "output-2"))


OTHER_GRAPH = DenominatorGraph(PDFS + 1, GRAPH.hmm)
"""As of another model."""


def test_a_graph_of_another_model_never_gets_to_c():
    output = np.zeros((SEQUENCES * FRAMES, PDFS), np.float32)
    with pytest.raises(DataError, match="denominator graph is for 5 pdfs, the output has 4"):
        compute_chain_objective(OPTIONS, OTHER_GRAPH, supervision("plain"), output)
    trainer = NnetTrainer(
        NnetTrainerOptions(), network(), objective=ChainOutputObjective(OPTIONS, OTHER_GRAPH)
    )
    with pytest.raises(DataError, match="is for 5 pdfs, output 'output' has 4"):
        trainer.train(example("plain"))


def test_an_xent_output_of_other_dimension_never_gets_to_c():
    options = ChainTrainingOptions(leaky_hmm_coefficient=0.1, xent_regularize=0.1)
    text = NETWORK.replace("name=output-xent input=s", "name=output-xent input=r")
    nnet = Nnet.from_config(parse_config_lines(text))
    trainer = NnetTrainer(
        NnetTrainerOptions(), nnet, objective=ChainOutputObjective(options, GRAPH)
    )
    with pytest.raises(DataError, match="'output' has 4 columns, 'output-xent' 6"):
        trainer.train(example("plain"))

"""Training steps against formulas written out with plain arrays."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.errors import DataError, OptionError
from nnet3tools.io.general_matrix import to_dense
from nnet3tools.nnet.arithmetic import vectorize
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.training.diagnostics import NnetComputeProb
from nnet3tools.training.diagnostics_options import ComputeProbOptions
from nnet3tools.training.example import NnetExample, NnetIo, frames_io
from nnet3tools.training.objective import Measured
from nnet3tools.training.reporting import Sums
from nnet3tools.training.trainer import NnetTrainer, NnetTrainerOptions
from support.training_helpers import minibatch, network

FREE = {"max_param_change": 0.0, "batchnorm_stats_scale": 1.0}
"""Options without limits, so that steps are plain gradient steps."""


def gradient(nnet, example) -> np.ndarray:
    """The objective's derivative, unscaled."""
    prob = NnetComputeProb(ComputeProbOptions(), nnet, compute_deriv=True)
    prob.compute(example)
    return vectorize(prob.deriv_nnet).astype(np.float64)


def objective(nnet, example) -> float:
    prob = NnetComputeProb(ComputeProbOptions(), nnet)
    prob.compute(example)
    return prob.totals["output"].objective


def rates(nnet) -> np.ndarray:
    return np.concatenate(
        [np.full(c.num_parameters, c.learning_rate) for _, c in nnet.updatable_components()]
    )


def component_slices(nnet) -> list[slice]:
    ends = np.cumsum([c.num_parameters for _, c in nnet.updatable_components()])
    return [slice(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True)]


@pytest.mark.parametrize("kind", ["linear", "quadratic"])
def test_derivative_of_the_model_is_the_slope(kind):
    nnet, eg = network(objective=kind), minibatch()
    direction = np.random.default_rng(0).normal(size=len(vectorize(nnet)))
    analytic = gradient(nnet, eg) @ direction
    from nnet3tools.nnet.arithmetic import unvectorize

    # small enough that no ReLU of these networks turns on or off
    start, step, values = vectorize(nnet), 2e-4, []
    for sign in (1, -1):
        moved = nnet.copy()
        unvectorize(moved, (start + sign * step * direction).astype(np.float32))
        values.append(objective(moved, eg))
    assert analytic == pytest.approx((values[0] - values[1]) / (2 * step), rel=2e-2, abs=2e-2)


def test_plain_step():
    nnet, eg = network(), minibatch()
    expected = vectorize(nnet) + rates(nnet) * gradient(nnet, eg)
    NnetTrainer(NnetTrainerOptions(**FREE), nnet).train(eg)
    np.testing.assert_allclose(vectorize(nnet), expected, rtol=1e-4, atol=1e-5)


def test_momentum():
    nnet = network()
    trainer = NnetTrainer(NnetTrainerOptions(momentum=0.7, **FREE), nnet)
    velocity = 0.0
    for i in range(3):
        eg = minibatch(seed=i)
        velocity = 0.7 * velocity + rates(nnet) * gradient(nnet, eg)
        expected = vectorize(nnet) + (1 - 0.7) * velocity
        trainer.train(eg)
        np.testing.assert_allclose(vectorize(nnet), expected, rtol=1e-4, atol=1e-5)


def test_l2_pulls_parameters_to_zero_per_sequence():
    nnet = network(affine="l2-regularize=0.5")
    first = component_slices(nnet)[0]
    trainer = NnetTrainer(NnetTrainerOptions(l2_regularize_factor=0.5, **FREE), nnet)
    # one recording of the update is for all numbers of sequences
    for seed, size in enumerate([4, 6, 4, 6, 2, 6]):
        eg = minibatch(size, seed)
        change = rates(nnet) * gradient(nnet, eg)
        change[first] -= 2.0 * 0.5 * 0.5 * size * 0.02 * vectorize(nnet)[first]
        expected = vectorize(nnet) + change
        trainer.train(eg)
        np.testing.assert_allclose(vectorize(nnet), expected, rtol=1e-4, atol=1e-5)


def test_component_and_global_max_change(capsys):
    nnet, eg = network(affine="max-change=0.01"), minibatch()
    change = rates(nnet) * gradient(nnet, eg)
    first = component_slices(nnet)[0]
    change[first] *= 0.01 / np.linalg.norm(change[first])
    change *= 0.05 / np.linalg.norm(change)
    expected = vectorize(nnet) + change
    options = NnetTrainerOptions(max_param_change=0.05, batchnorm_stats_scale=1.0)
    trainer = NnetTrainer(options, nnet)
    trainer.train(eg)
    trainer.print_total_stats()
    np.testing.assert_allclose(vectorize(nnet), expected, rtol=1e-4, atol=1e-6)
    log = capsys.readouterr().err
    assert "Per-component max-change active on 1 / 2 Updatable Components." in log
    assert "on a1 with max-change=0.01). Global max-change factor was" in log
    assert "For a1, per-component max-change was enforced 100 % of the time." in log
    assert "The global max-change was enforced 100 % of the time." in log


def test_backstitch_is_a_step_back_and_a_larger_one_forward():
    nnet, eg = network(), minibatch()
    middle = nnet.copy()
    from nnet3tools.nnet.arithmetic import unvectorize

    back = vectorize(nnet) - 0.3 * rates(nnet) * gradient(nnet, eg)
    unvectorize(middle, back.astype(np.float32))
    expected = back + 1.3 * rates(nnet) * gradient(middle, eg)
    NnetTrainer(NnetTrainerOptions(backstitch_training_scale=0.3, **FREE), nnet).train(eg)
    np.testing.assert_allclose(vectorize(nnet), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("stitched", [0.0, 0.3])
def test_steps_see_the_same_random_numbers_whether_or_not_they_compile(stitched):
    """Compiling draws random numbers; with backstitch they are not those of the first step."""
    config = """
        input-node name=input dim=3
        component name=d type=DropoutComponent dim=3 dropout-proportion=0.5
        component name=a type=AffineComponent input-dim=3 output-dim=5 learning-rate=0.1
        component-node name=d component=d input=input
        component-node name=a component=a input=d
        output-node name=output input=a
    """
    trained = []
    for compiled in (False, True):
        tensor.random.seed(0)
        nnet = Nnet.from_config(parse_config_lines(config, "config"))
        options = NnetTrainerOptions(backstitch_training_scale=stitched)
        trainer, eg = NnetTrainer(options, nnet), minibatch()
        if compiled:
            trainer._runner.compile(eg)
        if stitched == 0.0:
            tensor.random.seed(5)  # nothing is restarted: the draws of compiling count
        trainer.train(eg)
        trained.append(vectorize(nnet))
    assert np.array_equal(*trained) == (stitched > 0.0)


def test_backstitch_interval():
    """Every third minibatch, starting where the seed says, both objectives are reported."""
    options = NnetTrainerOptions(
        backstitch_training_scale=0.3, backstitch_training_interval=3, **FREE
    )
    trainer = NnetTrainer(options, network())
    for i in range(6):
        trainer.train(minibatch(seed=i))
    totals = trainer.totals
    assert totals["output_backstitch"].all.weight * 3 == totals["output"].all.weight


def test_statistics_go_to_the_model_and_fade():
    nnet, eg = network(), minibatch()
    NnetTrainer(NnetTrainerOptions(batchnorm_stats_scale=0.25), nnet).train(eg)
    batchnorm = nnet.component(nnet.component_index("b1"))
    relu = nnet.component(nnet.component_index("r1"))
    assert batchnorm.count == pytest.approx(0.25 * 16)
    assert relu.count == 16


def test_statistics_can_be_left_out_or_kept():
    nnet, eg = network(), minibatch()
    NnetTrainer(NnetTrainerOptions(batchnorm_stats_scale=1.0), nnet).train(eg)
    batchnorm = nnet.component(nnet.component_index("b1"))
    options = NnetTrainerOptions(zero_component_stats=False, batchnorm_stats_scale=1.0)
    NnetTrainer(options, nnet).train(eg)
    assert batchnorm.count == pytest.approx(32)
    NnetTrainer(NnetTrainerOptions(store_component_stats=False), nnet).train(eg)
    assert batchnorm.count == 0


def test_the_objective_improves():
    nnet, eg = network(), minibatch(size=8)
    before = objective(nnet, eg)
    trainer = NnetTrainer(NnetTrainerOptions(), nnet)
    for _ in range(20):
        trainer.train(eg)
    assert objective(nnet, eg) > before + 5


def test_same_seed_same_model():
    def train() -> np.ndarray:
        nnet = network()
        trainer = NnetTrainer(NnetTrainerOptions(), nnet)
        for i in range(3):
            trainer.train(minibatch(seed=i))
        return vectorize(nnet)

    np.testing.assert_array_equal(train(), train())


def test_minibatches_of_different_structure():
    nnet = network()
    trainer = NnetTrainer(NnetTrainerOptions(), nnet)
    for size in (2, 4, 2, 3, 2):
        trainer.train(minibatch(size=size))
    assert np.isfinite(vectorize(nnet)).all()
    assert trainer.totals["output"].all.weight == 4 * (2 + 4 + 2 + 3 + 2)


@pytest.mark.filterwarnings("ignore:overflow")
def test_infinite_change_is_not_applied(capsys):
    nnet, eg = network(), minibatch()
    for _, component in nnet.updatable_components():
        component.learning_rate = 1e38
    before = vectorize(nnet).copy()
    NnetTrainer(NnetTrainerOptions(), nnet).train(eg)
    np.testing.assert_array_equal(vectorize(nnet), before)
    assert "Infinite parameter change, will not apply." in capsys.readouterr().err


# -- log lines


def test_log_lines_of_phases(capsys):
    trainer = NnetTrainer(NnetTrainerOptions(print_interval=2), network())
    for i in range(5):
        trainer.train(minibatch(seed=i))
    assert trainer.print_total_stats()
    log = capsys.readouterr().err
    assert "Average objective function for 'output' for minibatches 0-1 is -" in log
    assert "Average objective function for 'output' for minibatches 2-3 is -" in log
    assert " over 32 frames." in log
    assert "Overall average objective function for 'output' is -" in log
    assert " over 80 frames." in log
    assert "[this line is to be parsed by a script:] log-prob-per-frame=-" in log


def test_nothing_to_train_on():
    trainer = NnetTrainer(NnetTrainerOptions(), network())
    assert not trainer.print_total_stats()
    with pytest.raises(DataError, match=r"ark:none\.egs"):
        trainer.require_data("ark:none.egs")


# -- what users get wrong


def change(eg: NnetExample, name: str, **fields) -> NnetExample:
    from dataclasses import replace

    return NnetExample([replace(io, **fields) if io.name == name else io for io in eg.io])


def train(eg: NnetExample) -> None:
    NnetTrainer(NnetTrainerOptions(), network()).train(eg)


def test_examples_that_do_not_fit():
    eg = minibatch()
    with pytest.raises(DataError, match="'ivector', but no such input or output node"):
        train(NnetExample([*eg.io, frames_io("ivector", 0, np.ones((1, 2), np.float32))]))
    with pytest.raises(DataError, match="no output"):
        train(NnetExample(eg.io[:1]))
    with pytest.raises(DataError, match="no input"):
        train(NnetExample(eg.io[1:]))
    wide = np.zeros((len(eg.io[0].indexes), 4), np.float32)
    with pytest.raises(DataError, match="'input' has dimension 4: the network expects 3"):
        train(change(eg, "input", features=wide))
    wide = np.zeros((len(eg.io[1].indexes), 6), np.float32)
    with pytest.raises(DataError, match=r"'output': 5 \(nnet\) vs. 6 \(egs\)"):
        train(change(eg, "output", features=wide))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_features_that_are_not_finite(value):
    eg = minibatch()
    features = to_dense(eg.io[0].features).copy()
    features[5, 2] = value
    with pytest.raises(DataError, match=r"'input': (nan|inf) in row 5, column 2"):
        train(change(eg, "input", features=features))


def test_different_numbers_of_sequences():
    eg = minibatch()
    fewer = NnetIo("ivector", np.zeros((1, 3), np.int32), np.ones((1, 2), np.float32))
    from nnet3tools.training.update import num_sequences

    assert num_sequences(eg.io) == 4
    with pytest.raises(DataError, match=r"number of sequences: \[1, 4\]"):
        num_sequences([*eg.io, fewer])


@pytest.mark.parametrize(
    "options",
    [
        {"momentum": -0.1},
        {"max_param_change": -1.0},
        {"backstitch_training_interval": 0},
        {"batchnorm_stats_scale": 1.5},
        {"print_interval": 0},
        {"backstitch_training_scale": 0.3, "momentum": 0.9},
    ],
)
def test_options_that_make_no_sense(options):
    with pytest.raises(OptionError, match="--"):
        NnetTrainer(NnetTrainerOptions(**options), network())


def test_orthonormal_constraint_is_kept_up():
    nnet = network(affine="orthonormal-constraint=1.0")
    trainer = NnetTrainer(NnetTrainerOptions(), nnet)
    tensor.random.seed(0)
    for i in range(60):
        trainer.train(minibatch(seed=i))
    matrix = nnet.component(0).linear_params
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(7), atol=0.2)


def test_a_regularization_term_is_logged_beside_the_objective_and_their_sum():
    sums = Sums()
    sums.add(Measured("output", 4.0, -6.0))
    assert sums.average() == "-1.5"
    sums.add(Measured("output", 0.0, 0.0, -1.0))
    assert sums.average() == "-1.5 + -0.25 = -1.75"

"""nnet3tools.Nnet against the programs: files, outputs, parameters, errors, threads."""

import logging
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest

import nnet3tools
from nnet3tools import draws
from nnet3tools.io import log
from nnet3tools.io.holders import MATRIX, VECTOR
from support.api_networks import frames, network
from support.programs import read_table, run, write_table
from support.utterance_networks import WITH_IVECTOR


def of_program(*options: str, features: np.ndarray, model: str = "0.raw") -> np.ndarray:
    """The output that nnet3-compute writes for one utterance."""
    write_table("ark:in.ark", {"u": features})
    draws.seed(1)  # as in a new process
    assert run("nnet3-compute", "--use-gpu=no", *options, model, "ark:in.ark", "ark:out.ark") == 0
    return read_table("ark:out.ark")["u"]


@pytest.mark.parametrize("num_frames", [1, 7, 133])
def test_outputs_are_those_of_nnet3_compute(num_frames: int) -> None:
    network().write("0.raw")
    nnet, features = nnet3tools.Nnet.read("0.raw"), frames(num_frames)
    np.testing.assert_array_equal(nnet.compute(features), of_program(features=features))
    options = "--frame-subsampling-factor=3", "--frames-per-chunk=20", "--apply-exp=true"
    found = nnet.compute(features, frame_subsampling_factor=3, frames_per_chunk=20, apply_exp=True)
    assert found.shape == (-(-num_frames // 3), 4)
    np.testing.assert_array_equal(found, of_program(*options, features=features))


def test_ivectors_of_an_utterance_and_online_ones() -> None:
    nnet, features = network(WITH_IVECTOR), frames(40)
    nnet.write("0.raw")
    rows = frames(4, 2)
    write_table("ark:iv.ark", {"u": rows[0]}, VECTOR)
    write_table("ark:online.ark", {"u": rows}, MATRIX)
    np.testing.assert_array_equal(
        nnet.compute(features, rows[0]), of_program("--ivectors=ark:iv.ark", features=features)
    )
    online = "--online-ivectors=ark:online.ark", "--online-ivector-period=10"
    np.testing.assert_array_equal(
        nnet.compute(features, rows, online_ivector_period=10, frames_per_chunk=10),
        of_program(*online, "--frames-per-chunk=10", features=features),
    )
    with pytest.raises(nnet3tools.OptionError, match="online_ivector_period"):
        nnet.compute(features, rows)
    with pytest.raises(nnet3tools.DataError, match="'ivector' features with dimension 2"):
        nnet.compute(features)


def test_acoustic_models_keep_their_transitions_and_priors() -> None:
    nnet = network()
    nnet.write("0.raw")
    states = "<State> 0 <PdfClass> 0 <Transition> 0 0.5 <Transition> 1 0.5 </State> <State> 1 "
    phones = "<Topology> <TopologyEntry> <ForPhones> 1 2 3 4 </ForPhones> "
    Path("topo").write_text(f"{phones}{states}</State> </TopologyEntry> </Topology>\n")
    assert run("gmm-init-mono", "topo", 3, "0.mdl", "tree") == 0
    assert run("nnet3-am-init", "tree", "topo", "0.raw", "am.mdl") == 0
    Path("priors").write_text("[ 0.1 0.2 0.3 0.4 ]\n")
    assert run("nnet3-am-adjust-priors", "am.mdl", "priors", "final.mdl") == 0
    model = nnet3tools.Nnet.read(Path("final.mdl"))
    assert model.transition_model is not None
    model.write("again.mdl")
    assert Path("again.mdl").read_bytes() == Path("final.mdl").read_bytes()
    features = frames(9)
    np.testing.assert_array_equal(
        model.copy().compute(features, use_priors=True, acoustic_scale=0.5),
        of_program("--use-priors", "--acoustic-scale=0.5", features=features, model="final.mdl"),
    )
    with pytest.raises(nnet3tools.OptionError, match=r"read from a \.mdl file"):
        nnet.compute(features, use_priors=True)


def test_a_change_of_parameters_changes_the_next_output() -> None:
    nnet, features = network(), frames(20)
    before = nnet.compute(features)
    nnet.component("o").bias_params[0] += 1.0
    assert abs(nnet.compute(features) - before).max() > 0.1
    nnet.component("o").bias_params[0] -= 1.0
    np.testing.assert_allclose(nnet.compute(features), before, atol=1e-5)
    nnet.edit("rename-node old-name=output new-name=other")
    with pytest.raises(nnet3tools.DataError, match="output node 'output'"):
        nnet.compute(features)


def test_features_are_not_changed_and_may_be_of_any_number_type() -> None:
    nnet, features = network(), frames(20).astype(np.float64)
    want = nnet.compute(features.astype(np.float32))
    np.testing.assert_allclose(nnet.compute(features.tolist()), want, atol=1e-6)
    np.testing.assert_array_equal(features, frames(20))


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (np.zeros((0, 3)), "shape"),
        (np.zeros(3), "shape"),
        (np.zeros((4, 5)), "dimension 3, found 5"),
        (np.full((4, 3), np.nan), "nan in row 0"),
        ("words", "numbers"),
    ],
)
def test_features_that_do_not_fit_are_data_errors(features: np.ndarray, message: str) -> None:
    with pytest.raises(nnet3tools.DataError, match=message):
        network().compute(features)


def test_names_that_do_not_exist_are_errors_with_names_that_do() -> None:
    with pytest.raises(nnet3tools.DataError, match="no component 'x'; it has a, r, b"):
        network().component("x")
    with pytest.raises(nnet3tools.DataError, match="the network has 6"):
        network().component(6)
    with pytest.raises(nnet3tools.DataError, match=r"nosuch\.raw"):
        nnet3tools.Nnet.read("nosuch.raw")
    Path("wrong.config").write_text("component name=a type=NoSuchComponent\n")
    with pytest.raises(nnet3tools.ConfigError, match=r"wrong\.config:1"):
        nnet3tools.Nnet.from_config_file("wrong.config")


def test_a_network_survives_pickling() -> None:
    nnet, features = network(), frames(20)
    want = nnet.compute(features)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(nnet)).compute(features), want)


def test_threads_may_compute_with_one_network_and_with_several() -> None:
    nnet = network()
    inputs = [frames(n) for n in (5, 30, 77)]
    want = [nnet.compute(x) for x in inputs]
    wrong: list[float] = []

    def work(own: nnet3tools.Nnet) -> None:
        for x, y in zip(inputs * 5, want * 5, strict=True):
            difference = abs(own.compute(x) - y).max()
            wrong.extend([difference] if difference > 1e-5 else [])

    nets = [nnet, nnet, nnet.copy(), nnet.copy()]
    threads = [threading.Thread(target=work, args=(own,)) for own in nets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_messages_go_to_logging_and_nothing_is_printed(
    capfd: pytest.CaptureFixture, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "nnet3tools"):
        network().compute(frames(20), frames_per_chunk=50, frame_subsampling_factor=3)
    assert capfd.readouterr() == ("", "")
    assert "Increasing --frames-per-chunk from 50 to 51" in caplog.text
    log.set_program("nnet3-compute")
    log.log("a program's line")
    assert capfd.readouterr().err.endswith("a program's line\n")

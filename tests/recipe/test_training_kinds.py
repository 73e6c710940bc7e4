"""The other training programs: acoustic models, recurrent networks."""

from pathlib import Path

import pytest

from nnet3tools.io.files import open_input
from nnet3tools.nnet.am_nnet import AmNnet
from support.shell import Shell
from support.tiny_acoustic_training import CHUNKS, COMMON, RECURRENT, make_ali
from support.tiny_training import CONFIG, make_data, make_dir


@pytest.fixture
def ali(shell: Shell, tmp_path: Path) -> Shell:
    """Data, and ali/ with alignments whose pdfs are the targets."""
    make_data(tmp_path)
    make_ali()
    return shell


def test_an_acoustic_model_with_priors(ali: Shell, tmp_path: Path) -> None:
    folder = make_dir(tmp_path / "exp")
    words = (*COMMON, "--egs.frames-per-eg=2", "--ali-dir=ali", "--num-jobs=1")
    log = ali("nnet3-train-dnn", *words, "--dir=exp", "--trainer.num-jobs-compute-prior=2")
    lacking = [line for line in log.splitlines() if "will lack" in line]
    assert len(lacking) == 1
    assert (
        "exp will lack mfcc.conf or fbank.conf for decoding: give --feat.mfcc-config" in lacking[0]
    )
    assert (folder / "model.conf").read_text() == "--acoustic-scale=0.1\n"
    assert (folder / "frame_subsampling_factor").read_text() == "1"
    assert (folder / "cmvn_opts").read_text() == "\n"
    with open_input("exp/final.mdl") as source:
        model = AmNnet.read(source)
    assert len(model.priors) == 3
    assert model.priors.sum() == pytest.approx(1.0, abs=1e-5)
    for name in ("tree", "phones.txt", "num_jobs", "combined.mdl", "presoftmax_prior_scale.vec"):
        assert (folder / name).exists(), name
    assert len((folder / "accuracy.report").read_text().splitlines()) > 2
    assert not list((folder / "egs").glob("ali*"))


def test_alignments_of_other_pdfs_than_the_network_has_are_refused(
    ali: Shell, tmp_path: Path
) -> None:
    folder = make_dir(tmp_path / "exp")
    config = CONFIG.replace("output-dim=3", "output-dim=7").replace("dim=3", "dim=7")
    (folder / "configs" / "ref.config").write_text(config)
    ali("nnet3-init", "exp/configs/ref.config", "exp/configs/ref.raw")
    error = ali.error("nnet3-train-dnn", *COMMON, "--ali-dir=ali", "--dir=exp")
    assert "the network's output has dimension 7, but ali/tree has 3 targets" in error
    error = ali.error("nnet3-train-dnn", *COMMON, "--ali-dir=no", "--dir=exp")
    assert "there is no 'no/num_jobs'" in error


def test_a_recurrent_network_is_shrunk_where_it_is_saturated(ali: Shell, tmp_path: Path) -> None:
    folder = make_dir(tmp_path / "exp", RECURRENT)
    (folder / "configs" / "vars").write_text(
        "model_left_context=0\nmodel_right_context=0\nnum_targets=3\n"
    )
    words = (*CHUNKS, "--targets-scp=targets.scp", "--use-dense-targets=false", "--dir=exp")
    ali("nnet3-train-raw-rnn", *words, "--trainer.optimization.shrink-saturation-threshold=0.999")
    first, second = (
        (folder / "log" / f"train.{n}.1.log").read_text().splitlines()[0] for n in (0, 1)
    )
    assert "--scale=0.99 " in first  # iteration 0 always is
    assert "--scale=1.0 " in second
    assert "--optimization.min-deriv-time=-8 " in second
    assert (folder / "egs" / "info" / "left_context").read_text() == "3\n"
    assert (folder / "egs" / "info" / "left_context_initial").read_text() == "0\n"
    assert (folder / "final.raw").exists()


def test_a_recurrent_acoustic_model(ali: Shell, tmp_path: Path) -> None:
    folder = make_dir(tmp_path / "exp", RECURRENT)
    (folder / "configs" / "vars").write_text("model_left_context=0\nmodel_right_context=0\n")
    words = (*CHUNKS, "--ali-dir=ali", "--dir=exp", "--trainer.num-jobs-compute-prior=1")
    ali("nnet3-train-rnn", *words, "--trainer.optimization.do-final-combination=false")
    assert (folder / "final.mdl").exists()

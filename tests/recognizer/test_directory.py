"""Model directories: what decoding needs is found, or refused by name and never guessed."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import nnet3tools
from nnet3tools.errors import DataError
from nnet3tools.features.cmvn_options import CmvnOptions
from nnet3tools.fst.files import save_fst
from nnet3tools.fst.fst import NOT_FINAL, Fst
from nnet3tools.recognizer.normalization import Normalization
from nnet3tools.recognizer.parts import PARTS
from support.plain_sound import with_sound_features
from support.programs import run
from support.tiny_chain import STATES_TOPOLOGY
from support.tiny_recognizer import (
    IVECTOR_CONFIG,
    write_model,
    write_recognizer,
    write_statistics,
    write_wave,
)

NO_CMVN = "--norm-means=false --norm-vars=false\n"


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("complete") / "dir"
    write_recognizer(folder)
    return folder


@pytest.fixture
def folder(
    complete: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> Path:
    """A copy of the complete directory, beside one.wav in the current folder."""
    with_sound_features(monkeypatch)
    monkeypatch.chdir(tmp_path)
    write_wave(Path("one.wav"))
    capfd.readouterr()
    return Path(shutil.copytree(complete, "dir"))


def refusal(capfd: pytest.CaptureFixture, *words: object, program: str = "nnet3-decode") -> str:
    """The error line of a program, which has to refuse."""
    assert run(program, *map(str, words)) == 255
    out, err = capfd.readouterr()
    assert not out
    assert "Traceback" not in err
    return err.strip().splitlines()[-1]


def decoded(capfd: pytest.CaptureFixture, *words: object) -> str:
    """What nnet3-decode writes."""
    assert run("nnet3-decode", *map(str, words)) == 0
    return str(capfd.readouterr().out)


def test_a_complete_directory_needs_no_option(folder: Path, capfd) -> None:
    whole = decoded(capfd, folder, "one.wav")
    assert whole.startswith("one ")
    assert decoded(capfd, "--stream=true", folder, "one.wav") == whole
    assert decoded(capfd, folder, folder / "graph", "one.wav") == whole
    assert decoded(capfd, folder, folder / "graph/HCLG.fst", "one.wav") == whole


COMPLETE = (
    "final.mdl",
    "frame_subsampling_factor",
    "mfcc.conf",
    "cmvn_opts",
    "online_cmvn",
    "global_cmvn.stats",
    "model.conf",
    "graph/HCLG.fst",
    "graph/words.txt",
    "graph/phones/align_lexicon.int",
    "graph/phones/silence.csl",
)


def test_the_complete_directory_has_no_other_files(folder: Path) -> None:
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert found == set(COMPLETE)


@pytest.mark.parametrize("way", ["whole", "streamed", "served", "Python"])
@pytest.mark.parametrize("name", COMPLETE)
def test_a_missing_file_is_refused_by_name(folder: Path, capfd, name: str, way: str) -> None:
    (folder / name).unlink()
    if way == "Python":
        with pytest.raises(DataError, match=f"dir/{re.escape(name)}"):
            nnet3tools.Recognizer.load(folder)
        return
    words = {
        "whole": ("nnet3-decode", "dir", "one.wav"),
        "streamed": ("nnet3-decode", "--stream=true", "dir", "one.wav"),
        "served": ("nnet3-serve", "--port=0", "dir"),
    }[way]
    assert f"dir/{name}" in refusal(capfd, *words[1:], program=words[0])


@pytest.mark.parametrize("name", ["graph/num_pdfs", "graph/phones.txt", "tree", "lang/"])
def test_info_names_files_that_only_checks_and_other_graphs_read(
    folder: Path, capfd, name: str
) -> None:
    for present in ("graph/num_pdfs", "graph/phones.txt", "tree"):
        (folder / present).write_text("4\n")
    (folder / "lang").mkdir()
    assert not [line for line in info(capfd, folder)[1] if "missing" in line]
    path = folder / name
    path.rmdir() if path.is_dir() else path.unlink()
    status, lines = info(capfd, folder)
    assert status == 0
    assert [line for line in lines if "missing" in line and name.rpartition("h/")[2] in line]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("frame_subsampling_factor", ["--frame-subsampling-factor=3"]),
        ("mfcc.conf", ["--mfcc-config=other"]),
        ("cmvn_opts", ["--cmvn=online"]),
        ("online_cmvn", ["--cmvn=online"]),
        ("global_cmvn.stats", ["--global-cmvn-stats=other"]),
        ("model.conf", ["--acoustic-scale=1.0"]),
        ("graph/words.txt", ["--word-symbol-table=other"]),
    ],
)
def test_an_option_stands_for_a_missing_file(
    folder: Path, capfd, name: str, options: list[str]
) -> None:
    expected = decoded(capfd, folder, "one.wav")
    (folder / name).rename("other")
    assert decoded(capfd, *options, folder, "one.wav") == expected


def test_the_command_line_overrides_model_conf(folder: Path, capfd) -> None:
    factor = "--frame-subsampling-factor"
    with_three, with_one = (
        decoded(capfd, f"{factor}={n}", "--format=ctm", folder, "one.wav") for n in (3, 1)
    )
    assert with_three != with_one
    (folder / "model.conf").write_text(f"--acoustic-scale=1.0  # chosen\n{factor}=1\n")
    assert decoded(capfd, "--format=ctm", folder, "one.wav") == with_one
    assert decoded(capfd, "--format=ctm", f"{factor}=3", folder, "one.wav") == with_three
    (folder / "conf").mkdir()
    (folder / "conf/model.conf").write_text(f"--acoustic-scale=1.0\n{factor}=3\n")
    assert decoded(capfd, "--format=ctm", folder, "one.wav") == with_one  # the first place counts
    (folder / "model.conf").write_text("--beams=3\n")
    assert "dir/model.conf: line 1: Invalid option" in refusal(capfd, folder, "one.wav")


def test_lm_scale_multiplies_the_costs_of_the_graph(folder: Path, capfd) -> None:
    wide = ("--format=ctm", "--beam=100", "--lattice-beam=20", "--max-active=100000")
    halved = decoded(capfd, *wide, "--lm-scale=0.5", "--acoustic-scale=0.5", folder, "one.wav")
    words = [line.split()[:5] for line in halved.splitlines()]
    plain = decoded(capfd, *wide, "--acoustic-scale=1.0", folder, "one.wav")
    assert [line.split()[:5] for line in plain.splitlines()] == words


def test_kaldis_training_directory_with_a_graph(folder: Path, capfd) -> None:
    expected = decoded(capfd, "--cmvn=none", folder, "one.wav")
    kaldi, graph = Path("exp/chain/tdnn"), Path("exp/chain/tree/graph")
    kaldi.mkdir(parents=True)
    for name in ("final.mdl", "frame_subsampling_factor"):
        shutil.copy(folder / name, kaldi / name)
    (kaldi / "cmvn_opts").write_text(NO_CMVN)
    shutil.copytree(folder / "graph", graph)
    words = ("--mfcc-config=dir/mfcc.conf", kaldi, graph, "one.wav")
    assert decoded(capfd, *words) == expected
    Path("conf").mkdir()
    for name in ("mfcc", "fbank"):  # which of them is not known
        shutil.copy("dir/mfcc.conf", f"conf/{name}.conf")
    line = refusal(capfd, kaldi, graph, "one.wav")
    assert "exp/chain/tdnn/mfcc.conf" in line
    assert line.endswith("/conf/fbank.conf)")
    shutil.copy("dir/mfcc.conf", "conf/mfcc_hires.conf")
    assert decoded(capfd, kaldi, graph, "one.wav") == expected
    (kaldi / "model.conf").touch()  # it is a directory of ours, which has lost its mfcc.conf
    assert "exp/chain/tdnn/mfcc.conf" in refusal(capfd, kaldi, graph, "one.wav")


def online_directory(folder: Path, with_cmvn: bool) -> Path:
    """The directory that prepare_online_decoding.sh makes, moved away from where it was made."""
    online = Path("exp/tdnn_online")
    (online / "conf").mkdir(parents=True)
    for name in ("final.mdl", "frame_subsampling_factor"):
        shutil.copy(folder / name, online / name)
    shutil.copy(folder / "mfcc.conf", online / "conf/mfcc.conf")
    lines = ["--feature-type=mfcc", "--mfcc-config=/made/tdnn_online/conf/mfcc.conf"]
    if with_cmvn:
        (online / "online_cmvn").touch()
        (online / "conf/online_cmvn.conf").write_text("# defaults\n")
        shutil.copy(folder / "global_cmvn.stats", online / "global_cmvn.stats")
        lines.append("--cmvn-config=/made/tdnn_online/conf/online_cmvn.conf")
        lines.append("--global-cmvn-stats=/made/tdnn_online/global_cmvn.stats")
    (online / "conf/online.conf").write_text("\n".join(lines) + "\n")
    return online


@pytest.mark.parametrize("with_cmvn", [True, False])
def test_the_directory_of_prepare_online_decoding(folder: Path, capfd, with_cmvn: bool) -> None:
    kind = "--cmvn=online" if with_cmvn else "--cmvn=none"
    expected = decoded(capfd, kind, folder, "one.wav")
    online = online_directory(folder, with_cmvn)
    words = (online, folder / "graph", "one.wav")
    assert decoded(capfd, *words) == expected
    assert decoded(capfd, "--stream=true", *words) == expected
    (online / "conf/mfcc.conf").unlink()
    assert "--mfcc-config=/made/tdnn_online/conf/mfcc.conf" in refusal(capfd, *words)


@pytest.mark.parametrize(
    ("option", "kind"),
    [
        ("--ivector-extraction-config=conf/ivector_extractor.conf", "i-vectors"),
        ("--add-pitch=true", "pitch features"),
        ("--feature-type=plp", "PLP features"),
    ],
)
def test_features_that_cannot_be_computed_are_refused_by_name(
    folder: Path, capfd, option: str, kind: str
) -> None:
    online = online_directory(folder, False)
    with (online / "conf/online.conf").open("a") as file:
        file.write(f"{option}\n")
    line = refusal(capfd, online, folder / "graph", "one.wav")
    assert f"exp/tdnn_online needs {kind}" in line


@pytest.mark.parametrize("with_stats", [True, False])
def test_vosks_layout(folder: Path, capfd, with_stats: bool) -> None:
    kind = "--cmvn=online" if with_stats else "--cmvn=none"
    expected = decoded(capfd, kind, folder, "one.wav")
    vosk = Path("vosk-model")
    for place in ("am", "conf", "graph/phones"):
        (vosk / place).mkdir(parents=True)
    shutil.copy(folder / "final.mdl", vosk / "am/final.mdl")
    if with_stats:
        shutil.copy(folder / "global_cmvn.stats", vosk / "am/global_cmvn.stats")
    shutil.copy(folder / "mfcc.conf", vosk / "conf/mfcc.conf")
    (vosk / "conf/model.conf").write_text(
        "--min-active=200\n--max-active=3000\n--beam=10.0\n--lattice-beam=6.0\n"
        "--acoustic-scale=1.0\n--frame-subsampling-factor=3\n"
    )
    for name in ("HCLG.fst", "words.txt"):
        shutil.copy(folder / "graph" / name, vosk / "graph" / name)
    (vosk / "graph/phones/word_boundary.int").write_text("1 singleton\n2 nonword\n")
    assert decoded(capfd, vosk, "one.wav") == expected
    assert decoded(capfd, "--stream=true", vosk, "one.wav") == expected
    for name in ("am/final.mdl", "conf/mfcc.conf", "conf/model.conf", "graph/words.txt"):
        (vosk / name).rename("other")
        assert f"vosk-model/{name}" in refusal(capfd, vosk, "one.wav")
        Path("other").rename(vosk / name)


def test_a_network_with_ivectors_is_refused(folder: Path, capfd) -> None:
    write_model(folder / "final.mdl", IVECTOR_CONFIG)
    capfd.readouterr()
    assert "dir needs i-vectors" in refusal(capfd, folder, "one.wav")


def test_features_and_statistics_must_fit_the_network(folder: Path, capfd) -> None:
    (folder / "mfcc.conf").write_text("--num-ceps=11\n")
    assert "expected statistics of features of dimension 11" in refusal(capfd, folder, "one.wav")
    write_statistics(folder / "global_cmvn.stats", 11)
    line = refusal(capfd, folder, "one.wav")
    assert "the network expects 13 features, those of dir/mfcc.conf have dimension 11" in line
    (folder / "mfcc.conf").write_text("--num-ceps=24\n")
    assert "dir/mfcc.conf: num-ceps cannot be larger" in refusal(capfd, folder, "one.wav")


def test_another_sampling_rate_is_refused_unless_an_option_allows(folder: Path, capfd) -> None:
    write_wave(Path("slow.wav"), rate=8000)
    write_wave(Path("fast.wav"), rate=44100)
    for name, option in (("slow", "--allow-upsample=true"), ("fast", "--allow-downsample=true")):
        assert run("nnet3-decode", str(folder), f"{name}.wav") == 1
        assert option in capfd.readouterr().err
        for stream in ("--stream=false", "--stream=true"):
            assert decoded(capfd, option, stream, folder, f"{name}.wav").startswith(name)


def test_a_scale_is_not_guessed_for_a_model_that_is_no_chain_model(folder: Path, capfd) -> None:
    write_model(folder / "final.mdl", topology=STATES_TOPOLOGY)
    shutil.move(folder / "graph", "graph")
    arcs = [[(2, 1, 0.0, 1)], [(1, 0, 0.0, 1), (4, 0, 0.0, 2)], [(3, 0, 0.0, 2)]]
    save_fst("graph/HCLG.fst", Fst.from_lists(0, [NOT_FINAL, NOT_FINAL, 0.0], arcs))
    (folder / "model.conf").unlink()
    capfd.readouterr()
    words = (folder, "graph", "one.wav")
    assert "dir/model.conf" in refusal(capfd, *words)
    assert decoded(capfd, "--acoustic-scale=0.1", *words) == "one yes\n"


def test_means_of_utterances_are_taken_out_of_whole_files_only(folder: Path, capfd) -> None:
    for name in ("online_cmvn", "global_cmvn.stats"):
        (folder / name).unlink()
    (folder / "cmvn_opts").write_text("\n")  # as Kaldi writes it without --feat.cmvn-opts
    expected = decoded(capfd, "--cmvn=utterance", folder, "one.wav")
    assert decoded(capfd, folder, "one.wav") == expected
    assert "dir/global_cmvn.stats" in refusal(capfd, "--stream=true", folder, "one.wav")
    assert any("normalization: utterance (streams need" in line for line in info(capfd, folder)[1])
    (folder / "cmvn_opts").write_text("--norm-vars=true\n")
    decoded(capfd, folder, "one.wav")
    (folder / "cmvn_opts").write_text(NO_CMVN)
    expected = decoded(capfd, "--cmvn=none", folder, "one.wav")
    assert decoded(capfd, "--stream=true", folder, "one.wav") == expected


def test_utterances_are_normalized_by_their_own_means_and_variances() -> None:
    features = np.random.default_rng(1).normal(3.0, 2.0, (50, 3)).astype(np.float32)
    expected = (features - features.mean(axis=0)) / features.std(axis=0)
    expected[:, 1] = features[:, 1]
    options = CmvnOptions(norm_vars=True, skip_dims="1")
    found = Normalization("utterance", options).whole(features)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_another_model_of_the_directory(folder: Path, capfd) -> None:
    expected = decoded(capfd, folder, "one.wav")
    (folder / "final.mdl").rename(folder / "7.mdl")
    assert decoded(capfd, "--model=7.mdl", folder, "one.wav") == expected
    assert "expected dir/8.mdl: " in refusal(capfd, "--model=8.mdl", folder, "one.wav")


def test_options_of_cmvn_that_contradict_each_other(folder: Path, capfd) -> None:
    (folder / "cmvn_opts").write_text("--norm-means=false --norm-vars=true\n")
    refusal(capfd, folder, "one.wav")
    (folder / "cmvn_opts").write_text("--norm-mean=false\n")
    assert "dir/cmvn_opts" in refusal(capfd, folder, "one.wav")


def test_cmvn_opts_may_name_a_file_that_is_in_the_directory(folder: Path, capfd) -> None:
    expected = decoded(capfd, folder, "one.wav")
    (folder / "cmvn_opts").write_text("--config=conf/online_cmvn.conf\n")
    assert "conf/online_cmvn.conf" in refusal(capfd, folder, "one.wav")
    (folder / "online_cmvn.conf").write_text("--norm-means=true\n")
    assert decoded(capfd, folder, "one.wav") == expected
    (folder / "online_cmvn.conf").unlink()
    Path("s5/conf").mkdir(parents=True)
    Path("s5/conf/online_cmvn.conf").write_text("# defaults\n")
    kaldi = shutil.copytree(folder, "s5/exp/chain/tdnn")
    assert decoded(capfd, kaldi, "one.wav") == expected


def test_a_graph_of_another_model_or_of_other_words(folder: Path, capfd) -> None:
    (folder / "phones.txt").write_text("<eps> 0\na 1\nb 2\n")
    (folder / "graph/phones.txt").write_text("<eps> 0\na 1\nb 2\n#0 3\n")
    decoded(capfd, folder, "one.wav")
    (folder / "graph/phones.txt").write_text("<eps> 0\nb 1\na 2\n")
    assert "dir/phones.txt and dir/graph/phones.txt differ" in refusal(capfd, folder, "one.wav")
    (folder / "lang").mkdir()
    (folder / "phones.txt").rename(folder / "lang/phones.txt")
    line = refusal(capfd, folder, "one.wav")
    assert "dir/lang/phones.txt and dir/graph/phones.txt differ" in line
    (folder / "lang/phones.txt").unlink()
    (folder / "graph/num_pdfs").write_text("5\n")
    line = refusal(capfd, folder, "one.wav")
    assert "dir/graph/num_pdfs: the graph was made for a model with 5 pdfs, this one has 4" in line
    (folder / "graph/num_pdfs").write_text("4\n")
    (folder / "graph/words.txt").write_text("<eps> 0\nyes 1\n")
    line = refusal(capfd, folder, "one.wav")
    assert "dir/graph/HCLG.fst has word 2, which is not in dir/graph/words.txt" in line


def test_several_missing_files_are_counted(folder: Path, capfd) -> None:
    for name in ("cmvn_opts", "online_cmvn", "mfcc.conf"):
        (folder / name).unlink()
    assert "(1 more: nnet3-recognizer-info dir)" in refusal(capfd, folder, "one.wav")


def test_a_graph_without_sound(folder: Path, capfd) -> None:
    assert "expected sound after the graph" in refusal(capfd, folder, folder / "graph")
    assert "no folder none" in refusal(capfd, "none", "one.wav")


def info(capfd: pytest.CaptureFixture, *words: object) -> tuple[int, list[str]]:
    """The status and the lines of nnet3-recognizer-info."""
    status = run("nnet3-recognizer-info", *map(str, words))
    return status, capfd.readouterr().out.splitlines()


def test_info_shows_a_complete_directory_in_about_ten_lines(folder: Path, capfd) -> None:
    status, lines = info(capfd, folder)
    assert status == 0
    assert 10 <= len(lines) <= 14
    text = "\n".join(lines)
    for shown in (
        "dir/final.mdl, chain model, 4 pdfs, input of dimension 13, context 2 left, 2 right",
        "frame-subsampling-factor: 3",
        "MFCC of dimension 13 by dir/mfcc.conf, 16000 Hz, a frame every 10 ms",
        "normalization: online, from dir/global_cmvn.stats",
        "words: dir/graph/words.txt, 3 symbols",
        "scales: acoustic 1, graph 1",
        "for-other-graphs: tree is missing, lang/ is missing",
        "can decode: yes",
    ):
        assert shown in text


@pytest.mark.parametrize("name", COMPLETE)
def test_info_names_what_is_missing(folder: Path, capfd, name: str) -> None:
    (folder / name).unlink()
    status, lines = info(capfd, folder)
    assert status == 1
    assert any(line.startswith(f"missing: expected dir/{name}") for line in lines)
    assert lines[-1] == "can decode: no"


def test_info_sees_what_does_not_fit(folder: Path, capfd) -> None:
    (folder / "mfcc.conf").write_text("--num-ceps=11\n")
    status, lines = info(capfd, folder)
    assert status == 1
    assert any("expected statistics of features of dimension 11" in line for line in lines)
    (folder / "final.mdl").write_bytes(b"broken")
    status, lines = info(capfd, folder)
    assert status == 1
    assert lines[0].startswith("model: dir/final.mdl: ")


PAGE = (Path(__file__).parents[2] / "docs/recognizer.md").read_text()


def test_the_page_has_the_table_of_files() -> None:
    for part in PARTS:
        other = " ".join(f"`{place}`" for place in part.places[1:])
        option = f"`{part.option}`" if part.option else ""
        cells = [f"`{part.name}`", other, part.purpose, option]
        assert "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|\n" in PAGE

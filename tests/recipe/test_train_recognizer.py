"""nnet3-train-recognizer: a whole training of a tiny network, resuming, and refusals."""

import contextlib
import gzip
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from nnet3tools.errors import DataError
from nnet3tools.recipe.driver import Driver
from nnet3tools.recipe.plan import Stage
from nnet3tools.recipe.programs.nnet3_train_recognizer import main
from nnet3tools.recipe.speech import run as training
from nnet3tools.recipe.speech.options import RecognizerTrainingOptions
from nnet3tools.recipe.speech.preparation import prepare_data
from support.shell import Shell
from support.small_recognizer import OPTIONS, small_networks
from support.spoken_words import tones, write_manifest, write_recordings

pytest.importorskip("kaldi_native_fbank")
soundfile = pytest.importorskip("soundfile")


def train(*words: object, status: int = 0) -> None:
    """Call the program with a small network, and come back to the working directory."""
    with small_networks(), contextlib.chdir("."):
        found = main([*OPTIONS, *map(str, words)])
    assert found == status


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with recordings, their list, and the recognizer OUT."""
    folder = tmp_path_factory.mktemp("recognizer")
    rows = write_recordings(folder)
    write_manifest(folder / "list.tsv", rows)
    write_manifest(folder / "test.tsv", rows[:10])
    train(f"--test={folder}/test.tsv", folder / "list.tsv", "none", folder / "the OUT")
    return folder


def test_the_directory_decodes_with_no_option(trained: Path, shell: Shell) -> None:
    wave = next(trained.rglob("*.wav"))
    shell("nnet3-decode", trained / "the OUT", wave)
    assert shell.out.split()[0] == wave.stem
    shell("nnet3-decode", "--stream=true", trained / "the OUT", wave)
    shell("nnet3-recognizer-info", trained / "the OUT")


def test_flac_of_two_channels_at_another_rate_decodes(trained: Path, shell: Shell) -> None:
    sound = tones("zero", rate=44100)
    soundfile.write(trained / "a b.flac", np.stack([sound, 0 * sound], axis=1), 44100)
    for stream in ("false", "true"):
        shell("nnet3-decode", f"--stream={stream}", trained / "the OUT", trained / "a b.flac")
        assert shell.out.startswith("a b")
    (trained / "text.flac").write_text("fLaC")
    error = shell.error("nnet3-decode", trained / "the OUT", trained / "text.flac", status=1)
    assert "expected a wave file" in error
    assert "read by libsndfile: " in error


def test_the_report_shows_times_errors_and_sound(trained: Path) -> None:
    page = (trained / "the OUT" / "report.html").read_text()
    assert "held-out part" in page
    assert "test data" in page
    assert "Said &rarr; heard" in page
    sounds = re.findall(r'<audio [^>]*src="([^"]+)"', page)
    assert sounds
    assert all((trained / "the OUT" / sound).stat().st_size > 44 for sound in sounds)
    times = json.loads((trained / "the OUT" / "work" / "stages.json").read_text())
    assert list(times) == [training.CHECKS, *(part.title for part in training.STAGES)]
    assert all(seconds > 0.0 for seconds in times.values())
    results = (trained / "the OUT" / "work" / "results").read_text()
    assert re.fullmatch(r"held_out [\d.]+ \d+ \d+\ntest [\d.]+ \d+ \d+\n", results)
    for model in ("flat", "chain"):
        assert (trained / "the OUT" / "work" / model / "report.html").exists()


def test_large_files_are_gone_at_the_end(trained: Path) -> None:
    left = (trained / "the OUT" / "work").rglob("*.ark")
    kept = ("held_out", "test")
    assert sum(p.stat().st_size for p in left if p.parent.name not in kept) < 1 << 20


def test_a_second_call_only_says_where_the_recognizer_is(
    trained: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = (trained / "the OUT" / "final.mdl").stat()
    train(f"--test={trained}/test.tsv", trained / "list.tsv", "none", trained / "the OUT")
    assert (trained / "the OUT" / "final.mdl").stat() == before
    log = capfd.readouterr().err
    assert "Stage" not in log
    assert f"nnet3-decode '{trained}/the OUT' FILE.wav" in log


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--seed=1", "list.tsv", "none"), "--seed was '0', is now '1'"),
        (("--size=small", "list.tsv", "none"), "--size was 'auto', is now 'small'"),
        (("other.tsv", "none"), "DATA was"),
        (("list.tsv", "lexicon.txt"), "LEXICON was 'none'"),
    ],
)
def test_other_options_are_refused(
    trained: Path, capfd: pytest.CaptureFixture[str], words: tuple[str, ...], error: str
) -> None:
    with contextlib.chdir(trained):
        train(f"--test={trained}/test.tsv", *words, "the OUT", status=255)
    assert error in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--size=big", "list.tsv", "none"), "--size=big: expected auto or one of tiny"),
        (("--lm-order=9", "list.tsv", "none"), "--lm-order=9: expected 1 to 4"),
        (("--held-out-share=0", "list.tsv", "none"), "--held-out-share=0: expected"),
        (("--arpa=no.arpa", "list.tsv", "none"), "--arpa=no.arpa: there is no such file"),
        (("nothing.tsv", "none"), "nothing.tsv"),
        (("list.tsv", "nothing.txt"), "nothing.txt"),
    ],
)
def test_refusals_come_before_anything_is_written(
    trained: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    error: str,
) -> None:
    with contextlib.chdir(trained):
        train(*words, tmp_path / "new", status=255)
    assert error in capfd.readouterr().err
    assert not list((tmp_path).glob("new/*/*"))


@pytest.mark.parametrize("name", ["list.tsv", "en-gb-one.wav"])
def test_changed_input_is_refused(
    trained: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    path = trained / name
    contents, status = path.read_bytes(), path.stat()
    words = (f"--test={trained}/test.tsv", trained / "list.tsv", "none", trained / "the OUT")
    path.write_bytes(contents.replace(b"\tone\t", b"\ttwo\t"))
    train(*words, status=255)
    assert f"{name}' has changed since this training began: expected" in capfd.readouterr().err
    path.unlink()
    train(*words)  # everything has been copied
    path.write_bytes(contents)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def prepared(folder: Path, data: Path, **options: str) -> str:
    """Run the first stage in a folder; returns the dictionary that it writes."""
    folder.mkdir()
    with contextlib.chdir(folder):
        prepare_data(RecognizerTrainingOptions(**options), str(data), "none", str(data.parent))
    return (folder / "work/dict/lexiconp.txt").read_text()


def test_words_of_the_language_model_can_be_recognized_without_a_lexicon(
    trained: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "extra.txt").write_text("Eleven, or \u201czw\u00f6lf\u201d!\n -- \n")
    found = prepared(tmp_path / "a", trained / "list.tsv", extra_text=str(tmp_path / "extra.txt"))
    assert "\nEleven 1 E l e v e n\n" in found
    assert "\nzw\u00f6lf 1 z w \u00f6 l f\n" in found
    assert (tmp_path / "a/work/lm/extra.txt").read_text() == "Eleven or zw\u00f6lf\n"
    arpa = "\\data\\\nngram 1=4\n\n\\1-grams:\n-1 <s>\n-1 </s>\n-1 one\n-1 ten\n\n\\end\\\n"
    with gzip.open(tmp_path / "lm.gz", "wt") as file:
        file.write(arpa)
    found = prepared(tmp_path / "b", trained / "list.tsv", arpa=str(tmp_path / "lm.gz"))
    assert "\nten 1 t e n\n" in found
    assert (tmp_path / "b/work/lm/lm.arpa").read_text() == arpa
    assert "the model lacks 9 words, such as 'eight', " in capfd.readouterr().err
    with pytest.raises(DataError, match="an error"):
        prepared(tmp_path / "c", trained / "list.tsv", arpa=str(tmp_path / "extra.txt"))
    assert "error: no language model (1); expected a model in ARPA form" in capfd.readouterr().err


class _Interrupted:
    """Ends each stage once, when it is nearly done, as Ctrl-C does."""

    def __init__(self) -> None:
        self.stages: list[str] = []

    def run(self, driver: Driver, stage: Stage) -> None:
        if stage.iteration is None and stage.name not in self.stages and len(stage.steps) > 1:
            self.stages.append(stage.name)
            driver.do(stage.steps[:-1])
            raise SystemExit(130)
        self.whole(driver, stage)

    whole = staticmethod(Driver.run)


@pytest.mark.slow
def test_a_training_interrupted_in_each_stage_makes_the_same_recognizer(
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    interruptions = _Interrupted()
    monkeypatch.setattr(Driver, "run", lambda driver, stage: interruptions.run(driver, stage))
    words = (f"--test={trained}/test.tsv", trained / "list.tsv", "none", tmp_path / "OUT")
    num_stops = 0
    for _ in range(100):
        try:
            train(*words)
            break
        except SystemExit:
            num_stops += 1
    assert {part.title for part in training.STAGES} <= set(interruptions.stages)
    for name in ("final.mdl", "model.conf", "graph/HCLG.fst", "global_cmvn.stats", "work/results"):
        whole = (trained / "the OUT" / name).read_bytes()
        assert (tmp_path / "OUT" / name).read_bytes() == whole, name
    log = capfd.readouterr().err
    assert log.count("Stopped; the same command goes on") == num_stops

"""nnet3-decode --stream=true DIR -: sound on standard input, as it arrives."""

import io
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from nnet3tools.fst.files import save_fst
from nnet3tools.fst.fst import Fst
from nnet3tools.io.wave import WAVE, Wave
from support.plain_sound import with_sound_features
from support.programs import run
from support.streams import bytes_of
from support.tiny_recognizer import write_recognizer

NEVER = "--endpoint.rule{}.min-trailing-silence=1e9"
# The tiny model hears no silence: an utterance ends after a time.
ENDS = [
    *(NEVER.format(number) for number in (1, 2, 3, 4)),
    "--endpoint.rule5.min-utterance-length=0.6",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("tiny")
    write_recognizer(made)
    return made


def samples(seconds: float) -> np.ndarray:
    return np.random.default_rng(1).normal(0, 2000, int(seconds * 16000)).astype("<i2")


def wave_of(sound: np.ndarray, rate: int = 16000) -> bytes:
    """A wave file of sound, (samples,) or (channels, samples)."""
    return bytes_of(WAVE.write, Wave(rate, np.atleast_2d(sound).astype(np.int16)))


class Pipe(io.RawIOBase):
    """Standard input that gives a few bytes, of odd numbers, at a time."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        return self._file.readinto(memoryview(buffer)[:4097])


@pytest.fixture
def decode(folder: Path, monkeypatch: pytest.MonkeyPatch, capfd):
    """A function from bytes on standard input and options to (status, lines, log)."""
    with_sound_features(monkeypatch)

    def run_with(data: bytes, *options: object) -> tuple[int, list[str], str]:
        stdin = SimpleNamespace(buffer=SimpleNamespace(raw=Pipe(data)))
        monkeypatch.setattr(sys, "stdin", stdin)
        graph = [option for option in options if isinstance(option, Path)]
        options = tuple(option for option in options if isinstance(option, str))
        status = run("nnet3-decode", "--stream=true", *options, folder, *graph, "-")
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return status, out.splitlines(), err

    return run_with


def test_raw_samples_and_wave_files_give_the_same_lines(decode):
    sound = samples(1.5)
    status, lines, err = decode(sound.tobytes(), "--format=json", *ENDS)
    assert status == 0
    values = [json.loads(line) for line in lines]
    results = [value for value in values if "words" in value]
    assert [value["utterance"] for value in results] == ["stdin-1", "stdin-2", "stdin-3"]
    partial = [value for value in values if "partial" in value]
    assert len(partial) > 3
    assert all(value["partial"] for value in partial)
    assert results[1]["words"][0]["begin"] >= 0.6
    assert "Done 1 utterances" in err
    floats = (sound / 32768).astype("<f4").tobytes()
    stereo = np.stack([sound, 0 * sound])
    header = wave_of(sound)[:40]
    others = {
        "floats": (floats, "--sample-format=float32", "--sample-rate=16000"),
        "wave": (wave_of(sound),),
        "stereo": (wave_of(stereo),),
        "endless wave": (header + b"\xff\xff\xff\xff" + sound.tobytes(),),
        "text after the samples": (wave_of(sound) + b"LIST of notes",),
    }
    final = [json.loads(lines[number]) for number, v in enumerate(values) if "words" in v]
    for name, (data, *options) in others.items():
        status, lines, _ = decode(data, "--format=json", *ENDS, *options)
        found = [value for line in lines if "words" in (value := json.loads(line))]
        assert (status, found) == (0, final), name


def test_words_that_are_no_utf_8_leave_the_lines_valid(decode, folder, tmp_path):
    table = tmp_path / "words.txt"
    lines = (folder / "graph" / "words.txt").read_bytes().splitlines(keepends=True)
    table.write_bytes(b"".join(x if x[:1] in b"<#" else b"\xff" + x for x in lines))
    sound = samples(1.5).tobytes()
    status, lines, _ = decode(sound, "--format=json", f"--word-symbol-table={table}", *ENDS)
    texts = [value["text"] for line in lines if "words" in (value := json.loads(line))]
    assert status == 0
    assert any("\ufffd" in text for text in texts)


def test_text_and_vosk(decode):
    _, lines, _ = decode(samples(1.0).tobytes(), *ENDS)
    assert [line.split()[0] for line in lines] == ["stdin-1", "stdin-2"]
    assert set(" ".join(lines).split()) == {"stdin-1", "stdin-2", "yes", "no"}
    _, lines, _ = decode(samples(1.0).tobytes(), "--format=vosk", *ENDS)
    values = [json.loads(line) for line in lines]
    results = [value for value in values if "result" in value]
    assert [set(value) for value in values if value not in results] == [{"partial"}] * (
        len(values) - len(results)
    )
    for value in results:
        assert value["text"] == " ".join(word["word"] for word in value["result"])
        assert all(set(word) == {"conf", "end", "start", "word"} for word in value["result"])
    _, lines, _ = decode(samples(0.5).tobytes(), "--format=vosk", "--nbest=3")
    value = json.loads(lines[-1])
    confidences = [other["confidence"] for other in value["alternatives"]]
    assert len(confidences) == 3
    assert confidences == sorted(confidences, reverse=True)


def test_what_is_cut_or_not_sound_is_told(decode):
    wave = wave_of(samples(0.5))
    status, lines, err = decode(wave[: len(wave) // 2 + 1])
    assert (status, len(lines)) == (0, 1)
    assert "Truncated file?" in err
    status, lines, err = decode(samples(0.5).tobytes() + b"\x01")
    assert (status, len(lines)) == (0, 1)
    assert "1 bytes at the end are not a whole sample" in err
    wrong = {
        b"": "standard input: expected sound, found none",
        b"\x00\x01\x02": "shorter than a frame",
        wave[:30]: "expected a wave file",
        wave[:44]: "shorter than a frame",
        b"fLaC" + bytes(100): "expected raw samples or a wave file, found FLAC",
        wave_of(samples(0.5), 8000): "8000 .vs 16000",
    }
    for data, message in wrong.items():
        status, lines, err = decode(data)
        assert (status, lines) == (1, []), message
        assert message in err
        assert "Done 0 utterances, failed for 1" in err
    status, _, err = decode(b"", "--sample-format=int8")
    assert status == 255
    assert "--sample-format must be int16 or float32" in err


def test_silence_gives_one_line_without_words(decode, tmp_path):
    """The graph has no words; each of its utterances ends after 0.3 s of silence, phone 2."""
    save_fst(str(tmp_path / "HCLG.fst"), Fst.from_lists(0, [0.0], [[(4, 0, 0.0, 0)]]))
    (tmp_path / "words.txt").write_text("<eps> 0\nyes 1\n")
    silence = ("--endpoint.silence-phones=2", "--endpoint.rule1.min-trailing-silence=0.3")
    for form, expected in (("text", "stdin-1"), ("vosk", '{"text": ""}')):
        status, lines, err = decode(bytes(32000), *silence, f"--format={form}", tmp_path)
        assert (status, lines) == (0, [expected]), err
    _, [line], _ = decode(bytes(32000), *silence, "--format=json", tmp_path)
    assert json.loads(line) == {"utterance": "stdin-1", "text": "", "words": []}


# -- in a process of its own


@pytest.fixture
def live(folder: Path):
    """A running program; standard input and output are pipes."""
    pytest.importorskip("kaldi_native_fbank")
    command = [sys.executable, "-m", "nnet3tools.cli", "nnet3-decode", "--stream=true"]
    command += ["--format=json", *ENDS[:4], str(folder), "-"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        yield process
        process.kill()


def next_line(process: subprocess.Popen) -> dict:
    ready, _, _ = select.select([process.stdout], [], [], 60)
    assert ready, "no line though there is sound enough"
    return json.loads(process.stdout.readline())


def test_partial_results_come_before_more_sound_does_and_waiting_costs_nothing(live):
    live.stdin.write(samples(1.0).tobytes())
    live.stdin.flush()
    assert next_line(live)["partial"]
    before = cpu_seconds(live.pid)
    time.sleep(0.5)
    assert cpu_seconds(live.pid) - before < 0.1
    live.stdin.close()
    while "words" not in (line := next_line(live)):
        pass
    assert line["utterance"] == "stdin-1"
    assert live.wait(60) == 0


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_ctrl_c_gives_the_result_so_far(live):
    live.stdin.write(samples(1.0).tobytes())
    live.stdin.flush()
    assert next_line(live)["partial"]
    live.send_signal(signal.SIGINT)
    while "words" not in (line := next_line(live)):
        pass
    assert line["words"]
    assert live.wait(60) == 128 + signal.SIGINT
    assert b"Traceback" not in live.stderr.read()


def test_a_reader_that_goes_away_ends_the_program_quietly(live):
    live.stdin.write(samples(1.0).tobytes())
    live.stdin.flush()
    assert next_line(live)["partial"]
    live.stdout.close()
    live.stdin.write(samples(2.0).tobytes())
    live.stdin.close()
    assert live.wait(60) == 128 + signal.SIGPIPE
    assert b"Traceback" not in live.stderr.read()

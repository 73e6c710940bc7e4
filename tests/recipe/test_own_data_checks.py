"""Checks of users' data: the line that each fault gets, sound of all forms, held-out speakers."""

import contextlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from nnet3tools.errors import DataError
from nnet3tools.features.sound_files import read_sound
from nnet3tools.io.wave import WAVE, Wave
from nnet3tools.recipe.options import CheckOptions
from nnet3tools.recipe.own_data.checks import CheckedData, SoundFacts, check_data, split_held_out
from nnet3tools.recipe.own_data.corpus import read_corpus
from nnet3tools.recipe.own_data.faults import Fault, FaultList
from nnet3tools.recipe.own_data.pronunciations import read_word_list
from nnet3tools.recipe.own_data.recordings import SoundSource, Utterance, write_data_dir
from support.programs import read_table, run, write_table
from support.spoken_words import WORDS, tones, write_manifest, write_recordings

soundfile = pytest.importorskip("soundfile")


def checked(data: Path, lexicon: str = "none") -> tuple[CheckedData, FaultList]:
    faults = FaultList()
    words = read_word_list(lexicon, faults)
    return check_data(read_corpus(str(data), faults), words, faults, CheckOptions()), faults


def test_good_data_has_no_faults(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_manifest(tmp_path / "m.tsv", write_recordings(tmp_path))
    assert run("nnet3-check-data", tmp_path / "m.tsv", "none") == 0
    assert "60 utterances, 6 speakers, 0.5 minutes, 10 different words" in capfd.readouterr().err
    data, faults = checked(tmp_path / "m.tsv")
    assert len(data.utterances) == 60
    assert data.rate == 16000
    assert list(faults.findings) == [Fault.COLUMNS]
    faults.report()


@pytest.fixture
def faulty(tmp_path: Path) -> Path:
    """A manifest in which each line but the first has a fault of its own."""
    rng = np.random.default_rng(0)
    names = (
        "good.wav none.wav text.wav zero.wav header.wav silent.wav clipped.wav short.wav long.wav"
    )
    names += " empty.wav 8k.wav nan.wav folder slow.wav cut.flac"
    texts = {"short.wav": "one two three", "empty.wav": "--", "8k.wav": "six"}
    rows = [(name, texts.get(name, "one")) for name in names.split()]
    for name, _ in rows:
        if name not in ("none.wav", "folder", "slow.wav", "cut.flac"):
            soundfile.write(tmp_path / name, tones("one"), 16000)
    (tmp_path / "text.wav").write_text("not a sound file")
    (tmp_path / "zero.wav").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    soundfile.write(tmp_path / "header.wav", np.zeros(0), 16000)
    soundfile.write(tmp_path / "silent.wav", 1e-4 * rng.standard_normal(8000), 16000)
    soundfile.write(tmp_path / "clipped.wav", np.clip(8 * tones("one"), -1, 1), 16000)
    soundfile.write(tmp_path / "short.wav", tones("one")[:4000], 16000)
    soundfile.write(tmp_path / "long.wav", 0.1 * rng.standard_normal(16000 * 31), 16000)
    soundfile.write(tmp_path / "8k.wav", tones("six", rate=8000), 8000)
    soundfile.write(tmp_path / "nan.wav", np.full(9000, np.nan), 16000, "FLOAT")
    soundfile.write(tmp_path / "slow.wav", tones("one"), 100)
    soundfile.write(tmp_path / "cut.flac", rng.standard_normal(50_000) / 9, 16000)
    flac = (tmp_path / "cut.flac").read_bytes()
    (tmp_path / "cut.flac").write_bytes(flac[:30])
    lines = [json.dumps({"path": name, "text": text}) for name, text in rows]
    (tmp_path / "m.jsonl").write_text("\n".join([*lines, "{"]))
    return tmp_path / "m.jsonl"


def test_each_fault_is_found_and_named(faulty: Path) -> None:
    data, faults = checked(faulty)
    found = {
        fault: [f"{f.where}: {f.found}".replace(f"{faulty.parent}/", "") for f in findings]
        for fault, findings in faults.findings.items()
    }
    assert found.pop(Fault.MALFORMED)[0].startswith("m.jsonl:16: no JSON: Expecting property name")
    assert found.pop(Fault.MISSING_SOUND) == ["m.jsonl:2: 'none.wav': there is no such file"]
    unreadable = found.pop(Fault.UNREADABLE_SOUND)
    assert [line.split(":")[1] for line in unreadable] == ["15", "13", "12", "14", "3"]
    assert "not finite" in unreadable[2]
    assert "100 samples per second" in unreadable[3]
    assert "Format not recognised" in unreadable[4]
    assert found.pop(Fault.EMPTY_SOUND) == [
        "m.jsonl:5: 'header.wav': no samples",
        "m.jsonl:4: 'zero.wav': a file of 0 bytes",
    ]
    assert found.pop(Fault.EMPTY_TRANSCRIPT) == ["m.jsonl:10: 'empty'"]
    assert found.pop(Fault.SILENT) == ["m.jsonl:6 'silent': amplitude 0.00035 of full scale"]
    assert found.pop(Fault.TOO_SHORT) == [
        "m.jsonl:8 'short': 0.25 s for 11 phones, which need 0.33 s"
    ]
    assert found.pop(Fault.TOO_LONG) == ["m.jsonl:9 'long': more than 30 s"]
    assert len(found.pop(Fault.CLIPPED)) == 1
    assert found.pop(Fault.LOW_RATE) == ["m.jsonl:11 '8k': 8000 Hz, below 16000 Hz"]
    assert len(found.pop(Fault.RATES_DIFFER)) == 1
    assert set(found) == {Fault.COLUMNS, Fault.SPEAKERS_UNKNOWN, Fault.PUNCTUATION}
    assert [u.name for u in data.utterances] == ["8k", "clipped", "good"]


def test_the_program_lists_all_faults_and_then_stops(
    faulty: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("nnet3-check-data", "--num-shown=3", faulty) == 255
    _, *lines, last = capfd.readouterr().err.splitlines()
    assert last.endswith("the data has 9 errors: see the list above")
    _, faults = checked(faulty)
    faults.most_shown = 3
    assert lines == faults.lines()
    assert "error: missing sound (1); expected an existing sound file" in lines
    assert "  and 2 more" in lines


def test_data_without_usable_utterances_is_an_error(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.zeros(16000), 16000)
    for rows in ([], [("a.wav", "one", "")]):
        write_manifest(tmp_path / "m.tsv", rows)
        _, faults = checked(tmp_path / "m.tsv")
        assert [f.found for f in faults.findings[Fault.NO_UTTERANCES]] == [
            f"none of {len(rows)} can be used"
        ]


def test_unknown_words_have_their_counts_and_nearest_entries(tmp_path: Path) -> None:
    rows = write_recordings(tmp_path)[:10]
    rows = [(name, "seveen" if word == "seven" else word, voice) for name, word, voice in rows]
    write_manifest(tmp_path / "m.csv", rows)
    lexicon = tmp_path / "lexicon.txt"
    lexicon.write_text("".join(f"{word} {' '.join(word)}\n" for word in WORDS))
    data, faults = checked(tmp_path / "m.csv", str(lexicon))
    assert "  word 'seveen': 1 time (did you mean 'seven'?)" in faults.lines()
    assert not faults.num_errors
    assert len(data.utterances) == 10


def test_a_lexicon_in_other_letters_is_an_error(tmp_path: Path) -> None:
    write_manifest(tmp_path / "m.csv", write_recordings(tmp_path))
    lexicon = tmp_path / "lexicon.txt"
    lexicon.write_text("".join(f"{word.upper()} {' '.join(word)}\n" for word in WORDS))
    _, faults = checked(tmp_path / "m.csv", str(lexicon))
    (finding,) = faults.findings[Fault.MOSTLY_UNKNOWN]
    assert finding.found == (
        "60 of 60 running words are not in the lexicon; 60 of these are in upper case"
    )
    assert "(did you mean 'ZERO'?)" in "\n".join(faults.lines())


def tone(rate: int, seconds: float = 1.0) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * 440 * np.arange(round(rate * seconds)) / rate)


@pytest.mark.parametrize(
    ("kind", "rate", "subtype"),
    [
        ("wav", 44100, "FLOAT"),
        ("wav", 8000, "ULAW"),
        ("wav", 16000, "PCM_24"),
        ("flac", 48000, "PCM_16"),
        ("ogg", 22050, "VORBIS"),
        ("mp3", 32000, "MPEG_LAYER_III"),
    ],
)
def test_sound_of_any_form_becomes_16_bit_of_one_rate(
    kind: str, rate: int, subtype: str, tmp_path: Path
) -> None:
    stereo = np.stack([tone(rate), np.zeros(rate)], axis=1)  # the first channel is used
    soundfile.write(tmp_path / f"-a b.{kind}", stereo, rate, subtype)
    write_manifest(tmp_path / "m.tsv", [(f"-a b.{kind}", "one", "")])
    data, faults = checked(tmp_path / "m.tsv")
    assert not faults.num_errors
    assert Fault.CHANNELS in faults.findings
    assert data.rate == (8000 if rate == 8000 else 16000)
    write_data_dir(tmp_path / "out, 1", data.utterances, data.rate)
    (wave,) = read_table(f"scp:{tmp_path}/out, 1/wav.scp", WAVE).values()
    assert wave.rate == data.rate
    inner = slice(data.rate // 10, -data.rate // 5)
    wanted = 32768 * tone(data.rate)
    found = wave.samples[0].astype(float)
    lag = np.argmax([found[d:][inner][:4000] @ wanted[inner][:4000] for d in range(37)])
    error = found[lag:][inner][:4000] - wanted[inner][:4000]
    assert np.sqrt(np.mean(error**2)) < 0.08 * 16384


def test_a_part_and_a_channel_of_a_file(tmp_path: Path) -> None:
    stereo = np.stack([np.full(48000, 0.25), np.arange(48000) / 96000], axis=1)
    soundfile.write(tmp_path / "a.wav", stereo, 16000)
    sound = read_sound(str(tmp_path / "a.wav"), 1.0, 1.5, channel=1)
    assert sound.samples == pytest.approx(stereo[16000:24000, 1], abs=1e-4)
    assert read_sound(str(tmp_path / "a.wav"), 2.9, 3.2).samples.shape == (1600,)
    for start, end, channel in ((2.0, 4.0, 0), (0.0, 1.0, 2)):
        with pytest.raises(DataError):
            read_sound(str(tmp_path / "a.wav"), start, end, channel)


def test_headers_do_not_decide_how_much_memory_is_used(tmp_path: Path) -> None:
    path = tmp_path / "a.flac"
    soundfile.write(path, tone(16000), 16000)
    head = bytearray(path.read_bytes())
    head[21:26] = bytes([head[21] | 0x0F, 0xFF, 0xFF, 0xFF, 0xFF])  # 2^36 - 1 samples: 256 GB
    path.write_bytes(head)
    with contextlib.suppress(DataError):
        assert len(read_sound(str(path)).samples) <= 16000


def test_segments_pipes_and_archives_of_a_data_directory(tmp_path: Path) -> None:
    samples = (8000 * tone(16000, 3.0)).astype(np.int16)
    write_table(
        f"ark,scp:{tmp_path}/w.ark,{tmp_path}/wav.scp", {"r1": Wave(16000, samples[None])}, WAVE
    )
    soundfile.write(tmp_path / "r 2.wav", samples, 16000)
    with open(tmp_path / "wav.scp", "a") as file:
        file.write(
            f"r2 cat '{tmp_path}/r 2.wav' |\nr3 {tmp_path}/r 2.wav\nr4 false |\nr5 nosuch.wav\n"
        )
    parts = [f"u{n}-{part} r{n} {part} {part + 1}\n" for n in (1, 2, 3, 4) for part in (0, 2, 3)]
    parts += ["u5-0 r5 0 1\n", "u3-4 r3 3 -1\n"]
    (tmp_path / "segments").write_text("".join(parts))
    (tmp_path / "text").write_text("".join(f"{part.split()[0]} one\n" for part in parts))
    data, faults = checked(tmp_path)
    assert [u.name for u in data.utterances] == [
        f"u{n}-{part}" for n in (1, 2, 3) for part in (0, 2)
    ]
    pipes = [f.found for f in faults.findings[Fault.UNREADABLE_SOUND] if "false |" in f.found]
    assert len(pipes) == 3
    outside = [f.found.rpartition(": ")[2] for f in faults.findings[Fault.BAD_SEGMENT]]
    assert len(outside) == 4
    assert "3 to 4 s of a recording of 3.00 s" in outside
    assert "no samples after 3 s" in outside
    assert len(faults.findings[Fault.MISSING_SOUND]) == 1
    write_data_dir(tmp_path / "out", data.utterances, 16000)
    written = read_table(f"scp:{tmp_path}/out/wav.scp", WAVE)
    for name, wave in written.items():
        first = 16000 * int(name[-1])
        np.testing.assert_array_equal(wave.samples[0], samples[first : first + 16000], name)
    assert (tmp_path / "out" / "utt2dur").read_text().startswith("u1-0 1.000\n")
    assert (tmp_path / "out" / "spk2utt").read_text().startswith("u1-0 u1-0\n")


def corpus_of(seconds: dict[str, list[float]]) -> CheckedData:
    found = {
        Utterance(f"{speaker}-{n}", speaker, ("x",), SoundSource("x"), ""): length
        for speaker, lengths in seconds.items()
        for n, length in enumerate(lengths)
    }
    facts = {u.name: SoundFacts(16000, 1, length, 0.5, 0.0) for u, length in found.items()}
    return CheckedData(tuple(found), facts, True, 16000)


def test_a_tenth_of_the_sound_is_held_out_by_speakers() -> None:
    data = corpus_of({f"s{n}": [2.0] * (5 + n % 7) for n in range(50)})
    train, held = split_held_out(data)
    assert {u.speaker for u in train}.isdisjoint(u.speaker for u in held)
    assert len(train) + len(held) == len(data.utterances)
    assert 0.07 < len(held) / len(data.utterances) < 0.13
    assert split_held_out(data) == (train, held)
    _, few = split_held_out(data, max_seconds=20.0)
    assert sum(data.facts[u.name].seconds for u in few) <= 30.0


@pytest.mark.parametrize(
    ("seconds", "speakers"),
    [({"a": [9.0] * 5, "b": [1.0] * 5}, {"b"}), ({"a": [1.0] * 20}, {"a"})],
)
def test_few_speakers(seconds: dict[str, list[float]], speakers: set[str]) -> None:
    train, held = split_held_out(corpus_of(seconds))
    assert {u.speaker for u in held} == speakers
    assert train
    assert len(held) < 10


def test_something_is_left_to_train_on() -> None:
    train, held = split_held_out(corpus_of({f"s{n}": [1.0] for n in range(6)}), share=1.0)
    assert (len(train), len(held)) == (1, 5)
    assert split_held_out(corpus_of({"a": [1.0]}))[1] == []


def test_a_folder_that_fits_no_wav_scp_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="line end"):
        write_data_dir(tmp_path / "a|b", [], 16000)


def test_without_soundfile_the_command_to_install_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_manifest(tmp_path / "m.tsv", write_recordings(tmp_path))
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(DataError, match=r"needs the package soundfile: .*recipe"):
        checked(tmp_path / "m.tsv")

"""Users' manifests and data directories: usual forms, damaged lines, hostile names."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnet3tools.errors import DataError, UserError
from nnet3tools.features.sound_files import Sound
from nnet3tools.io.text import is_word
from nnet3tools.recipe.own_data.corpus import Corpus, read_corpus
from nnet3tools.recipe.own_data.faults import Fault, FaultList
from nnet3tools.recipe.own_data.recordings import read_sounds

soundfile = pytest.importorskip("soundfile")


def read(path: Path, contents: str | bytes) -> tuple[Corpus, FaultList]:
    path.write_bytes(contents.encode() if isinstance(contents, str) else contents)
    faults = FaultList()
    return read_corpus(str(path), faults), faults


def found(corpus: Corpus) -> list[tuple[str, str, str, str]]:
    return [(u.name, u.speaker, " ".join(u.words), u.sound.name) for u in corpus.utterances]


def test_common_voice(tmp_path: Path) -> None:
    (tmp_path / "clips").mkdir()
    (tmp_path / "clips" / "cv_2.mp3").write_bytes(b"")
    speaker = "f" * 128
    contents = (
        "client_id\tpath\tsentence_id\tsentence\tup_votes\tage\n"
        f'{speaker}\tcv_2.mp3\t77\tHe said "no\t2\t\n'
        f"{speaker}\tcv_1.mp3\t78\tIs it? Yes.\t2\ttwenties\r\n"
    )
    corpus, faults = read(tmp_path / "train.tsv", contents)
    short = speaker[:32]
    assert found(corpus) == [
        (f"{short}-cv_1", short, "Is it? Yes.", f"{tmp_path}/cv_1.mp3"),
        (f"{short}-cv_2", short, 'He said "no', f"{tmp_path}/clips/cv_2.mp3"),
    ]
    assert corpus.has_speakers
    assert list(faults.findings) == [Fault.COLUMNS]
    assert "sound: 'path', text: 'sentence', speaker: 'client_id'" in faults.lines()[0]


def test_hugging_face_csv_with_quotes_and_byte_order_mark(tmp_path: Path) -> None:
    contents = '\ufefffile_name,transcription\r\nb/1.wav,"well, ""yes""\r\nno"\r\na/1.wav,oh\r\n'
    corpus, faults = read(tmp_path / "metadata.csv", contents)
    assert found(corpus) == [
        ("a_1", "a_1", "oh", f"{tmp_path}/a/1.wav"),
        ("b_1", "b_1", 'well, "yes" no', f"{tmp_path}/b/1.wav"),
    ]
    assert not corpus.has_speakers
    assert Fault.SPEAKERS_UNKNOWN in faults.findings


def test_nemo_json_lines_with_offsets(tmp_path: Path) -> None:
    rows = [
        {"audio_filepath": "/d/x.wav", "duration": 1.5, "text": "one", "offset": 2.25},
        {"audio_filepath": "/d/x.wav", "duration": 2, "text": "two", "offset": 0, "speaker": 7},
        {"audio": {"path": "/d/y.wav", "bytes": None}, "duration": 2, "text": "three", "id": 5},
    ]
    lines = "\n".join(json.dumps(row) for row in rows)
    corpus, faults = read(tmp_path / "manifest.json", lines)
    assert not faults.num_errors
    assert {u.name: (u.sound.start, u.sound.end) for u in corpus.utterances} == {
        "5": (0.0, -1.0),
        "7-x-000000-000200": (0.0, 2.0),
        "x-000225-000375": (2.25, 3.75),
    }


def test_a_folder_with_one_manifest_is_data_and_with_two_is_not(tmp_path: Path) -> None:
    read(tmp_path / "a.csv", "path;text\nx.wav;yes, no\n")
    assert found(read_corpus(str(tmp_path), FaultList())) == [
        ("x", "x", "yes, no", f"{tmp_path}/x.wav")
    ]
    (tmp_path / "b.jsonl").write_text("")
    with pytest.raises(DataError, match=r"one manifest .*found 'a.csv', 'b.jsonl'"):
        read_corpus(str(tmp_path), FaultList())


@pytest.mark.parametrize(
    ("name", "contents", "fault", "message"),
    [
        ("m.tsv", "path\ttext\na.wav\n", Fault.MALFORMED, "2: 1 fields, the header has 2"),
        ("m.csv", 'path,text\na.wav,"b\n', Fault.MALFORMED, "2: unexpected end of data"),
        ("m.csv", "path,text\na.wav," + 200_000 * "x", Fault.MALFORMED, "2: field larger"),
        ("m.csv", "path,text\n\0a.wav,x\n", Fault.MALFORMED, "2: a zero byte"),
        ("m.tsv", "path\ttext\n \tx\n", Fault.MALFORMED, "2: no sound file"),
        ("m.tsv", b"path\ttext\na\tx\nb\tna\xefve\n", Fault.NOT_UTF8, "3: "),
        ("m.tsv", "path\ttext\na\tx\na\ty\n", Fault.DUPLICATE, "3: 'a', as in line 2"),
        ("m.jsonl", '{"path": "a", "text": "b"', Fault.MALFORMED, "1: no JSON"),
        ("m.jsonl", "[" * 100_000, Fault.MALFORMED, "1: no JSON"),
        ("m.jsonl", "[1]", Fault.MALFORMED, "1: '[1]', not an object"),
        ("m.jsonl", '{"path": ["a"], "text": "b"}', Fault.MALFORMED, "1: ['a'] as 'path'"),
        ("m.jsonl", '{"path": "a", "text": "\\ud800"}', Fault.NOT_UTF8, "1: "),
        ("m.jsonl", '{"path": "a", "text": "b", "offset": "x"}', Fault.MALFORMED, "as a time"),
        ("m.jsonl", '{"path": "a", "text": "b", "start": 2, "end": 1}', Fault.BAD_SEGMENT, "2 s"),
        ("m.jsonl", '{"path": "a", "text": "b", "id": %s}' % ("9" * 9999), Fault.MALFORMED, "1: "),
    ],
)
def test_a_wrong_line_gets_its_number_and_the_others_are_read(
    name: str, contents: str | bytes, fault: Fault, message: str, tmp_path: Path
) -> None:
    _, faults = read(tmp_path / name, contents)
    assert fault in faults.findings, faults.lines()
    assert any(message in f"{f.where}: {f.found}" for f in faults.findings[fault]), faults.lines()
    assert all(len(line) < 300 and line.isprintable() for line in faults.lines())


@pytest.mark.parametrize(
    ("name", "contents", "message"),
    [
        ("m.tsv", "a.wav\thello\n", "expected a header with a column for the sound"),
        ("m.tsv", "path\twords\n", "expected a header with a column for the text"),
        ("m.csv", "path,text,text\n", "'text' twice"),
        ("m.csv", "", "found nothing"),
        ("m.txt", "", "expected a Kaldi data directory or a manifest"),
        ("m.csv", "path,text\n".encode("utf-16"), "UTF-16"),
    ],
)
def test_a_manifest_without_the_fields_is_refused(
    name: str, contents: str | bytes, message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path / name, contents)


HOSTILE = ("a b.wav", "a;rm -rf x.wav", "$(id).wav", "'\".wav", "-rf.wav", "x\ny.wav", "é|.wav")


def test_names_that_differ_in_odd_characters_are_different(tmp_path: Path) -> None:
    contents = "path\ttext\nx/a b.wav\tone\nx/a_b.wav\ttwo\nx/a;b.wav\tthree\n"
    corpus, faults = read(tmp_path / "m.tsv", contents)
    assert [(u.name, u.words) for u in corpus.utterances] == [
        *(("a_b", ("one",)), ("a_b-2", ("two",)), ("a_b-3", ("three",)))
    ]
    assert not faults.num_errors


def test_hostile_file_names_are_names(tmp_path: Path) -> None:
    lines = "".join(json.dumps({"path": name, "text": "x"}) + "\n" for name in HOSTILE)
    corpus, faults = read(tmp_path / "m.jsonl", lines)
    assert sorted(u.sound.name for u in corpus.utterances) == sorted(
        f"{tmp_path}/{name}" for name in HOSTILE
    )
    assert all(is_word(u.name) and u.name[0] not in "-|" for u in corpus.utterances)
    assert not faults.num_errors


TABLE = b'path,text,speaker,id\na.wav,"one, two",s,1\nb.wav,three,t,2\nc d.wav,four,,3\n'
LINES = b'{"path": "a.wav", "text": "one two", "start": 1, "end": 2.5}\n' * 3


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    sample=st.sampled_from(
        [("m.csv", TABLE), ("m.tsv", TABLE.replace(b",", b"\t")), ("m.jsonl", LINES)]
    ),
    damage=st.lists(
        st.tuples(st.integers(0, 200), st.integers(0, 3), st.binary(max_size=6)), max_size=5
    ),
)
def test_damaged_manifests_give_utterances_or_faults(
    sample: tuple[str, bytes], damage: list[tuple[int, int, bytes]], tmp_path: Path
) -> None:
    name, contents = sample
    for place, length, inserted in damage:
        contents = contents[:place] + inserted + contents[place + length :]
    try:
        corpus, faults = read(tmp_path / name, contents)
    except DataError:
        return
    names = [utterance.name for utterance in corpus.utterances]
    assert len(set(names)) == len(names)
    for utterance in corpus.utterances:
        assert is_word(utterance.name)
        assert is_word(utterance.speaker)
        assert "\0" not in utterance.sound.name
        " ".join(utterance.words).encode()
    assert all(line.isprintable() for line in faults.lines())


def kaldi_data(folder: Path, **files: str | bytes) -> tuple[Corpus, FaultList]:
    folder.mkdir(exist_ok=True)
    for name, contents in files.items():
        path = folder / name.replace("_scp", ".scp")
        path.write_bytes(contents.encode() if isinstance(contents, str) else contents)
    faults = FaultList()
    return read_corpus(str(folder), faults), faults


def test_a_data_directory_with_segments(tmp_path: Path) -> None:
    corpus, faults = kaldi_data(
        tmp_path / "data",
        wav_scp="rec1 sox 'a b.wav' -t wav - |\nrec2 c.wav\n",
        segments="s-u1 rec1 0.5 1.25\ns-u2 rec2 1 -1\ns-u3 rec2 0 2 1\n",
        text="s-u1 one two\ns-u2 three\ns-u3\n",
        utt2spk="s-u1 s\ns-u2 s\ns-u3 s\n",
    )
    assert not faults.findings
    assert [
        (u.sound.name, u.sound.start, u.sound.end, u.sound.channel) for u in corpus.utterances
    ] == [
        (f"cd {os.getcwd()} && sox 'a b.wav' -t wav - |", 0.5, 1.25, 0),
        (os.path.abspath("c.wav"), 1.0, -1.0, 0),
        (os.path.abspath("c.wav"), 0.0, 2.0, 1),
    ]
    assert [u.words for u in corpus.utterances] == [("one", "two"), ("three",), ()]


def test_sound_beside_the_data_directory_is_found(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.wav").write_bytes(b"")
    corpus, _ = kaldi_data(tmp_path / "data", wav_scp="a a.wav\n", text="a x\n")
    assert corpus.utterances[0].sound.name == os.path.join(tmp_path, "data", "a.wav")


def test_names_in_wav_scp_start_from_the_given_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "it's a folder"
    base.mkdir()
    for folder in (base, tmp_path):
        soundfile.write(folder / "a.wav", np.full(8000, 0.5 if folder == base else 0.1), 16000)
    kaldi_data(base / "data", wav_scp="a a.wav\nb cat a.wav |\n", text="a x\nb x\n")
    monkeypatch.chdir(tmp_path)
    corpus = read_corpus(str(base / "data"), FaultList(), str(base))
    for utterance in corpus.utterances:
        (sound,) = read_sounds([utterance])
        assert isinstance(sound, Sound)
        assert sound.samples[0] == pytest.approx(0.5, abs=1e-4)


def test_wrong_lines_of_a_data_directory(tmp_path: Path) -> None:
    corpus, faults = kaldi_data(
        tmp_path / "data",
        wav_scp="r r.wav\nr q.wav\nempty\n",
        segments="a r 0 1\nb r 2 1\nc nosuch 0 1\nd r 0 x\ne r 0 1\nf r 1 2\n",
        text=b"a one\nb two\ne caf\xe9\ng three\n\xef\xbb\xbff four\n",
        utt2spk="a s s\n",
    )
    places = {
        fault: [f"{os.path.basename(f.where)}: {f.found}" for f in findings]
        for fault, findings in faults.findings.items()
    }
    assert places[Fault.DUPLICATE] == ["wav.scp:2: 'r', as in line 1"]
    assert [place.split(": ")[0] for place in places[Fault.MALFORMED]] == [
        *("wav.scp:3", "segments:2", "segments:4", "utt2spk:1")
    ]
    assert places[Fault.BAD_SEGMENT] == ["segments:3: recording 'nosuch' is not in wav.scp"]
    assert [place.split(": ")[0] for place in places[Fault.NOT_UTF8]] == ["text:3"]
    assert len(places[Fault.NO_SOUND]) == 3
    assert places[Fault.NO_TRANSCRIPT] == ["text: no line for 'e'", "text: no line for 'f'"]
    assert [u.name for u in corpus.utterances] == ["a"]


def test_a_data_directory_without_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*text"):
        kaldi_data(tmp_path / "data", wav_scp="a a.wav\n")
    with pytest.raises(DataError, match="does not exist"):
        read_corpus(str(tmp_path / "nosuch"), FaultList())

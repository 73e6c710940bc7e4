"""Decoding programs as commands, on a model with random parameters."""

import io
import json
import re
import select
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nnet3tools.executor.looped_computer import LoopedComputer, LoopedStream
from nnet3tools.executor.simple_options import SimpleComputationOptions
from nnet3tools.features.cmvn_options import OnlineCmvnOptions
from nnet3tools.fst.files import FST, save_fst
from nnet3tools.fst.fst import NOT_FINAL, Fst
from nnet3tools.fst.lattice_files import COMPACT_LATTICE
from nnet3tools.io.files import open_output
from nnet3tools.io.holders import INT32_VECTOR, TOKEN_VECTOR
from nnet3tools.io.wave import WAVE, Wave
from nnet3tools.nnet.model_file import read_nnet
from nnet3tools.recognizer.normalization import Normalization
from support.configs import in_a_row
from support.plain_sound import with_sound_features
from support.programs import read_table, run, write_table
from support.streams import bytes_of
from support.tiny_chain import CHAIN_TOPOLOGY, MONO_TREE, model_of
from support.utterance_networks import recurrent_config

CONFIG = in_a_row("""input dim=13
a NaturalGradientAffineComponent input-dim=39 output-dim=4 param-stddev=0.1 \
input=Append(Offset(input, -2), input, Offset(input, 2))""")
SCALES = ("--frame-subsampling-factor=3", "--acoustic-scale=1.0")
# The graph accepts words in any order: few of them are within the narrow beam.
BEAM = "--lattice-beam=0.3"
DECODE = ("nnet3-latgen-faster", BEAM, *SCALES)


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a model, a graph over all its transition ids, features and sound."""
    monkeypatch.chdir(tmp_path)
    _, model = model_of(MONO_TREE, CHAIN_TOPOLOGY)
    with open_output("trans") as writer:
        model.write(writer)
    Path("config").write_text(CONFIG)
    assert run("nnet3-init", "--srand=4", "config", "raw") == 0
    assert run("nnet3-am-init", "trans", "raw", "final.mdl") == 0
    ids = range(1, model.num_transition_ids + 1)
    arcs = [[(i, i, 0.1 * i, 0) for i in ids] + [(i, 0, 0.5, 0) for i in ids]]
    save_fst("HCLG.fst", Fst.from_lists(0, [0.0], arcs))
    Path("words.txt").write_text("<eps> 0\n" + "".join(f"w{i} {i}\n" for i in ids))
    rng = np.random.default_rng(3)
    feats = {k: rng.normal(size=(n, 13)).astype(np.float32) for k, n in (("a", 40), ("b", 7))}
    write_table("ark:feats.ark", feats)
    return tmp_path


def write_wave(name: str, seconds: float, rate: int = 16000, channels: int = 1) -> None:
    samples = np.random.default_rng(1).normal(0, 2000, (channels, int(seconds * rate)))
    Path(name).write_bytes(bytes_of(WAVE.write, Wave(rate, samples.astype(np.int16))))


def test_lattices_words_and_alignments_agree(system: Path, capfd) -> None:
    tables = ("ark:lat", "ark:words", "ark:ali")
    symbols = "--word-symbol-table=words.txt"
    assert run(*DECODE, symbols, "final.mdl", "HCLG.fst", "ark:feats.ark", *tables) == 0
    err = capfd.readouterr().err
    words, alignments = read_table("ark:words", INT32_VECTOR), read_table("ark:ali", INT32_VECTOR)
    assert [len(alignments[key]) for key in "ab"] == [14, 3]
    assert "Done 2 utterances, failed for 0" in err
    assert "Log-like per frame for utterance b is " in err
    assert f"a {' '.join(f'w{i}' for i in words['a'])} \n" in err
    assert run("lattice-best-path", "ark:lat", "ark:words2", "ark:ali2") == 0
    for name, table in (("words2", words), ("ali2", alignments)):
        for key, values in read_table(f"ark:{name}", INT32_VECTOR).items():
            np.testing.assert_array_equal(values, table[key])
    batch = ("nnet3-latgen-faster-batch", "--use-gpu=no", *DECODE[1:])
    assert run(*batch, "final.mdl", "HCLG.fst", "ark:feats.ark", "ark:batch") == 0
    one, other = (read_table(f"ark:{name}", COMPACT_LATTICE) for name in ("lat", "batch"))
    for key, lattice in one.items():
        assert other[key].arc_lists()[0][0][0] == lattice.arc_lists()[0][0][0]
    assert run("compute-wer", "ark:words", "ark:words2") == 0
    assert "%WER 0.00 [ 0 / " in capfd.readouterr().out


@pytest.mark.parametrize("count", [2, 8])
def test_lattices_are_the_same_bytes_for_any_number_of_threads(
    system: Path, capfd, count: int
) -> None:
    """And in the order of the utterances, although long and short ones alternate."""
    rng = np.random.default_rng(5)
    lengths = [int(n) for n in rng.integers(3, 60, 40)]
    feats = {f"u{i}": rng.normal(size=(n, 13)).astype(np.float32) for i, n in enumerate(lengths)}
    write_table("ark:many", feats)
    for threads in (1, count):
        words = ("--use-gpu=no", f"--num-threads={threads}", *DECODE[1:], "final.mdl", "HCLG.fst")
        assert run("nnet3-latgen-faster-batch", *words, "ark:many", f"ark:{threads}.lat") == 0
        assert f"(per thread; with {threads} threads)" in capfd.readouterr().err
    assert Path(f"{count}.lat").read_bytes() == Path("1.lat").read_bytes()


def test_an_error_in_a_thread_names_the_utterance(system: Path, capfd) -> None:
    Path("loop.fst").unlink(missing_ok=True)
    save_fst("loop.fst", Fst.from_lists(0, [0.0], [[(0, 0, -0.1, 0), (1, 1, 0.1, 0)]]))
    words = ("--use-gpu=no", "--num-threads=2", *DECODE[1:], "final.mdl", "loop.fst")
    assert run("nnet3-latgen-faster-batch", *words, "ark:feats.ark", "ark:lat") == 255
    assert "utterance a: the decoding graph has an epsilon loop" in capfd.readouterr().err


CO_PROCESSES = {
    "nnet3-latgen-faster": ([*DECODE[1:], "final.mdl", "HCLG.fst"], ["ark:/dev/null", "{}"]),
    "nnet3-latgen-faster-batch": (
        ["--use-gpu=no", *DECODE[1:], "final.mdl", "HCLG.fst"],
        ["{}"],
    ),
    "nnet3-align-compiled": (["--use-gpu=no", *SCALES, "final.mdl"], ["ark:feats.ark", "{}"]),
    "nnet3-compute": ([*SCALES, "raw"], ["{}"]),
    "nnet3-compute-batch": (["--use-gpu=no", *SCALES, "raw"], ["{}"]),
    "nnet3-xvector-compute": (["--chunk-size=6", "--pad-input=true", "ahead.raw"], ["{}"]),
    "nnet3-xvector-compute-batched": (
        ["--chunk-size=6", "--batch-size=8", "--pad-input=true", "ahead.raw"],
        ["{}"],
    ),
}

LOOKS_AHEAD = in_a_row("""input dim=13
affine AffineComponent input-dim=26 output-dim=4 input=Append(input, Offset(input, 2))""")
MATRIX_ENDS = r".*\]\n"
LAST_LINES = {
    "nnet3-latgen-faster-batch": r"\n",
    "nnet3-compute": MATRIX_ENDS,
    "nnet3-compute-batch": MATRIX_ENDS,
}


@pytest.mark.parametrize("program", CO_PROCESSES)
def test_who_waits_for_each_answer_before_giving_the_next_utterance_gets_it(
    system: Path, program: str
) -> None:
    features = {k: v[:9] for k, v in read_table("ark:feats.ark").items()}
    graph = Fst.from_lists(0, [NOT_FINAL, 0.0], [[(1, 1, 0.0, 1)], [(2, 0, 0.0, 1)]])
    for key in "ab":
        if "align" in program:
            write_table(f"ark:{key}", {key: graph}, FST)
        else:
            write_table(f"ark:{key}", {key: features[key]})
    Path("config").write_text(LOOKS_AHEAD)
    assert run("nnet3-init", "config", "ahead.raw") == 0
    words, outputs = CO_PROCESSES[program]
    tables = [text.format("ark,t:-") for text in outputs]
    command = [sys.executable, "-m", "nnet3tools.cli", program, *words, "ark:-", *tables]
    answers_with(command, "ab", LAST_LINES.get(program, r".*\n"))


@pytest.mark.parametrize("program", ["nnet3-latgen-faster", "nnet3-latgen-faster-batch"])
def test_decoding_with_programs_of_an_earlier_run_compiles_nothing(
    system: Path, capfd, program: str
) -> None:
    words = (*DECODE[1:], "--verbose=2", "final.mdl", "HCLG.fst", "ark:feats.ark")
    assert run(program, "--write-cache=cache", *words, "ark:plain") == 0
    assert "total for" in capfd.readouterr().err
    assert run(program, "--read-cache=cache", *words, "ark:cached") == 0
    log = capfd.readouterr().err
    assert "Read computation cache from cache" in log
    assert "total for" not in log
    assert Path("cached").read_bytes() == Path("plain").read_bytes()


@pytest.mark.parametrize("program", ["nnet3-latgen-faster", "nnet3-compute"])
def test_a_reader_of_flushed_tables_gets_each_utterance_before_giving_the_next(
    system: Path, program: str
) -> None:
    features = {k: v[:9] for k, v in read_table("ark:feats.ark").items()}
    write_table("ark:a", {"a": features["a"]})
    write_table("ark:b", {"b": features["b"]})
    words, outputs = CO_PROCESSES[program]
    tables = [text.format("ark,t,f:-") for text in outputs]
    command = [sys.executable, "-m", "nnet3tools.cli", program, *words, "ark:-", *tables]
    answers_with(command, "ab", LAST_LINES.get(program, r".*\n"))


def answers_with(command: list[str], keys: str, last_line: str) -> None:
    """Send the files one by one to the program; fail unless each gets its answer in time."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        for key in keys:
            process.stdin.write(Path(key).read_bytes())
            process.stdin.flush()
            ready, _, _ = select.select([process.stdout], [], [], 60)
            if not ready:
                process.kill()
            assert ready, f"nothing of utterance {key} though it was given"
            line = process.stdout.readline().decode()
            assert line.startswith(f"{key} ")
            while not re.fullmatch(last_line, line):
                line = process.stdout.readline().decode()
        process.stdin.close()
        assert process.wait(60) == 0


@pytest.mark.parametrize("config", [CONFIG, recurrent_config(13)])
def test_graphs_stay_with_their_utterances_when_many_are_computed_together(
    system: Path, config: str, capfd
) -> None:
    Path("config").write_text(config)
    assert run("nnet3-init", "--srand=4", "config", "raw") == 0
    assert run("nnet3-am-init", "trans", "raw", "final.mdl") == 0
    rng = np.random.default_rng(5)
    keys = [f"u{i:02}" for i in range(12)]
    write_table("ark:f", {k: rng.normal(size=(6, 13)).astype(np.float32) for k in keys})
    # Each graph gives its own word; u05's accepts fewer frames than there are.
    graphs = {
        k: Fst.from_lists(0, [NOT_FINAL, 0.0], [[(1, 1 + i, 0.0, 1)], [(2, 0, 0.0, 1)]])
        for i, k in enumerate(keys)
    }
    graphs["u05"] = Fst.from_lists(0, [NOT_FINAL, 0.0], [[(1, 6, 0.0, 1)], []])
    write_table("ark:graphs", graphs, FST)
    expected = {k: [1 + i] for i, k in enumerate(keys) if k != "u05"}
    for words in ("ark:w", "ark,f:w"):
        assert run(*DECODE, "final.mdl", "ark:graphs", "ark:f", "ark:lat", words) == 0
        assert "Done 11 utterances, failed for 1" in capfd.readouterr().err
        found = read_table("ark:w", INT32_VECTOR)
        assert {k: w.tolist() for k, w in found.items()} == expected
        assert list(found) == list(expected)
    align = ("nnet3-align-compiled", "--use-gpu=no", *SCALES)
    assert run(*align, "final.mdl", "ark:graphs", "ark:f", "ark:ali") == 0
    assert list(read_table("ark:ali", INT32_VECTOR)) == list(expected)


def test_graphs_of_utterances_and_what_fails(system: Path, capfd) -> None:
    graph = Fst.from_lists(
        0, [NOT_FINAL] * 3 + [0.0], [[(1, 5, 0.0, 1)], [(2, 0, 0.0, 2)], [(2, 0, 0.0, 3)], []]
    )
    write_table("ark:graphs", {"a": graph, "b": graph, "c": graph}, FST)
    inputs = ("final.mdl", "ark:graphs", "ark:feats.ark")
    assert run(*DECODE, *inputs, "ark:lat", "ark:words") == 0
    err = capfd.readouterr().err
    assert "Failed to decode utterance with id a" in err
    assert "Not decoding utterance c because no features available." in err
    assert "Done 1 utterances, failed for 2" in err
    align = ("nnet3-align-compiled", "--use-gpu=no", *SCALES)
    assert run(*align, *inputs, "ark:ali", "ark,t:scores") == 0
    err = capfd.readouterr().err
    assert read_table("ark:ali", INT32_VECTOR)["b"].tolist() == [1, 2, 2]
    assert "Did not successfully decode file a, len = 14" in err
    assert "No features for utterance c" in err
    assert "Done 1, errors on 2" in err


def test_what_does_not_fit_is_told_in_a_line(system: Path, capfd) -> None:
    save_fst("other.fst", Fst.from_lists(0, [0.0], [[(99, 1, 0.0, 0)]]))
    assert run(*DECODE, "final.mdl", "other.fst", "ark:feats.ark", "ark:lat") == 255
    err = capfd.readouterr().err
    assert "other.fst: the decoding graph has transition id 99, the model has ids from 1 to" in err
    assert "Traceback" not in err
    assert not Path("lat").exists()
    save_fst("endless.fst", Fst.from_lists(0, [NOT_FINAL], [[(1, 1, 0.0, 0)]]))
    words = ("final.mdl", "endless.fst", "ark:feats.ark", "ark:lat")
    assert run(*DECODE, *words) == 1
    assert "since no final-state reached and --allow-partial=false." in capfd.readouterr().err
    assert run(*DECODE, "--allow-partial=true", *words) == 0
    assert run(*DECODE, "--allow-partial=true", "--minimize=true", *words) == 0
    write_table("ark:empty", {"u": COMPACT_LATTICE.read(_reader(b"\n\n"))}, COMPACT_LATTICE)
    capfd.readouterr()
    assert run("lattice-best-path", "ark:empty", "ark:w") == 1
    assert "Best-path failed for key u" in capfd.readouterr().err


def _reader(data: bytes):
    from nnet3tools.io.stream import Reader

    return Reader(io.BytesIO(data))


def test_modes_of_scoring(system: Path, capfd) -> None:
    write_table("ark:ref", {"a": ["x", "y"], "b": ["z"]}, TOKEN_VECTOR)
    write_table("ark:hyp", {"a": ["x", "q", "y"]}, TOKEN_VECTOR)
    assert run("compute-wer", "ark:ref", "ark:hyp") == 255
    assert "No hypothesis for key b and strict mode specifier." in capfd.readouterr().err
    assert run("compute-wer", "--text", "--mode=present", "ark:ref", "ark:hyp") == 0
    assert capfd.readouterr().out == (
        "%WER 50.00 [ 1 / 2, 1 ins, 0 del, 0 sub ] [PARTIAL]\n%SER 100.00 [ 1 / 1 ]\n"
        "Scored 1 sentences, 1 not present in hyp.\n"
    )
    assert run("compute-wer", "--mode=all", "ark:ref", "ark:hyp") == 0
    assert "%WER 66.67 [ 2 / 3, 1 ins, 1 del, 0 sub ]" in capfd.readouterr().out


@pytest.mark.parametrize("sizes", [[40], [1] * 40, [3, 17, 20], [39, 1]])
def test_outputs_of_a_stream_do_not_depend_on_its_pieces(system: Path, sizes: list[int]) -> None:
    options = SimpleComputationOptions(frame_subsampling_factor=3, frames_per_chunk=9)
    computer = LoopedComputer(read_nnet("raw"), options)
    features = read_table("ark:feats.ark")["a"]
    expected = computer.compute(features)
    pieces = np.split(features, np.cumsum(sizes)[:-1])
    computer.warm_up()  # must not leave anything in the state
    stream = LoopedStream(computer)
    outputs = [*map(stream.accept, pieces), stream.finish()]
    np.testing.assert_allclose(np.concatenate(outputs), expected, atol=1e-6)


@pytest.mark.parametrize("norm_vars", [False, True])
def test_features_of_pieces_are_normalized_as_those_of_the_whole(norm_vars: bool) -> None:
    options = OnlineCmvnOptions(cmn_window=9, global_frames=4, norm_vars=norm_vars)
    overall = np.array([[3.0, -2.0, 8.0], [40.0, 60.0, 0.0]])
    normalization = Normalization("online", options, overall=overall)
    features = np.random.default_rng(2).normal(size=(40, 2)).astype(np.float32)
    pieces = np.split(features, [1, 6, 7, 30])
    found = np.concatenate(list(map(normalization.stream(), pieces)))
    np.testing.assert_array_equal(found, normalization.whole(features))


def test_sound_becomes_words_whole_or_as_a_stream(system: Path, capfd, monkeypatch) -> None:
    with_sound_features(monkeypatch)
    Path("mfcc.conf").write_text("--dither=0\n")
    Path("frame_subsampling_factor").write_text("3\n")
    Path("cmvn_opts").write_text("--norm-means=false --norm-vars=false\n")
    write_wave("one.wav", 0.7)
    write_wave("two.wav", 0.3, channels=2)
    write_wave("slow.wav", 0.3, rate=8000)
    write_wave("short.wav", 0.001)
    Path("cut.wav").write_bytes(Path("one.wav").read_bytes()[:30])
    files = ["one.wav", "two.wav", "slow.wav", "short.wav", "cut.wav", "none.wav"]
    whole = ("nnet3-decode", "--format=json", BEAM, ".", "HCLG.fst", *files)
    assert run(*whole) == 0
    out, err = capfd.readouterr()
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["utterance"] for line in lines] == ["one", "two"]
    for line in lines:
        ends = [0.0] + [word["begin"] + word["length"] for word in line["words"]]
        for word, end in zip(line["words"], ends, strict=False):
            assert word["begin"] >= end - 1e-3
            assert 0.0 <= word["confidence"] <= 1.0
    assert "two: sound with 2 channels: the first one is decoded" in err
    assert "slow: Waveform and config sample Frequency mismatch: 8000 .vs 16000" in err
    assert "short: the sound is shorter than a frame" in err
    assert "cut.wav" in err
    assert "none.wav" in err
    assert "Done 2 utterances, failed for 4" in err
    assert "Traceback" not in err
    texts = []
    for threads in (1, 2, 8):
        assert run("nnet3-decode", f"--num-threads={threads}", *whole[2:]) == 0
        texts.append(capfd.readouterr().out)
    assert texts[0] == texts[1] == texts[2]
    assert run("nnet3-decode", "--format=json", "--stream=true", *whole[2:]) == 0
    out, err = capfd.readouterr()
    streamed = [json.loads(line) for line in out.splitlines()]
    assert [line["words"] for line in streamed] == [line["words"] for line in lines]
    assert "pieces of sound took" in err
    assert run("nnet3-decode", "--stream=true", "--cmvn=utterance", *whole[2:]) == 255
    assert "not with --stream=true" in capfd.readouterr().err

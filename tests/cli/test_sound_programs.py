"""Programs on sound: features compared with NumPy formulas, files with Python's module wave."""

import builtins
import io
import struct
import wave
from pathlib import Path

import numpy as np
import pytest

from nnet3tools.errors import install_command
from nnet3tools.features.resample import resample
from nnet3tools.io.foreign_features import HTK, SPHINX, HtkFeatures
from nnet3tools.io.holders import MATRIX
from nnet3tools.io.wave import WAVE, Wave
from support.shell import Shell

RNG = np.random.default_rng(3)


def sound(num_samples: int, rate: int) -> np.ndarray:
    """Two tones and noise as int16 samples."""
    t = np.arange(num_samples) / rate
    tones = 4000 * np.sin(2 * np.pi * 440 * t) + 2500 * np.sin(2 * np.pi * 1330 * t + 1)
    return (tones + RNG.normal(0, 300, num_samples)).astype(np.int16)


SOUNDS = {f"u{i}": sound(size, 8000) for i, size in enumerate((4000, 2713, 900))}


def write_wave(path: str, samples: np.ndarray, rate: int = 8000) -> None:
    """Write a file with Python's module; `samples` is (samples,) or (channels, samples)."""
    channels = np.atleast_2d(samples)
    with wave.open(path, "wb") as file:
        file.setnchannels(len(channels))
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(channels.T.astype("<i2").tobytes())


@pytest.fixture
def script(shell: Shell) -> str:
    for key, samples in SOUNDS.items():
        write_wave(f"{key}.wav", samples)
    Path("wav.scp").write_text("".join(f"{key} {key}.wav\n" for key in SOUNDS))
    return "scp:wav.scp"


# -- the formula: HTK book, chapter 5, with Kaldi's window, edges and order


def frames_of(samples: np.ndarray, size: int, shift: int, snip: bool) -> np.ndarray:
    x = samples.astype(np.float64)
    if snip:
        count = 1 + (len(x) - size) // shift if len(x) >= size else 0
        starts = shift * np.arange(count)
    else:
        count = (len(x) + shift // 2) // shift
        starts = shift * np.arange(count) + shift // 2 - size // 2
    at = starts[:, None] + np.arange(size)
    at = np.where(at < 0, -at - 1, at)
    return x[np.where(at >= len(x), 2 * len(x) - 1 - at, at)]


def mel(f: np.ndarray | float) -> np.ndarray:
    return 1127 * np.log(1 + np.asarray(f) / 700)


def spectrum(samples: np.ndarray, rate: int, snip: bool, power: bool) -> tuple[np.ndarray, ...]:
    """Spectrum of the windowed frames, and the logarithm of each frame's energy before that."""
    size, shift = rate // 40, rate // 100
    frames = frames_of(samples, size, shift, snip)
    frames = frames - frames.mean(axis=1, keepdims=True)
    energy = np.log(np.maximum((frames**2).sum(axis=1), np.finfo(np.float32).eps))
    before = np.concatenate([frames[:, :1], frames[:, :-1]], axis=1)
    angle = 2 * np.pi * np.arange(size) / (size - 1)
    window = (0.5 - 0.5 * np.cos(angle)) ** 0.85
    padded = 1 << (size - 1).bit_length()
    spectra = np.abs(np.fft.rfft((frames - 0.97 * before) * window, padded))[:, : padded // 2]
    return (spectra**2 if power else spectra), energy


def fbank(
    samples: np.ndarray, rate: int, bins: int, snip: bool = True, power: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    spectra, energy = spectrum(samples, rate, snip, power)
    half = spectra.shape[1]
    points = mel(np.arange(half) * rate / (2 * half))
    edges = np.linspace(mel(20.0), mel(rate / 2), bins + 2)
    rising = (points - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - points) / (edges[2:] - edges[1:-1])[:, None]
    weights = np.maximum(0, np.minimum(rising, falling))
    return np.log(np.maximum(spectra @ weights.T, np.finfo(np.float32).eps)), energy


def mfcc(samples: np.ndarray, rate: int, bins: int, ceps: int, energy: bool) -> np.ndarray:
    logs, energies = fbank(samples, rate, bins)
    k = np.arange(ceps)[:, None]
    dct = np.sqrt(2 / bins) * np.cos(np.pi * k * (np.arange(bins) + 0.5) / bins)
    dct[0] = np.sqrt(1 / bins)
    result = logs @ dct.T * (1 + 11 * np.sin(np.pi * np.arange(ceps) / 22))
    if energy:
        result[:, 0] = energies
    return result


@pytest.fixture
def engine() -> None:
    pytest.importorskip("kaldi_native_fbank", reason="the extra [recipe] is not installed")


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("energy", [True, False])
def test_mfcc_are_the_formula(shell: Shell, script: str, energy: bool) -> None:
    log = shell(
        "compute-mfcc-feats", "--dither=0", "--sample-frequency=8000", f"--use-energy={energy}",
        "--num-ceps=12", "--num-mel-bins=20", "--write-utt2dur=ark,t:dur", script, "ark:f",
    )  # fmt: skip
    assert " Done 3 out of 3 utterances." in log
    found = shell.read("f", MATRIX)
    assert list(found) == list(SOUNDS)
    for key, samples in SOUNDS.items():
        expected = mfcc(samples, 8000, 20, 12, energy)
        assert found[key].shape == expected.shape
        np.testing.assert_allclose(found[key], expected, rtol=2e-4, atol=2e-3)
    durations = dict(line.split() for line in Path("dur").read_text().splitlines())
    assert {key: float(d) for key, d in durations.items()} == {
        key: pytest.approx(len(samples) / 8000) for key, samples in SOUNDS.items()
    }


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(("snip", "power"), [(True, True), (False, False)])
def test_fbank_is_the_formula(shell: Shell, script: str, snip: bool, power: bool) -> None:
    shell(
        "compute-fbank-feats", "--dither=0", "--sample-frequency=8000", f"--snip-edges={snip}",
        f"--use-power={power}", "--num-mel-bins=15", script, "ark:f",
    )  # fmt: skip
    for key, found in shell.read("f", MATRIX).items():
        expected, _ = fbank(SOUNDS[key], 8000, 15, snip, power)
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-3)


@pytest.mark.usefixtures("engine")
def test_sound_at_another_rate_is_resampled_only_if_allowed(shell: Shell, script: str) -> None:
    log = shell("compute-fbank-feats", script, "ark:f", status=1)
    assert "mismatch: 8000 .vs 16000 (use --allow-upsample=true" in log
    assert "Failed to compute features for utterance u0" in log
    shell("compute-fbank-feats", "--allow-upsample=true", "--dither=0", script, "ark:f")
    up = resample(SOUNDS["u0"].astype(np.float32), 8000, 16000)
    expected, _ = fbank(up, 16000, 23)
    np.testing.assert_allclose(shell.read("f", MATRIX)["u0"], expected, rtol=5e-4, atol=5e-3)


@pytest.mark.parametrize(("rate", "new_rate"), [(8000, 16000), (16000, 8000), (44100, 16000)])
def test_resampling_keeps_a_tone(rate: int, new_rate: int) -> None:
    num_samples, hertz = 3001, 440.0
    tone = np.sin(2 * np.pi * hertz * np.arange(num_samples) / rate).astype(np.float32)
    output = resample(tone, rate, new_rate)
    assert len(output) == -(-num_samples * new_rate // rate)
    expected = np.sin(2 * np.pi * hertz * np.arange(len(output)) / new_rate)
    inner = slice(100, -100)  # filters differ at the abrupt ends
    np.testing.assert_allclose(output[inner], expected[inner], atol=0.02)


@pytest.mark.parametrize(("rate", "new_rate"), [(8000, 11025), (16000, 6000)])
def test_resampling_is_the_sum_over_the_filter(rate: int, new_rate: int) -> None:
    x = RNG.normal(size=200)
    cutoff = 0.99 * 0.5 * min(rate, new_rate)
    t = np.arange(-(-200 * new_rate // rate))[:, None] / new_rate - np.arange(200) / rate
    with np.errstate(invalid="ignore"):
        sinc = np.where(t == 0, 2 * cutoff, np.sin(2 * np.pi * cutoff * t) / (np.pi * t))
    window = np.where(np.abs(t) < 3 / cutoff, 0.5 * (1 + np.cos(2 * np.pi * cutoff * t / 6)), 0.0)
    expected = (sinc * window / rate) @ x
    np.testing.assert_allclose(resample(x.astype(np.float32), rate, new_rate), expected, atol=1e-5)


@pytest.mark.usefixtures("engine")
def test_htk_format_mean_and_short_sound(shell: Shell, script: str) -> None:
    base = ["compute-mfcc-feats", "--dither=0", "--sample-frequency=8000"]
    shell(*base, script, "ark:f")
    plain = shell.read("f", MATRIX)
    log = shell(*base, "--output-format=htk", "--min-duration=0.2", script, "ark:h")
    assert "File: u2 is too short (0.1125 sec): producing no output." in log
    found = shell.read("h", HTK)
    assert list(found) == ["u0", "u1"]
    assert found["u0"].kind == 0o106
    np.testing.assert_array_equal(found["u0"].features, plain["u0"])
    shell("compute-fbank-feats", *base[1:], "--output-format=htk", script, "ark:b")
    assert shell.read("b", HTK)["u0"].kind == 0o20007
    shell(*base, "--subtract-mean=true", script, "ark:m")
    np.testing.assert_allclose(
        shell.read("m", MATRIX)["u1"], plain["u1"] - plain["u1"].mean(axis=0), atol=1e-4
    )


@pytest.mark.usefixtures("engine")
def test_channels(shell: Shell) -> None:
    both = np.stack([sound(2000, 8000), sound(2000, 8000)])
    write_wave("s.wav", both)
    Path("s.scp").write_text("s s.wav\n")
    base = ["compute-fbank-feats", "--dither=0", "--sample-frequency=8000"]
    assert "2  channels; defaulting to zero" in shell(*base, "scp:s.scp", "ark:0")
    shell(*base, "--channel=1", "scp:s.scp", "ark:1")
    for channel in (0, 1):
        expected, _ = fbank(both[channel], 8000, 23)
        found = shell.read(str(channel), MATRIX)["s"]
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-3)
    assert "2 channels but you specified channel 2" in shell(
        *base, "--channel=2", "scp:s.scp", "ark:2", status=1
    )


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--num-mel-bins=2", "expected at least 3"),
        ("--num-mel-bins=127", "a bin would have no frequency"),
        ("--low-freq=9000", "vs. nyquist 8000"),
        ("--high-freq=9000", "vs. nyquist 8000"),
        ("--num-ceps=24", "num-ceps cannot be larger"),
        ("--frame-length=0.01", "too short at 16000 Hz"),
        ("--frame-shift=0", "too short at 16000 Hz"),
        ("--window-type=square", "expected one of hamming"),
        ("--preemphasis-coefficient=2", "between 0 and 1"),
        ("--vtln-warp=0.9", "not supported"),
        ("--output-format=wav", "Invalid output_format"),
    ],
)
def test_options_that_make_no_features(
    shell: Shell, script: str, option: str, message: str
) -> None:
    assert message in shell.error("compute-mfcc-feats", option, script, "ark:f")
    assert not Path("f").exists()


def test_without_the_extra_one_line_says_what_to_install(
    shell: Shell, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = builtins.__import__

    def refuse(name: str, *rest: object, **named: object) -> object:
        if name == "kaldi_native_fbank":
            raise ImportError(name)
        return plain(name, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", refuse)
    line = shell.error("compute-mfcc-feats", script, "ark:f")
    assert f"kaldi-native-fbank: {install_command('recipe')}" in line
    assert not Path("f").exists()


# -- sound in files


def test_wave_files_are_those_of_python(shell: Shell, script: str) -> None:
    assert "Copied 3 wave files" in shell("wav-copy", script, "ark:copy")
    for key, found in shell.read("copy", WAVE).items():
        np.testing.assert_array_equal(found.samples[0], SOUNDS[key])
        assert found.rate == 8000
    shell("wav-copy", "u1.wav", "again.wav")
    assert Path("again.wav").read_bytes() == Path("u1.wav").read_bytes()


@pytest.mark.parametrize("table", ["scp:wav.scp", "ark:copy", "scp:copy.scp"])
def test_durations(shell: Shell, script: str, table: str) -> None:
    shell("wav-copy", script, "ark,scp:copy,copy.scp")
    log = shell("wav-to-duration", table, "ark,t:dur")
    assert Path("dur").read_text() == "u0 0.5 \nu1 0.339125 \nu2 0.1125 \n"
    assert "Printed duration for 3 audio files." in log
    assert "Mean duration was 0.317208, min and max durations were 0.1125, 0.5" in log


def test_streamed_sound_has_no_length_in_its_header(shell: Shell, script: str) -> None:
    data = bytearray(Path("u0.wav").read_bytes())
    data[40:44] = b"\xff\xff\xff\xff"
    Path("u0.wav").write_bytes(data)
    assert "try --read-entire-file" in shell.error("wav-to-duration", script, "ark,t:dur")
    shell("wav-to-duration", "--read-entire-file=true", script, "ark,t:dur")
    assert Path("dur").read_text().startswith("u0 0.5 \n")


def test_other_chunks_big_endian_and_truncation(shell: Shell) -> None:
    samples = SOUNDS["u2"]
    body = samples.astype(">i2").tobytes()
    chunks = [
        (b"JUNK", b"12345678"), (b"fmt ", struct.pack(">HHIIHH", 1, 1, 8000, 16000, 2, 16)),
        (b"fact", b"abcd"), (b"data", body),
    ]  # fmt: skip
    inner = b"WAVE" + b"".join(name + struct.pack(">I", len(part)) + part for name, part in chunks)
    Path("x.wav").write_bytes(b"RIFX" + struct.pack(">I", len(inner)) + inner[:-500])
    Path("x.scp").write_text("x x.wav\n")
    log = shell("wav-copy", "scp:x.scp", "ark:copy")
    assert "Truncated file?" in log
    np.testing.assert_array_equal(shell.read("copy", WAVE)["x"].samples[0], samples[:-250])


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (0, b"OggS", "expected a wave file"),
        (8, b"AVI ", "expected WAVE"),
        (20, b"\x03\x00", "found format 3"),
        (22, b"\x00\x00", "expected channels and a rate"),
        (34, b"\x08\x00", "expected 16 bits"),
        (28, b"\x00\x00\x00\x00", "bytes a second"),
        (16, b"\xff\xff\xff\x7f", "format chunk"),
        (36, b"LIST\xff\xff\xff\xff", "expected the wave file's chunk"),
    ],
)
def test_garbled_wave_files(shell: Shell, script: str, at: int, value: bytes, message: str) -> None:
    data = bytearray(Path("u0.wav").read_bytes())
    data[at : at + len(value)] = value
    Path("u0.wav").write_bytes(data)
    assert message in shell.error("wav-copy", script, "ark:copy")
    assert not Path("copy").exists()


def test_segments(shell: Shell, script: str) -> None:
    Path("segments").write_text(
        "a u0 0.1 0.3\nb u0 0.25 -1\nc u0 0.3 0.9\nd u0 0.4 1.2\ne u0 0.6 0.7\nf u0 0.1 0.15\n"
        "g nobody 0 1\nh u0 x 1\ni u0 0.3 0.2\nj u0 0.1\nk u0 0.1 0.3 1\n"
    )
    log = shell("extract-segments", script, "segments", "ark:out")
    found = shell.read("out", WAVE)
    expected = {"a": (800, 2400), "b": (2000, 4000), "c": (2400, 4000)}
    assert list(found) == list(expected)
    for key, (first, last) in expected.items():
        np.testing.assert_array_equal(found[key].samples[0], SOUNDS["u0"][first:last])
    for words in (
        "Segment d: Segment end is too far out", "Segment e: Segment start is out of",
        "Segment f: too short", "Could not find recording nobody", "[bad start]: h",
        "[empty or invalid segment]: i", "Invalid line in segments file: j",
        "Invalid channel 1 >= 1", "Successfully processed 3 lines out of 11",
    ):  # fmt: skip
        assert words in log


def test_segments_of_two_channels_say_which(shell: Shell) -> None:
    shell.write("two", WAVE, {"s": Wave(8000, np.stack([SOUNDS["u0"], -SOUNDS["u0"]]))})
    Path("segments").write_text("a s 0 0.2 1\nb s 0 0.2\n")
    line = shell.error("extract-segments", "ark:two", "segments", "ark:out")
    assert "segments: line 2: s has 2 channels" in line
    assert not Path("out").exists()


# -- features of other toolkits


def test_features_of_htk_and_sphinx(shell: Shell) -> None:
    feats = RNG.normal(size=(5, 13)).astype(np.float32)
    shell.write("htk", HTK, {"a": HtkFeatures(feats, 6)})
    shell.write("sphinx", SPHINX, {"a": feats})
    for option in ("htk", "sphinx"):
        shell("copy-feats", f"--{option}-in=true", f"ark:{option}", f"ark:from-{option}")
        np.testing.assert_array_equal(shell.read(f"from-{option}", MATRIX)["a"], feats)
    stream = io.BytesIO(struct.pack(">iihH", 5, 100000, 52, 6) + feats.astype(">f4").tobytes())
    Path("one.htk").write_bytes(stream.getvalue())
    shell("copy-feats", "--htk-in=true", "--binary=false", "one.htk", "one.mat")
    assert Path("one.mat").read_text().count("\n") == 6
    Path("bad.htk").write_bytes(struct.pack(">iihH", 5, 100000, 52, 6 | 0o2000))
    assert "compressed" in shell.error("copy-feats", "--htk-in=true", "bad.htk", "x")
    Path("bad").write_bytes(b"a " + struct.pack(">i", 14))
    assert "frames of 13" in shell.error("copy-feats", "--sphinx-in=true", "ark:bad", "ark:x")


def test_copies_have_the_sizes_of_the_list(shell: Shell) -> None:
    write_wave("sound.wav", SOUNDS["u2"])
    Path("wav.scp").write_text("a sound.wav\nb sound.wav\n")
    Path("copies").write_text("a-1 a 600\na-2 a 1200\nb-1 b 900\n")
    shell("wav-perturb-speed", "copies", "scp:wav.scp", "ark:out.ark")
    found = shell.read("out.ark", WAVE)
    sizes = {key: wave.samples.shape for key, wave in found.items()}
    assert sizes == {"a-1": (1, 600), "a-2": (1, 1200), "b-1": (1, 900)}
    assert (found["b-1"].samples == SOUNDS["u2"]).all()


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("a-1 a", "copies:1: expected a copy, its sound and a size"),
        ("a-1 a 0", "copies:1: expected a copy, its sound and a size"),
        ("a-1 a 999999999", "more than 16 times as long"),
    ],
)
def test_copies_that_cannot_be_made(shell: Shell, line: str, error: str) -> None:
    write_wave("sound.wav", SOUNDS["u2"])
    Path("wav.scp").write_text("a sound.wav\n")
    Path("copies").write_text(f"{line}\n")
    assert error in shell.error("wav-perturb-speed", "copies", "scp:wav.scp", "ark:out.ark")

"""What nnet3-decode reads: a model's folder that is the graph's, sound, standard input."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from nnet3tools.io.files import open_output
from nnet3tools.io.holders import DOUBLE_MATRIX
from nnet3tools.io.stream import Writer
from nnet3tools.io.wave import WAVE, Wave
from support.fuzz_speech_samples import damage_each

_FOLDER = "recognizer"
_TEXTS = {
    "mfcc.conf": "--dither=0\n--num-ceps=3  # as the network wants\n--sample-frequency=8000\n",
    "frame_subsampling_factor": "1\n",
    "cmvn_opts": "--norm-means=true --cmn-window=700\n",
    "model.conf": "--acoustic-scale=1.0\n--beam=14\n",
    "words.txt": "<eps> 0\nyes 1\nno 2\n",
    "phones/align_lexicon.int": "1 1 1\n2 2 2\n",
    "phones/silence.csl": "3:4\n",
}
_MODEL_FILES = ("final.mdl", "global_cmvn.stats", "HCLG.fst")
_LIVE = {
    "one.wav": "--format=json",
    "one.pcm": "--format=vosk",
    "one.float": "--sample-format=float32",
}
"""Sound for standard input, and an option with which it is read."""
_WAYS = (
    ("--format=ctm",),
    ("--format=json", "--stream=true", "--piece-seconds=0.1"),
)


def make_recognizer_samples() -> None:
    """Write the files into the working directory, which has the files of decoding programs."""
    folder = Path(_FOLDER)
    (folder / "phones").mkdir(parents=True)
    for name, text in _TEXTS.items():
        (folder / name).write_text(text)
    (folder / "online_cmvn").touch()
    shutil.copy("decode.mdl", folder / "final.mdl")
    shutil.copy("decode.fst", folder / "HCLG.fst")
    statistics = np.array([[30.0, -20.0, 10.0, 10.0], [400.0, 300.0, 200.0, 0.0]])
    with open_output(str(folder / "global_cmvn.stats")) as writer:
        DOUBLE_MATRIX.write(writer, statistics)
    samples = np.random.default_rng(8).normal(0, 2000, (1, 2000)).astype(np.int16)
    with open(folder / "one.wav", "wb") as file:
        WAVE.write(Writer(file), Wave(8000, samples))
    (folder / "one.pcm").write_bytes(samples.tobytes())
    (folder / "one.float").write_bytes((samples / 32768).astype("<f4").tobytes())
    damage_each(_FOLDER, (*_TEXTS, *_MODEL_FILES))


def recognizer_targets() -> Iterator[tuple[str, tuple[str, ...]]]:
    """(file, command line in which BAD stands for it)."""
    sound = f"{_FOLDER}/one.wav"
    for way in _WAYS:
        program = ("nnet3-decode", *way, "--output=out")
        for name in (*_TEXTS, *_MODEL_FILES):
            bad = f"{_FOLDER}.{Path(name).name}"
            yield f"{_FOLDER}/{name}", (*program, bad, f"{bad}/HCLG.fst", sound)
        yield sound, (*program, _FOLDER, f"{_FOLDER}/HCLG.fst", "BAD")
    live = ("nnet3-decode", "--stream=true", "--allow-downsample=true", "--allow-upsample=true")
    for name, option in _LIVE.items():
        words = (option, "--output=out", _FOLDER, f"{_FOLDER}/HCLG.fst", "<BAD")
        yield f"{_FOLDER}/{name}", (*live, *words)

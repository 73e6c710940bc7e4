"""What nnet3-decode reads (a model's folder, sound), and directories of trainings and data."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import soundfile

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

_DIRECTORIES = {
    "nnet3-report exp": {
        "log/train.0.1.log": "# nnet3-train --learning-rate=0.002 0.raw ark:egs 1.raw\n"
        "# Started at Sun Nov 22 05:01:00 UTC 2026\n"
        "LOG (nnet3-train[5.5]:PrintTotalStats():nnet-training.cc:72) Overall average objective "
        "function for 'output' is -2.5 over 1000 frames.\n"
        "LOG (nnet3-train[5.5]:Print():nnet-utils.cc:1) For a, per-component max-change was "
        "enforced 5.5 % of the time.\n# Accounting: time=3 threads=1\n"
        "# Ended (code 0) at Sun Nov 22 05:09:00 UTC 2026, elapsed time 3 seconds\n",
        "log/progress.1.log": "num-parameters: 1234\ninput-node name=input dim=20\n"
        "component-node name=a component=a input=Append(Offset(input, -2), input) input-dim=40\n"
        "component name=a type=TanhComponent, dim=4, value-avg=[percentiles(0,1 2,5 50 80 95 98)="
        "(0,1 2,3 4 5 6 7), mean=0.4, stddev=0.5]\n"
        "LOG (nnet3-show-progress[5.5]:main():nnet3-show-progress.cc:118) Parameter differences "
        "per layer are [ a:1.28 b:0.8 ]\n",
        "experiment.json": '{"program": "p", "options": {"x": 1, "y": "z"}, "network": []}\n',
        "configs/final.config": "input-node name=input dim=3\noutput-node name=o input=input\n",
    },
    "nnet3-check-data data": {
        "wav.scp": "r recognizer/one.wav\n",
        "segments": "u r 0 0.2\n",
        "text": "u a b\n",
        "utt2spk": "u s\n",
    },
    "nnet3-check-data tsv": {"m.tsv": "path\tsentence\n../recognizer/one.wav\ta b\n"},
    "nnet3-check-data csv": {"m.csv": 'audio;text\n"../recognizer/one.wav";"a ""b"\n'},
    "nnet3-check-data json": {
        "m.jsonl": '{"audio_filepath": "../recognizer/one.wav", "text": "a b", "duration": 0.2}\n'
    },
    "nnet3-check-data flac": {"m.tsv": "path\tsentence\none.flac\ta b\n", "one.flac": ""},
}
"""Command of a directory -> the directory's text files."""


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
    for command, texts in _DIRECTORIES.items():
        directory = Path(command.split()[1])
        for name, text in texts.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(text)
            if name.endswith("flac"):
                soundfile.write(directory / name, samples[0], 8000)
        damage_each(str(directory), texts)


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
    for command, texts in _DIRECTORIES.items():
        directory = command.split()[1]
        for name in texts:
            yield f"{directory}/{name}", tuple(f"{command}.{Path(name).name}".split())

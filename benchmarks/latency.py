"""Latency of live recognition: sound played in real time to nnet3-decode --stream=true.

For each word: seconds from its last sample to the first partial result (or result) with it. For
each utterance: seconds from the end of its last word to its result, in which the endpoint rules'
silence is contained. Then, without waiting: CPU time of a second of sound, and its inverse, the
streams that one core carries in real time.

    python benchmarks/latency.py MODEL_DIR WAV.SCP [--utterances 40] [--pause 1.0]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

from nnet3tools import Recognizer
from nnet3tools.io.table import SequentialTableReader
from nnet3tools.io.wave import WAVE

_PIECE_SECONDS = 0.02


def main() -> None:
    """Print latencies and costs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model_dir")
    parser.add_argument("wav_scp")
    parser.add_argument("--utterances", type=int, default=40)
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between utterances")
    options = parser.parse_args()
    sound, rate = joined(options.wav_scp, options.utterances, options.pause)
    began, lines = play(options.model_dir, sound, rate)
    words, ends = latencies(began, lines)
    for name, values in (("last sample of a word to its partial result", words),
                         ("end of the last word to the result", ends)):  # fmt: skip
        low, middle, high = 1000 * np.percentile(values, [50, 90, 99])
        print(f"{name}: {len(values)} of them, p50 {low:.0f}, p90 {middle:.0f}, p99 {high:.0f} ms")
    for seconds in (0.02, 0.1, 0.25):
        cost, each = costs(options.model_dir, sound, rate, seconds)
        print(
            f"pieces of {seconds:g} s: {1000 * each[0]:.2f} ms each (p99 {1000 * each[1]:.2f}), "
            f"{1000 * cost:.1f} ms of CPU time for a second of sound: {1 / cost:.0f} streams a core"
        )


def joined(scp: str, count: int, pause: float) -> tuple[np.ndarray, int]:
    """(sound of the first utterances, each followed by a pause with faint noise; sampling rate)."""
    draw = np.random.default_rng(0)
    parts: list[np.ndarray] = []
    with SequentialTableReader(f"scp:{scp}", WAVE) as reader:
        for _, (_, wave) in zip(range(count), reader, strict=False):
            silence = draw.normal(0, 8, int(pause * wave.rate)).astype(np.int16)
            parts += [wave.samples[0], silence]
    return np.concatenate(parts), wave.rate


def play(folder: str, sound: np.ndarray, rate: int) -> tuple[float, list[tuple[float, dict]]]:
    """(time at which the sound began, lines of JSON with their times) of the sound, played."""
    program = Path(sys.executable).with_name("nnet3-decode")
    words = [str(program), "--stream=true", "--format=json", f"--sample-rate={rate}", folder, "-"]
    lines: list[tuple[float, dict]] = []
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        output = process.stdout

        def read() -> None:
            lines.extend((time.perf_counter(), json.loads(line)) for line in output)

        reader = threading.Thread(target=read)
        reader.start()
        time.sleep(5)  # the program loads and warms up
        began, size = time.perf_counter(), round(rate * _PIECE_SECONDS)
        for begin in range(0, len(sound), size):
            piece = sound[begin : begin + size]
            time.sleep(max(0.0, began + (begin + len(piece)) / rate - time.perf_counter()))
            process.stdin.write(piece.astype("<i2").tobytes())
            process.stdin.flush()
        process.stdin.close()
        reader.join()
    return began, lines


def latencies(began: float, lines: list[tuple[float, dict]]) -> tuple[list[float], list[float]]:
    """(seconds for each word, seconds for each utterance); see the module."""
    words: list[float] = []
    ends: list[float] = []
    partial: list[tuple[float, list[str]]] = []
    for at, line in lines:
        if "partial" in line:
            partial.append((at - began, line["partial"].split()))
            continue
        partial.append((at - began, line["text"].split()))
        for number, word in enumerate(line["words"]):
            first = next(
                seen for seen, text in partial
                if len(text) > number and text[number] == word["word"]
            )  # fmt: skip
            words.append(first - word["begin"] - word["length"])
        if line["words"]:
            ends.append(at - began - line["words"][-1]["begin"] - line["words"][-1]["length"])
        partial = []
    return words, ends


def costs(
    folder: str, sound: np.ndarray, rate: int, seconds: float
) -> tuple[float, tuple[float, float]]:
    """(CPU seconds for a second of sound, (mean, p99) of the seconds for a piece)."""
    recognizer = Recognizer.load(folder)
    recognizer.stream(rate).accept(sound[: 10 * rate])
    stream, size, each = recognizer.stream(rate), round(rate * seconds), []
    cpu = time.process_time()
    for begin in range(0, len(sound), size):
        now = time.perf_counter()
        if stream.accept(sound[begin : begin + size]):
            stream.result()
        else:
            stream.partial()
        each.append(time.perf_counter() - now)
    stream.final()
    cost = (time.process_time() - cpu) / (len(sound) / rate)
    return cost, (float(np.mean(each)), float(np.percentile(each, 99)))


if __name__ == "__main__":
    main()

"""nnet3-decode beside Vosk and pocketsphinx: time, memory and word errors on the same recordings.

    python benchmarks/recognizers.py --peers PYTHON --data DIR [--vosk FOLDER] [--sphinx FOLDER]
                                     [--only WORD...] MODEL_DIR

DIR has wav.scp (16 kHz) and text; PYTHON has the packages vosk and pocketsphinx. Vosk uses the same
model as nnet3-decode, if that has no i-vectors, and the one in --vosk. pocketsphinx uses its own
acoustic model (en-us) with its own language model, and with an4.lm and an4.dic of --sphinx. So
only the first three rows have the same model. One thread; times include the start of the program.
"""

from __future__ import annotations

import argparse
import subprocess
import wave
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory

from processes import ROOT, ours, timed

from nnet3tools.fst.files import load_fst, save_fst

SEARCH = "--beam=15\n--max-active=7000\n--lattice-beam=4\n--frame-subsampling-factor=3\n"
"""The defaults of nnet3-decode, and of chain models."""


def vosk_folder(model: Path, folder: Path) -> str:
    """Lay out a model directory as Vosk's are, in `folder`; the graph has the scaled costs."""
    for name in ("am", "conf", "graph"):
        (folder / name).mkdir(parents=True)
    for name in ("final.mdl", "global_cmvn.stats"):
        copy(model / name, folder / "am")
    copy(model / "graph" / "words.txt", folder / "graph")
    (folder / "conf/mfcc.conf").write_text((model / "mfcc.conf").read_text() + "\n--dither=0\n")
    given = (model / "model.conf").read_text().splitlines()
    scale = [float(line.partition("=")[2]) for line in given if line.startswith("--lm-scale")]
    silence = [line for line in given if line.startswith(("--endpoint", "--acoustic"))]
    (folder / "conf/model.conf").write_text(SEARCH + "\n".join([*silence, ""]))
    graph = load_fst(str(model / "graph/HCLG.fst")).scaled(*scale or [1.0])
    save_fst(str(folder / "graph/HCLG.fst"), graph)
    return str(folder)


def commands(args: argparse.Namespace, folder: Path) -> dict[str, list[str]]:
    """By name, the commands that write "key words" to the file `words`."""
    scp, model = f"{args.data}/wav.scp", str(args.model_dir)
    peer = [args.peers, str(ROOT / "benchmarks" / "peer_decode.py")]
    decode = ours("nnet3-decode", "--output=words", "--lattice-beam=4")
    return {
        "nnet3-decode": [*decode, model, f"scp:{scp}"],
        "nnet3-decode --stream=true": [*decode, "--stream=true", model, f"scp:{scp}"],
        "vosk, the same model": [*peer, "vosk", scp, "words", vosk_folder(args.model_dir, folder)],
        f"vosk, {args.vosk}": [*peer, "vosk", scp, "words", args.vosk],
        "pocketsphinx, en-us": [*peer, "pocketsphinx", scp, "words"],
        "pocketsphinx, en-us, AN4's words": [*peer, "pocketsphinx", scp, "words", args.sphinx],
    }


def seconds_of(scp: Path) -> float:
    """Length of all recordings."""
    total = 0.0
    for line in scp.read_text().splitlines():
        with wave.open(line.split()[1]) as file:
            total += file.getnframes() / file.getframerate()
    return total


def main() -> None:
    """Decode with each system, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--peers", required=True, help="an interpreter with vosk, pocketsphinx")
    parser.add_argument("--data", type=lambda text: Path(text).resolve(), required=True)
    parser.add_argument("--vosk", default="", help="the folder of another model for Vosk")
    parser.add_argument("--sphinx", default="", help="the folder of an4.lm and an4.dic")
    parser.add_argument("--only", nargs="+", default=[""], help="rows whose name has such a word")
    parser.add_argument("model_dir", type=lambda text: Path(text).resolve())
    args = parser.parse_args()
    sound = seconds_of(args.data / "wav.scp")
    print(f"{sound:.0f} s of sound\n\n| system | user s | real-time factor | MB | word errors |")
    print("|---|---|---|---|---|")
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name, command in commands(args, folder / "vosk").items():
            if command[-1] == "" or not any(word in name for word in args.only):
                continue
            took = timed(command, folder)
            scoring = ours("compute-wer", f"ark:{args.data}/text", "ark:words")
            done = subprocess.run(scoring, cwd=folder, capture_output=True, text=True, check=True)
            wer = done.stdout.splitlines()[0].removeprefix("%WER ")
            numbers = f"{took.user:.2f} | {took.user / sound:.4f} | {took.megabytes:.0f}"
            print(f"| {name} | {numbers} | {wer} |", flush=True)


if __name__ == "__main__":
    main()

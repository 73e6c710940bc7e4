"""nnet3-latgen-faster in turns with Kaldi's: user seconds and memory, and whether words are equal.

usage: python benchmarks/decoding.py [--kaldi BIN_FOLDER] [--rounds N] [--lattice-beams 4,6,8]
           MODEL GRAPH FEATURES [OPTION]...

FEATURES is an archive; OPTIONs are nnet3-latgen-faster's.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

from processes import Timing, ours, timed


def best(timings: list[Timing]) -> Timing:
    """The least of each number."""
    return Timing(
        min(t.user for t in timings),
        min(t.elapsed for t in timings),
        min(t.megabytes for t in timings),
    )


def compare(args: argparse.Namespace, beam: str, folder: Path) -> None:
    """Print one line: both programs with this lattice beam, in turns."""
    inputs = [str(Path(name).resolve()) for name in (args.model, args.graph, args.features)]
    words = [
        *args.options,
        f"--lattice-beam={beam}",
        *inputs[:2],
        f"ark:{inputs[2]}",
        "ark:/dev/null",
    ]
    commands = {"ours": ours("nnet3-latgen-faster", *words, "ark,t:ours")}
    if args.kaldi:
        commands["kaldi"] = [f"{args.kaldi}/nnet3-latgen-faster", *words, "ark,t:kaldi"]
    timings: dict[str, list[Timing]] = {name: [] for name in commands}
    for _ in range(args.rounds):
        for name, command in commands.items():
            timings[name].append(timed(command, folder))
    found = {name: best(of_program) for name, of_program in timings.items()}
    text = ", ".join(f"{name} {t.user:.2f} s, {t.megabytes:.0f} MB" for name, t in found.items())
    if args.kaldi:
        same = (folder / "ours").read_text() == (folder / "kaldi").read_text()
        ratio = found["ours"].user / found["kaldi"].user
        text += f": {ratio:.2f}, words {'equal' if same else 'differ'}"
    print(f"lattice beam {beam}: {text}", flush=True)


def main() -> None:
    """Compare for all lattice beams."""
    parser = argparse.ArgumentParser(description=__doc__, add_help=True)
    parser.add_argument("--kaldi", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lattice-beams", default="4,6,8")
    for name in ("model", "graph", "features"):
        parser.add_argument(name)
    args, options = parser.parse_known_args()
    args.options = options
    with TemporaryDirectory() as folder:
        for beam in args.lattice_beams.split(","):
            compare(args, beam, Path(folder))


if __name__ == "__main__":
    main()

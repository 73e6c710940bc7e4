"""make_alignments.py DATA OUT: what a GMM system would leave, for the scripts that need one.

A phone a digit, of three states; every utterance is cut into three equal parts. OUT gets
tree, final.mdl, ali.1.gz, num_jobs, phones.txt. DATA has text and utt2num_frames.
"""

import gzip
import io
import sys
from pathlib import Path

import numpy as np

from nnet3tools.io.holders import INT32_VECTOR
from nnet3tools.io.reader import Reader
from nnet3tools.io.writer import Writer
from nnet3tools.nnet.hmm.topology import HmmTopology
from nnet3tools.nnet.hmm.transition_model import TransitionModel
from nnet3tools.nnet.hmm.tree import ContextDependency

STATES = 3
PHONES = range(1, 11)


def topology_text() -> str:
    """Three states left to right for every phone."""
    states = "".join(
        f"<State> {i} <PdfClass> {i} <Transition> {i} 0.75 <Transition> {i + 1} 0.25 </State> "
        for i in range(STATES)
    )
    phones = " ".join(map(str, PHONES))
    return (
        f"<Topology> <TopologyEntry> <ForPhones> {phones} </ForPhones> {states}"
        f"<State> {STATES} </State> </TopologyEntry> </Topology> "
    )


def tree_text() -> str:
    """A tree that asks for the phone, then for its state: a pdf each."""
    tables = "".join(
        "TE -1 {} ( {} ) ".format(
            STATES, " ".join(f"CE {(phone - 1) * STATES + i}" for i in range(STATES))
        )
        for phone in PHONES
    )
    return (
        f"ContextDependency 1 0 ToPdf TE 0 {len(PHONES) + 1} ( NULL {tables}) EndContextDependency "
    )


def reader(text: str) -> Reader:
    """A reader of text."""
    return Reader(io.BytesIO(text.encode()))


def write_model(target: Path, tree_text: str, topology_text: str, phones: list[str]) -> None:
    """The folder with tree, final.mdl, num_jobs and phones.txt."""
    target.mkdir(parents=True, exist_ok=True)
    (target / "tree").write_text(tree_text)
    (target / "num_jobs").write_text("1\n")
    (target / "phones.txt").write_text("".join(f"{p} {i + 1}\n" for i, p in enumerate(phones)))
    tree = ContextDependency.read(reader(tree_text))
    model = TransitionModel.from_tree(tree, HmmTopology.read(reader(topology_text)))
    with (target / "final.mdl").open("wb") as file:
        writer = Writer(file)
        writer.write_header()
        model.write(writer)


def main(data: Path, target: Path) -> None:
    """Write the folder."""
    write_model(target, tree_text(), topology_text(), [f"d{phone - 1}" for phone in PHONES])
    lengths = dict(line.split() for line in (data / "utt2num_frames").open())
    with gzip.open(target / "ali.1.gz", "wb") as packed:
        writer = Writer(packed)  # type: ignore[arg-type]
        for line in (data / "text").open():
            name, digit = line.split()
            writer.write_token(name)
            INT32_VECTOR.write_object(writer, alignment(int(digit), int(lengths[name])))


def alignment(digit: int, num_frames: int) -> np.ndarray:
    """Transition ids: each state is entered to be left, then loops (Kaldi's reordered form)."""
    first = 2 * STATES * digit + 1
    bounds = np.linspace(0, num_frames, STATES + 1).astype(int)
    parts = [np.full(n, first + 2 * i) for i, n in enumerate(np.diff(bounds))]
    for part in parts:
        part[:1] += 1  # the transition that leaves the state stands first
    return np.concatenate(parts).astype(np.int32)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

"""make_chain_inputs.py DATA OUT: the tree, alignments and lattices that chain training starts from.

Every utterance is silence, its digit (a phone each), silence: a quarter, a half, a quarter of its
frames. Phones have the topology of chain models. OUT, good for --tree-dir and --lat-dir, gets
tree, final.mdl, ali.1.gz, lat.1.gz, num_jobs, phones.txt. DATA has text and utt2num_frames.
"""

import gzip
import sys
from pathlib import Path

import numpy as np
from make_alignments import write_model

from nnet3tools.fst.lattice import CompactLattice
from nnet3tools.fst.lattice_files import COMPACT_LATTICE
from nnet3tools.io.holders import INT32_VECTOR
from nnet3tools.io.writer import Writer

SILENCE = 11
NAMES = [*(f"d{digit}" for digit in range(10)), "sil"]


def topology_text() -> str:
    """One state, whose first frame has a pdf of its own, for every phone."""
    phones = " ".join(map(str, range(1, len(NAMES) + 1)))
    return (
        f"<Topology> <TopologyEntry> <ForPhones> {phones} </ForPhones> "
        "<State> 0 <ForwardPdfClass> 0 <SelfLoopPdfClass> 1 <Transition> 0 0.5 <Transition> 1 0.5 "
        "</State> <State> 1 </State> </TopologyEntry> </Topology> "
    )


def tree_text() -> str:
    """A tree that asks for the phone, then for the kind of frame: a pdf each."""
    tables = "".join(f"TE -1 2 ( CE {2 * i} CE {2 * i + 1} ) " for i in range(len(NAMES)))
    return (
        f"ContextDependency 1 0 ToPdf TE 0 {len(NAMES) + 1} ( NULL {tables}) EndContextDependency "
    )


def alignment(digit: int, num_frames: int) -> np.ndarray:
    """Transition ids: each phone is entered to be left, then loops (Kaldi's reordered form)."""
    ends = np.array([0, num_frames // 4, num_frames - num_frames // 4, num_frames])
    ids = np.repeat(2 * np.array([SILENCE, digit + 1, SILENCE]), np.diff(ends))
    is_first = np.isin(np.arange(num_frames), ends)
    return np.where(is_first, ids, ids - 1).astype(np.int32)


def lattice(digit: int, ids: np.ndarray) -> CompactLattice:
    """One path; as after determinization its arcs do not end where phones do."""
    half = len(ids) // 2
    first, second = tuple(ids[:half].tolist()), tuple(ids[half:].tolist())
    arcs = [[(digit + 1, 1.0, -2.0, first, 1)], [(0, 0.5, -3.0, second[:-1], 2)], []]
    return CompactLattice.from_lists(0, [None, None, (0.0, 0.0, second[-1:])], arcs)


def main(data: Path, target: Path) -> None:
    """Write the folder."""
    write_model(target, tree_text(), topology_text(), NAMES)
    lengths = dict(line.split() for line in (data / "utt2num_frames").open())
    with (
        gzip.open(target / "ali.1.gz", "wb") as alignments,
        gzip.open(target / "lat.1.gz", "wb") as lattices,
    ):
        for line in (data / "text").open():
            name, digit = line.split()
            ids = alignment(int(digit), int(lengths[name]))
            for file, holder, value in (
                (alignments, INT32_VECTOR, ids),
                (lattices, COMPACT_LATTICE, lattice(int(digit), ids)),
            ):
                writer = Writer(file)  # type: ignore[arg-type]
                writer.write_token(name)
                holder.write_object(writer, value)  # type: ignore[attr-defined]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

"""Good files of decoding and of what builds a recogniser, for the corpus."""

from pathlib import Path

from nnet3tools.fst.lattice import CompactLattice, Lattice
from nnet3tools.fst.lattice_files import COMPACT_LATTICE, LATTICE
from nnet3tools.io.table import TableWriter

_COMPACT = CompactLattice.from_lists(
    0,
    [None, (0.5, -1.25, (3,))],
    [[(7, 1.5, 2.0, (1, 2, 2), 1), (8, 0.25, 3.0, (4,), 1)], []],
)
_PLAIN = Lattice.from_lists(
    0, [None, None, (0.5, 1.0)], [[(1, 7, 1.5, 2.0, 1)], [(2, 0, 0.0, 0.5, 2)], []]
)
_ARPA = """\\data\\
ngram 1=4
ngram 2=2

\\1-grams:
-99\t<s>\t-0.3
-0.5\t</s>
-0.7\ta\t-0.2
-0.6\tb

\\2-grams:
-0.1\t<s> a
-0.2\ta b

\\end\\
"""
_WORDS = "<eps> 0\na 1\nb 2\n<s> 3\n</s> 4\n#0 5\n"


def make_lang_samples() -> None:
    """Write the files into the working directory."""
    for form, mode in (("bin", "ark"), ("txt", "ark,t")):
        with TableWriter(f"{mode}:compact.lat.{form}", COMPACT_LATTICE) as compact:
            compact.write("u1", _COMPACT)
        with TableWriter(f"{mode}:plain.lat.{form}", LATTICE) as plain:
            plain.write("u1", _PLAIN)
    Path("grammar.arpa").write_text(_ARPA)
    Path("words.txt").write_text(_WORDS)
    Path("lexicon.txt").write_text("a A B\nb B\na A\n")
    Path("lexiconp.txt").write_text("a 0.5 A B\nb 1.0 B\n")
    Path("dropout").write_text("*tdnn*=0,0.2@0.25,0.1@0.5,0 lstm=0.3,0")

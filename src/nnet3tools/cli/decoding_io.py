"""Inputs and outputs of decoding programs: graphs, tables of results, transcripts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

from nnet3tools.errors import DataError
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

if TYPE_CHECKING:
    from nnet3tools.decoding.utterance import Decoded
    from nnet3tools.fst.fst import Fst
    from nnet3tools.recognizer.utterances import UtteranceCounts


class GraphTable:
    """Iterates over (key, features) for a table of graphs; `graph` is that of the latest key."""

    graph: Fst

    def __init__(
        self,
        graphs: Iterable[tuple[str, Fst]],
        features: str,
        counts: UtteranceCounts,
        missing: str,
    ) -> None:
        """Pair `graphs` with table `features`; if it lacks a key, warn by `missing` with {key}."""
        self._graphs, self._features, self._counts = graphs, features, counts
        self._missing = missing

    def __iter__(self) -> Iterator[tuple[str, np.ndarray]]:
        from nnet3tools.io.holders import MATRIX
        from nnet3tools.io.table import RandomAccessTableReader

        with RandomAccessTableReader(self._features, MATRIX) as reader:
            for key, graph in self._graphs:
                self.graph = graph
                if (features := reader.get(key)) is None:
                    log.warning(self._missing.format(key=key))
                    self._counts.failed += 1
                else:
                    yield key, features


class Transcripts:
    """Logs transcripts as words, if there is a symbol table for words."""

    def __init__(self, symbol_table: str) -> None:
        """Read the file `symbol_table`; if the name is empty, no transcript is logged."""
        from nnet3tools.lang.symbols import SymbolTable

        self._table = SymbolTable.load(symbol_table) if symbol_table else None

    def show(self, key: str, words: np.ndarray) -> None:
        """Log the key and the words; DataError for a number that is not in the symbol table."""
        if self._table is None:
            return
        symbols, numbers = self._table.symbols, words.tolist()
        for number in numbers:
            if number not in symbols:
                raise DataError(f"Word-id {number} not in symbol table {self._table.name}.")
        log.write(f"{key} {''.join(symbols[number] + ' ' for number in numbers)}")


class DecodingOutputs:
    """Writes the lattices, words and alignments of utterances, and logs lines about them."""

    def __init__(
        self, compact: bool, tables: list[str], symbol_table: str, stack: ExitStack
    ) -> None:
        """Open `tables`: one to three wspecifiers, for lattices, words and alignments.

        With `compact`, lattices are CompactLattices. `symbol_table`, unless "", has the words for
        logged transcripts. `stack` closes the tables.
        """
        from nnet3tools.cli.tables import OptionalTable
        from nnet3tools.fst.lattice_files import COMPACT_LATTICE, LATTICE
        from nnet3tools.io.holders import INT32_VECTOR

        names = [*tables, "", ""]
        self._transcripts = Transcripts(symbol_table)
        self._lattices = OptionalTable(names[0], COMPACT_LATTICE if compact else LATTICE, stack)
        self._words = OptionalTable(names[1], INT32_VECTOR, stack)
        self._alignments = OptionalTable(names[2], INT32_VECTOR, stack)

    def flush(self) -> None:
        """Flush all tables."""
        for table in (self._lattices, self._words, self._alignments):
            table.flush()

    def write(self, key: str, decoded: Decoded) -> None:
        """Write and log the results of one utterance."""
        best = decoded.best
        self._words.write(key, best.transcript)
        self._alignments.write(key, best.alignment)
        self._transcripts.show(key, best.transcript)
        self._lattices.write(key, decoded.lattice)
        average = decoded.loglike / decoded.num_frames if decoded.num_frames else float("nan")
        log.log(
            f"Log-like per frame for utterance {key} is {average:g} over {decoded.num_frames} "
            "frames."
        )
        graph, acoustic = best.costs
        log.vlog(2, f"Cost for utterance {key} is {graph:g} + {acoustic:g}")

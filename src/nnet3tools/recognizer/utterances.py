"""Inputs of programs that compute outputs of utterances: features, i-vectors, and counts."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from nnet3tools.errors import EmptyError, NotFiniteError, OptionError, naming
from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.io import log
from nnet3tools.options import OptionGroup, option

if TYPE_CHECKING:
    import numpy as np

    from nnet3tools.executor.chunks import Ivectors
    from nnet3tools.io.table import SequentialTableReader


class IvectorOptions(OptionGroup):
    """Options that name tables of i-vectors."""

    ivectors: str = option(
        "",
        "Rspecifier for iVectors as vectors (i.e. not estimated online); per utterance by default, "
        "or per speaker if you provide the --utt2spk option.",
    )
    utt2spk: str = option("", "Rspecifier for utt2spk option used to get ivectors per speaker")
    online_ivectors: str = option(
        "",
        "Rspecifier for iVectors estimated online, as matrices. If you supply this, you must set "
        "the --online-ivector-period option.",
    )
    online_ivector_period: int = option(
        0, "Number of frames between iVectors in matrices supplied to the --online-ivectors option"
    )

    def check(self) -> None:
        """OptionError if options contradict each other."""
        if self.ivectors and self.online_ivectors:
            raise OptionError("--ivectors and --online-ivectors cannot both be given")
        if self.online_ivectors and self.online_ivector_period <= 0:
            raise OptionError("--online-ivectors needs --online-ivector-period, greater than 0")


class InputOptions(IvectorOptions):
    """Options of nnet3-compute and nnet3-compute-batch for model, i-vectors and outputs."""

    apply_exp: bool = option(False, "If true, apply exp function to output")
    use_priors: bool = option(
        False,
        "If true, subtract the logs of the priors stored with the model (in this case, a .mdl "
        "file is expected as input).",
    )


class NothingDoneError(Exception):
    """Raised if no utterance could be computed, so that output tables are not created."""


@dataclass
class UtteranceCounts:
    """Counts of utterances (done, failed) and of their frames, and the time of the start."""

    done: int = 0
    failed: int = 0
    frames: int = 0
    began: float = field(default_factory=time.perf_counter)

    def check(self) -> None:
        """Raise NothingDoneError if no utterance was computed."""
        if self.done == 0:
            raise NothingDoneError

    @property
    def seconds(self) -> float:
        """The seconds since the start time."""
        return time.perf_counter() - self.began

    def report(self) -> int:
        """Log the elapsed time and the counts as Kaldi does; returns the program's exit status."""
        seconds = self.seconds
        factor = 100.0 * seconds / self.frames if self.frames else 0.0
        log.log(f"Time taken {seconds:g}s: real-time factor assuming 100 frames/sec is {factor:g}")
        log.log(f"Done {self.done} utterances, failed for {self.failed}")
        return 0 if self.done else 1


_PATIENCE_SECONDS = 0.5
"""After this time without input, its writer may be waiting for outputs. Programs of a pipeline
seldom take longer from one utterance to the next."""


class InputPauses:
    """Detects that an input table has paused, so that waiting utterances should be computed now."""

    def __init__(self) -> None:
        self._tables: list[SequentialTableReader] = []

    def watch(self, table: SequentialTableReader) -> None:
        """Add a table whose pauses are to be detected."""
        self._tables.append(table)

    def __call__(self) -> bool:
        return any(table.pauses(_PATIENCE_SECONDS) for table in self._tables)


def utterances(
    rspecifier: str,
    options: IvectorOptions,
    counts: UtteranceCounts,
    pauses: InputPauses | None = None,
) -> Iterator[tuple[str, np.ndarray, Ivectors | None]]:
    """Yield (key, features, i-vectors) of each utterance whose inputs are complete.

    Other utterances are counted as failed, with a warning. `pauses` watches the table of features.
    EmptyError if there are no utterances.
    """
    from nnet3tools.io.holders import MATRIX
    from nnet3tools.io.table import SequentialTableReader

    with SequentialTableReader(rspecifier, MATRIX) as reader:
        if pauses is not None:
            pauses.watch(reader)
        yield from complete_utterances(reader, rspecifier, options, counts)


def complete_utterances(
    source: Iterable[tuple[str, np.ndarray]],
    name: str,
    options: IvectorOptions,
    counts: UtteranceCounts,
) -> Iterator[tuple[str, np.ndarray, Ivectors | None]]:
    """Yield (key, features, i-vectors) of the utterances of `source` with finite, complete inputs.

    Other utterances are counted as failed, with a warning. EmptyError, which names the source
    `name`, if there are no utterances.
    """
    from nnet3tools.io.general_matrix import check_finite

    with contextlib.ExitStack() as stack:
        find_ivectors = _ivector_source(options, stack)
        num_seen = 0
        for key, features in source:
            num_seen += 1
            if len(features) == 0:
                log.warning(f"Zero-length utterance: {key}")
                counts.failed += 1
                continue
            with naming(f"utterance {key}"):
                ivectors = find_ivectors(key) if find_ivectors is not None else None
            if find_ivectors is not None and ivectors is None:
                kind = "online iVector" if options.online_ivectors else "iVector"
                log.warning(f"No {kind} available for utterance {key}")
                counts.failed += 1
                continue
            try:
                with naming(f"utterance {key}"):
                    check_finite("features", features)
                    if ivectors is not None:
                        check_finite("i-vectors", ivectors.rows)
            except NotFiniteError as error:
                log.skipped(error)
                counts.failed += 1
                continue
            yield key, features, ivectors
            counts.frames += len(features)
        if num_seen == 0 and counts.failed == 0:
            raise EmptyError(f"{name}: no utterances")


def _ivector_source(
    options: IvectorOptions, stack: contextlib.ExitStack
) -> Callable[[str], Ivectors | None] | None:
    """A function from a key to its i-vectors (None if missing); None if no table is given.

    `stack` closes the table.
    """
    from nnet3tools.executor.chunks import Ivectors
    from nnet3tools.io.holders import MATRIX, VECTOR
    from nnet3tools.io.table import MappedTableReader, RandomAccessTableReader

    table: MappedTableReader[np.ndarray] | RandomAccessTableReader[np.ndarray]
    if options.ivectors:
        table = MappedTableReader(options.ivectors, VECTOR, options.utt2spk)
    elif options.online_ivectors:
        table = RandomAccessTableReader(options.online_ivectors, MATRIX)
    else:
        return None
    stack.enter_context(table)
    period = options.online_ivector_period if options.online_ivectors else 0

    def find(key: str) -> Ivectors | None:
        rows = table.get(key)
        return None if rows is None else Ivectors(rows, period)

    return find

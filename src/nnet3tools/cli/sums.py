"""Code shared by matrix-sum and vector-sum: sums over tables, of one table, and of files."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nnet3tools.errors import DataError, EmptyError, OptionError
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

if TYPE_CHECKING:
    from nnet3tools.io.holders import Holder


@dataclass(frozen=True)
class Summing:
    """Sums arrays that `holder` reads and writes; messages call them `what` and `plural`."""

    holder: Holder[np.ndarray]
    what: str
    plural: str

    def tables(self, sources: list[str], target: str, scales: list[float]) -> int:
        """Write the scaled sum over several tables for each key; returns the exit status.

        The first table determines the keys. Objects that are missing in another table, or have
        another size, are skipped with a warning.
        """
        from nnet3tools.io.table import RandomAccessTableReader, SequentialTableReader, TableWriter

        num_done = num_objects = num_missing = 0
        with ExitStack() as stack:
            writer = stack.enter_context(TableWriter(target, self.holder))
            reader = stack.enter_context(SequentialTableReader(sources[0], self.holder))
            others = [
                stack.enter_context(RandomAccessTableReader(source, self.holder))
                for source in sources[1:]
            ]
            for key, first in reader:
                total = first * np.float32(scales[0])
                num_objects += 1
                for number, table in enumerate(others, start=1):
                    where = f"system {number + 1}, rspecifier: {sources[number]}"
                    if (value := table.get(key)) is None:
                        log.warning(f"No {self.what} found for utterance {key} for {where}")
                        num_missing += 1
                        continue
                    num_objects += 1
                    if value.shape != total.shape:
                        log.warning(
                            f"Dimension mismatch for utterance {key} : {_size(value)} for {where} "
                            f"vs {_size(total)} primary {self.what}, rspecifier:{sources[0]}"
                        )
                        continue
                    total += np.float32(scales[number]) * value
                writer.write(key, total)
                num_done += 1
        log.log(
            f"Processed {num_done} utterances: with a total of {num_objects} {self.plural} across "
            f"{len(sources)} different systems"
        )
        log.log(
            f"Produced output for {num_done} utterances; {num_missing} total missing {self.plural}"
        )
        return 0 if num_done and num_missing < num_done - num_missing else 1

    def table(self, source: str, target: str, binary: bool, average: bool = False) -> int:
        """Write the sum of all objects of a table; returns the exit status."""
        from nnet3tools.cli.tables import write_object
        from nnet3tools.io.files import prove_output
        from nnet3tools.io.table import SequentialTableReader

        prove_output(target)
        total: np.ndarray | None = None
        num_done = num_failed = 0
        with SequentialTableReader(source, self.holder) as reader:
            for key, value in reader:
                if value.shape[0] == 0:
                    log.warning(f"Zero {self.what} input for key {key}")
                    num_failed += 1
                    continue
                total = np.zeros(value.shape) if total is None else total
                if total.shape != value.shape:
                    sizes = f"{_size(value)} vs. {_size(total)}"
                    log.warning(f"Dimension mismatch for key {key}: {sizes}")
                    num_failed += 1
                    continue
                total += value
                num_done += 1
        if total is None:
            raise EmptyError(f"{source}: there are no {self.plural} to sum")
        total = total / num_done if average else total
        write_object(target, self.holder, total.astype(np.float32), binary)
        log.log(f"Summed {num_done} {self.plural}, {num_failed} with errors; wrote sum to {target}")
        return 0 if num_failed < num_done else 1

    def files(self, sources: list[str], target: str, binary: bool, average: bool = False) -> int:
        """Write the sum of the objects in several files; returns the exit status.

        Smaller objects count as zero beyond their size; DataError if an object is smaller than one
        before.
        """
        from nnet3tools.cli.tables import is_table, read_object, write_object

        if any(map(is_table, sources)):
            raise OptionError(
                "Wrong usage (type 3): if first and last arguments are not tables, the "
                "intermediate arguments must not be tables."
            )
        total = read_object(sources[0], self.holder)
        for name in sources[1:]:
            value = read_object(name, self.holder)
            if any(new < old for new, old in zip(value.shape, total.shape, strict=True)):
                raise DataError(f"{name}: {_size(value)}, but those before it {_size(total)}")
            grown = [(0, new - old) for new, old in zip(value.shape, total.shape, strict=True)]
            total = np.pad(total, grown) + value
        total = total * np.float32(1.0 / len(sources)) if average else total
        write_object(target, self.holder, total, binary)
        log.log(f"Summed {len(sources)} {self.plural}; wrote sum to {target}")
        return 0


def _size(array: np.ndarray) -> str:
    return " by ".join(map(str, array.shape))

"""Programs that sum matrices and vectors: over tables, of one table, and of files."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from nnet3tools.cli.options import NoOptions, OptionGroup, option, program
from nnet3tools.errors import DataError, EmptyError, OptionError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

if TYPE_CHECKING:
    from nnet3tools.io.holders import Holder


@dataclass(frozen=True)
class Summing:
    """Sums arrays that `holder` reads and writes; messages name them `what` and `plural`."""

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
        """Write the sum or, with `average`, mean of a table's objects; returns the exit status.

        `source` is an rspecifier, `target` a wxfilename, which is written in text if not `binary`.
        """
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
        """Write the sum or, with `average`, the mean of several files; returns the exit status.

        Each object must be at least as large as those before it, which are padded with zeros;
        DataError if one is smaller.
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


MATRIX_DIM_USAGE = """Print dimension info on an input matrix (rows then cols, separated by tab), to
standard output.  Output for single filename: rows[tab]cols.  Output per line for
archive of files: key[tab]rows[tab]cols
Usage: matrix-dim [options] <matrix-in>|<in-rspecifier>
e.g.: matrix-dim final.mat | cut -f 2
See also: feat-to-len, feat-to-dim
"""


@program("matrix-dim", MATRIX_DIM_USAGE, NoOptions, num_args=1)
def matrix_dim(options: NoOptions, args: list[str]) -> int:
    from nnet3tools.cli.tables import is_table, read_object
    from nnet3tools.io.holders import MATRIX
    from nnet3tools.io.table import SequentialTableReader

    (source,) = args
    if not is_table(source):
        print(*read_object(source, MATRIX).shape, sep="\t")
        return 0
    count = 0
    with SequentialTableReader(source, MATRIX) as reader:
        for key, matrix in reader:
            print(key, *matrix.shape, sep="\t")
            count += 1
    if not count:
        log.warning(f"No features read from rspecifier '{source}'")
    return 0 if count else 1


MATRIX_SUM_USAGE = """Add matrices (supports various forms)

Type one usage:
 matrix-sum [options] <matrix-in-rspecifier1> [<matrix-in-rspecifier2> <matrix-in-rspecifier3> \
...] <matrix-out-wspecifier>
  e.g.: matrix-sum ark:1.weights ark:2.weights ark:combine.weights
  This usage supports the --scale1 and --scale2 options to scale the
  first two input tables.
Type two usage (sums a single table input to produce a single output):
 matrix-sum [options] <matrix-in-rspecifier> <matrix-out-wxfilename>
 e.g.: matrix-sum --binary=false ark:mats.ark sum.mat
Type three usage (sums or averages single-file inputs to produce
a single output):
 matrix-sum [options] <matrix-in-rxfilename1> <matrix-in-rxfilename2> ... <matrix-out-wxfilename>
 e.g.: matrix-sum --binary=false 1.mat 2.mat 3.mat sum.mat
See also: matrix-sum-rows, copy-matrix
"""


class MatrixSumOptions(OptionGroup):
    scale1: float = option(1.0, "Scale applied to first matrix (only for type one usage)")
    scale2: float = option(1.0, "Scale applied to second matrix (only for type one usage)")
    binary: bool = option(
        True, "If true, write output as binary (only relevant for usage types two or three"
    )
    average: bool = option(
        False,
        "If true, compute average instead of sum; currently compatible with type 3 or type 1 "
        "usage.",
    )


@program("matrix-sum", MATRIX_SUM_USAGE, MatrixSumOptions, num_args=(2, None))
def matrix_sum(options: MatrixSumOptions, args: list[str]) -> int:
    from nnet3tools.cli.tables import is_table
    from nnet3tools.io.holders import MATRIX

    *sources, target = args
    summing = Summing(MATRIX, "matrix", "matrices")
    if is_table(target):
        scales = [options.scale1, options.scale2, *[1.0] * len(sources)][: len(sources)]
        if options.average:
            scales = [1.0 / len(sources)] * len(sources)
        return summing.tables(sources, target, scales)
    if options.scale1 != 1.0 or options.scale2 != 1.0:
        raise OptionError("--scale1 and --scale2 are for sums over tables")
    if len(sources) == 1 and is_table(sources[0]):
        if options.average:
            raise OptionError("--average option not compatible with type two usage.")
        return summing.table(sources[0], target, options.binary)
    return summing.files(sources, target, options.binary, options.average)


MATRIX_SUM_ROWS_USAGE = """Sum the rows of an input table of matrices and output the corresponding
table of vectors

Usage: matrix-sum-rows [options] <matrix-rspecifier> <vector-wspecifier>
e.g.: matrix-sum-rows ark:- ark:- | vector-sum ark:- sum.vec
See also: matrix-sum, vector-sum
"""


@program("matrix-sum-rows", MATRIX_SUM_ROWS_USAGE, NoOptions, num_args=2)
def matrix_sum_rows(options: NoOptions, args: list[str]) -> int:
    from nnet3tools.cli.tables import convert_table
    from nnet3tools.io.holders import MATRIX, VECTOR

    num_rows = 0

    def convert(key: str, matrix: np.ndarray) -> np.ndarray:
        nonlocal num_rows
        num_rows += len(matrix)
        return matrix.sum(axis=0, dtype=np.float64).astype(np.float32)

    num_done, _ = convert_table(args[0], args[1], (MATRIX, VECTOR), convert)
    log.log(f"Summed rows {num_done} matrices, {num_rows} rows in total.")
    return 0 if num_done else 1


VECTOR_SUM_USAGE = """Add vectors (e.g. weights, transition-accs; speaker vectors)
If you need to scale the inputs, use vector-scale on the inputs

Type one usage:
 vector-sum [options] <vector-in-rspecifier1> [<vector-in-rspecifier2> <vector-in-rspecifier3> \
...] <vector-out-wspecifier>
  e.g.: vector-sum ark:1.weights ark:2.weights ark:combine.weights
Type two usage (sums a single table input to produce a single output):
 vector-sum [options] <vector-in-rspecifier> <vector-out-wxfilename>
 e.g.: vector-sum --binary=false ark:vecs.ark sum.vec
Type three usage (sums single-file inputs to produce a single output):
 vector-sum [options] <vector-in-rxfilename1> <vector-in-rxfilename2> ... <vector-out-wxfilename>
 e.g.: vector-sum --binary=false 1.vec 2.vec 3.vec sum.vec
See also: copy-vector, dot-weights
"""


class VectorSumOptions(OptionGroup):
    binary: bool = option(
        True, "If true, write output as binary (only relevant for usage types two or three"
    )
    average: bool = option(False, "Do average instead of sum")


@program("vector-sum", VECTOR_SUM_USAGE, VectorSumOptions, num_args=(2, None))
def vector_sum(options: VectorSumOptions, args: list[str]) -> int:
    """Sum vectors: of several tables by key, of one table, or of several files.

    As in Kaldi, --average applies to a single table only.
    """
    from nnet3tools.cli.tables import is_table
    from nnet3tools.io.holders import VECTOR

    *sources, target = args
    summing = Summing(VECTOR, "vector", "vectors")
    if is_table(target):
        return summing.tables(sources, target, [1.0] * len(sources))
    if len(sources) == 1 and is_table(sources[0]):
        return summing.table(sources[0], target, options.binary, options.average)
    return summing.files(sources, target, options.binary)

"""LDA statistics: class means and total covariance (transform/lda-estimate.cc)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io.reader import Reader
from nnet3tools.io.writer import Writer
from nnet3tools.nnet.stored import StoredObject


@dataclass
class LdaStats(StoredObject):
    """Weights (C,), weighted sums (C, D) and weighted sum of squares (D, D) of data in C classes.

    Files contain the sum of squares about the classes' means, in single precision.
    """

    zero: NDArray[np.float64]
    first: NDArray[np.float64]
    second: NDArray[np.float64]

    @classmethod
    def empty(cls, num_classes: int, dim: int) -> LdaStats:
        """Statistics without data."""
        return cls(np.zeros(num_classes), np.zeros((num_classes, dim)), np.zeros((dim, dim)))

    @property
    def total(self) -> float:
        """The total weight of the data."""
        return float(self.zero.sum())

    def accumulate(
        self,
        data: NDArray[np.float32],
        rows: NDArray[np.integer],
        classes: NDArray[np.integer],
        weights: NDArray[np.float32],
    ) -> None:
        """Add row `rows[i]` of `data` (N, D) with weight `weights[i]` to class `classes[i]`."""
        kept = np.flatnonzero(weights)
        rows, classes, weights = rows[kept], classes[kept], weights[kept]
        wide = data.astype(np.float64)
        num_classes = len(self.zero)
        self.zero += np.bincount(classes, weights, num_classes)
        np.add.at(self.first, classes, weights[:, None] * wide[rows])
        row_weights = np.bincount(rows, weights, len(wide))
        self.second += (wide * row_weights[:, None]).T @ wide

    def add(self, other: LdaStats) -> None:
        """Add the statistics `other`; DataError unless they have the same classes and dimension."""
        if self.first.shape != other.first.shape:
            (classes, dim), (other_classes, other_dim) = self.first.shape, other.first.shape
            raise DataError(
                f"LDA statistics of {other_classes} classes in {other_dim} dimensions cannot be "
                f"added to those of {classes} classes in {dim} dimensions"
            )
        self.zero += other.zero
        self.first += other.first
        self.second += other.second

    def covariances(self) -> tuple[NDArray, NDArray, NDArray]:
        """The within-class covariance (D, D), between-class covariance (D, D) and mean (D,)."""
        total = self.total
        mean = self.first.sum(axis=0) / total
        squares = self._squares_of_means()
        between = squares / total - np.outer(mean, mean)
        return (self.second - squares) / total, between, mean

    # -- files

    @classmethod
    def read(cls, reader: Reader) -> LdaStats:
        """The statistics read in Kaldi's form; DataError if their sizes do not match."""
        dim = reader.expect_token("<LDAACCS>", "<VECSIZE>").read_int32()
        num_classes = reader.expect_token("<NUMCLASSES>").read_int32()
        reader.expect_token("<ZERO_ACCS>")
        zero = reader.read_vector(np.float64)
        reader.expect_token("<FIRST_ACCS>")
        first = reader.read_matrix(np.float64)
        lower = reader.expect_token("<SECOND_ACCS>").read_packed()
        second = lower + np.tril(lower, -1).T
        reader.expect_token("</LDAACCS>")
        expected = (num_classes,), (num_classes, dim), (dim, dim)
        if (zero.shape, first.shape, second.shape) != expected:
            raise reader.error(
                f"LDA statistics of {num_classes} classes in {dim} dimensions hold {len(zero)} "
                f"weights, means {first.shape} and a covariance {second.shape}"
            )
        stats = cls(zero, first, second)
        stats.second += stats._squares_of_means()
        return stats

    def write(self, writer: Writer) -> None:
        """Write the statistics in Kaldi's form."""
        num_classes, dim = self.first.shape
        writer.write_token("<LDAACCS>")
        writer.write_token("<VECSIZE>").write_int32(dim)
        writer.write_token("<NUMCLASSES>").write_int32(num_classes)
        writer.write_token("<ZERO_ACCS>").write_vector(self.zero.astype(np.float32))
        writer.write_token("<FIRST_ACCS>").write_matrix(self.first.astype(np.float32))
        writer.write_token("<SECOND_ACCS>").write_packed(self.second - self._squares_of_means())
        writer.write_token("</LDAACCS>")

    def _squares_of_means(self) -> NDArray[np.float64]:
        """The weighted sum (D, D) of the squares of the classes' means."""
        seen = self.zero != 0.0
        first = self.first[seen]
        return first.T @ (first / self.zero[seen, None])


def sum_stats(rxfilenames: list[str]) -> LdaStats:
    """The sum of the statistics in the files; DataError names a file of other sizes."""
    total = LdaStats.load(rxfilenames[0])
    for name in rxfilenames[1:]:
        stats = LdaStats.load(name)
        try:
            total.add(stats)
        except DataError as error:
            raise DataError(f"{name} after {rxfilenames[0]}: {error}") from None
    return total

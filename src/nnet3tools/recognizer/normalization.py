"""Normalization of features, as the files of a model directory specify."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass, field, replace
from nnet3tools.features.cmvn import accumulate_cmvn, apply_cmvn, skip_cmvn
from nnet3tools.features.cmvn_options import CmvnOptions, OnlineCmvnOptions
from nnet3tools.features.online_cmvn import OnlineCmvnStream, online_cmvn
from nnet3tools.io.holders import DOUBLE_MATRIX
from nnet3tools.io.table_reader import read_object
from nnet3tools.options import colon_list


@dataclass(frozen=True)
class Normalization:
    """Mean and variance normalization of features; `kind` is "none", "utterance" or "online".

    "utterance" is apply-cmvn with the statistics of each utterance. "online" is apply-cmvn-online
    with the statistics of all data in the file `stats`, which `loaded` reads to `overall`.
    """

    kind: str
    options: CmvnOptions | OnlineCmvnOptions = field(default_factory=CmvnOptions)
    """OnlineCmvnOptions for "online", else CmvnOptions."""
    stats: Path | None = None
    overall: np.ndarray | None = None
    """For "online": these statistics, (2, dimension + 1), once they are `loaded`."""

    def loaded(self, dim: int) -> Normalization:
        """A copy of this normalization with its statistics read from their file.

        DataError unless they are statistics of features of dimension `dim`.
        """
        if self.stats is None:
            return self
        overall = read_object(str(self.stats), DOUBLE_MATRIX)
        if overall.shape != (2, dim + 1):
            raise DataError(
                f"{self.stats}: expected statistics of features of dimension {dim} "
                f"(2 x {dim + 1}), found {' x '.join(map(str, overall.shape))}"
            )
        return replace(self, overall=overall)

    def whole(self, features: np.ndarray) -> np.ndarray:
        """The normalized features (frames, dim) of a whole utterance."""
        if self.kind == "none":
            return features
        if isinstance(self.options, OnlineCmvnOptions):
            assert self.overall is not None
            return online_cmvn(features, self.overall, None, self.options, self._skipped)
        stats = skip_cmvn(accumulate_cmvn(None, features), self._skipped)
        return apply_cmvn(stats, features, self.options.norm_vars)

    def stream(self) -> Callable[[np.ndarray], np.ndarray]:
        """A function that normalizes the successive pieces (frames, dim) of one stream."""
        if self.kind == "none":
            return lambda frames: frames
        if isinstance(self.options, OnlineCmvnOptions):
            assert self.overall is not None
            return OnlineCmvnStream(self.overall, self.options, self._skipped).accept
        raise DataError(
            "means of utterances were taken out of the features, which a stream does not know: "
            "expected online_cmvn and global_cmvn.stats in the model directory"
        )

    @property
    def _skipped(self) -> list[int]:
        return colon_list(self.options.skip_dims, "--skip-dims option")

"""Normalization of features as the files of a model directory say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from nnet3tools.errors import DataError
from nnet3tools.features.cmvn import accumulate_cmvn, apply_cmvn, skip_cmvn
from nnet3tools.features.cmvn_options import CmvnOptions
from nnet3tools.features.online_cmvn import OnlineCmvnStream, online_cmvn
from nnet3tools.features.online_cmvn_options import OnlineCmvnOptions
from nnet3tools.options import colon_list


@dataclass(frozen=True)
class Normalization:
    """How features are normalized; `kind` is "none", "utterance" or "online".

    "utterance" is apply-cmvn with the statistics of each utterance, "online" is apply-cmvn-online.
    """

    kind: str
    overall: np.ndarray | None = None
    """For "online": the statistics of all training data, (2, dimension + 1)."""
    options: OnlineCmvnOptions = field(default_factory=OnlineCmvnOptions)
    """Options of the kind "online"."""
    whole_options: CmvnOptions = field(default_factory=CmvnOptions)
    """Options of the kind "utterance"."""

    def __post_init__(self) -> None:
        if self.kind == "online" and self.overall is None:
            raise DataError("online normalization needs statistics (global_cmvn.stats)")

    def check(self, dim: int) -> None:
        """DataError if the statistics are not those of features of dimension `dim`."""
        if self.overall is not None and self.overall.shape != (2, dim + 1):
            raise DataError(
                f"expected statistics of features of dimension {dim} (2 x {dim + 1}), found "
                f"{' x '.join(map(str, self.overall.shape))}"
            )

    def whole(self, features: np.ndarray) -> np.ndarray:
        """The normalized frames of an utterance."""
        if self.overall is not None:
            return online_cmvn(features, self.overall, None, self.options, self._skipped)
        if self.kind == "utterance":
            skipped = colon_list(self.whole_options.skip_dims, "--skip-dims option")
            stats = skip_cmvn(accumulate_cmvn(None, features), skipped)
            features = apply_cmvn(stats, features, self.whole_options.norm_vars)
        return features

    def stream(self) -> Callable[[np.ndarray], np.ndarray]:
        """A function that normalizes the frames of a stream, piece after piece.

        DataError for the kind "utterance", which needs the whole utterance.
        """
        if self.overall is not None:
            return OnlineCmvnStream(self.overall, self.options, self._skipped).accept
        if self.kind == "utterance":
            raise DataError(
                "means of utterances were taken out of the features, which a stream does not know: "
                "expected online normalization"
            )
        return lambda frames: frames

    @property
    def _skipped(self) -> list[int]:
        return colon_list(self.options.skip_dims, "--skip-dims option")

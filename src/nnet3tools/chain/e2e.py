"""End-to-end supervisions: training graphs as acceptors of pdfs, without alignments."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from nnet3tools import draws
from nnet3tools.chain.assembly import ExampleBlocks, ExamplePlan, Waiting
from nnet3tools.chain.example import EncodedChainExample, NnetChainExample
from nnet3tools.chain.native.supervisor import Job, JobKind, native_supervisor
from nnet3tools.chain.normalization import NO_SHARED_PATH, Normalizer
from nnet3tools.chain.supervision import Supervision
from nnet3tools.errors import DataError, naming
from nnet3tools.fast_dataclasses import dataclass, replace
from nnet3tools.fst.connect import steps_from_start
from nnet3tools.fst.epsilon import remove_epsilons
from nnet3tools.fst.file_walks import walk_vector
from nnet3tools.fst.files import FST, read_fst
from nnet3tools.fst.fst import EPSILON, Fst
from nnet3tools.fst.local_epsilon import remove_epsilons_locally
from nnet3tools.io import log
from nnet3tools.io.byte_walk import ByteWalk, OtherFormError
from nnet3tools.io.entries import encoded_entries
from nnet3tools.io.holder import Holder
from nnet3tools.io.stream import Reader
from nnet3tools.nnet.hmm.transition_model import TransitionModel
from nnet3tools.training.example import NnetIo
from nnet3tools.training.splitting import ExampleGenerationOptions

DrawIvector = Callable[[int], NnetIo]

_MOST_FRAMES_OFF = 4
"""The largest number of frames to cut off or repeat at the end to reach an allowed length."""


@dataclass(frozen=True)
class EncodedGraph:
    """The bytes of an FST in OpenFst's vector format."""

    data: bytes

    def whole(self) -> Fst:
        """The decoded FST."""
        return read_fst(Reader(io.BytesIO(self.data), binary=True))


def _find(data: bytes, start: int) -> tuple[EncodedGraph, int] | None:
    walk = ByteWalk(data, start)
    try:
        walk_vector(walk)
    except OtherFormError:
        return None
    return EncodedGraph(data[start : walk.at]), walk.at


ENCODED_GRAPHS: Holder[Any] = replace(
    cast(Holder[Any], FST), entries=lambda reader: encoded_entries(reader, _find, has_header=False)
)
"""The holder for reading tables of FSTs, which are EncodedGraphs where that is possible."""


def pdf_acceptor(graph: Fst, transition_model: TransitionModel) -> Fst | None:
    """Convert a graph that reads transition ids to an epsilon-free acceptor of pdfs plus one.

    None, after a warning, if epsilons cannot all be removed. DataError for labels that are
    not transition ids of the model.
    """
    fst = remove_epsilons(remove_epsilons_locally(graph))
    if (fst.ilabels == EPSILON).any():
        log.warning("Utterance rejected due to eps on input label")
        return None
    transition_model.check_transition_ids(fst.ilabels)
    return fst.relabelled(transition_model.pdfs_of_ids()[fst.ilabels] + np.int32(1))


def _least_duration(fst: Fst) -> int:
    """The number of arcs of the path with the least arcs plus final cost; -1 without paths."""
    steps = steps_from_start(fst)
    costs = np.where(steps >= 0, steps + fst.finals.astype(np.float64), np.inf)
    return int(steps[np.argmin(costs)]) if len(costs) and np.isfinite(costs.min()) else -1


@dataclass(frozen=True)
class E2eExampleMaker:
    """Makes one end-to-end chain example per utterance; `allowed_lengths` are in frames.

    `normalizer`, if given, adds the weights of the normalization FST. `where` is the rspecifier of
    the graphs, for error messages.
    """

    options: ExampleGenerationOptions
    transition_model: TransitionModel
    normalizer: Normalizer | None
    compress: bool
    allowed_lengths: Sequence[int]
    where: str

    def blocks(
        self, write: Callable[[str, NnetChainExample | EncodedChainExample], None]
    ) -> ExampleBlocks:
        """A new queue of utterances that makes their examples and calls `write`(key, example)."""
        normalization = None if self.normalizer is None else self.normalizer.fst
        labels = self.transition_model.pdfs_of_ids() + np.int32(1)
        native = native_supervisor(normalization, labels)
        return ExampleBlocks(native, JobKind.GRAPHS, self.compress, write)

    def add(
        self,
        key: str,
        graph: EncodedGraph | Fst,
        features: NDArray[np.float32],
        draw_ivector: DrawIvector | None,
        blocks: ExampleBlocks,
    ) -> None:
        """Add an utterance to `blocks`; DataError if no allowed length is near its frames.

        `graph` is its training graph. `draw_ivector(frame)` returns the i-vector of a chunk
        whose input starts at that frame; None: no i-vectors.
        """
        with naming(f"{self.where}: key '{key}'"):
            extension = _extension(key, len(features), self.allowed_lengths)
        num_output = self._num_output(len(features) + extension)
        blocks.accept(
            Waiting(
                key,
                key,
                graph.data if isinstance(graph, EncodedGraph) else None,
                Job(0, size=num_output),
                1.0,
                self.transition_model.num_pdfs,
                features.nbytes,
                partial(self._plan, features, extension, draw_ivector),
                partial(self._supervision, key, graph, num_output),
            )
        )

    def _num_output(self, num_frames: int) -> int:
        return -(-num_frames // self.options.frame_subsampling_factor)

    def _plan(
        self, features: NDArray[np.float32], extension: int, draw_ivector: DrawIvector | None
    ) -> ExamplePlan:
        """The input rows, i-vector and weights of an utterance's example, with random draws.

        `extension` frames are added at the end. `draw_ivector(frame)` returns the i-vector for an
        input that starts at that frame; None: no i-vectors.
        """
        options, num_frames = self.options, len(features)
        left, right = options.contexts_at_ends
        draws.rand_int(0, 5)  # Kaldi draws this number too, and later draws depend on it.
        ivector = None if draw_ivector is None else draw_ivector(-left)
        num_rows = left + num_frames + right + extension
        weights = np.ones(self._num_output(num_frames + extension), np.float32)
        factor = options.frame_subsampling_factor
        return ExamplePlan(features, -left, num_rows, left, ivector, factor, weights)

    def _supervision(
        self, utterance: str, graph: EncodedGraph | Fst, num_output: int
    ) -> Supervision | None:
        fst = graph.whole() if isinstance(graph, EncodedGraph) else graph
        with naming(f"{self.where}: key '{utterance}'"):
            return self.supervision(utterance, fst, num_output)

    def supervision(self, utterance: str, graph: Fst, num_output: int) -> Supervision | None:
        """A supervision of `num_output` frames; None, after a warning, if the graph is unusable."""
        if (fst := pdf_acceptor(graph, self.transition_model)) is None:
            return None
        if (least := _least_duration(fst)) > num_output:
            log.warning(
                f"For utterance {utterance}, there are too many phones for too few frames; Number "
                f"of subsampled frames: {num_output}, Minimum number of frames required by the "
                f"fst: {least}"
            )
            return None
        num_pdfs = self.transition_model.num_pdfs
        supervision = Supervision(1.0, 1, num_output, num_pdfs, Fst.empty(), (fst,))
        if self.normalizer is None:
            return supervision
        if (normalized := self.normalizer.normalized(supervision)) is None:
            log.warning(f"For utterance {utterance}, {NO_SHARED_PATH}")
        return normalized or supervision


def _extension(utterance: str, num_frames: int, allowed_lengths: Sequence[int]) -> int:
    """The number of frames to add at an utterance's end to reach the nearest allowed length.

    It is negative if frames are to be cut off. If it is not 0, a warning is logged. DataError if
    the nearest length is more than `_MOST_FRAMES_OFF` (4) frames away, or no length is allowed.
    """
    nearest = min(allowed_lengths, key=lambda length: abs(num_frames - length), default=0)
    off = num_frames - nearest
    if off == 0:
        return 0
    log.warning(
        f"No exact match found for the length of utt {utterance} which has length: {num_frames} "
        f"closest allowed length is off by {off} frames. Will try to fix it.."
    )
    if abs(off) > _MOST_FRAMES_OFF:
        raise DataError(
            f"utterance '{utterance}' has {num_frames} frames, none of --num-frames is within "
            f"{_MOST_FRAMES_OFF} of that: the nearest is {nearest}"
        )
    return -off

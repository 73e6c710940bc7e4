"""Averages of models: of files, and of the ranks that train a model together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import naming
from nnet3tools.nnet.arithmetic import add_nnet, num_parameters, scale_nnet, unvectorize, vectorize
from nnet3tools.nnet.device import move_nnet
from nnet3tools.nnet.model_file import read_nnet, write_nnet
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.tensor.registry import on_host

if TYPE_CHECKING:
    from nnet3tools.nnet.components.base import Array
    from nnet3tools.training.ranks import Ranks
    from nnet3tools.training.trainer import NnetTrainer


def average_models(models: Sequence[str], weights: Sequence[float], num_threads: int = -1) -> Nnet:
    """The sum of weight * network over model files of one structure, in Kaldi's order of additions.

    `num_threads` threads read the models (-1: 1 to 3). The number affects the rounding.
    """
    parts = _parts(list(zip(models, weights, strict=True)), num_threads)
    with ThreadPoolExecutor(len(parts)) as pool:
        nnet, *others = pool.map(_weighted_sum, parts)
    for other, part in zip(others, parts[1:], strict=True):
        with naming(f"{part[0][0]} after {models[0]}"):
            add_nnet(nnet, other)
    return nnet


def _parts(items: list[Any], num_threads: int = -1) -> list[list[Any]]:
    """`items` dealt out to at most `num_threads` lists (-1: 1 to 3), one for each thread."""
    count = len(items)
    if num_threads <= 0:
        num_threads = 3 if count > 10 else 2 if count > 5 else 1
    num_threads = max(1, min(num_threads, count // 2))
    return [items[i::num_threads] for i in range(num_threads)]


def _weighted_sum(models: list[tuple[str, float]]) -> Nnet:
    """The sum of weight * network over pairs (rxfilename, weight)."""
    (first, weight), *others = models
    total = read_nnet(first)
    with naming(first):
        scale_nnet(total, weight)
    for rxfilename, weight in others:
        nnet = read_nnet(rxfilename)
        with naming(f"{rxfilename} after {first}"):
            add_nnet(total, nnet, weight)
    return total


def weighted_average(rows: np.ndarray, weights: Sequence[float]) -> np.ndarray:
    """The sum (float32) of weight * row, rounded as in `average_models`; weights 0 are left out."""
    sums = list[np.ndarray]()
    for part in _parts([(row, w) for row, w in zip(rows, weights, strict=True) if w]):
        total = np.zeros(rows.shape[1], np.float32)
        for i, (row, weight) in enumerate(part):
            if i == 0:
                tensor.copy(total, row)
                tensor.scale(total, weight)
            else:
                tensor.add(total, row, weight)
        sums.append(total)
    for other in sums[1:]:
        tensor.add(sums[0], other)
    return sums[0]


def equal_weights(chosen: Sequence[bool]) -> list[float]:
    """Weights of equal size and sum 1 for the chosen models, 0 for others, as in nnet3-average."""
    count = max(sum(chosen), 1)
    known = np.full(count, 1.0 / count, np.float32)
    weight = float(known[0] / known.sum(dtype=np.float32))
    return [weight if one else 0.0 for one in chosen]


class JointTraining:
    """Averages the parameters of a model that several ranks train, each its own copy.

    The average is that of nnet3-average. A rank whose examples have ended goes on to take part,
    with weight 0. Natural gradient and momentum stay each rank's own.
    """

    def __init__(
        self, ranks: Ranks, trainer: NnetTrainer, interval: int, like: Array | None
    ) -> None:
        """Prepare to average after every `interval` minibatches (0: only at the end).

        `like` is an array on the device that `trainer` trains on.
        """
        self._ranks, self._trainer, self._interval = ranks, trainer, interval
        self._num_new = self._num_seen = 0
        """Minibatches of this rank since the last average, and in all."""
        self.num_minibatches = 0
        """Minibatches of all ranks that their averages have counted."""
        count = num_parameters(trainer.nnet)
        self._sum: SharedRows | SummedByNccl
        if on_host(like):
            self._sum = SharedRows(ranks, count)
        else:
            move_nnet(trainer.nnet, like)
            self._sum = SummedByNccl(ranks, count, like)

    def step(self) -> None:
        """Count a minibatch that was trained on; average the models after every `interval`."""
        self._num_new += 1
        self._num_seen += 1
        if self._num_new == self._interval:
            self._average(has_ended=False)

    def finish(self) -> None:
        """Take part in averages until the examples of all ranks have ended."""
        while not self._average(has_ended=True):
            pass

    def _average(self, has_ended: bool) -> bool:
        """Average the parameters over ranks with new minibatches; returns whether all have ended.

        `has_ended` tells whether this rank has.
        """
        run = self._trainer.run_recorded
        run("to average", lambda: self._exchange(to_model=False))
        found = self._ranks.gather((self._num_new, has_ended))
        self._num_new = 0
        self.num_minibatches += sum(number for number, _ in found)
        weights = equal_weights([number > 0 for number, _ in found])
        if any(weights):
            self._sum.average(weights)
            run("from average", lambda: self._exchange(to_model=True))
        return all(ended for _, ended in found)

    def _exchange(self, to_model: bool) -> None:
        """Copy all parameters into `_sum.mine`, the vector to average, or back if `to_model`."""
        start = 0
        for _, component in self._trainer.nnet.updatable_components():
            for array in component.parameters().values():
                part = self._sum.mine[start : start + array.size].reshape(array.shape)
                tensor.copy(*((array, part) if to_model else (part, array)))
                start += array.size

    def merged(self, nnet: Nnet) -> Nnet:
        """On rank 0, the model to write: this rank's `nnet` with the statistics of all ranks.

        `nnet` is on the host. Other ranks get `nnet` itself. Statistics are averaged as
        nnet3-average does it, so that their sums keep the size of one rank's.
        """
        self._ranks.waits_for_gpus = False
        own = os.memfd_create("nnet3tools")
        with open(own, "rb"):
            write_nnet(nnet, f"/proc/self/fd/{own}")
            found = self._ranks.gather((self._num_seen, f"/proc/{os.getpid()}/fd/{own}"))
            if self._ranks.rank == 0:
                names = [name for count, name in found if count]
                average = average_models(names, equal_weights([True] * len(names)))
                unvectorize(average, vectorize(nnet))
                nnet = average
            self._ranks.gather()  # rank 0 has read all
        return nnet


class SharedRows:
    """Averages one vector per rank on CPUs, in shared memory: row r of a matrix is rank r's vector.

    Each rank (a training process) averages its part of the columns, and stores it in all rows.
    """

    def __init__(self, ranks: Ranks, count: int) -> None:
        """Prepare to average `count` values."""
        self._ranks, self._rows = ranks, ranks.shared(count)
        self.mine = self._rows[ranks.rank]
        """The values of this rank, which `average` replaces by the average."""

    def average(self, weights: Sequence[float]) -> None:
        """Replace each rank's `mine` by the average with these weights; all ranks must call it."""
        ranks, count = self._ranks, len(self.mine)
        columns = self._rows[
            :, count * ranks.rank // ranks.size : count * (ranks.rank + 1) // ranks.size
        ]
        columns[:] = weighted_average(columns, weights)
        ranks.gather()


class SummedByNccl:
    """Averages vectors over ranks (processes) with a GPU each, by a sum that NCCL computes."""

    def __init__(self, ranks: Ranks, count: int, like: Array) -> None:
        """Prepare to average `count` values on the GPU of the array `like`."""
        from nnet3tools.tensor.cuda.nccl import Nccl, new_id

        group = ranks.gather(new_id() if ranks.rank == 0 else None)[0]
        self._rank, self._nccl = ranks.rank, Nccl(group, ranks.rank, ranks.size)
        self.mine = tensor.zeros(count, like, np.float32)
        """The values of this rank, which `average` replaces by the average."""

    def average(self, weights: Sequence[float]) -> None:
        """Replace each rank's `mine` by the average with these weights; all ranks must call it."""
        tensor.scale(self.mine, weights[self._rank])
        self._nccl.sum(self.mine)

"""Network outputs of utterances in input order; choice of the computer for output tables."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from nnet3tools.errors import OptionError, naming

if TYPE_CHECKING:
    import numpy as np

    from nnet3tools.executor.chunks import Ivectors
    from nnet3tools.executor.looped_computer import LoopedComputer
    from nnet3tools.executor.simple_options import SimpleComputationOptions
    from nnet3tools.executor.utterance_computer import UtteranceComputer
    from nnet3tools.nnet.components.base import Array
    from nnet3tools.nnet.nnet import Nnet

T = TypeVar("T")


def outputs_in_order(
    computer: UtteranceComputer | LoopedComputer,
    utterances: Iterable[tuple[str, np.ndarray, Ivectors | None, T]],
    bytes_of: Callable[[T], int] = lambda _: 0,
    pauses: Callable[[], bool] = lambda: False,
    flush: Callable[[], None] = lambda: None,
) -> Iterator[tuple[str, np.ndarray, T]]:
    """Yield (key, output, companion) for utterances given as (key, features, i-vectors, companion).

    A companion, such as a graph, is an object that the caller needs together with the output;
    `bytes_of` is its memory. If `pauses()`, the input has paused: all utterances are completed and,
    after the caller has received their outputs, `flush()` is called. DataError, with the
    utterance's name, for inputs that do not fit the network.
    """
    companions: deque[T] = deque()
    for key, features, ivectors, companion in utterances:
        with naming(f"utterance {key}"):
            computer.accept(key, features, ivectors, bytes_of(companion))
        companions.append(companion)
        if paused := pauses():
            computer.finish()
        for ready, output in computer.ready():
            yield ready, output, companions.popleft()
        if paused:
            flush()
    computer.finish()
    for ready, output in computer.ready():
        yield ready, output, companions.popleft()


def computer_for_tables(
    wspecifiers: Iterable[str],
    nnet: Nnet,
    options: SimpleComputationOptions,
    priors: np.ndarray | None = None,
    *,
    like: Array | None = None,
) -> UtteranceComputer:
    """A computer for utterances whose outputs go to tables; it forms batches if possible.

    If a table is flushed after each object, as `ark,f:-`, its reader may wait for each output
    before it sends the next utterance: then utterances are computed one by one. Outputs are
    divided by `priors`. `like` is an array on the device that computes (None: the CPU).
    """
    from nnet3tools.executor.utterance_computer import computer_one_by_one, computer_together

    make = computer_one_by_one if any(map(_is_flushed, wspecifiers)) else computer_together
    return make(nnet, options, priors, like=like)


def _is_flushed(wspecifier: str) -> bool:
    """Whether a wspecifier has the option f, to flush after each object; False if malformed."""
    from nnet3tools.io.specifiers import parse_wspecifier

    with contextlib.suppress(OptionError):  # TableWriter reports it
        return parse_wspecifier(wspecifier).flush
    return False

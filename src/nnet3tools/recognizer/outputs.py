"""Network outputs of utterances in their order, whoever computes them, however many at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol, TypeVar

from nnet3tools.errors import naming

if TYPE_CHECKING:
    import numpy as np

    from nnet3tools.executor.batch_compute import BatchComputer
    from nnet3tools.executor.decodable_simple import Ivectors, UtteranceComputer
    from nnet3tools.executor.local_compute import LocalComputer
    from nnet3tools.executor.simple_options import SimpleComputationOptions
    from nnet3tools.nnet.components.base import Array
    from nnet3tools.nnet.nnet import Nnet

__all__ = ["SharedComputer", "computer_for", "outputs_in_order"]

T = TypeVar("T")


class SharedComputer(Protocol):
    """Takes utterances, and gives their outputs in the same order, perhaps later."""

    def accept(
        self,
        key: str,
        features: np.ndarray,
        ivectors: Ivectors | None = None,
        held_bytes: int = 0,
    ) -> None:
        """Take an utterance, for which the caller keeps so many bytes until it is ready."""

    def ready(self) -> Iterator[tuple[str, np.ndarray]]:
        """(key, output) of those that are complete."""

    def finish(self) -> None:
        """Complete all that were taken."""

    def close(self) -> None:
        """Log times, if asked for."""


def outputs_in_order(
    computer: SharedComputer,
    utterances: Iterable[tuple[str, np.ndarray, Ivectors | None, T]],
    bytes_of: Callable[[T], int] = lambda _: 0,
    pauses: Callable[[], bool] = lambda: False,
    flush: Callable[[], None] = lambda: None,
) -> Iterator[tuple[str, np.ndarray, T]]:
    """(key, output, companion) of utterances given as (key, features, i-vectors, companion).

    A companion is what belongs to an utterance and is wanted again with its output, as its graph;
    `bytes_of` says how much memory it takes, so that few wait if they are large. Where `pauses()`,
    all that were given are computed at once, and `flush()` is called when the caller has had them.
    DataError, with the utterance's name, for inputs that do not fit the network.
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


def computer_for(
    wspecifiers: Iterable[str],
    nnet: Nnet,
    options: SimpleComputationOptions,
    priors: np.ndarray | None = None,
    *,
    like: Array | None = None,
) -> BatchComputer | LocalComputer | UtteranceComputer:
    """What computes the outputs for some tables: frames of several utterances together if it can.

    A table that is flushed after each object, as `ark,f:-`, has a reader who waits for it, perhaps
    before giving the next utterance: then they are computed one by one. Errors as of
    UtteranceComputer.
    """
    from nnet3tools.executor.decodable_simple import UtteranceComputer
    from nnet3tools.executor.shared_compute import shared_computer
    from nnet3tools.io.specifiers import parse_wspecifier

    if any(parse_wspecifier(given).flush for given in wspecifiers if given):
        return UtteranceComputer(nnet, options, priors, like=like)
    return shared_computer(nnet, options, priors, like=like)

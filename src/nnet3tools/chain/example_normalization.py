"""Adds the weights of the normalization FST to chain examples, in blocks if they are encoded."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from nnet3tools.chain.example import EncodedChainExample, NnetChainExample
from nnet3tools.chain.example_format import ACCEPTOR, DERIV_WEIGHTS
from nnet3tools.chain.native.supervisor import Job, JobKind, native_supervisor
from nnet3tools.chain.normalization import NO_SHARED_PATH, Normalizer
from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import replace
from nnet3tools.io import log

_BLOCK = 256
_MOST_BYTES = 1 << 22
"""The largest number of examples, and of their bytes, in a block."""


class ExampleNormalizer:
    """Adds normalization weights to examples and calls `write(key, example)` in input order."""

    def __init__(
        self,
        normalizer: Normalizer,
        write: Callable[[str, NnetChainExample | EncodedChainExample], None],
    ) -> None:
        self._normalizer, self._write = normalizer, write
        self._native = native_supervisor(normalizer.fst)
        self._waiting: list[tuple[str, EncodedChainExample]] = []
        self._num_bytes = 0
        self.num_written = self.num_errors = 0
        """The number of examples written, and of examples left out because no path remained."""

    def accept(self, key: str, example: NnetChainExample | EncodedChainExample) -> None:
        """Add an example to the waiting ones; DataError unless it has one output, one sequence."""
        if (
            self._native is None
            or isinstance(example, NnetChainExample)
            or example.layout.values["num_sequences"] > 1
        ):
            self.finish()
            self._normalize(key, example)
            return
        self._waiting.append((key, example))
        self._num_bytes += len(example.data)
        if len(self._waiting) == _BLOCK or self._num_bytes > _MOST_BYTES:
            self.finish()

    def finish(self) -> None:
        """Normalize and write all waiting examples."""
        waiting, self._waiting, self._num_bytes = self._waiting, [], 0
        for is_e2e, some in itertools.groupby(
            waiting, lambda item: item[1].layout.values["is_e2e"]
        ):
            self._normalize_all(JobKind.END_TO_END if is_e2e else JobKind.WHOLE, list(some))

    def _normalize_all(self, kind: JobKind, items: list[tuple[str, EncodedChainExample]]) -> None:
        assert self._native is not None
        acceptors = [example.hole(ACCEPTOR) for _, example in items]
        places = itertools.accumulate(map(len, acceptors[:-1]), initial=0)
        normalized = self._native.make(kind, b"".join(acceptors), list(map(Job, places)))
        for (key, example), acceptor in zip(items, normalized, strict=True):
            if acceptor is None:
                self._normalize(key, example)
                continue
            weights = example.hole(DERIV_WEIGHTS)
            changed = example.changed(example.covered, example.layout, acceptor, weights)
            self._write(key, changed)
            self.num_written += 1

    def _normalize(self, key: str, given: NnetChainExample | EncodedChainExample) -> None:
        example = given if isinstance(given, NnetChainExample) else given.whole()
        if len(example.outputs) != 1:
            raise DataError(f"expected exactly one output, found {len(example.outputs)}")
        (output,) = example.outputs
        if (supervision := self._normalizer.normalized(output.supervision)) is None:
            self.num_errors += 1
            log.warning(f"For example {key}, {NO_SHARED_PATH}")
            return
        outputs = [replace(output, supervision=supervision)]
        self._write(key, NnetChainExample(example.inputs, outputs))
        self.num_written += 1

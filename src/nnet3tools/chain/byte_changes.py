"""Changes that copying makes to chain examples of one layout, made to many of them at a time.

What becomes of inputs and indexes depends on the layout alone, so it is found out once, by changing
an example whose features are its row numbers. Acceptors and derivative weights pass as bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from nnet3tools.chain.example import NnetChainExample
from nnet3tools.chain.example_bytes import ChainExampleBytes
from nnet3tools.chain.like_heads import prototype_of
from nnet3tools.chain.selection import ChainSelection, rename_output, scale_supervision
from nnet3tools.io.general_matrix import to_dense
from nnet3tools.io.matrix_forms import MatrixForm
from nnet3tools.training.example_layout import Layout
from nnet3tools.training.like_changes import changed_matrices, head_of_io, with_row_numbers
from nnet3tools.training.like_examples import LikeBlock

__all__ = ["ChainChanges", "ChangedChain"]

_MAX_TARGETS = 1000


@dataclass(eq=False)
class _Target:
    """What examples with a head become: `example` has row numbers of theirs as its features."""

    head: Layout
    example: NnetChainExample

    @cached_property
    def rows(self) -> list[np.ndarray]:
        """The rows that each input keeps."""
        return [to_dense(like.features)[:, 0].astype(np.intp) for like in self.example.inputs]

    @cached_property
    def fixed(self) -> tuple[bytes, ...]:
        """What goes before each matrix, before the weight, and before the acceptor."""
        start = b"<Nnet3ChainEg> <NumInputs> \4" + struct.pack("<i", len(self.example.inputs))
        found = []
        for like in self.example.inputs:
            found.append(start + head_of_io("<NnetIo>", like.name, like.indexes))
            start = b"</NnetIo> "
        start += b"<NumOutputs> \4\1\0\0\0"
        (output,) = self.example.outputs
        found.append(
            start
            + head_of_io("<NnetChainSup>", output.name, output.indexes)
            + b"<Supervision> <Weight> \4"
        )
        return (*found, self.head.fixed[-1])

    @cached_property
    def new_head(self) -> Layout:
        """The layout of the heads that come out."""
        forms = [
            form
            if not isinstance(form, MatrixForm) or len(rows) == form.num_rows
            else replace(form, token=form.token if form.token == "SM" else "FM", num_rows=len(rows))
            for form, rows in zip(self.head.forms[:-1], self.rows, strict=True)
        ]
        return Layout(self.fixed, (*forms, self.head.forms[-1]))


class ChangedChain(NamedTuple):
    """An example with the changes that are to be made to it."""

    example: ChainExampleBytes
    target: _Target
    weight: float = 1.0


Changeable = NnetChainExample | ChainExampleBytes | ChangedChain


class ChainChanges:
    """The changes of nnet3-chain-copy-egs, which `finish` makes to what came as bytes.

    Other examples are changed at once. All errors are raised at once.
    """

    def __init__(self, selection: ChainSelection) -> None:
        self._selection = selection
        self._unchanged: dict[Layout, _Target] = {}
        self._targets: dict[tuple[_Target, str], _Target] = {}

    def scale(self, example: Changeable, key: str, weight: float) -> Changeable:
        """As scale_supervision."""
        if isinstance(example, NnetChainExample):
            return scale_supervision(example, key, weight)
        changed = self._changed(example)
        scale_supervision(changed.target.example, key, weight)
        return changed._replace(weight=weight)

    def select(self, example: Changeable, key: str) -> Changeable | None:
        """As ChainSelection.apply."""
        if isinstance(example, NnetChainExample):
            return self._selection.apply(example, key)
        changed = self._changed(example)
        if (selected := self._targets.get((changed.target, ""))) is None:
            chosen = self._selection.apply(changed.target.example, key)
            selected = self._targets[changed.target, ""] = _Target(changed.target.head, chosen)
        return changed._replace(target=selected)

    def rename(self, example: Changeable, key: str, name: str) -> Changeable:
        """As rename_output."""
        if isinstance(example, NnetChainExample):
            return rename_output(example, key, name)
        changed = self._changed(example)
        if (renamed := self._targets.get((changed.target, name))) is None:
            output = rename_output(changed.target.example, key, name)
            renamed = self._targets[changed.target, name] = _Target(changed.target.head, output)
        return changed._replace(target=renamed)

    def _changed(self, example: ChainExampleBytes | ChangedChain) -> ChangedChain:
        if isinstance(example, ChangedChain):
            return example
        # For each example: there may be many new names of one head.
        if len(self._targets) + len(self._unchanged) > _MAX_TARGETS:
            self._targets.clear()
            self._unchanged.clear()
        if (target := self._unchanged.get(example.head)) is None:
            like = prototype_of(example.head)
            rows = NnetChainExample(with_row_numbers(like.inputs), like.outputs)
            target = _Target(example.head, rows)
            self._unchanged[example.head] = target
        return ChangedChain(example, target)

    @staticmethod
    def num_bytes(example: Changeable) -> int:
        """The memory, or about that, of an example that waits to be finished."""
        if isinstance(example, NnetChainExample):
            return sum(4 * io.features.shape[0] * io.features.shape[1] for io in example.inputs)
        return len(example.data if isinstance(example, ChainExampleBytes) else example.example.data)

    @staticmethod
    def finish(examples: Sequence[Changeable]) -> Iterator[Changeable]:
        """The examples in order, changed; those with one target together."""
        groups: dict[_Target, list[ChangedChain]] = {}
        for example in examples:
            if isinstance(example, ChangedChain):
                groups.setdefault(example.target, []).append(example)
        made = {target: _made(target, some) for target, some in groups.items()}
        for example in examples:
            yield next(made[example.target]) if isinstance(example, ChangedChain) else example


def _made(target: _Target, examples: list[ChangedChain]) -> Iterator[ChainExampleBytes]:
    """What examples with one head become."""
    heads = [example.data[: example.acceptor] for example, _, _ in examples]
    *inputs, weight = LikeBlock.of(target.head, heads).matrices()
    columns: list[Sequence[bytes]] = [
        changed_matrices(matrices, rows) for matrices, rows in zip(inputs, target.rows, strict=True)
    ]
    weights = np.array([weight for _, _, weight in examples], np.float32)
    changed = np.frombuffer(b"".join(weight.whole), "<f4") * weights
    columns.append([changed[i : i + 1].tobytes() for i in range(len(examples))])
    last = target.fixed[-1]
    for (example, _, _), holes in zip(examples, zip(*columns, strict=True), strict=True):
        data, acceptor, tail = example.data, example.acceptor, example.tail
        pieces = [piece for pair in zip(target.fixed, holes, strict=False) for piece in pair]
        head = b"".join([*pieces, last])
        new = head + data[acceptor:]
        yield ChainExampleBytes(new, target.new_head, len(head), tail - acceptor + len(head))

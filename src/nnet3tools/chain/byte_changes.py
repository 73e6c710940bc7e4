"""Changes that copying makes to chain examples of one layout, made to many of them at a time.

What becomes of inputs and indexes depends on the layout alone (`training/held_changes.py`).
Acceptors and derivative weights pass as bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from nnet3tools.chain.example import NnetChainExample
from nnet3tools.chain.example_bytes import ChainExampleBytes
from nnet3tools.chain.like_heads import prototype_of
from nnet3tools.chain.selection import ChainSelection, rename_output, scale_supervision
from nnet3tools.io.general_matrix import to_dense
from nnet3tools.io.held_bytes import HeldBytes
from nnet3tools.io.matrix_forms import MatrixForm
from nnet3tools.training.example import NnetIo
from nnet3tools.training.example_layout import Layout
from nnet3tools.training.held_changes import Changed, HeldChanges, Target
from nnet3tools.training.like_changes import changed_matrices, head_of_io, with_row_numbers
from nnet3tools.training.like_examples import LikeBlock

__all__ = ["ChainChanges"]


class _Target(Target[NnetChainExample]):
    """That of chain examples, whose layout is that of their heads."""

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
        return (*found, self.layout.fixed[-1])

    @cached_property
    def new_head(self) -> Layout:
        """The layout of the heads that come out."""
        forms = [
            form
            if not isinstance(form, MatrixForm) or len(rows) == form.num_rows
            else replace(form, token=form.token if form.token == "SM" else "FM", num_rows=len(rows))
            for form, rows in zip(self.layout.forms[:-1], self.rows, strict=True)
        ]
        return Layout(self.fixed, (*forms, self.layout.forms[-1]))


Changeable = NnetChainExample | HeldBytes[NnetChainExample] | Changed


class ChainChanges(HeldChanges[NnetChainExample]):
    """The changes of nnet3-chain-copy-egs, which `finish` makes to what came as bytes."""

    def __init__(self, selection: ChainSelection) -> None:
        super().__init__()
        self._selection = selection

    def select(self, example: Changeable, key: str) -> Changeable | None:
        """As ChainSelection.apply."""
        if isinstance(example, NnetChainExample):
            return self._selection.apply(example, key)
        changed = self._changed(example)
        if (selected := self._targets.get((changed.target, ""))) is None:
            chosen = self._selection.apply(changed.target.example, key)
            selected = self._become(changed.target, "", chosen)
        return changed._replace(target=selected)

    def _layout_of(self, held: ChainExampleBytes) -> Layout:
        return held.head

    def _target(self, layout: Layout, example: NnetChainExample | None = None) -> _Target:
        if example is None:
            like = prototype_of(layout)
            example = NnetChainExample(with_row_numbers(like.inputs), like.outputs)
        return _Target(layout, example)

    def _scaled(self, example: NnetChainExample, key: str, weight: float) -> NnetChainExample:
        return scale_supervision(example, key, weight)

    def _renamed(self, example: NnetChainExample, key: str, name: str) -> NnetChainExample:
        return rename_output(example, key, name)

    def _ios(self, example: NnetChainExample) -> list[NnetIo]:
        return example.inputs

    def _made(self, target: _Target, examples: list[Changed]) -> Iterator[ChainExampleBytes]:
        return _made(target, examples)


def _made(target: _Target, examples: list[Changed]) -> Iterator[ChainExampleBytes]:
    """What examples with one head become."""
    given: list[ChainExampleBytes] = [changed.held for changed in examples]  # type: ignore[misc]
    heads = [example.data[: example.acceptor] for example in given]
    *inputs, weight = LikeBlock.of(target.layout, heads).matrices()
    columns: list[Sequence[bytes]] = [
        changed_matrices(matrices, rows) for matrices, rows in zip(inputs, target.rows, strict=True)
    ]
    weights = np.array([weight for _, _, weight in examples], np.float32)
    changed = np.frombuffer(b"".join(weight.whole), "<f4") * weights
    columns.append([changed[i : i + 1].tobytes() for i in range(len(examples))])
    last = target.fixed[-1]
    for example, holes in zip(given, zip(*columns, strict=True), strict=True):
        data, acceptor, tail = example.data, example.acceptor, example.tail
        pieces = [piece for pair in zip(target.fixed, holes, strict=False) for piece in pair]
        head = b"".join([*pieces, last])
        new = head + data[acceptor:]
        yield ChainExampleBytes(new, target.new_head, len(head), tail - acceptor + len(head))

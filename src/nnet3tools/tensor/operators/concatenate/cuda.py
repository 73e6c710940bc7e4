"""Joining and splitting on CUDA: one kernel for up to 16 parts, a thread for each element."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.addresses import overlap
from nnet3tools.tensor.call import in_turn
from nnet3tools.tensor.cuda.device import Array
from nnet3tools.tensor.cuda.function_files import CudaFunction
from nnet3tools.tensor.cuda.launches import Step
from nnet3tools.tensor.operators.concatenate import parts_along
from nnet3tools.tensor.registry import implements

_MOST_PARTS = 16
"""Operands of a kernel: its parameters must not exceed 4 kB."""
_INDEXES = "abcdefgh"


def _chunks(whole: Array, parts: Sequence[Array], axis: int) -> Iterator[tuple[Array, list[Array]]]:
    """(section of `whole`, parts in it) for each kernel, which can handle up to 16 parts.

    Parts that share memory go to different kernels.
    """
    chunk: list[Array] = []
    begin = end = 0
    for part in parts:
        if len(chunk) == _MOST_PARTS or any(overlap(part, other) for other in chunk):
            yield parts_along(whole, [begin, end - begin], axis)[1], chunk
            chunk, begin = [], end
        end += part.shape[axis]
        if part.size:
            chunk.append(part)
    if chunk:
        yield parts_along(whole, [begin, end - begin], axis)[1], chunk


def _step(what: str, whole: Array, parts: list[Array], axis: int, assign: str) -> Step:
    """A callable that does `assign`, such as "whole = part", for all elements of the parts.

    `whole` is the parts in order along `axis`; `what` is the operator's name for messages.
    """
    if whole.ndim > len(_INDEXES):
        raise ProgramError(f"{what} of arrays of {whole.ndim} axes")
    names = tuple(_INDEXES[: whole.ndim])
    along, lines = names[axis], []
    for i in range(len(parts)):
        at = [f"{n} - end{i - 1}" if n == along and i else n for n in names]
        line = assign.replace("part", f"part{i}({', '.join(at)})")
        lines.append(f"if ({along} < end{i}) {line};")
    body = "\nelse ".join(lines).replace("whole", f"whole({', '.join(names)})")
    arrays = {"whole": whole, **{f"part{i}": part for i, part in enumerate(parts)}}
    ends = {f"end{i}": n for i, n in enumerate(np.cumsum([p.shape[axis] for p in parts]))}
    written = tuple(n for n in arrays if (n == "whole") == assign.startswith("whole"))
    function = CudaFunction(
        what, names, dict.fromkeys(arrays, "T"), written, dict.fromkeys(ends, "long long"), body
    )
    return function.on_grid(whole.shape, **arrays, **ends)


def _bind(what: str, assign: str, whole: Array, parts: Sequence[Array], axis: int) -> Step:
    axis %= whole.ndim
    chunks = _chunks(whole, parts, axis)
    return in_turn([_step(what, view, chunk, axis, assign) for view, chunk in chunks])


for _name, _assign in (
    ("concatenate", "whole = part"), ("split", "part = whole"), ("add_split", "part += whole")
):  # fmt: skip
    implements(_name, "cupy", binder=True)(partial(_bind, _name, _assign))

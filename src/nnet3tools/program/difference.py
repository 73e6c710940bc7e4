"""What a pass changes in a program, line by line."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from nnet3tools.nnet.nnet import Nnet
from nnet3tools.program.computation import Computation
from nnet3tools.program.lifetimes import max_memory_use
from nnet3tools.program.printing import cindexes_text, command_texts

_NUMBER = re.compile(r"c\d+: ")


def difference_text(before: Computation, after: Computation, nnet: Nnet) -> str:
    """The lines that `after` lacks (-) and adds (+): matrices, then commands; "" if none.

    Commands that differ in their number only are equal.
    """
    removed, added = _lines(before, nnet), _lines(after, nnet)
    # Numbers of commands change with every command before them.
    old = [_NUMBER.sub("", line, count=1) for line in removed]
    new = [_NUMBER.sub("", line, count=1) for line in added]
    lines = []
    for kind, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            lines += [f"- {line}" for line in removed[i:j]] + [f"+ {line}" for line in added[k:m]]
    return "".join(f"{line}\n" for line in lines)


def sizes_text(before: Computation, after: Computation) -> str:
    """The numbers of commands and matrices, and the peak of memory, before and after a pass."""
    pairs = (
        ("commands", len(before.commands), len(after.commands)),
        ("matrices", len(before.matrices) - 1, len(after.matrices) - 1),
        ("peak bytes", max_memory_use(before), max_memory_use(after)),
    )
    return ", ".join(f"{what} {old} -> {new}" for what, old, new in pairs)


def _lines(computation: Computation, nnet: Nnet) -> list[str]:
    """A line for each matrix, with its cindexes if they are known, and for each command."""
    lines = [f"m{i}({m.num_rows}, {m.num_cols})" for i, m in enumerate(computation.matrices) if i]
    for i, debug in enumerate(computation.matrix_debug_info[1:]):
        kind = "deriv" if debug.is_deriv else "value"
        lines[i] += f" == {kind}: {cindexes_text(debug.nodes, debug.indexes, nnet.node_names)}"
    return lines + command_texts(computation, nnet)

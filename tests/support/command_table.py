"""The table of docs/compilation.md: all kinds of commands, from their declarations."""

import re

from nnet3tools.program.commands import COMMANDS

OF_DOCUMENTS = {
    *("AllocMatrix", "DeallocMatrix", "Propagate", "Backprop", "MatrixCopy", "MatrixAdd"),
    *("CopyRows", "AddRows", "CopyRowsMulti", "CopyToRowsMulti", "AddRowsMulti"),
    *("AddToRowsMulti", "AddRowRanges", "NoOperation", "NoOperationMarker"),
}
"""Kinds that Kaldi's documents have; they have two kinds of AllocMatrix, and StoreStats."""


def command_table() -> str:
    """The table in Markdown."""
    lines = [
        "| number | name | arguments | what it does | in the documents |",
        "|---|---|---|---|---|",
    ]
    for number, cls in sorted(COMMANDS.items()):
        arguments = [*cls.ARGS, *([f"alpha: {cls.ALPHA}"] if cls.ALPHA else [])]
        purpose = " ".join((cls.__doc__ or "").partition("\n\n")[0].split())
        purpose = re.sub("^(A command that|The command that|The command) ", "", purpose)
        known = "yes" if cls.__name__ in OF_DOCUMENTS else ""
        shown = ", ".join(arguments).replace("alpha: alpha", "alpha")
        lines.append(
            f"| {number} | `{cls.NAME}` | {shown} | {purpose.replace('|', '&#124;')} | {known} |"
        )
    return "\n".join(lines) + "\n"

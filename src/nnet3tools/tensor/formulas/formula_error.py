"""The error of a formula that cannot be read."""

from __future__ import annotations

from nnet3tools.errors import UserError

__all__ = ["FormulaError"]

_SHOWN = 60  # characters of a formula to either side of the mark


class FormulaError(UserError):
    """A formula that cannot be read: the message shows it with a mark under the column."""

    def __init__(self, message: str, text: str, position: int) -> None:
        self.formula, self.column = text, position + 1
        flat = text.replace("\n", " ")
        before, after = flat[:position], flat[position:]
        before = before if len(before) <= _SHOWN else f"...{before[-_SHOWN:]}"
        after = after if len(after) <= _SHOWN else f"{after[:_SHOWN]}..."
        mark = f"{before} >>> {after}"
        super().__init__(f"{message} at column {self.column} of formula: {mark}")

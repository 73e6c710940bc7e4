"""Kaldi's text form of FSTs: AT&T lines between a newline and an empty line."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from nnet3tools.fst.check import check_fst
from nnet3tools.fst.fst import NO_STATE, NOT_FINAL, Fst
from nnet3tools.io.input_buffer import MAX_TEXT
from nnet3tools.io.stream import Reader, Writer
from nnet3tools.number_text import parse_double, parse_int


def read_fst_text(reader: Reader) -> Fst:
    """Read Kaldi's text form: a newline, AT&T lines (start state first), an empty line."""
    while (byte := reader.peek_byte()) >= 0 and byte != 10 and chr(byte).isspace():
        reader.skip_byte()
    if reader.peek_byte() != 10:
        raise reader.error("expected an FST in text form, which begins with a newline")
    reader.skip_byte()
    arcs: list[tuple[int, int, int, float, int]] = []
    finals: dict[int, float] = {}
    start, num_states = read_att_lines(
        reader,
        "an FST",
        "an FST in text form",
        lambda fields: _parse_line(fields, arcs, finals),
        lambda: 2 * len(arcs) + len(finals),
    )
    final_weights = np.full(num_states, NOT_FINAL, np.float32)
    final_weights[list(finals)] = list(finals.values())
    table = np.array(arcs, np.float64).reshape(-1, 5)
    whole = table.astype(np.int64)
    return check_fst(
        reader,
        Fst.from_arcs(
            start, final_weights, whole[:, 0], whole[:, 1], table[:, 3], whole[:, 4], whole[:, 2]
        ),
    )


def read_att_lines(
    reader: Reader,
    lines_of: str,
    whole: str,
    parse: Callable[[list[str]], Sequence[int]],
    count_named: Callable[[], int],
) -> tuple[int, int]:
    """Parse lines up to an empty line; returns (first state, number of states).

    `parse` gets a line's fields and returns the states in it, or raises ValueError. `count_named`
    returns how many states the lines so far contain. The DataErrors say "bad line in `lines_of`"
    and "`whole` has a state N, and few others".
    """
    num_states, start, begin = 0, NO_STATE, reader.offset
    for line in reader.lines():
        if reader.offset > begin + MAX_TEXT:
            raise reader.error(f"expected at most {MAX_TEXT} bytes of {whole}, found more")
        fields = line.split()
        if not fields:
            break
        try:
            states = parse(fields)
        except ValueError:
            raise reader.error(f"bad line in {lines_of}: '{line[:60]}'") from None
        start = states[0] if start == NO_STATE else start
        num_states = max(num_states, max(states) + 1)
        if num_states > count_named() + _MOST_UNUSED_STATES:
            raise reader.error(f"{whole} has a state {num_states - 1}, and few others")
    return start, num_states


_MOST_UNUSED_STATES = 1_000_000
"""Kaldi makes all states up to the largest number; a single line must not exhaust memory."""


def _parse_line(
    fields: list[str], arcs: list[tuple[int, int, int, float, int]], finals: dict[int, float]
) -> list[int]:
    """Add a line's arc to `arcs` or weight to `finals`; return its states, or raise ValueError."""
    state = parse_natural(fields[0])
    if len(fields) <= 2:
        finals[state] = parse_cost(fields[1]) if len(fields) == 2 else 0.0
        return [state]
    if len(fields) not in (4, 5):
        raise ValueError
    target, ilabel, olabel = map(parse_natural, fields[1:4])
    weight = parse_cost(fields[4]) if len(fields) == 5 else 0.0
    if weight == NOT_FINAL:
        raise ValueError
    arcs.append((state, ilabel, olabel, weight, target))
    return [state, target]


def parse_natural(text: str) -> int:
    """Parse a state or label, 0 to 2^31 - 1; ValueError for other text."""
    if (value := parse_int(text, 0)) is None:
        raise ValueError
    return value


def parse_cost(text: str) -> float:
    """Parse a cost, in which Infinity may be written out; ValueError for other text."""
    if (value := parse_double(text)) is None:
        raise ValueError
    return value


def write_fst_text(writer: Writer, fst: Fst, precision: int = 7) -> None:
    """Write Kaldi's text form, the start state first; weights have `precision` digits."""
    writer.write_bytes(b"\n")
    if fst.num_states:
        lines = _text_of_states(fst, precision)
        first = lines.pop(fst.start)
        writer.write_text(first + "".join(lines))
    writer.write_bytes(b"\n")


def _text_of_states(fst: Fst, precision: int) -> list[str]:
    def shown(weight: float) -> str:
        if weight == 0.0:
            return ""
        return "\tInfinity" if weight == NOT_FINAL else f"\t{weight:.{precision}g}"

    texts = []
    finals = fst.finals.tolist()
    for state, arcs in enumerate(fst.arc_lists()):
        lines = [
            f"{state}\t{target}\t{ilabel}\t{olabel}{shown(weight)}\n"
            for ilabel, olabel, weight, target in arcs
        ]
        if finals[state] != NOT_FINAL or not lines:
            lines.append(f"{state}{shown(finals[state])}\n")
        texts.append("".join(lines))
    return texts

"""HMM topologies of all phones: that of chain models, and left-to-right topologies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnet3tools.nnet.hmm.topology import NO_PDF, HmmState, HmmTopology

_FINAL = HmmState(NO_PDF, NO_PDF, ())

_Entry = tuple[HmmState, ...]


def chain_topology(phones: Sequence[int]) -> HmmTopology:
    """The topology of chain models: one state; its first frame has its own pdf class (gen_topo.py).

    Both transition probabilities are 1/2; chain models do not use them.
    """
    return _topology([(phones, (HmmState(0, 1, ((0, 0.5), (1, 0.5))), _FINAL))])


def left_to_right_topology(
    silence: Sequence[int],
    nonsilence: Sequence[int],
    num_silence_states: int,
    num_nonsilence_states: int,
) -> HmmTopology:
    """The topology of gen_topo.pl: states in a row; all but the last of silence are connected."""
    plain = (*(_in_turn(state) for state in range(num_nonsilence_states)), _FINAL)
    return _topology([(nonsilence, plain), (silence, _any_order(num_silence_states))])


def _in_turn(state: int) -> HmmState:
    return HmmState(state, state, ((state, 0.75), (state + 1, 0.25)))


def _any_order(size: int) -> _Entry:
    if size == 1:
        return (_in_turn(0), _FINAL)
    probability = 1.0 / (size - 1)
    first = HmmState(0, 0, tuple((target, probability) for target in range(size - 1)))
    among = tuple((target, probability) for target in range(1, size))
    between = [HmmState(state, state, among) for state in range(1, size - 1)]
    return (first, *between, _in_turn(size - 1), _FINAL)


def _topology(entries: Sequence[tuple[Sequence[int], _Entry]]) -> HmmTopology:
    entry_of = {phone: number for number, (phones, _) in enumerate(entries) for phone in phones}
    phones = np.array(sorted(entry_of), np.int32)
    table = np.full(int(phones.max()) + 1, -1, np.int32)
    table[phones] = [entry_of[phone] for phone in phones.tolist()]
    return HmmTopology(phones, table, tuple(states for _, states in entries))

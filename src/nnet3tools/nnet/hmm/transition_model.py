"""Transition models: probabilities of HMM transitions by tied state (transition-model.cc).

gmm-init-mono, gmm-init-biphone and nnet3-am-init make transition models.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError, quoted
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io.stream import Reader, Writer
from nnet3tools.nnet.hmm.topology import NO_PDF, HmmTopology
from nnet3tools.nnet.hmm.tree import ContextDependency
from nnet3tools.nnet.stored import StoredObject


def _packed(columns: int) -> np.dtype:
    """Data type of a row of `columns` int32, each after a size byte as in Kaldi's binary files."""
    return np.dtype([(f"{kind}{i}", code) for i in range(columns) for kind, code in _PACKED])


_PACKED = (("size", "i1"), ("value", "<i4"))


class Transitions(NamedTuple):
    """Properties of transitions as arrays indexed by transition id; ids start at 1.

    `states` are transition states from 0, rows of the model's `tuples`. `is_final`: the transition
    leads to the phone's last state, which does not emit.
    """

    states: NDArray[np.int32]
    phones: NDArray[np.int32]
    pdfs: NDArray[np.int32]
    is_self_loop: NDArray[np.bool_]
    is_final: NDArray[np.bool_]


_MAX_PDF = 2**31 - 1


@dataclass(frozen=True)
class TransitionModel(StoredObject):
    """The probabilities and pdfs of the HMM transitions of a tree's states.

    `tuples` (N, 4): phone, HMM state, forward pdf, self-loop pdf of each transition state.
    `log_probs` is indexed by transition id; element 0 is unused. Ids number, from 1, the
    transitions that leave the HMM states of the transition states in order.
    """

    topology: HmmTopology
    tuples: NDArray[np.int32]
    log_probs: NDArray[np.float32]

    @property
    def num_pdfs(self) -> int:
        """Number of pdfs: the largest pdf plus one."""
        return int(self.tuples[:, 2:].max(initial=-1)) + 1

    # -- files

    @classmethod
    def read(cls, reader: Reader) -> TransitionModel:
        """Read Kaldi's format, with <Triples> or <Tuples>; DataError if it is inconsistent."""
        reader.expect_token("<TransitionModel>")
        topology = HmmTopology.read(reader)
        kind = reader.read_token()
        if kind not in ("<Triples>", "<Tuples>"):
            raise reader.error(f"expected <Triples> or <Tuples>, found {quoted(kind)}")
        size = reader.read_int32()
        if size <= 0:
            raise reader.error(f"expected a number of transition states, found {size}")
        tuples = _read_tuples(reader, size, 3 if kind == "<Triples>" else 4)
        log_probs = reader.expect_token(f"</{kind[1:]}", "<LogProbs>").read_vector()
        reader.expect_token("</LogProbs>", "</TransitionModel>")
        model = cls(topology, tuples, log_probs)
        try:
            num_transitions = int(model.transitions_per_state().sum())
        except DataError as error:
            raise reader.error(str(error)) from None
        if len(log_probs) != num_transitions + 1:
            raise reader.error(
                f"expected {num_transitions + 1} log-probabilities, found {len(log_probs)}"
            )
        return model

    def write(self, writer: Writer) -> None:
        """Write the model in Kaldi's format."""
        columns = 3 if self.topology.is_hmm else 4
        kind = "Triples" if self.topology.is_hmm else "Tuples"
        writer.write_token("<TransitionModel>").write_newline()
        self.topology.write(writer)
        writer.write_token(f"<{kind}>").write_int32(len(self.tuples))
        writer.write_newline()
        if writer.binary:
            rows = np.empty(len(self.tuples), _packed(columns))
            for i in range(columns):
                rows[f"size{i}"], rows[f"value{i}"] = 4, self.tuples[:, i]
            writer.write_bytes(rows.tobytes())
        else:
            for row in self.tuples[:, :columns].tolist():
                writer.write_text("".join(f"{value} " for value in row) + "\n")
        for token in (f"</{kind}>", "<LogProbs>"):
            writer.write_token(token).write_newline()
        writer.write_vector(self.log_probs)
        for token in ("</LogProbs>", "</TransitionModel>"):
            writer.write_token(token).write_newline()

    # construction

    @classmethod
    def from_tree(cls, tree: ContextDependency, topology: HmmTopology) -> TransitionModel:
        """Make a model with a tree's transition states and a topology's probabilities."""
        rows = {
            (phone, state, forward, self_loop)
            for phone in topology.phones.tolist()
            for state, hmm_state in enumerate(topology.states(phone))
            if hmm_state.forward_pdf_class != NO_PDF
            for forward, self_loop in tree.pdf_pairs(
                topology.phones, phone, hmm_state.forward_pdf_class, hmm_state.self_loop_pdf_class
            )
        }
        if not rows:
            raise DataError("the tree and the topology have no phone in common")
        tuples = np.array(sorted(rows), np.int32)
        probabilities = [
            probability
            for phone, state in tuples[:, :2].tolist()
            for _, probability in topology.states(phone)[state].transitions
        ]
        log_probs = np.zeros(len(probabilities) + 1, np.float32)
        log_probs[1:] = np.log(np.array(probabilities, np.float32))
        return cls(topology, tuples, log_probs)

    def transitions_per_state(self) -> NDArray[np.int32]:
        """Number of transitions that leave each transition state, shape (N,)."""
        size = max(len(states) for states in self.topology.entries)
        table = np.full((len(self.topology.entries), size), -1, np.int32)
        for number, entry in enumerate(self.topology.entries):
            table[number, : len(entry)] = [len(state.transitions) for state in entry]
        phones, states = self.tuples[:, 0], self.tuples[:, 1]
        known = np.isin(phones, self.topology.phones) & (states >= 0) & (states < size)
        counts = np.full(len(self.tuples), -1, np.int32)
        counts[known] = table[self.topology.phone_to_entry[phones[known]], states[known]]
        if (counts < 0).any():
            row = self.tuples[int(np.flatnonzero(counts < 0)[0])].tolist()
            raise DataError(f"transition state {row} does not fit the topology")
        return counts

    # -- transition ids

    @property
    def num_transition_ids(self) -> int:
        """Number of transition ids, which start at 1."""
        return len(self.log_probs) - 1

    def check_transition_ids(self, ids: NDArray[np.int32]) -> None:
        """Raise DataError if one of `ids` is not a transition id of this model."""
        wrong = np.flatnonzero((ids < 1) | (ids > self.num_transition_ids))
        if wrong.size:
            raise DataError(
                f"transition id {ids[wrong[0]]} in place {wrong[0]}: the model has ids from 1 to "
                f"{self.num_transition_ids}"
            )

    def transitions(self) -> Transitions:
        """The properties of each transition id; the arrays are computed once and read-only."""
        return self._transitions

    @functools.cached_property
    def _transitions(self) -> Transitions:
        counts = self.transitions_per_state()
        rows = np.repeat(np.arange(len(counts)), counts)
        position = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        phones, states, forward, self_loop = self.tuples[rows].T
        entries = self.topology.phone_to_entry[phones]
        target = self._targets(int(counts.max(initial=0)))[entries, states, position]
        sizes = np.array([len(entry) for entry in self.topology.entries])
        is_loop = target == states
        pdfs = np.where(is_loop, self_loop, forward)
        return Transitions(
            states=_with_none(rows, -1),
            phones=_with_none(phones, -1),
            pdfs=_with_none(pdfs, -1),
            is_self_loop=_with_none(is_loop, False),
            is_final=_with_none(target + 1 == sizes[entries], False),
        )

    def pdfs_of_ids(self) -> NDArray[np.int32]:
        """The pdf of each transition id; element 0 is -1."""
        return self.transitions().pdfs

    def _targets(self, most: int) -> NDArray[np.int32]:
        """Next HMM state by transition, shape (topology entries, HMM states, transitions).

        The last axis is padded with -1 to `most`, the largest number of transitions.
        """
        entries = self.topology.entries
        targets = np.full((len(entries), max(map(len, entries)), most), -1, np.int32)
        for number, entry in enumerate(entries):
            for state, hmm_state in enumerate(entry):
                leads = [target for target, _ in hmm_state.transitions]
                targets[number, state, : len(leads)] = leads
        return targets


def _with_none(values: NDArray, none: int | bool) -> NDArray:
    """Prepend `none` for the unused id 0 to values by transition id; the result is read-only."""
    values = values if values.dtype == bool else values.astype(np.int32)
    found = np.concatenate([np.array([none], values.dtype), values])
    found.flags.writeable = False
    return found


def _read_tuples(reader: Reader, size: int, columns: int) -> NDArray[np.int32]:
    """Read the transition states, (size, 4), from lists of 3 or 4 numbers (`columns`).

    The self-loop pdf of a list of 3 is its forward pdf.
    """
    if reader.binary:
        rows = reader.read_array(size, _packed(columns), "transition states")
        if any((rows[f"size{i}"] != 4).any() for i in range(columns)):
            raise reader.error("expected transition states made of 32-bit integers")
        values = np.stack([rows[f"value{i}"] for i in range(columns)], axis=1)
    else:
        values = np.array(
            [[reader.read_int32() for _ in range(columns)] for _ in range(size)], np.int32
        )
    if (most := int(values[:, 2:].max())) >= _MAX_PDF:  # the number of pdfs would not fit an int32
        raise reader.error(f"pdf {most} is too large: expected less than {_MAX_PDF}")
    return np.concatenate([values, values[:, 2:3]], axis=1) if columns == 3 else values

"""HMM topologies: states, pdf classes and transitions of each phone (hmm-topology.cc)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import quoted
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io.stream import Reader, Writer
from nnet3tools.nnet.stored import StoredObject

NO_PDF = -1
_MAX_PHONE = 1_000_000


@dataclass(frozen=True)
class HmmState:
    """An HMM state: pdf classes of its transitions, and (next state, probability) pairs."""

    forward_pdf_class: int
    self_loop_pdf_class: int
    transitions: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class HmmTopology(StoredObject):
    """The HMMs of `phones`: the states are entries[phone_to_entry[phone]]; -1 is no entry."""

    phones: NDArray[np.int32]
    phone_to_entry: NDArray[np.int32]
    entries: tuple[tuple[HmmState, ...], ...]

    def states(self, phone: int) -> tuple[HmmState, ...]:
        """The HMM states of a phone."""
        return self.entries[self.phone_to_entry[phone]]

    def num_pdf_classes(self, phone: int) -> int:
        """Number of pdf classes that the states of a phone use; they are numbered from 0."""
        states = self.states(phone)
        return 1 + max(max(s.forward_pdf_class, s.self_loop_pdf_class) for s in states)

    @property
    def is_hmm(self) -> bool:
        """Whether in all states self-loops use the same pdf class as the leaving transitions."""
        used = {int(self.phone_to_entry[phone]) for phone in self.phones}
        return all(
            state.forward_pdf_class == state.self_loop_pdf_class
            for entry in used
            for state in self.entries[entry]
        )

    @classmethod
    def read(cls, reader: Reader) -> HmmTopology:
        """Read a topology in Kaldi's format; the text form is the one that users write."""
        reader.expect_token("<Topology>")
        topology = _read_binary(reader) if reader.binary else _read_text(reader)
        topology.check(reader)
        return topology

    def write(self, writer: Writer) -> None:
        """Write the topology in Kaldi's format."""
        writer.write_token("<Topology>").write_newline()
        if writer.binary:
            self._write_binary(writer)
        else:
            for number, states in enumerate(self.entries):
                phones = np.flatnonzero(self.phone_to_entry == number)
                writer.write_text("<TopologyEntry> \n<ForPhones> \n")
                writer.write_text("".join(f"{phone} " for phone in phones))
                writer.write_text("\n</ForPhones> \n")
                for j, state in enumerate(states):
                    self._write_state(writer, j, state)
                writer.write_text("</TopologyEntry> \n")
        writer.write_token("</Topology>").write_newline()

    def _write_state(self, writer: Writer, number: int, state: HmmState) -> None:
        writer.write_token("<State>").write_int32(number)
        if state.forward_pdf_class != NO_PDF:
            writer.write_token("<PdfClass>" if self.is_hmm else "<ForwardPdfClass>")
            writer.write_int32(state.forward_pdf_class)
            if not self.is_hmm:
                writer.write_token("<SelfLoopPdfClass>").write_int32(state.self_loop_pdf_class)
        for target, probability in state.transitions:
            writer.write_token("<Transition>").write_int32(target)
            writer.write_float(probability)
        writer.write_token("</State>").write_newline()

    def _write_binary(self, writer: Writer) -> None:
        writer.write_int32_vector(self.phones)
        writer.write_int32_vector(self.phone_to_entry)
        if not self.is_hmm:
            writer.write_int32(-1)  # announces self-loop pdf classes
        writer.write_int32(len(self.entries))
        for states in self.entries:
            writer.write_int32(len(states))
            for state in states:
                writer.write_int32(state.forward_pdf_class)
                if not self.is_hmm:
                    writer.write_int32(state.self_loop_pdf_class)
                writer.write_int32(len(state.transitions))
                for target, probability in state.transitions:
                    writer.write_int32(target)
                    writer.write_float(probability)

    def check(self, reader: Reader) -> None:
        """Raise DataError unless phones, transition targets and probabilities are valid."""
        if not self.entries or not len(self.phones):
            raise reader.error("expected a topology, found an empty one")
        entries = self.phone_to_entry[np.clip(self.phones, 0, len(self.phone_to_entry) - 1)]
        in_range = (self.phones > 0) & (self.phones < len(self.phone_to_entry))
        if not (in_range & (entries >= 0) & (entries < len(self.entries))).all():
            raise reader.error("a phone of the topology has no valid entry")
        for states in self.entries:
            targets = {target for state in states for target, _ in state.transitions}
            if len(states) < 2 or states[-1].transitions or min(targets, default=0) < 0:
                raise reader.error("a topology entry needs a last state without transitions")
            if targets | {0} != set(range(len(states))):
                raise reader.error("a topology entry has unreachable or missing states")
            if any(not p > 0.0 for state in states for _, p in state.transitions):
                raise reader.error("a transition probability of the topology is not positive")


def _count(reader: Reader, what: str) -> int:
    if (count := reader.read_int32()) < 0:
        raise reader.error(f"expected a number of {what}, found {count}")
    return count


def _read_binary(reader: Reader) -> HmmTopology:
    phones, phone_to_entry = reader.read_int32_vector(), reader.read_int32_vector()
    size = reader.read_int32()
    is_hmm = size != -1
    if not is_hmm:
        size = reader.read_int32()
    entries = []
    for _ in range(size):
        states = []
        for _ in range(_count(reader, "states")):
            forward = reader.read_int32()
            self_loop = forward if is_hmm else reader.read_int32()
            transitions = tuple(
                (reader.read_int32(), reader.read_float())
                for _ in range(_count(reader, "transitions"))
            )
            states.append(HmmState(forward, self_loop, transitions))
        entries.append(tuple(states))
    reader.expect_token("</Topology>")
    return HmmTopology(phones, phone_to_entry, tuple(entries))


def _read_text(reader: Reader) -> HmmTopology:
    entries: list[tuple[HmmState, ...]] = []
    entry_of_phone: dict[int, int] = {}
    while (token := reader.read_token()) != "</Topology>":
        if token != "<TopologyEntry>":
            raise reader.error(f"expected <TopologyEntry> or </Topology>, found {quoted(token)}")
        reader.expect_token("<ForPhones>")
        while reader.peek_token() != "</ForPhones>":
            phone = reader.read_int32()
            if phone <= 0 or phone in entry_of_phone:
                raise reader.error(f"phone {phone} is not positive or has two entries")
            if phone > _MAX_PHONE:  # a table has all numbers up to the largest
                raise reader.error(f"phone {phone} is too large: at most {_MAX_PHONE}")
            entry_of_phone[phone] = len(entries)
        reader.expect_token("</ForPhones>")
        states: list[HmmState] = []
        while (token := reader.read_token()) != "</TopologyEntry>":
            if token != "<State>" or reader.read_int32() != len(states):
                raise reader.error(f"expected <State> {len(states)}, found {quoted(token)}")
            states.append(_read_text_state(reader))
        entries.append(tuple(states))
    phones = np.array(sorted(entry_of_phone), np.int32)
    phone_to_entry = np.full(int(phones.max(initial=0)) + 1, -1, np.int32)
    phone_to_entry[phones] = [entry_of_phone[int(phone)] for phone in phones]
    return HmmTopology(phones, phone_to_entry, tuple(entries))


def _read_text_state(reader: Reader) -> HmmState:
    forward = self_loop = NO_PDF
    token = reader.read_token()
    if token == "<PdfClass>":
        forward = self_loop = reader.read_int32()
        token = reader.read_token()
    elif token == "<ForwardPdfClass>":
        forward = reader.read_int32()
        self_loop = reader.expect_token("<SelfLoopPdfClass>").read_int32()
        token = reader.read_token()
    transitions = []
    while token == "<Transition>":
        transitions.append((reader.read_int32(), reader.read_float()))
        token = reader.read_token()
    if token != "</State>":
        raise reader.error(f"expected </State>, found {quoted(token)}")
    return HmmState(forward, self_loop, tuple(transitions))

"""The lang folder: symbol tables, phone lists, lexicon FSTs, topology (prepare_lang.sh)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nnet3tools.errors import DataError, OptionError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.fst.files import save_fst
from nnet3tools.fst.fst import EPSILON, Fst
from nnet3tools.io.files import open_output, write_text
from nnet3tools.lang.dictionary import Dictionary, PhoneNames, word_position
from nnet3tools.lang.lexicon import OptionalSilence, Pronunciation, lexicon_fst, with_disambiguation
from nnet3tools.lang.symbols import SymbolTable
from nnet3tools.nnet.hmm.topology import NO_PDF, HmmState, HmmTopology


@dataclass(frozen=True)
class LangOptions:
    """Options of prepare_lang.sh; `chain_topology` chooses the topology of gen_topo.py."""

    position_dependent_phones: bool = True
    sil_prob: float = 0.5
    num_sil_states: int = 5
    num_nonsil_states: int = 3
    share_silence_phones: bool = False
    chain_topology: bool = False

    def check(self) -> None:
        """Raise OptionError for options out of range."""
        if not 0.0 <= self.sil_prob < 1.0:
            raise OptionError(f"--sil-prob={self.sil_prob:g} is not from 0 up to, not with, 1")
        if not 1 <= self.num_nonsil_states <= 100:
            raise OptionError(f"--num-nonsil-states={self.num_nonsil_states} is not from 1 to 100")
        if not (self.num_sil_states == 1 or 3 <= self.num_sil_states <= 100):
            raise OptionError(f"--num-sil-states={self.num_sil_states} is neither 1 nor 3 to 100")


def prepare_lang(dictionary: Dictionary, oov: str, folder: str, options: LangOptions) -> None:
    """Write a lang folder for a dictionary; DataError unless `oov` is a word of its lexicon."""
    options.check()
    lang = _Lang(dictionary, oov, options)
    root = Path(folder)
    (root / "phones").mkdir(parents=True, exist_ok=True)
    lang.phones.save(str(root / "phones.txt"))
    lang.words.save(str(root / "words.txt"))
    for name, lines in lang.text_files().items():
        write_text(root / name, "".join(line + "\n" for line in lines))
    with open_output(str(root / "topo"), binary=False) as writer:
        lang.topology().write(writer)
    save_fst(str(root / "L.fst"), lang.lexicon(disambig=False))
    save_fst(str(root / "L_disambig.fst"), lang.lexicon(disambig=True))


def byte_order(text: str) -> bytes:
    """Sort key that sorts text by its bytes, as `LC_ALL=C sort` does."""
    return text.encode("utf-8", "surrogateescape")


class _Lang:
    def __init__(self, dictionary: Dictionary, oov: str, options: LangOptions) -> None:
        self._dictionary, self._options = dictionary, options
        names = self._names = PhoneNames(options.position_dependent_phones)
        self._silence_sets = names.expanded(dictionary.silence, silence=True)
        self._nonsilence_sets = names.expanded(dictionary.nonsilence, silence=False)
        self._lexicon = [names.pronunciation(entry) for entry in dictionary.lexicon]
        self._with_disambig, most = with_disambiguation(self._lexicon)
        self._disambig = [f"#{number}" for number in range(most + 2)]
        phones = [*self._flat(self._silence_sets), *self._flat(self._nonsilence_sets)]
        self.phones = SymbolTable.of(["<eps>", *phones, *self._disambig])
        words = sorted({entry.word for entry in self._lexicon}, key=byte_order)
        self.words = SymbolTable.of(["<eps>", *words, "#0", "<s>", "</s>"])
        if oov not in words:
            raise DataError(f"the word for unknown words, '{oov}', is not in the lexicon")
        self._oov = oov

    @staticmethod
    def _flat(sets: Sequence[Sequence[str]]) -> list[str]:
        return [phone for phones in sets for phone in phones]

    # -- text files

    def text_files(self) -> dict[str, list[str]]:
        """The lines of each text file in the lang folder, by file name."""
        files = {"oov.txt": [self._oov], "oov.int": [str(self.words.number(self._oov))]}
        files |= self._phone_lists() | self._phone_sets() | self._roots()
        files |= self._word_disambig() | self._align_lexicon()
        return files | (self._word_boundary() if self._names.by_position else {})

    def _numbers(self, symbols: Sequence[str]) -> list[str]:
        return list(map(str, self.phones.sequence(symbols)))

    def _phone_lists(self) -> dict[str, list[str]]:
        silence = self._flat(self._silence_sets)
        lists = {
            "silence": silence,
            "nonsilence": self._flat(self._nonsilence_sets),
            "optional_silence": [self._dictionary.optional_silence],
            "disambig": self._disambig,
            "context_indep": silence,
        }
        files: dict[str, list[str]] = {}
        for name, symbols in lists.items():
            files |= self._both(name, [[symbol] for symbol in symbols])
            files[f"phones/{name}.csl"] = [":".join(files[f"phones/{name}.int"])]
        return files

    def _both(
        self, name: str, sets: Sequence[Sequence[str]], prefix: str = ""
    ) -> dict[str, list[str]]:
        """The lines of phones/NAME.txt (symbols) and phones/NAME.int (numbers), by file name.

        Each of `sets` becomes a line that begins with `prefix`.
        """
        return {
            f"phones/{name}.txt": [prefix + " ".join(phones) for phones in sets],
            f"phones/{name}.int": [prefix + " ".join(self._numbers(phones)) for phones in sets],
        }

    @property
    def _sets(self) -> list[list[str]]:
        silence = self._silence_sets
        if self._options.share_silence_phones:
            silence = [self._flat(silence)]
        return [*silence, *self._nonsilence_sets]

    def _phone_sets(self) -> dict[str, list[str]]:
        dictionary, names = self._dictionary, self._names
        silent = set(self._flat(dictionary.silence))
        questions = [
            [version for phone in phones for version in names.versions(phone, phone in silent)]
            for phones in dictionary.extra_questions
        ]
        questions += names.questions(
            self._flat(dictionary.silence), self._flat(dictionary.nonsilence)
        )
        return self._both("sets", self._sets) | self._both("extra_questions", questions)

    def _roots(self) -> dict[str, list[str]]:
        sets, plain = self._sets, "shared split "
        if not self._options.share_silence_phones:
            return self._both("roots", sets, plain)
        first = self._both("roots", sets[:1], "not-shared not-split ")
        rest = self._both("roots", sets[1:], plain)
        return {name: first[name] + rest[name] for name in first}

    def _word_disambig(self) -> dict[str, list[str]]:
        return {
            "phones/wdisambig.txt": ["#0"],
            "phones/wdisambig_phones.int": [str(self.phones.number("#0"))],
            "phones/wdisambig_words.int": [str(self.words.number("#0"))],
        }

    def _align_lexicon(self) -> dict[str, list[str]]:
        silence = Pronunciation("<eps>", (self._dictionary.optional_silence,))
        entries = {(entry.word, entry.phones) for entry in [*self._lexicon, silence]}
        text = sorted((f"{w} {w} {' '.join(phones)}" for w, phones in entries), key=byte_order)
        numbers = []
        for line in text:
            word, _, *phones = line.split(" ")
            number = self.words.number(word)
            numbers.append(f"{number} {number} {' '.join(self._numbers(phones))}")
        return {"phones/align_lexicon.txt": text, "phones/align_lexicon.int": numbers}

    def _word_boundary(self) -> dict[str, list[str]]:
        phones = self._flat([*self._silence_sets, *self._nonsilence_sets])
        positions = list(map(word_position, phones))
        return {
            f"phones/word_boundary.{kind}": [
                f"{name} {position}" for name, position in zip(names, positions, strict=True)
            ]
            for kind, names in (("txt", phones), ("int", self._numbers(phones)))
        }

    # -- topology and lexicon FSTs

    def topology(self) -> HmmTopology:
        """The HMM topology of all phones in the lang folder."""
        silence = self.phones.sequence(self._flat(self._silence_sets))
        nonsilence = self.phones.sequence(self._flat(self._nonsilence_sets))
        options = self._options
        if options.chain_topology:
            return chain_topology([*silence, *nonsilence])
        sizes = options.num_sil_states, options.num_nonsil_states
        return left_to_right_topology(silence, nonsilence, *sizes)

    def lexicon(self, disambig: bool) -> Fst:
        """The lexicon FST for L.fst; with `disambig`, for L_disambig.fst, which also accepts #0."""
        silence = OptionalSilence(
            self._dictionary.optional_silence,
            self._options.sil_prob,
            self._disambig[-1] if disambig else "",
        )
        entries = self._with_disambig if disambig else self._lexicon
        fst = lexicon_fst(entries, silence, self.phones.numbers, self.words.numbers)
        if disambig:
            fst = _with_loops(fst, self.phones.number("#0"), self.words.number("#0"))
        return fst.sorted_by_output()


def _with_loops(fst: Fst, ilabel: int, olabel: int) -> Fst:
    """Add a loop ilabel:olabel to final states and where words begin (fstaddselfloops)."""
    writes = np.zeros(fst.num_states, bool)
    writes[fst.sources[fst.olabels != EPSILON]] = True
    states = np.flatnonzero(writes | fst.is_final)
    return Fst.from_arcs(
        fst.start,
        fst.finals,
        np.concatenate([fst.sources, states]),
        np.concatenate([fst.ilabels, np.full(len(states), ilabel)]),
        np.concatenate([fst.weights, np.zeros(len(states))]),
        np.concatenate([fst.nextstates, states]),
        np.concatenate([fst.olabels, np.full(len(states), olabel)]),
    )


# -- topologies

_Entry = tuple[HmmState, ...]
_FINAL = HmmState(NO_PDF, NO_PDF, ())


def chain_topology(phones: Sequence[int]) -> HmmTopology:
    """The topology of chain models for `phones`: a state whose first frame has its own pdf class.

    Both transition probabilities are 1/2; chain models do not use them (gen_topo.py).
    """
    return _topology([(phones, (HmmState(0, 1, ((0, 0.5), (1, 0.5))), _FINAL))])


def left_to_right_topology(
    silence: Sequence[int],
    nonsilence: Sequence[int],
    num_silence_states: int,
    num_nonsilence_states: int,
) -> HmmTopology:
    """The topology of gen_topo.pl: states in a row; silence has arcs between all but the last."""
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

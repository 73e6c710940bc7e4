"""Examples of several languages, each with its own outputs and denominator graph (chain2)."""

from __future__ import annotations

import re
from pathlib import PurePath

from nnet3tools.chain.den_graph import DenominatorGraph, load_denominator_graph
from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import replace
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.training.example import NnetExample

_DEFAULT = "default"
_NAME = re.compile(r"[\w-]+", re.ASCII)


def language_of(key: str, default: str = "") -> str:
    """The language in a key such as utt-0?lang=english; `default` if the key has none."""
    query = key.rpartition("?")[2] if "?" in key else ""
    pairs = [part.partition("=") for part in query.split("&")]
    return next((value for name, _, value in pairs if name == "lang"), default)


def with_language(key: str, example: NnetExample) -> NnetExample:
    """The example with its output 'output' renamed to output-LANG; LANG is the key's language.

    If the key names no language, LANG is 'default'.
    """
    name = f"output-{language_of(key, _DEFAULT)}"
    supervisions = tuple(
        replace(s, chain=replace(s.chain, name=name)) if s.chain.name == "output" else s
        for s in example.supervisions
    )
    return replace(example, supervisions=supervisions)


class LanguageGraphs:
    """The denominator graphs LANG.den.fst of a folder, each read at its first use."""

    def __init__(self, folder: str, nnet: Nnet) -> None:
        self._folder, self._nnet = folder, nnet
        self._graphs: dict[str, DenominatorGraph] = {}

    def of_output(self, name: str) -> DenominatorGraph:
        """The graph for output `name`, output-LANG; DataError if missing or made for other pdfs."""
        if name not in self._graphs:
            prefix, _, language = name.partition("-")
            if prefix != "output" or not _NAME.fullmatch(language):
                raise DataError(
                    f"output '{name}' has no language: expected output-LANG, of letters, "
                    "digits, _ and -"
                )
            path = str(PurePath(self._folder, f"{language}.den.fst"))
            self._graphs[name] = load_denominator_graph(path, self._nnet.output_dim(name))
        return self._graphs[name]

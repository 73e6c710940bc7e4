"""Training graphs of transcripts, and the decoding graph HCLG, from transition ids to words.

Training graphs are made as in Kaldi's training-graph-compiler.cc. The decoding graph is made as in
mkgraph.sh: H o C o L o G, determinized and minimized after each composition, then self-loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.fst.compose import compose_with_loops
from nnet3tools.fst.determinize_star import DELTA, determinize_star
from nnet3tools.fst.encode import decoded, encoded
from nnet3tools.fst.fst import Fst
from nnet3tools.fst.local_epsilon import remove_epsilons_locally
from nnet3tools.fst.minimize import quantized
from nnet3tools.fst.partition import minimize_encoded
from nnet3tools.fst.push_special import push_special
from nnet3tools.io import log
from nnet3tools.io.checked import exists
from nnet3tools.io.files import copy_contents, write_text
from nnet3tools.lang.context import in_context
from nnet3tools.lang.hmm_graph import HmmGraphs
from nnet3tools.lang.self_loops import SelfLoops
from nnet3tools.nnet.hmm.transition_model import TransitionModel
from nnet3tools.nnet.hmm.tree import ContextDependency

_NEEDED = ("words.txt", "phones/silence.csl")
_OPTIONAL = (
    "phones.txt",
    *(
        f"phones/{name}.{kind}"
        for name in ("word_boundary", "align_lexicon", "optional_silence", "disambig")
        for kind in ("txt", "int")
    ),
)


@dataclass(frozen=True)
class GraphScales:
    """Factors of log-probabilities: of transitions; of self-loops and of leaving their states."""

    transition_scale: float = 1.0
    self_loop_scale: float = 1.0


def minimized(fst: Fst) -> Fst:
    """Merge equivalent states of an FST; weights are rounded to 1/1024 (MinimizeEncoded)."""
    whole, codes = encoded(quantized(fst, np.float32(DELTA)))
    return decoded(minimize_encoded(whole), codes)


class TrainingGraphCompiler:
    """Compiles transcripts to graphs, for one tree, transition model and lexicon."""

    def __init__(
        self,
        tree: ContextDependency,
        model: TransitionModel,
        lexicon: Fst,
        scales: GraphScales,
        disambig: Sequence[int] = (),
        remove_epsilons: bool = False,
    ) -> None:
        self._hmms = HmmGraphs(tree, model, scales.transition_scale)
        self._loops = SelfLoops(model, scales.self_loop_scale)
        self._lexicon, self._disambig = lexicon.sorted_by_output(), tuple(disambig)
        self._remove_epsilons = remove_epsilons

    def compile(self, words: Sequence[int]) -> Fst:
        """The graph from transition ids to the transcript `words`; empty if a word is unknown."""
        phones = compose_with_loops(self._lexicon, Fst.linear(words))
        if not phones.num_states:
            return phones
        context = in_context(phones, self._hmms.tree, self._hmms.model.topology, self._disambig)
        graph = compose_with_loops(self._hmms.transducer(context.windows), context.fst)
        graph = determinize_star(graph)
        if ids := self._hmms.disambig_ids(context.windows):
            graph = graph.without_inputs(ids)
            graph = remove_epsilons_locally(graph) if self._remove_epsilons else graph
        return self._loops.added_to(minimized(graph))


# -- the decoding graph


def _log_size(name: str, fst: Fst) -> None:
    log.log(f"{name} has {fst.num_states} states and {fst.num_arcs} arcs")


def lexicon_and_grammar(lexicon: Fst, grammar: Fst) -> Fst:
    """The FST LG: lexicon composed with grammar, determinized, minimized, weights pushed."""
    if not grammar.num_states:
        raise DataError("the grammar accepts nothing")
    fst = compose_with_loops(lexicon.sorted_by_output(), grammar)
    if not fst.num_states:
        raise DataError("lexicon and grammar have no sentence in common")
    fst = push_special(minimized(determinize_star(fst)), DELTA)
    _log_size("LG", fst)
    return fst


def decoding_graph(
    tree: ContextDependency,
    model: TransitionModel,
    phones_to_words: Fst,
    disambig: Sequence[int],
    scales: GraphScales,
) -> Fst:
    """Make the decoding graph HCLG from LG, which is `phones_to_words`.

    `disambig` holds the numbers of LG's disambiguation symbols.
    """
    context = in_context(phones_to_words, tree, model.topology, disambig)
    _log_size("CLG", context.fst)
    hmms = HmmGraphs(tree, model, scales.transition_scale)
    graph = compose_with_loops(hmms.transducer(context.windows), context.fst.sorted_by_input())
    graph = determinize_star(graph).without_inputs(hmms.disambig_ids(context.windows))
    graph = minimized(remove_epsilons_locally(graph, stochastic_in_log=True))
    graph = SelfLoops(model, scales.self_loop_scale).added_to(graph)
    _log_size("HCLG", graph)
    return graph


def without_words(fst: Fst, words: Sequence[int]) -> Fst:
    """A copy of the FST without arcs whose output label is in `words`."""
    return fst.with_arcs_only(~np.isin(fst.olabels, words))


# -- the folder of a graph


def copy_lang_files(lang: str, graph_dir: str, num_pdfs: int) -> None:
    """Copy the files that decoding needs from a lang folder to `graph_dir`, and write num_pdfs.

    DataError if a file is missing.
    """
    source, target = Path(lang), Path(graph_dir)
    for name in _NEEDED:
        if not exists(source / name):
            raise DataError(f"expected {source / name} to exist")
    (target / "phones").mkdir(parents=True, exist_ok=True)
    for name in (*_NEEDED, *_OPTIONAL):
        if exists(source / name):
            copy_contents(source / name, target / name)
    write_text(target / "num_pdfs", f"{num_pdfs}\n")

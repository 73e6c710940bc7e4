"""Makes the denominator FST of a phone language model, and its normalization FST."""

from __future__ import annotations

import numpy as np

from nnet3tools.chain.den_graph import initial_probs
from nnet3tools.errors import DataError
from nnet3tools.fst.connect import reordered
from nnet3tools.fst.encode import decoded, encoded
from nnet3tools.fst.epsilon import remove_epsilons
from nnet3tools.fst.fst import EPSILON, Fst
from nnet3tools.fst.local_epsilon import remove_epsilons_locally
from nnet3tools.fst.minimize import quantized
from nnet3tools.fst.partition import minimize_encoded
from nnet3tools.fst.properties import Property
from nnet3tools.fst.push_special import push_special
from nnet3tools.fst.reverse import reversed_fst
from nnet3tools.io import log
from nnet3tools.lang.hmm_graph import HmmGraphs
from nnet3tools.nnet.hmm.transition_model import TransitionModel
from nnet3tools.nnet.hmm.tree import ContextDependency

_DELTA = 1.0 / 1024.0
_QUANTUM = np.float32(_DELTA * 10.0)
"""Weights are rounded to multiples of this number before states are merged."""
_PUSH_DELTA = _DELTA * 0.01
_NUM_PASSES = 3
_FEW = 3


def make_denominator_fst(tree: ContextDependency, model: TransitionModel, phone_lm: Fst) -> Fst:
    """The denominator FST of a phone language model: an epsilon-free acceptor of pdfs plus one.

    DataError if tree, transition model and language model do not match.
    """
    phone_lm.check_labels(int(model.topology.phones.max()), "the phone language model")
    if not phone_lm.num_states:
        raise DataError("the phone language model is empty")
    _log_size("in phone-LM FST is", phone_lm)
    graph = HmmGraphs(tree, model, scale=1.0).expand(phone_lm)
    if not graph.num_states:
        raise DataError("the phone language model accepts nothing")
    labels = np.where(graph.ilabels > 0, model.pdfs_of_ids()[graph.ilabels] + 1, EPSILON)
    graph = graph.relabelled(labels.astype(np.int32))
    _log_size("in transition-id FST is", graph)
    graph = remove_epsilons(remove_epsilons_locally(graph))
    _log_size("in transition-id FST after removing epsilons is", graph)
    graph = _minimized(graph)
    # The states of most arcs come first, as a GPU should begin the longest work first.
    counts = np.bincount(graph.sources, minlength=graph.num_states)
    counts += np.bincount(graph.nextstates, minlength=graph.num_states)
    numbers = np.empty(graph.num_states, np.int32)
    numbers[np.argsort(-counts, kind="stable")] = np.arange(graph.num_states)
    graph = reordered(graph, numbers)
    if not graph.num_arcs:
        raise DataError("the denominator FST is empty: expected a phone language model with phones")
    _log_coverage(graph, model.num_pdfs)
    return graph.with_properties(Property.WEIGHTED | Property.NO_EPSILONS)


def _log_size(what: str, fst: Fst, number: int = 0) -> None:
    passed = f" (pass {number})" if number else ""
    log.log(f"Number of states and arcs {what} {fst.num_states} and {fst.num_arcs}{passed}")


def _minimized(fst: Fst) -> Fst:
    """The FST minimized several times forwards and backwards, with weights pushed in between."""
    for number in range(1, _NUM_PASSES + 1):
        fst = reversed_fst(_merged(push_special(reversed_fst(fst), _PUSH_DELTA)))
        _log_size("in transition-id FST after reversed minimization is", fst, number)
        fst = _merged(push_special(fst, _PUSH_DELTA))
        _log_size("in transition-id FST after regular minimization is", fst, number)
    fst = remove_epsilons(fst)
    _log_size("in transition-id FST after removing any epsilons introduced by reversal is", fst)
    return push_special(fst, _PUSH_DELTA)


def _merged(fst: Fst) -> Fst:
    """The FST with states merged that are equal but for rounding of weights."""
    rounded, codes = encoded(quantized(fst, _QUANTUM))
    return decoded(minimize_encoded(rounded), codes)


def _log_coverage(fst: Fst, num_pdfs: int) -> None:
    seen = np.zeros(num_pdfs, bool)
    seen[fst.ilabels - 1] = True
    for pdf in np.flatnonzero(~seen):
        log.warning(f"Pdf-id {pdf} is not seen in denominator graph.")
    num_in = np.bincount(fst.nextstates, minlength=fst.num_states)
    log.log(
        f"Number of states is {fst.num_states} and arcs {fst.num_arcs}; number of states with "
        f"in-degree <= {_FEW} is {int((num_in <= _FEW).sum())} and with out-degree <= {_FEW} is "
        f"{int((fst.counts <= _FEW).sum())}"
    )


def make_normalization_fst(den_fst: Fst) -> Fst:
    """The normalization FST of a denominator FST: every state is initial and final.

    The initial weights are the initial probabilities. The arcs are sorted by label.
    """
    probs = initial_probs(den_fst)
    if not (probs > 0.0).all():
        raise DataError(
            f"the denominator FST's state {int(np.argmin(probs))} has no probability within "
            "100 steps of the start"
        )
    size = den_fst.num_states
    whole = Fst.from_arcs(
        size,
        np.zeros(size + 1, np.float32),
        np.concatenate([den_fst.sources, np.full(size, size)]),
        np.concatenate([den_fst.ilabels, np.full(size, EPSILON)]),
        np.concatenate([den_fst.weights, -np.log(probs)]),
        np.concatenate([den_fst.nextstates, np.arange(size)]),
    )
    whole.finals[size] = np.inf
    fst = remove_epsilons(whole)
    in_order = fst.sorted_by_input()
    properties = Property.I_LABEL_SORTED | Property.NO_EPSILONS
    return in_order.with_properties(properties | Property.ACCESSIBLE | Property.COACCESSIBLE)

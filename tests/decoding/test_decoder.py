"""The search against dynamic programming and enumeration, and lattices made deterministic."""

import math
import random
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from nnet3tools.decoding.alignment import Aligner, transition_log_probs
from nnet3tools.decoding.decoder import Decoder
from nnet3tools.decoding.determinization import Determinizer
from nnet3tools.decoding.edit_distance import word_errors
from nnet3tools.decoding.graph import DecodingGraph
from nnet3tools.decoding.options import AlignOptions, DeterminizeOptions, SearchOptions
from nnet3tools.decoding.phone_determinization import PhoneDeterminizer
from nnet3tools.decoding.raw_lattice import raw_lattice
from nnet3tools.decoding.traceback import best_path
from nnet3tools.errors import DataError
from nnet3tools.fst.fst import NOT_FINAL, Fst
from nnet3tools.fst.lattice import CompactLattice
from nnet3tools.fst.lattice_conversion import compacted
from support.search_options import search_options
from support.tiny_chain import CHAIN_TOPOLOGY, MONO_TREE, STATES_TOPOLOGY, model_of

_, MODEL = model_of(MONO_TREE, CHAIN_TOPOLOGY)
PDFS = MODEL.pdfs_of_ids()
WIDE = search_options(1e6, lattice_beam=1e6)


def random_graph(seed: int, size: int = 6) -> Fst:
    """Arcs that read transition ids anywhere, epsilon arcs forwards; words on some."""
    draw = random.Random(seed)
    arcs = []
    for state in range(size):
        leaving = [
            (
                draw.randrange(1, MODEL.num_transition_ids + 1),
                draw.choice([0, 0, 1, 2, 3]),
                draw.uniform(0, 2),
                draw.randrange(size),
            )
            for _ in range(draw.randrange(1, 4))
        ]
        if state < size - 1 and draw.random() < 0.5:
            leaving.append(
                (0, draw.choice([0, 4]), draw.uniform(0, 2), draw.randrange(state + 1, size))
            )
        arcs.append(leaving)
    finals = [draw.uniform(0, 2) if draw.random() < 0.5 else NOT_FINAL for _ in range(size - 1)]
    return Fst.from_lists(0, [*finals, 0.5], arcs)


def outputs(seed: int, frames: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(frames, PDFS.max() + 1)).astype(np.float32)


def every_path(fst: Fst, loglikes: np.ndarray) -> dict[tuple, float]:
    """The cost of every path: keys are transition ids and words."""
    arcs, finals = fst.arc_lists(), fst.finals.tolist()
    best: dict[tuple, float] = defaultdict(lambda: math.inf)

    def walk(state: int, frame: int, cost: float, ids: tuple, words: tuple) -> None:
        if frame == len(loglikes) and finals[state] != NOT_FINAL:
            key = ids, words
            best[key] = min(best[key], cost + finals[state])
        for ilabel, word, weight, target in arcs[state]:
            said = words + ((word,) if word else ())
            if not ilabel:
                walk(target, frame, cost + weight, ids, said)
            elif frame < len(loglikes):
                acoustic = -float(loglikes[frame, PDFS[ilabel]])
                walk(target, frame + 1, cost + weight + acoustic, (*ids, ilabel), said)

    walk(fst.start, 0, 0.0, (), ())
    return best


def decoded(fst: Fst, loglikes: np.ndarray, options: SearchOptions = WIDE) -> Decoder:
    decoder = Decoder(DecodingGraph.of(fst, MODEL, "graph"), options)
    decoder.start()
    decoder.advance(loglikes)
    return decoder


def lattice_paths(lattice: CompactLattice) -> dict[tuple, float]:
    """The cost of the best path for each (transition ids, labels)."""
    found: dict[tuple, float] = defaultdict(lambda: math.inf)
    arcs, finals = lattice.arc_lists(), lattice.final_list()

    def walk(state: int, cost: float, ids: tuple, words: tuple) -> None:
        final = finals[state]
        if final is not None:
            key = ids + final[2], words
            found[key] = min(found[key], cost + final[0] + final[1])
        for word, graph, acoustic, more, target in arcs[state]:
            walk(target, cost + graph + acoustic, ids + more, words + ((word,) if word else ()))

    if arcs:
        walk(0, 0.0, (), ())
    return found


def assert_costs(found: dict, expected: dict) -> None:
    assert set(found) == set(expected)
    for key, cost in expected.items():
        assert found[key] == pytest.approx(cost, abs=1e-3)


@pytest.mark.parametrize("seed", range(12))
def test_best_path_is_that_of_enumeration(seed):
    fst, loglikes = random_graph(seed), outputs(seed, 4)
    expected = every_path(fst, loglikes)
    decoder = decoded(fst, loglikes)
    assert decoder.reached_final() == bool(expected)
    if expected:
        path = best_path(raw_lattice(decoder))
        key = tuple(path.alignment.tolist()), tuple(path.transcript.tolist())
        assert sum(path.costs) == pytest.approx(min(expected.values()), abs=1e-4)
        assert expected[key] == pytest.approx(min(expected.values()), abs=1e-4)
        frame_costs = -loglikes[np.arange(4), PDFS[path.alignment]]
        np.testing.assert_allclose(path.frame_costs, frame_costs, atol=1e-5)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("beam", [1.0, 1e6])
def test_raw_lattice_has_the_paths_within_the_beam(seed, beam):
    fst, loglikes = random_graph(seed), outputs(seed + 50, 3)
    expected = every_path(fst, loglikes)
    if not expected:
        return
    decoder = decoded(fst, loglikes, search_options(1e6, lattice_beam=beam))
    decoder.finish()
    found = lattice_paths(compacted(raw_lattice(decoder)))
    limit = min(expected.values()) + beam
    inside = {key for key, cost in expected.items() if cost <= limit - 1e-3}
    assert inside <= set(found)
    for key, cost in found.items():  # pieces within the beam may make paths that are not
        assert cost == pytest.approx(expected[key], abs=1e-3)


@pytest.mark.parametrize("seed", range(8))
def test_decoding_in_pieces_and_pruning_on_the_way_change_nothing(seed):
    fst, loglikes = random_graph(seed), outputs(seed, 40)
    options = search_options(1e6, lattice_beam=2.0, prune_interval=1000)
    whole = decoded(fst, loglikes, options)
    if not whole.is_alive:
        return
    pieces = Decoder(DecodingGraph.of(fst, MODEL, "graph"), replace(options, prune_interval=7))
    pieces.start()
    for begin in range(0, 40, 9):
        pieces.advance(loglikes[begin : begin + 9])
    assert (
        best_path(raw_lattice(pieces)).ilabels.tolist()
        == best_path(raw_lattice(whole)).ilabels.tolist()
    )
    for decoder in (whole, pieces):
        decoder.finish()
    one, other = raw_lattice(whole), raw_lattice(pieces)
    assert one.fst.num_states == other.fst.num_states
    assert one.fst.num_arcs == other.fst.num_arcs


def test_few_tokens_are_all_kept_and_many_are_cut():
    """With no more tokens than min_active there is no beam, as in Kaldi."""
    ids = np.arange(1, 1 + min(4, MODEL.num_transition_ids))
    arcs = [[(int(i), int(i), 3.0 * i, int(i)) for i in ids]] + [[(1, 0, 0.0, int(i))] for i in ids]
    fst = Fst.from_lists(0, [NOT_FINAL] + [0.0] * len(ids), arcs)
    loglikes = np.zeros((2, PDFS.max() + 1), np.float32)
    for options, count in (
        (search_options(4.0), 2),
        (search_options(4.0, min_active=200), 4),
        (search_options(100.0, max_active=2, beam_delta=0.5), 4),
    ):
        decoder = decoded(fst, loglikes[:1], options)
        assert len(decoder.frames[-1].states) == count
    cut = decoded(fst, loglikes, search_options(100.0, max_active=2, beam_delta=0.5))
    assert len(cut.frames[-1].states) == 3  # those as cheap as the third one went on


@pytest.mark.parametrize("seed", range(10))
def test_determinized_lattice_has_the_best_path_of_each_word_sequence(seed):
    fst, loglikes = random_graph(seed), outputs(seed + 7, 4)
    expected: dict[tuple, tuple] = {}
    for (ids, words), cost in every_path(fst, loglikes).items():
        expected[words] = min(expected.get(words, (math.inf, ())), (cost, ids))
    if not expected:
        return
    decoder = decoded(fst, loglikes)
    decoder.finish()
    for options in (DeterminizeOptions(), DeterminizeOptions(phone_determinize=False)):
        lattice, complete = PhoneDeterminizer(MODEL, 1e6, options).determinize(raw_lattice(decoder))
        assert complete
        for arcs in lattice.arc_lists():
            labels = [arc[0] for arc in arcs]
            assert len(labels) == len(set(labels))
            assert 0 not in labels
        found = lattice_paths(lattice)
        assert_costs(found, {(ids, words): cost for words, (cost, ids) in expected.items()})


def test_determinization_is_pruned_and_ends_when_memory_does():
    arcs = [[(word, float(word), 0.0, (1,), state + 1) for word in (1, 2)] for state in range(12)]
    lattice = CompactLattice.from_lists(0, [None] * 12 + [(0.0, 0.0, ())], [*arcs, []])
    pruned = Determinizer(lattice, 1.5, 1e-3, 0)
    assert pruned.run() == 1.5
    sequences = {words for _, words in lattice_paths(pruned.result())}
    assert sum(sum(words) - 12 <= 1 for words in sequences) == 13
    limited = Determinizer(lattice, 12.0, 1e-3, 100)
    assert limited.run() < 12.0


def test_graph_of_another_model_is_refused():
    fst = Fst.from_lists(0, [0.0], [[(99, 1, 0.0, 0)]])
    with pytest.raises(DataError, match="another model"):
        DecodingGraph.of(fst, MODEL, "HCLG.fst")
    with pytest.raises(DataError, match="empty"):
        DecodingGraph.of(Fst.empty(), MODEL, "HCLG.fst")


def test_epsilon_loops_end_in_an_error():
    cheaper = Fst.from_lists(0, [0.0, 0.0], [[(0, 0, -1.0, 1)], [(0, 0, -1.0, 0)]])
    with pytest.raises(DataError, match="epsilon loop"):
        decoded(cheaper, outputs(0, 1))
    free = Fst.from_lists(0, [0.0, 0.0], [[(0, 0, 0.0, 1), (1, 0, 0.0, 0)], [(0, 0, 0.0, 0)]])
    decoder = decoded(free, outputs(0, 1))
    decoder.finish()
    assert len(best_path(raw_lattice(decoder, may_loop=True)).alignment) == 1
    with pytest.raises(DataError, match="epsilon loop"):
        raw_lattice(decoder)


def test_transition_costs_follow_both_scales():
    _, model = model_of(MONO_TREE, STATES_TOPOLOGY)
    loops = model.transitions().is_self_loop
    np.testing.assert_allclose(transition_log_probs(model, 0.5, 0.5)[1:], 0.5 * model.log_probs[1:])
    mixed = transition_log_probs(model, 1.0, 0.1)
    np.testing.assert_allclose(mixed[loops], 0.1 * model.log_probs[loops], rtol=1e-5)
    # here one transition leaves a state: all that is left is the probability of leaving
    leaving = ~loops
    leaving[0] = False
    np.testing.assert_allclose(
        mixed[leaving], 0.1 * np.log(1 - np.exp(model.log_probs[loops])), rtol=1e-5
    )


def test_alignment_retries_and_careful_alignment_fails_early_ends(capsys):
    ids = [1, 2]
    linear = Fst.from_lists(
        0, [NOT_FINAL, NOT_FINAL, 0.0], [[(i, 7, 0.0, n + 1)] for n, i in enumerate(ids)] + [[]]
    )
    zeros = np.zeros((2, PDFS.max() + 1), np.float32)
    costs = np.zeros(MODEL.num_transition_ids + 1, np.float32)
    path = Aligner(MODEL, AlignOptions(), costs).align("a", linear, zeros)
    assert path is not None
    assert path.alignment.tolist() == ids
    longer = np.concatenate([zeros, zeros])
    aligner = Aligner(MODEL, AlignOptions(beam=5.0, retry_beam=50.0), costs)
    assert aligner.align("b", linear, longer) is None
    assert aligner.num_retried == 1
    assert Aligner(MODEL, AlignOptions(), costs).align("c", Fst.empty(), zeros) is None
    careful = Aligner(MODEL, AlignOptions(careful=True), costs)
    assert careful.align("d", linear, zeros) is not None
    assert careful.align("e", linear, longer) is None
    assert "Did not successfully decode file b, len = 4" in capsys.readouterr().err


def plain_distance(reference: list, hypothesis: list) -> int:
    if not reference or not hypothesis:
        return len(reference) + len(hypothesis)
    return min(
        plain_distance(reference[1:], hypothesis) + 1,
        plain_distance(reference, hypothesis[1:]) + 1,
        plain_distance(reference[1:], hypothesis[1:]) + (reference[0] != hypothesis[0]),
    )


@pytest.mark.parametrize("seed", range(15))
def test_word_errors_are_as_few_as_possible(seed):
    draw = random.Random(seed)
    reference = draw.choices("abc", k=draw.randrange(6))
    hypothesis = draw.choices("abc", k=draw.randrange(6))
    errors = word_errors(reference, hypothesis)
    assert errors.total == plain_distance(reference, hypothesis)
    assert len(reference) - errors.deletions == len(hypothesis) - errors.insertions

"""The C search against the Python one: equal tokens and links in equal order."""

import random
import signal
import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from nnet3tools.decoding.decoder import Decoder
from nnet3tools.decoding.graph import DecodingGraph
from nnet3tools.decoding.native.lattices import best_arcs_by
from nnet3tools.decoding.native.library import compiled_library
from nnet3tools.decoding.native.search import NativeDecoder
from nnet3tools.decoding.options import LatticeDecoderOptions
from nnet3tools.decoding.raw_lattice import raw_lattice
from nnet3tools.decoding.traceback import _best_arcs, best_path
from nnet3tools.decoding.utterance import UtteranceDecoder
from nnet3tools.errors import DataError, OptionError, ProgramError
from nnet3tools.fst.fst import NOT_FINAL, Fst
from nnet3tools.fst.lattice import Lattice
from support.search_options import search_options
from support.tiny_chain import CHAIN_TOPOLOGY, MONO_TREE, model_of

LIBRARY = compiled_library()
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="there is no C compiler")

_, MODEL = model_of(MONO_TREE, CHAIN_TOPOLOGY)
NUM_PDFS = int(MODEL.pdfs_of_ids().max()) + 1


def random_graph(seed: int, size: int, ties: bool) -> Fst:
    """Arcs that read transition ids anywhere, chains of epsilon arcs in any order of states."""
    draw = random.Random(seed)
    depth = [draw.random() for _ in range(size)]  # epsilon arcs lead to deeper states: no loops

    def cost() -> float:
        return draw.choice((0.0, 0.5, 1.0)) if ties else draw.uniform(0, 2)

    arcs = []
    for state in range(size):
        leaving = []
        for _ in range(draw.randrange(0, 4)):
            label = draw.randrange(1, MODEL.num_transition_ids + 1)
            leaving.append((label, draw.randrange(3), cost(), draw.randrange(size)))
        for _ in range(draw.choice((0, 0, 1, 2))):
            target = draw.randrange(size)
            if depth[target] > depth[state]:
                leaving.append((0, draw.randrange(3), cost() - 0.2, target))
        draw.shuffle(leaving)
        arcs.append(leaving)
    finals = [cost() if draw.random() < 0.3 else NOT_FINAL for _ in range(size)]
    return Fst.from_lists(0, finals, arcs)


def loglikes(seed: int, frames: int, ties: bool) -> np.ndarray:
    draw = np.random.default_rng(seed)
    if ties:
        return draw.choice((0.0, -0.5, -1.0), (frames, NUM_PDFS)).astype(np.float32)
    return draw.normal(size=(frames, NUM_PDFS)).astype(np.float32)


def assert_same(one, other) -> None:
    assert one.num_frames == other.num_frames
    assert one.is_alive == other.is_alive
    assert one.reached_final() == other.reached_final()
    if not one.is_alive:
        return
    (arcs, relative), (expected_arcs, expected_relative) = one.trace(), other.trace()
    assert arcs.tolist() == expected_arcs.tolist()
    assert relative == expected_relative
    ours, theirs = one.token_lattice(), other.token_lattice()
    assert ours.num_tokens.tolist() == theirs.num_tokens.tolist()
    assert ours.last_states.tolist() == theirs.last_states.tolist()
    for links, expected in ((ours.emitting, theirs.emitting), (ours.epsilon, theirs.epsilon)):
        assert links.sources.tolist() == expected.sources.tolist()
        assert links.targets.tolist() == expected.targets.tolist()
        assert links.arcs.tolist() == expected.arcs.tolist()
        assert links.acoustic.tobytes() == expected.acoustic.tobytes()


OPTIONS = {
    "wide": search_options(1e6, lattice_beam=3.0, prune_interval=4),
    "narrow": search_options(2.0, lattice_beam=1.0, prune_interval=3),
    "few tokens": search_options(5.0, max_active=6, min_active=2, lattice_beam=2.0),
    "never alone": search_options(0.5, min_active=20, lattice_beam=4.0, beam_delta=0.1),
    "one path": search_options(20.0, lattice_beam=0.0, prune_interval=2),
}


@pytest.mark.parametrize("ties", [True, False])
@pytest.mark.parametrize("name", OPTIONS)
def test_tokens_and_links_are_those_of_python(name, ties):
    alive = 0
    for seed in range(12):
        size = (8, 40, 200)[seed % 3]
        graph = DecodingGraph.of(random_graph(seed, size, ties), MODEL, "graph")
        searches = Decoder(graph, OPTIONS[name]), NativeDecoder(LIBRARY, graph, OPTIONS[name])
        for number in range(2):  # the second utterance begins with the tables of the first
            outputs = loglikes(seed + number, 11, ties)
            for search in searches:
                search.start()
                search.advance(outputs[:5])
            assert_same(*searches)
            for search in searches:
                search.advance(outputs[5:])
                search.finish()
            assert_same(*searches)
            alive += searches[0].is_alive
    assert alive >= 6


@pytest.mark.parametrize("order", [1, -1])
def test_pruning_goes_along_chains_of_epsilon_arcs_either_way(order):
    """The first or the last token of a frame is the only one that goes on, for all others."""
    size = 40
    chain = list(range(1, size + 1))[::order]
    arcs: list[list] = [[(1, 0, 0.01 * i, i) for i in range(1, size + 1)]]
    arcs += [[] for _ in range(size)]
    for state, follower in pairwise(chain):
        arcs[state].append((0, 0, 0.02, follower))
    arcs[chain[-1]].append((1, 0, 0.0, 0))
    graph = DecodingGraph.of(Fst.from_lists(0, [0.0] + [NOT_FINAL] * size, arcs), MODEL, "graph")
    options = search_options(1e3, lattice_beam=0.5, prune_interval=2)
    searches = Decoder(graph, options), NativeDecoder(LIBRARY, graph, options)
    for search in searches:
        search.start()
        search.advance(loglikes(1, 8, True))
        search.finish()
    assert_same(*searches)
    assert searches[0].token_lattice().epsilon.arcs.size


def test_a_signal_ends_a_search_soon():
    """Python heeds signals between calls of C only."""

    def stop(*_: object) -> None:
        raise InterruptedError

    size = 1000
    ids = np.random.default_rng(3).integers(1, MODEL.num_transition_ids + 1, (size, 40)).tolist()
    arcs = [[(i, 0, 0.0, (s * 40 + n) % size) for n, i in enumerate(ids[s])] for s in range(size)]
    graph = DecodingGraph.of(Fst.from_lists(0, [0.0] * size, arcs), MODEL, "graph")
    search = NativeDecoder(LIBRARY, graph, search_options(1e6, lattice_beam=0.0))
    search.start()
    before, begun = signal.signal(signal.SIGVTALRM, stop), time.process_time()
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.05)
    try:
        with pytest.raises(InterruptedError):
            search.advance(loglikes(1, 4000, False))  # some 5 s
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    assert time.process_time() - begun < 1.5
    search.start()
    search.advance(loglikes(1, 3, False))
    assert search.num_frames == 3


@pytest.mark.parametrize("ties", [True, False])
def test_best_paths_are_those_of_python(ties):
    found = 0
    for seed in range(20):
        graph = DecodingGraph.of(random_graph(seed, 60, ties), MODEL, "graph")
        search = NativeDecoder(LIBRARY, graph, OPTIONS["wide"])
        search.start()
        search.advance(loglikes(seed, 9, ties))
        if not search.is_alive:
            continue
        lattice = raw_lattice(search, may_loop=seed % 2 == 0)  # in order or not
        entered, last = _best_arcs(lattice)
        native = best_arcs_by(LIBRARY, lattice)
        assert native[0].tolist() == entered
        assert native[1] == last
        found += 1
    assert found > 10


@pytest.mark.parametrize("kernels", ["native", "numpy"])
@pytest.mark.parametrize("back", [-1.0, -2.0])
def test_paths_never_go_round_a_loop_for_ever(kernels, back, monkeypatch):
    """0.3 + 1e4 - 1e4 is less than 0.3 in single precision, once; 0.3 + 1e4 - 2e4 always is."""
    arcs = [[(1, 0, 0.3, 0.0, 1)], [(0, 0, 1e4, 0.0, 2)], [(0, 0, 1e4 * back, 0.0, 1)]]
    lattice = Lattice.from_lists(0, [None, (0.0, 0.0), None], arcs)
    library = LIBRARY if kernels == "native" else None
    monkeypatch.setattr("nnet3tools.decoding.traceback.decoding_library", lambda: library)
    with pytest.raises(DataError, match="makes paths cheaper"):
        best_path(lattice)


def test_tokens_keep_the_order_of_a_table_that_grows_and_in_which_they_collide():
    """3,000 states and 1,000 buckets at first."""
    graph = DecodingGraph.of(random_graph(1, 3000, True), MODEL, "graph")
    options = search_options(1e6, lattice_beam=1e6, hash_ratio=1.0)
    searches = Decoder(graph, options), NativeDecoder(LIBRARY, graph, options)
    for search in searches:
        search.start()
        search.advance(loglikes(1, 14, True))
        search.finish()
    assert searches[0].token_lattice().num_tokens.max() > 1000
    assert_same(*searches)


def test_loops_end_in_an_error_and_the_next_utterance_is_decoded():
    arcs = [[(1, 1, 0.0, 1), (1, 0, 50.0, 0)], [(0, 0, -1.0, 2)], [(0, 0, -1.0, 1), (1, 0, 0.0, 2)]]
    graph = DecodingGraph.of(Fst.from_lists(0, [0.0] * 3, arcs), MODEL, "graph")
    search = NativeDecoder(LIBRARY, graph, search_options(10.0))
    for _ in range(2):
        search.start()
        with pytest.raises(DataError, match="makes paths cheaper"):
            search.advance(np.zeros((2, NUM_PDFS), np.float32))


def test_outputs_that_are_no_numbers_end_the_search():
    graph = DecodingGraph.of(random_graph(2, 10, False), MODEL, "graph")
    searches = (
        Decoder(graph, search_options(9.0)),
        NativeDecoder(LIBRARY, graph, search_options(9.0)),
    )
    for search in searches:
        search.start()
        search.advance(np.full((2, NUM_PDFS), np.nan, np.float32))
        assert not search.is_alive


def test_a_model_with_a_negative_pdf_never_gets_to_c():
    tuples = MODEL.tuples.copy()
    tuples[0, 2:] = -7
    model = replace(MODEL, tuples=tuples)
    fst = Fst.from_lists(0, [0.0], [[(1, 0, 0.0, 0)]])
    with pytest.raises(DataError, match="transition id 1, for which the model has pdf -7"):
        DecodingGraph.of(fst, model, "graph")
    DecodingGraph.of(Fst.from_lists(0, [0.0], [[(MODEL.num_transition_ids, 0, 0.0, 0)]]), model, "")


def test_a_search_that_has_not_begun_or_has_ended_never_gets_to_c():
    graph = DecodingGraph.of(random_graph(2, 10, False), MODEL, "graph")
    search = NativeDecoder(LIBRARY, graph, search_options(9.0))
    row = np.zeros((1, NUM_PDFS), np.float32)
    for use in (lambda: search.advance(row), search.finish, search.token_lattice):
        with pytest.raises(ProgramError, match="before it was started"):
            use()
    search.start()
    search.advance(row)
    search.finish()
    with pytest.raises(ProgramError, match="does not go on"):
        search.advance(row)
    search.start()
    search.advance(row)
    assert search.num_frames == 1


@pytest.mark.parametrize("ratio", [0.5, float("inf"), float("nan")])
def test_hash_tables_have_a_size(ratio):
    with pytest.raises(OptionError, match="hash-ratio"):
        LatticeDecoderOptions(hash_ratio=ratio).check()


@pytest.mark.parametrize("kernels", ["native", "numpy"])
def test_costs_too_large_to_be_numbers_leave_no_path(kernels, monkeypatch, capsys):
    """3e38 and a final cost of 3e38 are infinite, and infinity less infinity is no number."""
    library = LIBRARY if kernels == "native" else None
    monkeypatch.setattr("nnet3tools.decoding.search.decoding_library", lambda: library)
    fst = Fst.from_lists(0, [NOT_FINAL, 3e38], [[(1, 1, 3e38, 1)], []])
    decoding = UtteranceDecoder(MODEL, LatticeDecoderOptions(), 1.0, True)
    decoder = decoding.decoder(DecodingGraph.of(fst, MODEL, "graph"))
    with np.errstate(all="ignore"):
        assert decoding.decode(decoder, "u1", np.zeros((1, NUM_PDFS), np.float32)) is None
    assert "Failed to decode utterance with id u1: costs are not finite" in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(20))
def test_costs_that_are_no_numbers_end_pruning(seed):
    """Infinite outputs make infinite costs, whose differences are no numbers."""
    graph = DecodingGraph.of(random_graph(seed, 12, False), MODEL, "graph")
    searches = Decoder(graph, OPTIONS["wide"]), NativeDecoder(LIBRARY, graph, OPTIONS["wide"])
    outputs = loglikes(seed, 3, False)
    outputs[-1] = np.inf
    with np.errstate(all="ignore"):
        for search in searches:
            search.start()
            search.advance(outputs)
            if search.is_alive:
                search.finish()
        assert_same(*searches)


def test_a_network_with_too_few_outputs_is_refused():
    graph = DecodingGraph.of(random_graph(2, 10, False), MODEL, "graph")
    searches = (
        Decoder(graph, search_options(9.0)),
        NativeDecoder(LIBRARY, graph, search_options(9.0)),
    )
    for search in searches:
        search.start()
        with pytest.raises(DataError, match="1 outputs"):
            search.advance(np.zeros((2, 1), np.float32))

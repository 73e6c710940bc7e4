"""Acceptors that the C library makes against those of the Python modules: equal bytes."""

import random
import signal
from dataclasses import replace
from functools import partial
from time import process_time
from types import SimpleNamespace

import numpy as np
import pytest

from nnet3tools.chain.e2e import pdf_acceptor
from nnet3tools.chain.native.supervisor import Job, JobKind, NativeSupervisor, compiled_library
from nnet3tools.chain.normalization import Normalizer
from nnet3tools.chain.supervision import Supervision, SupervisionCutter
from nnet3tools.fst.binary_writer import write_compact_acceptor, write_vector_fst
from nnet3tools.fst.connect import breadth_first_sorted
from nnet3tools.fst.epsilon import concatenate, remove_epsilons
from nnet3tools.fst.fst import NOT_FINAL, Fst
from support.streams import bytes_of
from support.tiny_chain import CHAIN_TOPOLOGY, MONO_TREE, model_of

LIBRARY = compiled_library()
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="there is no C compiler")

_, MODEL = model_of(MONO_TREE, CHAIN_TOPOLOGY)
PDFS = MODEL.pdfs_of_ids() + np.int32(1)
NUM_LABELS = 4
COSTS = {
    "costs that differ": lambda draw: draw.uniform(-2, 5),
    "equal costs": lambda draw: draw.choice((0.0, 0.5, 1.0)),
    "nearly equal costs": lambda draw: draw.choice((0.0, 1.0)) + draw.choice((0.0, 4e-7, 4e-4)),
    "no costs": lambda draw: 0.0,
    "zeros of both signs": lambda draw: draw.choice((0.0, -0.0)),
}
costs = pytest.mark.parametrize("cost", COSTS.values(), ids=COSTS.keys())

compact = partial(bytes_of, write_compact_acceptor)
vector = partial(bytes_of, write_vector_fst)


def supervision_fst(draw: random.Random, num_frames: int, cost) -> Fst:
    """States in order of time, some of them on no path to the end; arcs in any order."""
    widths = [1] + [draw.randrange(1, 5) for _ in range(num_frames)]
    firsts = np.cumsum([0, *widths])
    arcs: list[list] = []
    for time in range(num_frames):
        targets = list(range(firsts[time + 1], firsts[time + 2]))
        level: list[list] = [[] for _ in range(widths[time])]
        for target in targets:  # each is entered
            draw.choice(level).append((target,))
        for of_state in level:
            of_state += [(draw.choice(targets),) for _ in range(draw.choice((0, 1, 1, 2, 20)))]
            draw.shuffle(of_state)
        for of_state in level:
            arcs.append([(draw.randrange(1, NUM_LABELS + 1), cost(draw), t) for (t,) in of_state])
    finals = [NOT_FINAL] * len(arcs)
    for _ in range(widths[num_frames]):
        arcs.append([])
        finals.append(0.0 if draw.random() < 0.6 else NOT_FINAL)
    finals[-1] = cost(draw)
    lists = [[(label, label, w, target) for label, w, target in some] for some in arcs]
    return Fst.from_lists(0, finals, lists)


def normalization_fst(draw: random.Random, cost) -> Fst:
    """Few states, some labels missing, some twice."""
    size = 4
    lists = [
        [
            (label, label, cost(draw), draw.randrange(size))
            for label in draw.choices(range(1, NUM_LABELS + 1), k=5)
        ]
        for _ in range(size)
    ]
    finals = [draw.choice((0.0, cost(draw), NOT_FINAL)) for _ in range(size)]
    return Fst.from_lists(draw.randrange(size), finals, lists)


def random_fst(draw: random.Random, size: int, cost, labels, is_acceptor: bool) -> Fst:
    """Arcs to anywhere and epsilons, now and then in chains; no loop makes paths cheaper."""
    lists = []
    for state in range(size):
        arcs = []
        for _ in range(draw.choice((1, 1, 2, 3))):
            ilabel = draw.choice(labels)
            olabel = ilabel if is_acceptor else draw.choice((0, 0, 0, 1, 2))
            target = draw.choice((state, state + 1, state + 1, draw.randrange(size))) % size
            arcs.append((ilabel, olabel, abs(cost(draw)), target))
        lists.append(arcs)
    finals = [cost(draw) if draw.random() < 0.3 else NOT_FINAL for _ in range(size)]
    return Fst.from_lists(0, finals, lists)


def supervisor(normalization: Fst | None = None) -> NativeSupervisor:
    assert LIBRARY is not None
    return NativeSupervisor(LIBRARY, normalization, PDFS)


@costs
def test_pieces_and_their_weights_are_those_of_python(cost):
    num_made = num_cut = 0
    for seed in range(8):
        draw = random.Random(seed)
        fst = supervision_fst(draw, 9, cost)
        supervision = Supervision(1.0, 1, 9, NUM_LABELS, fst)
        normalization = normalization_fst(draw, cost)
        normalizer = Normalizer(normalization)
        cuts = [(first, draw.randrange(1, 10 - first)) for first in range(9)]
        jobs = [Job(0, first, num, 9) for first, num in cuts]
        pieces = [SupervisionCutter(supervision).cut(*job) for job in cuts]
        for piece, made in zip(
            pieces, supervisor().make(JobKind.PIECES, compact(fst), jobs), strict=True
        ):
            assert made == compact(piece.fst)
            num_cut += 1
        found = supervisor(normalization).make(JobKind.PIECES, compact(fst), jobs)
        for piece, made in zip(pieces, found, strict=True):
            expected = normalizer.normalized(piece)
            assert made == (compact(expected.fst) if expected is not None else None)
            num_made += made is not None
    assert num_cut == 72
    assert num_made > 30


@costs
def test_whole_supervisions_are_those_of_python(cost):
    num_made = 0
    for seed in range(15):
        draw = random.Random(seed)
        normalization = normalization_fst(draw, cost)
        supervision = Supervision(1.0, 1, 6, NUM_LABELS, supervision_fst(draw, 6, cost))
        expected = Normalizer(normalization).normalized(supervision)
        (made,) = supervisor(normalization).make(JobKind.WHOLE, compact(supervision.fst), [Job(0)])
        assert made == (compact(expected.fst) if expected is not None else None)
        num_made += made is not None
    assert num_made > 5


@costs
def test_end_to_end_supervisions_with_loops_and_epsilons_are_those_of_python(cost):
    num_made = num_left = 0
    for seed in range(150):
        draw = random.Random(seed)
        normalization = normalization_fst(draw, cost)
        labels = draw.choice(((1, 2, 3, 4), (0, 1, 2, 3, 4, 4, 4)))
        fst = random_fst(draw, draw.randrange(1, 9), cost, labels, True)
        supervision = Supervision(1.0, 1, 9, NUM_LABELS, Fst.empty(), (fst,))
        expected = Normalizer(normalization).normalized(supervision)
        (made,) = supervisor(normalization).make(JobKind.END_TO_END, compact(fst), [Job(0)])
        if made is None:
            num_left += 1
            continue
        assert expected is not None
        assert made == compact(expected.e2e_fsts[0])
        num_made += 1
    assert num_made > 40


@costs
def test_graphs_become_the_acceptors_that_python_makes_of_them(cost):
    num_made = 0
    for seed in range(200):
        draw = random.Random(seed)
        labels = draw.choice(((1, 2, 3, 4), (0, 1, 2, 3, 4), (0, 0, 1, 2)))
        graph = random_fst(draw, draw.randrange(1, 12), cost, labels, draw.random() < 0.3)
        (made,) = supervisor().make(JobKind.GRAPHS, vector(graph), [Job(0, size=1000)])
        if made is None:
            continue
        expected = pdf_acceptor(graph, MODEL)
        assert expected is not None
        assert made == compact(expected)
        num_made += 1
    assert num_made > 60


@costs
def test_merged_acceptors_are_those_of_python(cost):
    """Groups of several sizes in one call, each merged to the bytes that Python gives."""
    num_made = 0
    for seed in range(15):
        draw = random.Random(seed)
        groups = [
            [supervision_fst(draw, draw.randrange(1, 5), cost) for _ in range(size)]
            for size in (1, 2, 7, 20)
        ]
        files = [compact(fst) for group in groups for fst in group]
        numbers = [(i, len(group)) for group in groups for i in range(len(group))]
        jobs = [Job(len(b"".join(files[:n])), i, size=s) for n, (i, s) in enumerate(numbers)]
        made = supervisor().make(JobKind.MERGED, b"".join(files), jobs)
        ends = [sum(map(len, groups[: n + 1])) - 1 for n in range(len(groups))]
        assert {m for n, m in enumerate(made) if n not in ends} == {None}
        merged = [made[end] for end in ends]
        for group, result in zip(groups, merged, strict=True):
            fst = breadth_first_sorted(remove_epsilons(concatenate(group, last_first=False)))
            assert result is None or result == compact(fst)
            num_made += result is not None
    assert num_made > 20


def test_a_group_with_an_acceptor_that_the_library_leaves_is_left_and_the_next_one_made():
    fst = supervision_fst(random.Random(1), 4, COSTS["no costs"])
    infinite = replace(fst, weights=np.full_like(fst.weights, np.inf))
    files = [compact(one) for one in (fst, infinite, fst, fst, fst, Fst.empty(), fst)]
    groups = ((0, 3), (1, 3), (2, 3), (0, 1), (0, 3), (1, 3), (2, 3))
    jobs = [Job(len(b"".join(files[:n])), i, size=s) for n, (i, s) in enumerate(groups)]
    made = supervisor().make(JobKind.MERGED, b"".join(files), jobs)
    assert made[:3] + made[4:] == [None] * 6
    assert made[3] is not None


def test_several_fsts_in_one_piece_of_data_are_found_where_they_begin():
    draw = random.Random(0)
    fsts = [supervision_fst(draw, 4, COSTS["equal costs"]) for _ in range(5)]
    files = [compact(fst) for fst in fsts]
    jobs = [Job(len(b"".join(files[:i])), 1, 3, 4) for i in range(5)]
    made = supervisor().make(JobKind.PIECES, b"".join(files), jobs)
    pieces = [SupervisionCutter(Supervision(1.0, 1, 4, 9, fst)).cut(1, 3) for fst in fsts]
    assert made == [compact(piece.fst) for piece in pieces]


def test_what_python_refuses_or_warns_about_is_left_to_it():
    fst = supervision_fst(random.Random(1), 4, COSTS["no costs"])
    make = supervisor().make
    assert make(JobKind.PIECES, compact(fst), [Job(0, 0, 2, 5)]) == [None]  # of another length
    assert make(JobKind.PIECES, compact(fst), [Job(0, 5, 1, 4)]) == [None]  # beyond its end
    endless = replace(fst, finals=np.full_like(fst.finals, NOT_FINAL))
    assert make(JobKind.PIECES, compact(endless), [Job(0, 0, 2, 4)]) == [None]
    cyclic = Fst.from_lists(0, [0.0], [[(1, 1, 0.0, 0)]])
    assert make(JobKind.PIECES, compact(cyclic), [Job(0, 0, 1, 1)]) == [None]
    infinite = replace(fst, weights=np.full_like(fst.weights, np.inf))
    assert make(JobKind.PIECES, compact(infinite), [Job(0, 0, 2, 4)]) == [None]
    unknown = Fst.from_lists(0, [NOT_FINAL, 0.0], [[(1000, 1000, 0.0, 1)], []])
    assert make(JobKind.GRAPHS, vector(unknown), [Job(0, size=10)]) == [None]
    chain = Fst.linear([1, 2, 1])
    assert make(JobKind.GRAPHS, vector(chain), [Job(0, size=2)]) == [None]  # too long
    assert make(JobKind.GRAPHS, vector(chain), [Job(0, size=3)]) != [None]
    assert make(JobKind.GRAPHS, vector(Fst.empty()), [Job(0, size=3)]) == [None]
    assert make(JobKind.WHOLE, compact(Fst.empty()), [Job(0)]) == [None]
    assert make(JobKind.WHOLE, b"", []) == []


BIG = 3e38
"""Of which two are too much for float32."""


def overflowing_graph() -> Fst:
    """State 0 ends by an epsilon alone, which with the final weight behind it is infinite."""
    lists = [[(0, 0, BIG, 1)], [], [(1, 1, 0, 0), (0, 0, 0, 0), (2, 2, 0, 3)], []]
    return Fst.from_lists(2, [NOT_FINAL, BIG, NOT_FINAL, 0.0], lists)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_a_final_weight_that_overflows_is_no_way_out_of_a_state():
    # Counted as one, a state without arcs was searched for its last: beyond the array's end.
    graph = overflowing_graph()
    expected = pdf_acceptor(graph, MODEL)
    assert expected is not None
    assert supervisor().make(JobKind.GRAPHS, vector(graph), [Job(0, size=9)]) == [compact(expected)]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_weights_whose_sums_overflow_are_left_to_python_or_done_as_there():
    num_made = 0
    for seed in range(150):
        draw = random.Random(seed)
        graph = random_fst(
            draw, draw.randrange(1, 9), lambda d: d.choice((0.0, BIG, -BIG)), (0, 0, 1, 2), False
        )
        (made,) = supervisor().make(JobKind.GRAPHS, vector(graph), [Job(0, size=1000)])
        if made is not None:
            expected = pdf_acceptor(graph, MODEL)
            assert expected is not None
            assert made == compact(expected)
            num_made += 1
    assert num_made > 10


def test_subsets_that_owe_what_is_no_number_are_not_looked_for():
    # No two of them are equal, but their hashes are: making 200 000 took time of their square.
    lists = [
        [(1, 1, 0.0, 1), (1, 1, BIG, 2), (1, 1, BIG, 3)],
        [(2, 2, 0.0, 1)],
        [(3, 3, BIG, 4)],  # of two that owe as much already
        [(3, 3, BIG, 5)],
        [(1, 1, 0.0, 4), (1, 1, 0.0, 5)],
        [(1, 1, 0.0, 5), (1, 1, 0.0, 4)],
    ]
    cyclic = compact(Fst.from_lists(0, [0.0] * 6, lists))
    loops = [(label, label, 0.0, 0) for label in (1, 2, 3)]
    normalization = Fst.from_lists(0, [0.0], [loops])
    began = process_time()
    assert supervisor(normalization).make(JobKind.WHOLE, cyclic, [Job(0)]) == [None]
    assert process_time() - began < 1.0


def test_a_signal_is_heeded_after_a_few_jobs_and_the_next_block_is_whole(monkeypatch):
    """Python heeds signals between calls of C only; here one comes in the second of them."""
    fst = supervision_fst(random.Random(1), 9, COSTS["equal costs"])
    jobs = [Job(0, n % 9, 1, 9) for n in range(100)]
    stopped, ends = supervisor(), []
    expected = supervisor().make(JobKind.PIECES, compact(fst), jobs)

    def supervise(*args) -> None:
        LIBRARY.nn_supervise(*args)
        ends.append(args[4].value)
        if len(ends) == 2:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(stopped, "_library", SimpleNamespace(nn_supervise=supervise))
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with pytest.raises(KeyboardInterrupt):
                stopped.make(JobKind.PIECES, compact(fst), jobs)
        finally:
            signal.signal(signal.SIGINT, before)
    assert len(ends) == 2
    assert ends[-1] <= 20
    assert stopped.make(JobKind.PIECES, compact(fst), jobs) == expected

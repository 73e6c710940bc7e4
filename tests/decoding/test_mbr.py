"""Minimum Bayes risk against plain computations: over all paths, and arc by arc as in the paper."""

import math
import random
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from nnet3tools.decoding.mbr import minimum_bayes_risk
from nnet3tools.fst.lattice import CompactLattice
from nnet3tools.fst.lattice_files import COMPACT_LATTICE
from nnet3tools.io.holders import FLOAT_PAIR_VECTOR
from support.lattice_paths import every_path
from support.programs import read_table, run, write_table

DELTA = 1e-5
END = (0.0, 0.0, ())


def random_lattice(draw: random.Random, is_tree: bool) -> CompactLattice:
    """A lattice of few words, some of them epsilons; in a tree each state has one path."""
    size = draw.randint(2, 9)
    times = [0]
    while len(times) < size:
        times.append(times[-1] + draw.randrange(3))
    arcs: list[list] = [[] for _ in range(size)]
    for target in range(1, size):
        for _ in range(1 if is_tree else draw.randint(1, 3)):
            source = draw.randrange(target)
            cost, ids = draw.uniform(0, 2), (1,) * (times[target] - times[source])
            arcs[source].append((draw.randrange(4), cost, draw.uniform(-1, 1), ids, target))
    finals = [
        (draw.uniform(0, 1), 0.0, ()) if not leaving or draw.random() < 0.2 else None
        for leaving in arcs
    ]
    return CompactLattice.from_lists(0, finals, arcs)


def paths(lattice: CompactLattice) -> list[tuple[list[int], float]]:
    """(words with epsilons, probability) of each path."""
    found = [(list(words), math.exp(-g - a)) for words, _, g, a in every_path(lattice)]
    total = sum(weight for _, weight in found)
    return [(words, weight / total) for words, weight in found]


def distance(one: list[int], other: list[int]) -> int:
    row = list(range(len(other) + 1))
    for i, word in enumerate(one, start=1):
        last, row[0] = row[0], i
        for j, wanted in enumerate(other, start=1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (word != wanted))
    return row[-1]


def expected_errors(lattice: CompactLattice, hypothesis: tuple[int, ...]) -> float:
    return sum(
        weight * distance([word for word in words if word], list(hypothesis))
        for words, weight in paths(lattice)
    )


@pytest.mark.parametrize("seed", range(40))
def test_risk_is_the_expected_number_of_word_errors_over_all_paths(seed):
    lattice = random_lattice(random.Random(seed), is_tree=True)
    best = minimum_bayes_risk(lattice, decode_mbr=False)
    assert best.risk == pytest.approx(expected_errors(lattice, best.words), abs=1e-4)
    decoded = minimum_bayes_risk(lattice)
    assert decoded.risk == pytest.approx(expected_errors(lattice, decoded.words), abs=1e-4)
    assert decoded.risk <= best.risk + 1e-6


@pytest.mark.parametrize("seed", range(40))
def test_risk_is_never_below_the_expected_errors_and_bins_are_distributions(seed):
    lattice = random_lattice(random.Random(seed), is_tree=False)
    found = minimum_bayes_risk(lattice)
    assert found.risk >= expected_errors(lattice, found.words) - 1e-6
    assert len(found.words) == len(found.confidences) == len(found.times)
    for one in found.bins:
        assert sum(one.posteriors) == pytest.approx(1.0, abs=1e-9)
        assert list(one.posteriors) == sorted(one.posteriors, reverse=True)
    assert all(begin <= end + 1e-9 for begin, end in found.times)
    for times in (found.times, found.bin_times()):
        assert all(one[1] <= two[0] + 1e-9 for one, two in pairwise(times))


@pytest.mark.parametrize("seed", range(60))
def test_bins_are_those_of_the_papers_recursion_arc_by_arc(seed):
    lattice = random_lattice(random.Random(seed), is_tree=seed % 2 == 0)
    found = minimum_bayes_risk(lattice, decode_mbr=False)
    risk, bins = plain_statistics(lattice, found.words)
    assert found.risk == pytest.approx(risk, abs=1e-6)
    for one, (posteriors, begins, ends) in zip(found.bins, bins, strict=True):
        assert dict(zip(one.words, one.posteriors, strict=True)) == pytest.approx(
            posteriors, abs=1e-6
        )
        for word, (begin, end) in zip(one.words, one.times, strict=True):
            assert begin == pytest.approx(begins[word] / posteriors[word], abs=1e-4)
            assert end == pytest.approx(ends[word] / posteriors[word], abs=1e-4)


def plain_statistics(lattice: CompactLattice, words: tuple[int, ...]):
    """Figures 4 and 5 of the paper; choices within 1e-9 are equal."""
    size = lattice.fst.num_states
    arcs = [
        (source, target, word, graph + acoustic, len(ids))
        for source, leaving in enumerate(lattice.arc_lists())
        for word, graph, acoustic, ids, target in leaving
    ]
    for state, final in enumerate(lattice.final_list()):
        if final is not None:
            arcs.append((state, size, 0, final[0] + final[1], len(final[2])))
    hypothesis = [0]
    for word in words:
        hypothesis += [word, 0]
    length = len(hypothesis)
    times = [0] * (size + 1)
    alpha = [1.0] + [0.0] * size
    dash = [[0.0] * (length + 1) for _ in range(size + 1)]
    for q in range(1, length + 1):
        dash[0][q] = dash[0][q - 1] + (hypothesis[q - 1] != 0)
    entering = [[arc for arc in arcs if arc[1] == state] for state in range(size + 1)]

    def alignment(arc):
        source, _, word, _, _ = arc
        inserted = (1 + DELTA) * (word != 0)
        row, choices = [dash[source][0] + inserted], [0]
        for q in range(1, length + 1):
            wanted = hypothesis[q - 1]
            costs = (
                dash[source][q - 1] + (word != wanted),
                dash[source][q] + inserted,
                row[q - 1] + (wanted != 0),
            )
            row.append(min(costs))
            choices.append(next(i for i, cost in enumerate(costs, 1) if cost <= min(costs) + 1e-9))
        return row, choices

    for state in range(1, size + 1):
        for arc in entering[state]:
            alpha[state] += alpha[arc[0]] * math.exp(-arc[3])
            times[state] = times[arc[0]] + arc[4]
        for arc in entering[state]:
            share = alpha[arc[0]] * math.exp(-arc[3]) / alpha[state]
            for q, value in enumerate(alignment(arc)[0]):
                dash[state][q] += share * value
    beta = [[0.0] * (length + 1) for _ in range(size + 1)]
    beta[size][length] = 1.0
    bins = [(defaultdict(float), defaultdict(float), defaultdict(float)) for _ in range(length)]

    def add(q, word, amount, begin, end):
        if amount > 1e-14:
            for table, value in zip(
                bins[q - 1], (amount, amount * begin, amount * end), strict=True
            ):
                table[word] += value

    for state in range(size, 0, -1):
        for arc in entering[state]:
            source, _, word, cost, _ = arc
            share = alpha[source] * math.exp(-cost) / alpha[state]
            row = [0.0] * (length + 1)
            choices = alignment(arc)[1]
            for q in range(length, 0, -1):
                row[q] += share * beta[state][q]
                if choices[q] == 1:
                    beta[source][q - 1] += row[q]
                    add(q, word, row[q], times[source], times[state])
                elif choices[q] == 2:
                    beta[source][q] += row[q]
                else:
                    row[q - 1] += row[q]
                    add(q, 0, row[q], times[state], times[state])
            beta[source][0] += row[0] + share * beta[state][0]
    carried = 0.0
    for q in range(length, 0, -1):
        carried += beta[0][q]
        add(q, 0, carried, 0, 0)
    return dash[size][length], bins


def test_the_word_of_three_worse_paths_wins_over_that_of_the_best():
    """The best path says 1 2; the others agree on 3 in the middle, so 1 3 has fewer errors."""
    weights = (0.4, 0.3, 0.3)
    arcs = [
        [(1, 0.0, 0.0, (1, 1), 1)],
        [(2, -math.log(weights[0]), 0.0, (2,), 2), (3, -math.log(0.6), 0.0, (2,), 2)],
        [],
    ]
    lattice = CompactLattice.from_lists(0, [None, None, END], arcs)
    found = minimum_bayes_risk(lattice)
    assert found.words == (1, 3)
    assert found.confidences == pytest.approx((1.0, 0.6))
    assert found.times == ((0.0, 2.0), (2.0, 3.0))
    mapped = minimum_bayes_risk(lattice, [1, 2], decode_mbr=False)
    assert mapped.words == (1, 2)
    assert mapped.confidences == pytest.approx((1.0, 0.4))
    assert mapped.risk == pytest.approx(0.6)


def test_an_empty_lattice_has_no_words():
    assert minimum_bayes_risk(CompactLattice.empty()).words == ()


def test_the_program_writes_words_risks_sausages_and_times(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    arcs = [
        [(1, 0.0, 0.0, (1, 1), 1)],
        [(2, 0.0, -math.log(0.4), (2,), 2), (3, 0.0, -math.log(0.6), (2,), 2)],
        [],
    ]
    lattice = CompactLattice.from_lists(0, [None, None, END], arcs)
    write_table("ark:lat", {"a": lattice, "b": CompactLattice.empty()}, COMPACT_LATTICE)
    tables = ("ark,t:words", "ark,t:risks", "ark,t:sausages", "ark,t:times")
    assert run("lattice-mbr-decode", "ark:lat", *tables) == 0
    assert "Empty lattice for key b" in capfd.readouterr().err
    expected = {
        "words": "a 1 3 \n",
        "sausages": "a [ 0 1 ] [ 1 1 ] [ 0 1 ] [ 3 0.6 2 0.4 ] [ 0 1 ] \n",
        "times": "a 0 0 ; 0 2 ; 2 2 ; 2 3 ; 3 3 \n",
    }
    for name, text in expected.items():
        assert Path(name).read_text() == text, name
    assert float(Path("risks").read_text().split()[1]) == pytest.approx(0.4, abs=1e-4)
    best = ("--one-best-times=true", "--acoustic-scale=100")
    assert run("lattice-mbr-decode", *best, "ark:lat", *tables[:2], "", "ark:times") == 0
    assert read_table("ark:times", FLOAT_PAIR_VECTOR)["a"].tolist() == [[0, 2], [2, 3]]
    assert float(Path("risks").read_text().split()[1]) == pytest.approx(0.0, abs=1e-4)

"""Pieces of utterances' supervisions: their paths keep the probabilities that they had."""

import numpy as np
import pytest

from nnet3tools.discriminative.lattice_levels import LevelledLattice
from nnet3tools.discriminative.merging import merge_supervisions
from nnet3tools.discriminative.splitting import SplitOptions, SupervisionSplitter
from nnet3tools.discriminative.supervision import DiscriminativeSupervision
from nnet3tools.errors import DataError, OptionError
from nnet3tools.fst.lattice import Lattice
from nnet3tools.fst.lattice_determinize import (
    as_acceptor,
    determinized_lattice,
    from_acceptor,
    reversed_lattice,
)
from support.lattice_paths import MODEL, all_paths, random_lattice, random_supervision

AS_IT_IS = SplitOptions(collapse_transition_ids=False, determinize=False, acoustic_scale=0.5)
FRAMES = 6


def posteriors_by_frame(supervision, scale):
    """How probable each transition id is in each frame, (frames, ids)."""
    lattice = supervision.den_lat.scaled(acoustic_scale=scale)
    levels = LevelledLattice(lattice)
    costs, final_costs = levels.costs(lattice)
    found = levels.probabilities(costs, final_costs)
    posteriors = np.zeros((supervision.num_frames, MODEL.num_transition_ids + 1))
    np.add.at(posteriors, (levels.frames, levels.labels), levels.posteriors(costs, found))
    return posteriors, float(found.totals[0])


@pytest.mark.parametrize(("begin", "size"), [(0, 2), (2, 3), (5, 1), (0, FRAMES)])
def test_a_piece_has_the_posteriors_of_its_frames_in_the_whole(begin, size):
    whole = random_supervision(np.random.default_rng(begin), FRAMES)
    splitter = SupervisionSplitter(AS_IT_IS, MODEL, whole)
    expected, total = posteriors_by_frame(whole, 0.5)
    for normalize in (False, True):
        piece = splitter.piece(begin, size, normalize)
        found, of_piece = posteriors_by_frame(piece, 0.5)
        np.testing.assert_allclose(found, expected[begin : begin + size], atol=1e-5)
        assert of_piece == pytest.approx(0.0 if normalize else total, abs=1e-5)
        assert piece.num_ali.tolist() == whole.num_ali[begin : begin + size].tolist()


def costs_of_sequences(lattice):
    """The least cost of each sequence of transition ids."""
    found = {}
    for arcs, cost in all_paths(lattice):
        ids = tuple(i for i in lattice.fst.ilabels[list(arcs)].tolist() if i)
        found[ids] = min(cost, found.get(ids, np.inf))
    return found


def test_deterministic_lattices_keep_the_best_of_like_sequences():
    rng = np.random.default_rng(8)
    for _ in range(20):
        lattice = random_lattice(rng, 4)
        acceptor = as_acceptor(lattice)
        back = reversed_lattice(determinized_lattice(reversed_lattice(acceptor)))
        for found in (determinized_lattice(acceptor), back):
            expected, kept = costs_of_sequences(lattice), costs_of_sequences(from_acceptor(found))
            assert kept.keys() == expected.keys()
            # What is owed is rounded to 1024ths.
            assert all(kept[ids] == pytest.approx(expected[ids], abs=0.01) for ids in kept)
        fst = determinized_lattice(acceptor).fst
        pairs = set(zip(fst.sources.tolist(), fst.ilabels.tolist(), strict=True))
        assert len(pairs) == fst.num_arcs


def test_ids_of_one_pdf_become_one_in_a_frame():
    pdfs = MODEL.pdfs_of_ids()
    first, second = next(
        (i, j) for i in range(1, len(pdfs)) for j in range(i + 1, len(pdfs)) if pdfs[i] == pdfs[j]
    )
    arcs = [[(first, 0, 0.0, 0.0, 1), (second, 0, 1.0, 0.0, 1)], [(first, 0, 0.0, 0.0, 2)], []]
    lattice = Lattice.from_lists(0, [None, None, (0.0, 0.0)], arcs)
    whole = DiscriminativeSupervision.of(np.array([first, first], np.int32), lattice, 1.0)
    for collapse, num_arcs in ((True, 2), (False, 3)):
        options = SplitOptions(collapse_transition_ids=collapse, acoustic_scale=1.0)
        piece = SupervisionSplitter(options, MODEL, whole).piece(0, 2, False)
        assert piece.den_lat.fst.num_arcs == num_arcs


def test_what_cannot_be_split_or_merged_is_refused():
    rng = np.random.default_rng(9)
    one, other = random_supervision(rng, 3), random_supervision(rng, 4)
    splitter = SupervisionSplitter(AS_IT_IS, MODEL, one)
    for begin, size in ((2, 2), (-1, 2), (0, 0)):
        with pytest.raises(DataError, match="are not among the 3"):
            splitter.piece(begin, size, False)
    with pytest.raises(DataError, match="different lengths: 3 and 4"):
        merge_supervisions([one, other])
    merged = merge_supervisions([one, one])
    with pytest.raises(DataError, match="several sequences"):
        SupervisionSplitter(AS_IT_IS, MODEL, merged)
    with pytest.raises(DataError, match="merged already"):
        merge_supervisions([merged, one])
    with pytest.raises(DataError, match="the lattice has 3 frames, expected 2"):
        DiscriminativeSupervision.of(np.array([1, 1], np.int32), one.den_lat, 1.0)
    with pytest.raises(OptionError, match="invalid --acoustic-scale"):
        SplitOptions(acoustic_scale=0.0).check()

"""Objectives of discriminative training, against formulas over all paths and their derivatives."""

import numpy as np
import pytest

from nnet3tools.discriminative.merging import merge_supervisions
from nnet3tools.discriminative.objective import DiscriminativeObjective
from nnet3tools.discriminative.options import DiscriminativeOptions
from nnet3tools.errors import DataError, OptionError
from support.lattice_paths import MODEL, all_paths, random_supervision

NO_PRIORS = np.zeros(0, np.float32)
FRAMES = 4
OPTIONS = [
    DiscriminativeOptions("mmi", 0.7),
    DiscriminativeOptions("mmi", 0.7, boost=0.3, silence_phones="2"),
    DiscriminativeOptions("smbr", 1.0),
    DiscriminativeOptions("smbr", 0.5, silence_phones="2"),
    DiscriminativeOptions("mpfe", 0.5, silence_phones="1:2", one_silence_class=True),
    DiscriminativeOptions("mpfe", 1.0, silence_phones="1"),
]


def by_paths(options, supervision, output):
    """The objective of one sequence by its definition."""
    model, scale = MODEL.transitions(), options.acoustic_scale
    lattice, reference = supervision.den_lat, supervision.num_ali
    silence = options.silence()
    scores, rights = [], []
    for arcs, _ in all_paths(lattice):
        ids = lattice.fst.ilabels[list(arcs)]
        graph = lattice.fst.weights[list(arcs)].sum() + lattice.fst.finals[-1 - (arcs[-1] % 2 == 0)]
        phones, of_reference = model.phones[ids], model.phones[reference]
        wrong = (phones != of_reference) & ~np.isin(phones, silence)
        boost = options.boost * wrong.sum() if options.criterion == "mmi" else 0.0
        scores.append(scale * output[range(len(ids)), model.pdfs[ids]].sum() - graph + boost)
        kind = model.phones if options.criterion == "mpfe" else model.pdfs
        right = kind[ids] == kind[reference]
        is_silence = np.isin(phones, silence)
        if options.one_silence_class:
            right |= is_silence & np.isin(of_reference, silence)
        else:
            right &= ~is_silence
        rights.append(right.sum())
    total = np.logaddexp.reduce(scores)
    if options.criterion == "mmi":
        return scale * output[range(len(reference)), model.pdfs[reference]].sum() - total
    return np.exp(scores - total) @ rights


def judged(options, supervision, output):
    return DiscriminativeObjective(options, MODEL, NO_PRIORS).judge(supervision, output)


def dense(elements, shape):
    found = np.zeros(shape)
    found[elements.rows, elements.cols] = elements.values
    return found


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: f"{o.criterion}-{o.silence_phones}")
def test_objective_is_the_definition_and_its_derivative_that_of_scaled_likelihoods(options):
    rng = np.random.default_rng(1)
    supervision = random_supervision(rng, FRAMES)
    # The final costs of all paths are one: the formula above need not know which is which.
    finals = supervision.den_lat.fst.finals
    finals[np.isfinite(finals)] = 0.25
    output = rng.normal(size=(FRAMES, MODEL.num_pdfs)).astype(np.float32)
    found = judged(options, supervision, output)
    assert found.objective == pytest.approx(by_paths(options, supervision, output), rel=1e-5)
    deriv = dense(found.deriv, output.shape)
    step = 1e-4
    for place in np.ndindex(*output.shape):
        high, low = output.astype(float), output.astype(float)
        high[place] += step
        low[place] -= step
        slope = by_paths(options, supervision, high) - by_paths(options, supervision, low)
        expected = slope / (2 * step * options.acoustic_scale)
        assert deriv[place] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("criterion", ["mmi", "smbr", "mpfe"])
def test_a_minibatch_is_its_sequences_with_rows_interleaved(criterion):
    rng = np.random.default_rng(2)
    options = DiscriminativeOptions(criterion, 0.5)
    parts = [random_supervision(rng, FRAMES, 1.5) for _ in range(3)]
    for part in parts:
        part.den_lat.final_acoustic[:] = 0.0  # which, as in Kaldi, only the last one's would lose
    merged = merge_supervisions(parts)
    output = rng.normal(size=(FRAMES * 3, MODEL.num_pdfs)).astype(np.float32)
    found = judged(options, merged, output)
    each = [judged(options, part, output[n::3]) for n, part in enumerate(parts)]
    assert found.objective == pytest.approx(sum(one.objective for one in each), rel=1e-5)
    assert found.weight == 1.5 * 3 * FRAMES
    deriv = dense(found.deriv, output.shape)
    for n, one in enumerate(each):
        np.testing.assert_allclose(
            deriv[n::3], dense(one.deriv, (FRAMES, MODEL.num_pdfs)), atol=1e-6
        )


def test_frames_whose_alignment_is_not_in_the_lattice_are_dropped_on_request():
    rng = np.random.default_rng(3)
    supervision = random_supervision(rng, FRAMES)
    pdfs = MODEL.pdfs_of_ids()
    here = pdfs[supervision.den_lat.fst.ilabels[:2]]  # of the arcs that leave the start
    supervision.num_ali[0] = next(i for i in range(1, len(pdfs)) if pdfs[i] not in here)
    output = rng.normal(size=(FRAMES, MODEL.num_pdfs)).astype(np.float32)
    kept = judged(DiscriminativeOptions("mmi", 0.5), supervision, output)
    dropped = judged(DiscriminativeOptions("mmi", 0.5, drop_frames=True), supervision, output)
    assert 0 in kept.deriv.rows
    assert 0 not in dropped.deriv.rows
    assert dropped.objective == kept.objective


def test_priors_are_divided_out_and_tiny_outputs_floored(capfd):
    rng = np.random.default_rng(5)
    supervision = random_supervision(rng, FRAMES)
    priors = rng.uniform(0.1, 1.0, MODEL.num_pdfs).astype(np.float32)
    output = -rng.uniform(0, 3, (FRAMES, MODEL.num_pdfs)).astype(np.float32)
    options = DiscriminativeOptions("mmi", 0.3)
    with_priors = DiscriminativeObjective(options, MODEL, priors).judge(supervision, output)
    divided = judged(options, supervision, output - np.log(priors))
    assert with_priors.objective == pytest.approx(divided.objective, rel=1e-5)
    low = judged(options, supervision, np.full_like(output, -1e30))
    assert "Floored" in capfd.readouterr().err
    assert low.objective == judged(options, supervision, np.full_like(output, -46.0517)).objective
    with pytest.raises(DataError, match="greater than 0"):
        DiscriminativeObjective(options, MODEL, priors).judge(supervision, output + 5)


def test_nothing_is_learnt_from_what_is_no_number(capfd):
    supervision = random_supervision(np.random.default_rng(6), FRAMES)
    output = np.full((FRAMES, MODEL.num_pdfs), np.nan, np.float32)
    found = judged(DiscriminativeOptions("smbr", 0.1), supervision, output)
    assert "Objective function is nan, setting to -10 per frame." in capfd.readouterr().err
    assert found.objective == -10.0 * FRAMES
    assert not found.deriv.values.any()


def test_what_does_not_fit_is_refused():
    rng = np.random.default_rng(7)
    supervision = random_supervision(rng, FRAMES)
    options = DiscriminativeOptions("mmi", 0.5)
    with pytest.raises(DataError, match="expected one row for each of 4 frames"):
        judged(options, supervision, np.zeros((FRAMES + 1, MODEL.num_pdfs), np.float32))
    supervision.num_ali[1] = MODEL.num_transition_ids + 1
    with pytest.raises(DataError, match="the model has ids from 1"):
        judged(options, supervision, np.zeros((FRAMES, MODEL.num_pdfs), np.float32))
    for bad in ({"criterion": "mce"}, {"silence_phones": "1:x"}, {"silence_phones": "2:1"}):
        with pytest.raises(OptionError, match=r"--(criterion|silence-phones)"):
            DiscriminativeOptions(**bad).check()

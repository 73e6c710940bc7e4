"""Transition probabilities from counts, compared with a loop over states."""

import numpy as np
import pytest

from nnet3tools.errors import DataError
from nnet3tools.nnet.hmm.topology import HmmTopology
from nnet3tools.nnet.hmm.transition_model import TransitionModel
from nnet3tools.nnet.hmm.transition_update import count_transitions, update_transitions
from support.streams import bytes_reader

TOPOLOGY = b"""<Topology> <TopologyEntry> <ForPhones> 1 2 </ForPhones>
<State> 0 <PdfClass> 0 <Transition> 0 0.5 <Transition> 1 0.3 <Transition> 2 0.2 </State>
<State> 1 <PdfClass> 1 <Transition> 2 1.0 </State>
<State> 2 <PdfClass> 2 <Transition> 2 0.5 <Transition> 3 0.5 </State>
<State> 3 </State> </TopologyEntry>
<TopologyEntry> <ForPhones> 3 </ForPhones>
<State> 0 <ForwardPdfClass> 0 <SelfLoopPdfClass> 1 <Transition> 0 0.5 <Transition> 1 0.5 </State>
<State> 1 </State> </TopologyEntry> </Topology>
"""
TUPLES = [
    [1, 0, 0, 0],
    [1, 1, 1, 1],
    [1, 2, 2, 2],
    [2, 0, 0, 0],
    [2, 1, 3, 3],
    [2, 2, 2, 2],
    [3, 0, 4, 5],
]
SIZES = [3, 1, 2, 3, 1, 2, 2]
STARTS = np.cumsum([1, *SIZES[:-1]])


def model() -> TransitionModel:
    topology = HmmTopology.read(bytes_reader(TOPOLOGY))
    probabilities = np.concatenate([[1], *([1 / size] * size for size in SIZES)])
    log_probs = np.log(probabilities).astype(np.float32)
    return TransitionModel(topology, np.array(TUPLES, np.int32), log_probs)


def test_pdfs_of_transition_ids() -> None:
    assert model().pdfs_of_ids().tolist() == [-1, 0, 0, 0, 1, 2, 2, 0, 0, 0, 3, 2, 2, 5, 4]


def probabilities(counts: np.ndarray, floor: float) -> np.ndarray:
    values = counts / counts.sum()
    for _ in range(3):
        values = np.maximum(values / values.sum(), floor)
    return values


def test_each_state_by_itself() -> None:
    counts = np.array([0, 7, 2, 0, 5, 1, 1, 30, 20, 50, 4, 9, 1, 1, 99], float)
    before = model()
    update = update_transitions(before, counts, floor=0.02, min_count=5.0)
    found, gained, total = np.exp(update.model.log_probs), 0.0, 0.0
    for start, size in zip(STARTS, SIZES, strict=True):
        mine = slice(start, start + size)
        if size == 1 or counts[mine].sum() < 5:
            np.testing.assert_array_equal(update.model.log_probs[mine], before.log_probs[mine])
            total += counts[mine].sum() if size > 1 else 0.0
            continue
        expected = probabilities(counts[mine], 0.02)
        np.testing.assert_allclose(found[mine], expected, rtol=1e-5)
        gained += (counts[mine] * (np.log(expected) - before.log_probs[mine])).sum()
        total += counts[mine].sum()
    assert update.count == total
    assert update.improvement == pytest.approx(gained, rel=1e-5)


def test_states_never_seen_become_uniform_without_a_least_count() -> None:
    counts = np.array([0, 7, 2, 0, 5, 1, 1, 0, 0, 0, 4, 0, 0, 1, 99], float)
    update = update_transitions(model(), counts, floor=0.02, min_count=0.0)
    found = np.exp(update.model.log_probs)
    np.testing.assert_allclose(found[7:10], 1 / 3, rtol=1e-6)
    np.testing.assert_allclose(found[11:13], 1 / 2, rtol=1e-6)
    np.testing.assert_allclose(found[1:4], probabilities(counts[1:4], 0.02), rtol=1e-5)
    assert np.isfinite(update.improvement)


def test_log_lines(capsys: pytest.CaptureFixture[str]) -> None:
    counts = np.array([0, 8, 2, 0, 5, 1, 1, 30, 20, 50, 4, 9, 1, 1, 99], float)
    update = update_transitions(model(), counts, floor=0.02)
    log = capsys.readouterr().err
    change = f"{update.improvement / 222:g} per frame over 222 frames. "
    assert f"TransitionModel::Update, objf change is {change}" in log
    assert "2 probabilities floored, 1 out of 7 transition-states skipped due to" in log


def test_shared_for_pdfs(capsys: pytest.CaptureFixture[str]) -> None:
    counts = np.array([0, 7, 2, 1, 5, 1, 1, 30, 20, 50, 4, 9, 1, 60, 40], float)
    update = update_transitions(model(), counts, share_for_pdfs=True)
    found = np.exp(update.model.log_probs)
    np.testing.assert_allclose(found[1:4], np.array([37, 22, 51]) / 110, rtol=1e-5)
    np.testing.assert_allclose(found[7:10], found[1:4])
    np.testing.assert_allclose(found[5:7], [10 / 12, 2 / 12], rtol=1e-5)
    np.testing.assert_allclose(found[11:13], found[5:7])
    np.testing.assert_allclose(found[13:], [0.6, 0.4], rtol=1e-5)
    # As in Kaldi, the last state's two pdfs form two pools with the same counts.
    assert update.count == 110 + 12 + 2 * 100
    assert "0 pdf-ids skipped due to insuffient data." in capsys.readouterr().err


def test_states_of_another_shape_cannot_share() -> None:
    other = model()
    other.tuples[6, 2] = 0
    with pytest.raises(DataError, match="--share-for-pdfs"):
        update_transitions(other, np.ones(15), share_for_pdfs=True)


def test_counting_refuses_ids_of_another_model() -> None:
    counts = np.zeros(15)
    count_transitions(model(), np.array([1, 1, 14], np.int32), counts)
    assert counts[[1, 14]].tolist() == [2, 1]
    for wrong in (0, 15, -3):
        with pytest.raises(DataError, match=f"transition id {wrong} in place 1: .* 1 to 14"):
            count_transitions(model(), np.array([1, wrong], np.int32), counts)


def test_nothing_counted() -> None:
    update = update_transitions(model(), np.zeros(15))
    assert np.isnan(update.average)
    np.testing.assert_array_equal(update.model.log_probs, model().log_probs)

"""Recorders: what they take of operators, and numbers that stay in memory."""

import threading

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.nnet.components.array_fields import Count
from nnet3tools.tensor import recording
from nnet3tools.tensor.number import Number, Tally
from nnet3tools.tensor.recorder import Recorder
from nnet3tools.tensor.workspace import Workspace

_scaled = tensor.element("_1 = _2 * _3 + 1 / _3")
_sum = tensor.aggregate("_1 * _2", "sum", axis=0)


def test_outside_of_recordings_everything_is_just_called():
    done = []
    assert recording.decide(lambda: 7) == 7
    recording.act(lambda: done.append(1))
    recording.not_capturable()
    assert done == [1]
    assert tensor.persistent_array((3, 2), dtype=np.float64).shape == (3, 2)
    assert tensor.persistent_array((2,)) is not tensor.persistent_array((2,))
    assert recording.state.event_recorder is None
    assert isinstance(tensor.dot(np.ones(3, np.float32), np.ones(3, np.float32)), float)


def test_a_recording_is_a_list_of_calls_that_does_the_work_again():
    x, out = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)
    with Recorder(workspace=Workspace()) as recorder:
        tensor.add(out, x, alpha=2.0)
        with tensor.scratch((2, 3), like=x) as twice:
            _scaled(twice, out, 2.0)
            tensor.copy(out, twice)
    calls = [call for call in recorder.calls if call.name != "poison"]
    assert [repr(call) for call in calls] == [
        "add(float32[2 x 3], float32[2 x 3], 2.0)",
        "element('_1 = _2 * _3 + 1 / _3')(float32[2 x 3], float32[2 x 3], 2.0)",
        "copy(float32[2 x 3], float32[2 x 3])",
    ]
    assert (out == 4.5).all()
    for call in recorder.calls:
        call.bind()()
    assert (out == 13.5).all()
    assert not recorder.has_host_work


def test_what_another_thread_does_meanwhile_is_its_own():
    x, mine, other = (np.full((2, 3), n, np.float32) for n in (1.0, 0.0, 0.0))
    seen = []

    def elsewhere():
        with tensor.scratch((2, 3), like=x) as place:
            tensor.fill(place, 5.0)
            tensor.add(other, place)
            is_noting = recording.state.event_recorder is not None
            seen.extend([is_noting, tensor.dot(other, x), np.shares_memory(place, taken)])

    with Recorder(workspace=Workspace()) as recorder:
        with tensor.scratch((2, 3), like=x) as taken:
            tensor.copy(taken, x)
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
            tensor.add(mine, taken)
    assert seen == [False, 30.0, False]
    assert [call.name for call in recorder.calls if call.name != "poison"] == ["copy", "add"]
    assert (mine == 1.0).all()


def test_numbers_of_data_are_what_they_are_at_each_replay():
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(5, 4)).astype(np.float32), rng.normal(size=(4, 3)).astype(np.float32)
    outs = [np.zeros(shape, np.float32) for shape in ((5, 4), (5, 3), (5, 4), (4,))]

    def work():
        size = tensor.dot(x, x)
        rate = 0.1 * size / 3 - size * size + 2.0
        tensor.add(outs[0], x, alpha=rate)
        tensor.prod(outs[1], x, w, alpha=rate, beta=1.0)
        _scaled(outs[2], x, rate)
        _sum(outs[3], x, x, alpha=-rate, beta=1.0)

    with Recorder(workspace=Workspace()) as recorder:
        work()
    for _ in range(3):
        x[...] = rng.normal(size=x.shape)
        for out in outs:
            out.fill(1.0)
        work()
        expected = [out.copy() for out in outs]
        for out in outs:
            out.fill(1.0)
        for call in recorder.calls:
            call.bind()()
        for out, wanted in zip(outs, expected, strict=True):
            np.testing.assert_array_equal(out, wanted)
    assert not recorder.has_host_work


def test_looking_at_a_number_or_an_array_is_no_work_to_repeat():
    x = np.ones(3, np.float32)
    looks = (
        lambda: float(tensor.dot(x, x)),
        lambda: tensor.dot(x, x) > 1.0,
        lambda: tensor.to_host(x),
        lambda: tensor.asarray(np.ones(3), like=x),
    )
    for look in looks:
        with Recorder(workspace=Workspace()) as recorder:
            look()
        assert recorder.has_host_work


class Statistics:
    count = Count("<Count>")


def test_counts_are_numbers_in_one_place():
    owner = Statistics()
    count = owner.count
    owner.count += 3
    owner.count *= 0.5
    assert owner.count is count
    assert owner.count == 1.5
    assert owner.count > 0
    assert not owner.count <= 0
    assert bool(owner.count)
    assert f"{owner.count:g} {owner.count!r}" == "1.5 1.5"
    assert float(np.ones(2)[0] / owner.count) == pytest.approx(1 / 1.5)
    np.testing.assert_array_equal(np.ones(2) * owner.count, [1.5, 1.5])
    assert (owner.count + 1, 1 - owner.count, 3 / owner.count, -owner.count) == (2.5, -0.5, 2, -1.5)
    owner.count = 0
    assert owner.count == 0
    assert not owner.count


def test_counts_are_recorded_and_their_signs_are_events():
    count, other = Tally(0.0), Tally(2.0)

    def work():
        nonlocal count
        count *= 0.0
        count += 4
        positive = count.is_positive()  # before the recorded calls of a replay
        count += 0.5 * other
        return positive

    with Recorder(workspace=Workspace()) as recorder:
        assert work()
    assert float(count) == 5.0
    assert not recorder.has_host_work
    other.assign(6.0)
    assert [decision() for decision in recorder.decisions] == [True]
    for call in recorder.calls:
        call.bind()()
    assert float(count) == 7.0


def test_numbers_are_arrays_of_one_element():
    number = Number(np.array([2.0]))
    assert (number * 3, 3 * number, number - 1, number / 4) == (6, 6, 1, 0.5)
    assert (number**2, abs(number), int(number), hash(number)) == (4, 2, 2, hash(2.0))
    assert number < 3
    assert number >= 2

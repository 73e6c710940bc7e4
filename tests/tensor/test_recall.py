"""What a running program remembers of bound operators: never wrong memory, never temporaries."""

from __future__ import annotations

import gc
import weakref

import numpy as np

from nnet3tools import tensor
from nnet3tools.tensor import host
from nnet3tools.tensor.recall import Recall, current

_scaled = tensor.element("_1 = _2 * _3 + _4")
_sums = tensor.aggregate("_1 * _2", "sum", axis=0)


def run(recall: Recall, *calls: object) -> None:
    """One run of a program that makes these calls."""
    with recall:
        for call in calls:
            call()  # type: ignore[operator]
    recall.run += 1


def test_what_stays_is_bound_once_and_then_found() -> None:
    recall, memory = Recall(), np.arange(24, dtype=np.float32).reshape(4, 6)
    out, sums = np.empty((4, 3), np.float32), np.zeros(3, np.float32)

    def work() -> None:  # views made anew each time, as components do
        _scaled(out[:, :], memory[:, :3], memory[:, 3:], 1.0)
        _sums(sums, memory[:, :3], memory[:, 3:], beta=1.0)

    for times in range(1, 6):
        memory += 1
        sums[:] = 0.5
        run(recall, work)
        left, right = memory[:, :3], memory[:, 3:]
        np.testing.assert_array_equal(out, left * right + 1)
        np.testing.assert_array_equal(sums, 0.5 + (left * right).sum(0))
        assert len(recall.bound) == (4 if times >= 2 else 0)
    assert current() is None


def test_numbers_are_taken_as_they_are_now() -> None:
    recall, out, x = Recall(), np.empty(3, np.float32), np.ones(3, np.float32)
    for number in (2.0, 2.0, 2.0, 3.0, 2.0, 0.0, -0.0, 0.0, 1, 1.0, float("nan")):
        run(recall, lambda number=number: _scaled(out, x, number, -0.0))
        np.testing.assert_array_equal(out, np.float32(number) * x + np.float32(-0.0))
        assert np.array_equal(np.signbit(out), np.signbit(np.float32(number) * x))


def test_temporaries_are_not_kept_alive_and_not_mistaken_for_each_other() -> None:
    recall, x = Recall(), np.ones(1000, np.float32)
    last: list[weakref.ref] = []

    def work() -> None:
        first = np.empty(1000, np.float32)
        for scale in (2.0, 2.0):  # twice in one run
            _scaled(first, x, scale, x)
        _scaled(first, first, 2.0, first)
        assert (first == 9).all()
        last[:] = [weakref.ref(first)]

    for _ in range(6):
        run(recall, work)
        gc.collect()
        assert last[0]() is None
    assert not recall.bound


def test_other_memory_at_the_same_address_is_not_mistaken() -> None:
    recall, x = Recall(), np.ones(100, np.float32)
    kept = [np.zeros(100, np.float32) for _ in range(2)]
    for _ in range(3):
        run(recall, *(lambda out=out: _scaled(out, x, 2.0, 1.0) for out in kept))
    assert len(recall.bound) == 4
    kept[0][:] = 0
    view = kept[0][::2]
    for _ in range(3):
        run(recall, lambda: _scaled(view, x[:50], 1.0, 1.0))
    np.testing.assert_array_equal(kept[0][:4], [2, 0, 2, 0])
    integers = kept[1].view(np.int32)  # other elements at the same address
    integers[:] = 7
    same = tensor.element("_1 = _2 + 1")
    other = np.zeros(100, np.float32)
    for _ in range(3):
        run(recall, lambda: same(other, kept[1]), lambda: same(other, integers))
    np.testing.assert_array_equal(other, 8)


def test_an_operator_bound_elsewhere_in_a_program_is_another() -> None:
    recall, out, x = Recall(), np.zeros(4, np.float32), np.ones(4, np.float32)
    double, triple = tensor.element("_1 = 2 * _2"), tensor.element("_1 = 3 * _2")
    for _ in range(4):
        run(recall, lambda: double(out, x))
        assert out[0] == 2
        run(recall, lambda: triple(out, x))
        assert out[0] == 3


def test_memory_of_memos_is_the_same_in_each_run_but_not_within_one() -> None:
    recall, like = Recall(), np.empty(1, np.float32)
    taken: list[list[np.ndarray]] = []
    for _ in range(3):
        now: list[np.ndarray] = []
        run(recall, *[lambda now=now: now.append(host.kept((2, 3), like)) for _ in range(3)])
        assert len({id(array) for array in now}) == 3
        taken.append(now)
    assert all(a is b for a, b in zip(taken[1], taken[2], strict=True))
    assert host.kept((2, 3), like) is not taken[0][0]


def test_programs_within_programs_recall_for_themselves() -> None:
    outer, inner = Recall(), Recall()
    with outer:
        with inner:
            assert current() is inner
        assert current() is outer
    assert current() is None


def test_special_operators_are_found_again_and_give_what_they_gave() -> None:
    rng = np.random.default_rng(1)
    recall, dim, rows = Recall(), 4, 9

    def floats(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    x, params, out_deriv, repair = floats(rows, 23), floats(3, dim), floats(rows, 8), floats(5, dim)
    outputs = [floats(rows, 23), floats(3, dim), np.zeros((5, dim)), np.zeros((5, dim))]
    out, soft = floats(rows, 8), floats(rows, 8)

    def work() -> None:
        tensor.lstm_nonlinearity(out[:, :], x, params)
        tensor.lstm_nonlinearity_backprop(x, params, out_deriv, repair, *outputs)
        tensor.log_softmax(soft, out)

    for times in range(5):
        x += np.float32(0.1)
        for array in outputs[2:]:
            array.fill(1.0)
        work()
        expected = [array.copy() for array in (out, soft, *outputs)]
        for array in outputs[2:]:
            array.fill(1.0)
        run(recall, work)
        for array, right in zip((out, soft, *outputs), expected, strict=True):
            np.testing.assert_array_equal(array, right)
        assert len(recall.bound) == (6 if times else 0)

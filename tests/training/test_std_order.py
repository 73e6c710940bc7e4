"""Orders taken from libstdc++: expected values were printed by a C++ program (g++ 12)."""

import numpy as np
import pytest

from nnet3tools.training.std_order import HashOrder, MersenneTwister, shuffle

WORD = 1 << 64


def fingerprint(values: list[int]) -> int:
    value = 0
    for v in values:
        value = (value * 31 + v) % WORD
    return value


def test_generator_is_mt19937():
    # The C++ standard fixes the 10000th output of a default-seeded mt19937.
    generator = MersenneTwister(5489)
    words = [generator.next_word() for _ in range(10000)]
    assert words[-1] == 4123659995


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (1, 0),
        (2, 31),
        (3, 1923),
        (10, 59021690633805),
        (11, 2464919117639545),
        (1000, 17231535989887906072),
        (70000, 12260056449843562224),
    ],
)
def test_shuffle_repeats_std_shuffle(size, expected):
    values = list(range(size))
    shuffle(values, MersenneTwister(7))
    assert fingerprint(values) == expected
    assert sorted(values) == list(range(size))


def test_shuffle_of_nothing():
    values: list[int] = []
    shuffle(values, MersenneTwister(1))
    assert values == []


def test_below_is_uniform():
    generator = MersenneTwister(3)
    counts = np.bincount([generator.below(5) for _ in range(5000)], minlength=5)
    assert counts.min() > 900
    assert len(counts) == 5


def test_hash_order_repeats_unordered_map_through_growth_and_erasure():
    expected = {
        20: 7033132029427288096,
        33: 335245399374063005,
        99: 6412273295816462110,
        199: 241995492721477232,
        299: 3586586688776865536,
    }
    generator, order, present = MersenneTwister(5), HashOrder(), set()
    for i in range(300):
        key = generator.next_word() % 100000
        if key not in present:
            order.insert(key, (key * 2654435761 + 17) % WORD)
            present.add(key)
        if i % 7 == 3 and i % 11 < len(present):
            victim = list(order)[i % 11]
            order.erase(victim)
            present.remove(victim)
        if i in expected:
            assert set(order) == present
            assert fingerprint(list(order)) == expected[i]

"""Trainings on a disk that fails now and then: nothing is lost, half-written or left over.

`failures.txt` in the test's folder has the numbers. More seeds: NNET3TOOLS_FAILING_SEEDS=20.
"""

import os
from collections import Counter
from pathlib import Path

import pytest

from nnet3tools.errors import DataError
from nnet3tools.recipe.iterations import _objective as objective_of
from support.failing_calls import library
from support.failing_drivers import DRIVERS, disturb, prepare

SEEDS = int(os.environ.get("NNET3TOOLS_FAILING_SEEDS", "2"))

pytestmark = pytest.mark.skipif(library() is None, reason="there is no C compiler")


def repeat(name: str, folder: Path, seeds: range, **how: object) -> Counter[str]:
    driver = DRIVERS[name]
    whole = prepare(driver, folder)
    total: Counter[str] = Counter()
    starts = 0
    for seed in seeds:
        found = disturb(driver, folder, whole, seed, **how)
        assert not found.faults, "\n".join(found.faults)
        assert found.statuses[-1] == 0, found.statuses
        total += found.calls
        starts += len(found.statuses)
    with open(folder / "failures.txt", "w") as file:
        file.write(f"{name}: {starts} starts, {total.total()} calls failed: {dict(total)}\n")
    return total


def test_a_training_loses_nothing_when_calls_fail(tmp_path: Path) -> None:
    assert repeat("frames", tmp_path, range(1, 2), one_in=300)


def test_a_log_that_lost_its_objective_is_not_one_of_a_bad_model(tmp_path: Path) -> None:
    log = tmp_path / "train.1.1.log"
    log.write_text("# nnet3-train\n# Ended (code 0)\n")
    with pytest.raises(DataError, match="start again to repeat it"):
        objective_of(str(log))
    assert not log.exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", DRIVERS)
def test_any_training_loses_nothing_when_calls_fail(tmp_path: Path, name: str) -> None:
    # Each start reads all recordings, 600 calls: at one in 300 none would come to an end.
    one_in = 1000 if name == "recognizer" else 300
    assert repeat(name, tmp_path, range(1, 1 + SEEDS), one_in=one_in)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kinds"), [("frames", "dsr"), ("chain-slurm", "ds")])
def test_delays_and_short_transfers_break_nothing(tmp_path: Path, name: str, kinds: str) -> None:
    driver = DRIVERS[name]
    whole = prepare(driver, tmp_path)
    found = disturb(driver, tmp_path, whole, 1, one_in=20, KINDS=kinds)
    assert not found.faults, "\n".join(found.faults)
    assert found.statuses == [0]
    assert found.calls.total() > 100


@pytest.mark.slow
@pytest.mark.parametrize("name", ["frames", "frames-slurm"])
def test_clocks_that_jump_by_hours_change_nothing(tmp_path: Path, name: str) -> None:
    driver = DRIVERS[name]
    whole = prepare(driver, tmp_path)
    found = disturb(driver, tmp_path, whole, 1, CLOCK=5)
    assert not found.faults, "\n".join(found.faults)
    assert found.statuses == [0]

"""Schedules compared with the numbers in the tests of Kaldi's scripts, and with numbers by hand."""

import math

import pytest

from nnet3tools.errors import OptionError
from nnet3tools.recipe.progress import duration
from nnet3tools.recipe.saturation import saturation_of_info
from nnet3tools.recipe.schedules import (
    Iterations,
    dropout_edits,
    halved_minibatch_size,
    models_to_combine,
    parse_dropout_schedule,
)


def iterations(**changes: float) -> Iterations:
    values: dict[str, float] = {
        "num_archives": 10, "frames_per_eg": 1, "num_epochs": 2, "num_jobs_initial": 1,
        "num_jobs_final": 4, "num_jobs_step": 1, "initial_lrate": 0.01, "final_lrate": 0.001,
    }  # fmt: skip
    return Iterations(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("step", "wanted"),
    [(1, [2, 3, 3, 4, 4, 5, 6, 6, 7, 7, 8, 8]), (3, [2, 3, 3, 3, 3, 6, 6, 6, 6, 6, 9, 9])],
)
def test_numbers_of_jobs(step: int, wanted: list[int]) -> None:
    # Kaldi's test has 12 iterations from 2 to 9 jobs: 66 archives are 12 x 5.5.
    schedule = iterations(
        num_archives=66, num_epochs=1, num_jobs_initial=2, num_jobs_final=9, num_jobs_step=step
    )
    assert schedule.count == 12
    assert [schedule.num_jobs(i) for i in range(12)] == wanted


def test_learning_rates_fall_exponentially_with_the_data_and_grow_with_the_jobs() -> None:
    schedule = iterations()
    assert schedule.learning_rate(0) == pytest.approx(0.01)
    for i in range(schedule.count - 1):
        seen = schedule.processed(i) / schedule.num_archives_to_process
        assert schedule.learning_rate(i) == pytest.approx(
            schedule.num_jobs(i) * 0.01 * math.exp(seen * math.log(0.1))
        )
    last = schedule.count - 1
    assert schedule.learning_rate(last) == pytest.approx(schedule.num_jobs(last) * 0.001)


@pytest.mark.parametrize(
    ("schedule", "fraction", "wanted"),
    [
        ("*=0.0,0.5,0.0 lstm.*=0.0,0.3@0.75,0.0", 0.75, {"*": 0.25, "lstm.*": 0.3}),
        ("*=0.0,0.5,0.0 lstm.*=0.0,0.3@0.75,0.0", 0.5, {"*": 0.5, "lstm.*": 0.2}),
        ("*=0.0,0.5,0.0 lstm.*=0.0,0.3@0.75,0.0", 0.25, {"*": 0.25, "lstm.*": 0.1}),
        ("0.0,0.3,0.0", 0.0, {"*": 0.0}),
        ("0.0,0.3,0.0", 1.0, {"*": 0.0}),
        ("0.0,0.5@0.25,0.0,0.6@0.75,0.0", 0.1, {"*": 0.2}),
        ("lstm.*=0.0,0.3,0.0@0.75,1.0", 0.9, {"lstm.*": 0.6}),
    ],
)
def test_dropout_schedules_of_kaldis_test(
    schedule: str, fraction: float, wanted: dict[str, float]
) -> None:
    functions = parse_dropout_schedule(schedule)
    assert {f.pattern: pytest.approx(f.value(fraction)) for f in functions} == wanted


def test_dropout_as_edits() -> None:
    assert dropout_edits("", 0.5) == ""
    assert dropout_edits("a=0,0.5,0 b=0,1", 0.5) == (
        "set-dropout-proportion name=a proportion=0.5;set-dropout-proportion name=b proportion=0.5"
    )


def test_a_dropout_schedule_beyond_one_is_refused() -> None:
    with pytest.raises(OptionError, match="from 0 to 1"):
        parse_dropout_schedule("0,1.5,0")


@pytest.mark.parametrize(
    ("rule", "half"),
    [
        ("64", "32"),
        ("64,16:32", "32,8:16"),
        ("1", "1"),
        ("128=64/256=40,80:100", "128=32/256=20,40:50"),
    ],
)
def test_half_minibatches(rule: str, half: str) -> None:
    assert halved_minibatch_size(rule) == half


def test_models_that_are_combined() -> None:
    # 8 iterations, of which the last half may be combined; three models at most.
    assert models_to_combine(iterations(), 20) == [5, 6, 7, 8]
    assert models_to_combine(iterations(num_archives=100), 20)[-1] == 80
    assert len(models_to_combine(iterations(num_archives=100, frames_per_eg=8), 5)) <= 6


def test_saturation_is_the_mean_over_units_of_one_minus_derivative_over_its_largest() -> None:
    numbers = "[percentiles(0,1)=(0.1,0.2), mean={}, stddev=0.1]"
    text = (
        f"component name=a type=SigmoidComponent, dim=3, deriv-avg={numbers.format(0.2)}\n"
        f"component name=b type=TanhComponent, dim=3, deriv-avg={numbers.format(0.5)}\n"
        "component name=c type=AffineComponent\n"
    )
    assert saturation_of_info(text) == pytest.approx((0.2 + 0.5) / 2)
    assert saturation_of_info("") == 0.0


def test_durations_in_words() -> None:
    assert [duration(s) for s in (40, 200, 7500)] == ["40 s", "3 min", "2 h 5 min"]

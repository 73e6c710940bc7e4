"""The stages of training, one for each iteration."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from nnet3tools.errors import DataError, OptionError
from nnet3tools.io import log
from nnet3tools.recipe.egs_dir import EgsDir
from nnet3tools.recipe.experiment import Experiment
from nnet3tools.recipe.jobs import Job, Pipeline
from nnet3tools.recipe.objective import ExampleOrder
from nnet3tools.recipe.options import ChunkOptimizationOptions
from nnet3tools.recipe.plan import Jobs, Later, Remove, Stage, Step, WriteText
from nnet3tools.recipe.saturation import saturation
from nnet3tools.recipe.schedules import (
    Iterations,
    dropout_edits,
    halved_minibatch_size,
    models_to_combine,
)

_WORST_DIFFERENCE = 1.0
"""Models whose objective is worse than the best by more than this are not averaged."""

_OBJECTIVE = re.compile(
    r"LOG .* Overall average objective function for 'output' is ([0-9e.\-+= ]+) over "
    r"([0-9e.\-+]+) frames"
)


@dataclass(frozen=True)
class Iteration:
    """One iteration and its numbers in the schedule."""

    number: int
    num_jobs: int
    learning_rate: float
    proportional_shrink: float
    """The factor on parameters from --trainer.optimization.proportional-shrink."""
    processed: int
    """The number of archives processed before this iteration."""
    fraction: float
    """The fraction of all data seen before this iteration."""


def iteration_stages(e: Experiment, egs: EgsDir, schedule: Iterations) -> list[Stage]:
    """One stage per training iteration; OptionError if the schedule is impossible."""
    kept = _kept_models(e, schedule)
    return [_stage(e, egs, schedule, number, kept) for number in range(schedule.count)]


def _kept_models(e: Experiment, schedule: Iterations) -> set[int]:
    optimization = e.options.trainer.optimization
    if not optimization.do_final_combination:
        return set()
    return set(models_to_combine(schedule, optimization.max_models_combine))


def _iteration(e: Experiment, schedule: Iterations, number: int) -> Iteration:
    rate = schedule.learning_rate(number)
    factor = e.options.trainer.optimization.proportional_shrink
    shrink = 1.0 - factor * rate
    if shrink <= 0.5:
        raise OptionError(
            f"--trainer.optimization.proportional-shrink={factor:g} is too large: iteration "
            f"{number} would scale parameters by {shrink:g}"
        )
    num_jobs, processed = schedule.num_jobs(number), schedule.processed(number)
    return Iteration(number, num_jobs, rate, shrink, processed, schedule.fraction(number))


def _stage(e: Experiment, egs: EgsDir, schedule: Iterations, number: int, kept: set[int]) -> Stage:
    iteration = _iteration(e, schedule, number)
    trained = tuple(e.dir / f"{number + 1}.{job}.raw" for job in range(1, iteration.num_jobs + 1))
    after: list[str] = [*map(str, trained), f"{e.dir}/cache.{number}"]
    if e.options.run.cleanup and _is_superfluous(e, number - 2, kept):
        after.append(str(e.model(number - 2)))
    steps: tuple[Step, ...] = (
        WriteText(e.dir / "srand", str(e.options.trainer.srand)),
        Later(lambda: [Jobs(_training_jobs(e, egs, iteration), trained)]),
        Later(lambda: [_average(e, iteration)]),
        Remove(tuple(after)),
    )
    return Stage(
        number,
        f"iteration {number}",
        steps,
        (e.model(number + 1),),
        (e.model(number),),
        diagnostics(e, egs, number),
        iteration=number,
    )


def _is_superfluous(e: Experiment, number: int, kept: set[int]) -> bool:
    """Whether model `number`, not to be combined (`kept`), is removed once it is not needed."""
    return (
        number >= 0
        and number % e.options.run.clean.preserve_model_interval != 0
        and number not in kept
    )


# -- the jobs that train


def _training_jobs(e: Experiment, egs: EgsDir, iteration: Iteration) -> tuple[Job, ...]:
    _require(e, egs.path, iteration)
    shrink = _shrink(e, iteration)
    model = (
        f"nnet3-copy --learning-rate={iteration.learning_rate} --scale={shrink} "
        f"{e.model(iteration.number)} - |"
    )
    if edits := dropout_edits(e.options.trainer.dropout_schedule, iteration.fraction):
        model += f"nnet3-copy --edits='{edits}' - - |"
    return tuple(
        _training_job(e, egs, iteration, job, model) for job in range(1, iteration.num_jobs + 1)
    )


def _training_job(e: Experiment, egs: EgsDir, iteration: Iteration, job: int, model: str) -> Job:
    n, t = iteration.number, e.options.trainer
    k = iteration.processed + job - 1
    archive = k % egs.num_archives + 1
    shifts = e.passes_per_archive if e.has_shifts else 0
    augmentation = e.image.augmentation_opts
    order = ExampleOrder(
        archive,
        e.minibatch_size if n else halved_minibatch_size(e.minibatch_size),
        t.shuffle_buffer_size,
        n + t.srand,
        (k // egs.num_archives + archive) % shifts if shifts else None,
        f"--srand={k + t.srand} {augmentation}" if augmentation else "",
    )
    examples = e.objective.training_examples(egs.path, order, egs.is_multitask)
    out = f"{e.dir}/{n + 1}.{job}.raw"
    words = e.objective.train(_training_options(e, iteration, job), model, examples, out)
    return Job(e.log(f"train.{n}.{job}"), ((words,),), f"train.{job}", e.wants_gpu)


def _training_options(e: Experiment, iteration: Iteration, job: int) -> tuple[str, ...]:
    """The options of the training program for job number `job` of an iteration."""
    n, t = iteration.number, e.options.trainer
    optimization = t.optimization
    limit = t.max_param_change if n else t.max_param_change / math.sqrt(2)
    return (
        f"--use-gpu={e.gpu_options}",
        *([f"--read-cache={e.dir}/cache.{n}"] if n else []),
        *([f"--write-cache={e.dir}/cache.{n + 1}"] if job == 1 else []),
        *(["--verbose=1"] if n and n % 20 == 0 else []),
        "--print-interval=10",
        f"--momentum={optimization.momentum}",
        f"--max-param-change={limit}",
        f"--backstitch-training-scale={e.backstitch_scale(n)}",
        f"--l2-regularize-factor={1.0 / iteration.num_jobs}",
        f"--backstitch-training-interval={optimization.backstitch_training_interval}",
        f"--srand={n + t.srand}",
        *t.add_option,
        *e.deriv_time_words(),
    )


def _require(e: Experiment, egs: Path, iteration: Iteration) -> None:
    """DataError if the archives that an iteration needs have been removed from directory `egs`."""
    if not any(egs.glob(e.names.archive("*", "*"))):
        raise DataError(
            f"{egs} holds no archives of examples for iteration {iteration.number} (they were "
            "removed, or never made): make them with --stage=-3, or name others with --egs.dir"
        )


def _shrink(e: Experiment, iteration: Iteration) -> float:
    """The factor by which parameters are multiplied before an iteration."""
    options, shrink = e.options.trainer.optimization, iteration.proportional_shrink
    if not isinstance(options, ChunkOptimizationOptions) or options.shrink_value >= shrink:
        return shrink
    model = e.model(iteration.number)
    if iteration.number == 0 or saturation(str(model)) > options.shrink_saturation_threshold:
        return options.shrink_value
    return 1.0 if e.am is not None else shrink


# -- what becomes of the models that they write


def _average(e: Experiment, iteration: Iteration) -> Step:
    """The step that averages an iteration's good models; in iteration 0 it copies the best."""
    n = iteration.number
    objectives = [_objective(e.log(f"train.{n}.{job + 1}")) for job in range(iteration.num_jobs)]
    best = max(range(len(objectives)), key=lambda i: objectives[i])
    good = [
        i for i, value in enumerate(objectives) if objectives[best] - value <= _WORST_DIFFERENCE
    ]
    if len(good) < len(objectives):
        log.warning(
            f"Only {len(good)}/{len(objectives)} of the models of iteration {n} have been accepted "
            "for averaging"
        )
    chosen = [f"{e.dir}/{n + 1}.{i + 1}.raw" for i in (good if n else [best])]
    name, program = ("average", "nnet3-average") if n else ("select", "nnet3-copy")
    out = e.model(n + 1)
    pipeline: Pipeline = ((program, *chosen, str(out)),)
    if e.is_acoustic:
        into = ("nnet3-am-copy", "--set-raw-nnet=-", str(e.model(n)), str(out))
        pipeline = ((program, *chosen, "-"), into)
    return e.step(f"{name}.{n}", *pipeline, out=out)


def _objective(path: str) -> float:
    """The last objective in the training log `path`; a very low number if there is none."""
    try:
        with open(path, errors="replace") as file:
            found = [match for line in file if (match := _OBJECTIVE.search(line))]
    except OSError:
        found = []
    if not found:
        return -100000.0
    value = float(found[-1][1].split()[-1])
    return value if math.isfinite(value) else -100000.0


# -- diagnostics


def diagnostics(e: Experiment, egs: EgsDir, number: int | str) -> tuple[Job, ...]:
    """Jobs that compute objectives of model `number` and, unless it is 0, log its changes."""
    jobs = [_compute_prob(e, egs, number, part) for part in ("valid", "train")]
    if isinstance(number, int) and number > 0:
        jobs += _progress(e, number)
    return tuple(jobs)


def _compute_prob(e: Experiment, egs: EgsDir, number: int | str, part: str) -> Job:
    examples = e.objective.diagnostic_examples(
        egs.path, f"{part}_diagnostic", "1:64", egs.is_multitask
    )
    per_dim = e.options.trainer.compute_per_dim_accuracy and part == "train"
    options = ("--compute-per-dim-accuracy",) if per_dim else ()
    words = e.objective.compute_prob(options, str(e.model(number)), examples)
    return Job(e.log(f"compute_prob_{part}.{number}"), ((words,),), "diagnostics")


def _progress(e: Experiment, number: int) -> list[Job]:
    before, after = str(e.model(number - 1)), str(e.model(number))
    show = ("nnet3-show-progress", "--use-gpu=no")
    jobs = [
        Job(
            e.log(f"progress.{number}"),
            ((("nnet3-info", after),), ((*show, before, after),)),
            "diagnostics",
        )
    ]
    if number % 10 == 0:
        verbose = (*show, "--verbose=2", before, after)
        jobs.append(Job(e.log(f"full_progress.{number}"), ((verbose,),), "diagnostics"))
        info = ("nnet3-info", "--verbose=2", after)
        jobs.append(Job(e.log(f"full_info.{number}"), ((info,),), "diagnostics"))
    return jobs

"""The stages of training, one for each iteration."""

from __future__ import annotations

import math
import os
import shlex

from nnet3tools.errors import DataError, OptionError
from nnet3tools.io import log
from nnet3tools.io.checked import NamedFile
from nnet3tools.recipe.egs_dir import EgsDir
from nnet3tools.recipe.experiment import Experiment
from nnet3tools.recipe.jobs import Job, Pipeline, pipe_text
from nnet3tools.recipe.objective import ExampleOrder
from nnet3tools.recipe.options import ChunkOptimizationOptions
from nnet3tools.recipe.plan import Jobs, Later, Remove, Stage, Step, WriteText, copy_file
from nnet3tools.recipe.report.log_file import read_log
from nnet3tools.recipe.saturation import saturation
from nnet3tools.recipe.schedules import (
    Iterations,
    dropout_edits,
    halved_minibatch_size,
    models_to_combine,
)

_WORST_DIFFERENCE = 1.0
"""Models whose objective is worse than the best by more than this are not averaged."""
_NO_OBJECTIVE = -100000.0


_MOST = 100_000
"""The most iterations of a training: one log line and one model each."""


def schedule_of(e: Experiment, egs: EgsDir) -> Iterations:
    """Make the training schedule; OptionError for no iterations, or for more jobs than archives."""
    trainer, objective = e.options.trainer, e.objective
    o = trainer.optimization
    most = max(o.num_jobs_initial, o.num_jobs_final)
    if most > egs.num_archives * objective.jobs_per_archive:
        raise OptionError(
            f"--trainer.optimization.num-jobs-final={most} is more than the "
            f"{egs.num_archives} archives in {egs.path}"
        )
    schedule = Iterations(
        egs.num_archives,
        objective.passes_per_archive,
        trainer.num_epochs,
        o.num_jobs_initial,
        o.num_jobs_final,
        o.num_jobs_step,
        o.initial_effective_lrate,
        o.final_effective_lrate,
    )
    if not 1 <= schedule.count <= _MOST:
        raise OptionError(
            f"--trainer.num-epochs={trainer.num_epochs:g} makes {schedule.count or 'no'} iteration"
            f"{'s' * (schedule.count > 1)} of {egs.num_archives} archives: expected 1 to {_MOST}"
        )
    return schedule


def iteration_stages(
    e: Experiment, egs: EgsDir, schedule: Iterations, num_together: int = 0
) -> list[Stage]:
    """One stage per training iteration; OptionError if the schedule is impossible.

    Up to `num_together` jobs of an iteration average their models in memory.
    """
    optimization, kept = e.options.trainer.optimization, set[int]()
    if optimization.do_final_combination:
        kept = set(models_to_combine(schedule, optimization.max_models_combine))
    for n in range(schedule.count):
        if (shrink := _proportional_shrink(e, schedule, n)) <= 0.5:
            raise OptionError(
                f"--trainer.optimization.proportional-shrink={optimization.proportional_shrink:g} "
                f"is too large: iteration {n} would scale parameters by {shrink:g}"
            )
    return [_stage(e, egs, schedule, n, kept, num_together) for n in range(schedule.count)]


def _proportional_shrink(e: Experiment, schedule: Iterations, n: int) -> float:
    """The factor of --proportional-shrink on parameters before iteration `n`."""
    factor = e.options.trainer.optimization.proportional_shrink
    return 1.0 - factor * schedule.learning_rate(n)


def _stage(
    e: Experiment, egs: EgsDir, schedule: Iterations, n: int, kept: set[int], num_together: int
) -> Stage:
    """The stage of iteration `n`, which also removes model `n` - 2 unless `kept` has this number.

    If `n` > 0, 2 to `num_together` jobs average in memory. For 0 the best job's model is taken.
    """
    together = n > 0 and 1 < schedule.num_jobs(n) <= num_together
    trained = tuple(e.dir / f"{n + 1}.{job}.raw" for job in range(1, schedule.num_jobs(n) + 1))
    after: list[str] = [*map(str, trained), f"{e.dir}/cache.{n}"]
    old, interval = n - 2, e.options.run.clean.preserve_model_interval
    if e.options.run.cleanup and old >= 0 and old % interval != 0 and old not in kept:
        after.append(str(e.model(old)))
    steps: tuple[Step, ...] = (
        WriteText(e.dir / "srand", str(e.options.trainer.srand)),
        Later(
            lambda: [
                Jobs(
                    _training_jobs(e, egs, schedule, n, together),
                    trained[: 1 if together else None],
                )
            ]
        ),
        Later(lambda: [_averaged(e, n) if together else _average(e, n, len(trained))]),
        Remove(tuple(after)),
    )
    return Stage(
        n,
        f"iteration {n}",
        steps,
        (e.model(n + 1),),
        (e.model(n),),
        diagnostics(e, egs, n),
        iteration=n,
    )


# -- the jobs that train


def _training_jobs(
    e: Experiment, egs: EgsDir, schedule: Iterations, n: int, together: bool
) -> tuple[Job, ...]:
    if not any(egs.path.glob(e.objective.archive("*", "*"))):
        raise DataError(
            f"{egs.path} holds no archives of examples for iteration {n} (they were removed, or "
            "never made): make them with --stage=-3, or name others with --egs.dir"
        )
    shrink, rate = _shrink(e, schedule, n), schedule.learning_rate(n)
    copy = ("nnet3-copy", f"--learning-rate={rate}", f"--scale={shrink}", str(e.model(n)), "-")
    model = pipe_text(copy)
    if edits := dropout_edits(e.options.trainer.dropout_schedule, schedule.fraction(n)):
        model += pipe_text(("nnet3-copy", f"--edits={edits}", "-", "-"))
    jobs = range(1, schedule.num_jobs(n) + 1)
    return tuple(_training_job(e, egs, schedule, n, job, model, together) for job in jobs)


def _training_job(
    e: Experiment, egs: EgsDir, schedule: Iterations, n: int, job: int, model: str, together: bool
) -> Job:
    t, objective, size = e.options.trainer, e.objective, e.objective.minibatch_size
    k = schedule.processed(n) + job - 1
    archive = k % egs.num_archives + 1
    image = getattr(e.options, "image", None)
    augmentation = image.augmentation_opts if image else ""
    order = ExampleOrder(
        archive,
        size if n else halved_minibatch_size(size),
        t.shuffle_buffer_size,
        n + t.srand,
        (k // egs.num_archives + archive) % objective.passes_per_archive,
        (f"--srand={k + t.srand}", *shlex.split(augmentation)) if augmentation else (),
    )
    examples = objective.training_examples(egs.path, order, egs.is_multitask)
    options = _training_options(e, n, job, schedule.num_jobs(n))
    if together:
        options += _rank_options(e, n, job, schedule.num_jobs(n))
    words = objective.train(options, model, examples, f"{e.dir}/{n + 1}.{job}.raw")
    return Job(e.log(f"train.{n}.{job}"), ((words,),), f"train.{job}", e.wants_gpu)


def _training_options(e: Experiment, n: int, job: int, num_jobs: int) -> tuple[str, ...]:
    """The command-line words of the training program for job `job` of iteration `n`."""
    t, growth = e.options.trainer, e.objective.backstitch_growth
    optimization = t.optimization
    limit = t.max_param_change if n else t.max_param_change / math.sqrt(2)
    backstitch = optimization.backstitch_training_scale
    if n < growth:
        backstitch = backstitch * n / growth
    return (
        f"--use-gpu={e.gpu_options}",
        *([f"--read-cache={e.dir}/cache.{n}"] if n else []),
        *([f"--write-cache={e.dir}/cache.{n + 1}"] if job == 1 else []),
        *(["--verbose=1"] if n and n % 20 == 0 else []),
        "--print-interval=10",
        f"--momentum={optimization.momentum}",
        f"--max-param-change={limit}",
        f"--backstitch-training-scale={backstitch}",
        f"--l2-regularize-factor={1.0 / num_jobs}",
        f"--backstitch-training-interval={optimization.backstitch_training_interval}",
        f"--srand={n + t.srand}",
        *t.add_option,
        *e.deriv_time_words(),
    )


def _rank_options(e: Experiment, n: int, job: int, num_jobs: int) -> tuple[str, ...]:
    """Words that make job `job` of iteration `n` one of `num_jobs` ranks that train one model."""
    return (
        f"--num-{'gpus' if e.wants_gpu else 'workers'}={num_jobs}",
        f"--rank={job - 1}",
        f"--rendezvous={e.dir}/ranks.{n}",
        f"--average-interval={e.options.trainer.optimization.average_interval}",
    )


def _shrink(e: Experiment, schedule: Iterations, n: int) -> float:
    """The factor by which parameters are multiplied before iteration `n`."""
    options, shrink = e.options.trainer.optimization, _proportional_shrink(e, schedule, n)
    if not isinstance(options, ChunkOptimizationOptions) or options.shrink_value >= shrink:
        return shrink
    if n == 0 or saturation(str(e.model(n))) > options.shrink_saturation_threshold:
        return options.shrink_value
    return 1.0 if e.am is not None else shrink


# -- what becomes of the models that they write


def _average(e: Experiment, n: int, num_jobs: int) -> Step:
    """The step that averages the good of `num_jobs` models; for iteration `n` = 0, copies the best.

    A model is good if its objective is near the best one.
    """
    objectives = [_objective(e.log(f"train.{n}.{job + 1}")) for job in range(num_jobs)]
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


def _averaged(e: Experiment, n: int) -> Step:
    """The step that makes model `n` + 1 from the average that job 1 of iteration `n` wrote."""
    average, out = e.dir / f"{n + 1}.1.raw", e.model(n + 1)
    if not e.is_acoustic:
        return copy_file(average, out)
    words = ("nnet3-am-copy", f"--set-raw-nnet={average}", str(e.model(n)), str(out))
    return e.step(f"average.{n}", words, out=out)


def _objective(path: str) -> float:
    """The last objective of "output" in the log `path`; a very low number if it has only others.

    DataError if the log has no objective at all, because its disk was full. Then the log is
    removed, so that the same command repeats the job.
    """
    with NamedFile(path) as file:
        if b"Overall average objective" not in file.read():
            os.unlink(path)
            raise DataError(f"{path} had no objective and was removed: start again to repeat it")
    found = read_log(path)
    return _NO_OBJECTIVE if found is None else found.objectives.get("output", _NO_OBJECTIVE)


# -- diagnostics


def diagnostics(e: Experiment, egs: EgsDir, number: int | str) -> tuple[Job, ...]:
    """Jobs that evaluate a model and, if `number` is an int > 0, log changes since the last one."""
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

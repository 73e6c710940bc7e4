"""The stages after training: combination, priors, removal of files."""

from __future__ import annotations

from pathlib import Path

from nnet3tools.errors import DataError
from nnet3tools.io.checked import exists, is_file
from nnet3tools.recipe.egs_dir import EgsDir
from nnet3tools.recipe.experiment import Experiment
from nnet3tools.recipe.iterations import diagnostics
from nnet3tools.recipe.jobs import Job, output_pipe
from nnet3tools.recipe.plan import Jobs, Later, Link, Remove, Stage, Step
from nnet3tools.recipe.schedules import Iterations, models_to_combine

_FEW = 512


def finishing_stages(e: Experiment, egs: EgsDir, schedule: Iterations) -> list[Stage]:
    """The stages after the last iteration: combining models, priors or average outputs."""
    stages = [_combination(e, egs, schedule)]
    if e.am is not None or (e.raw is not None and e.raw.compute_average_posteriors):
        stages.append(_priors(e, egs, schedule))
    return stages


def _last(e: Experiment, schedule: Iterations) -> str | int:
    """The name of the last model of training: "combined", "final" or the last number."""
    if not e.options.trainer.optimization.do_final_combination:
        return schedule.count
    return "final" if e.am is None else "combined"


def _combination(e: Experiment, egs: EgsDir, schedule: Iterations) -> Stage:
    optimization, count = e.options.trainer.optimization, schedule.count
    last = _last(e, schedule)
    tidied = Remove((f"{e.dir}/cache.*",))
    steps: tuple[Step, ...] = (tidied,)
    judged: tuple[Job, ...] = ()
    out = e.model(last)
    if optimization.do_final_combination:
        judged = diagnostics(e, egs, last)
        combined = out
        steps = (Later(lambda: [_combine(e, egs, schedule, combined)]), tidied, Jobs(judged))
    elif e.am is None:
        out = e.model("final")
        steps = (Link(out, e.model(count).name), tidied)
    return Stage(count, "combining models", steps, (out,), (e.model(count),), proof=judged)


def _combine(e: Experiment, egs: EgsDir, schedule: Iterations, out: Path) -> Step:
    optimization = e.options.trainer.optimization
    numbers = models_to_combine(schedule, optimization.max_models_combine)
    models = tuple(e.model(number) for number in reversed(numbers))
    for model in models:
        if not is_file(model):
            raise DataError(f"{model} is missing: it is one of those to combine")
    examples = e.objective.diagnostic_examples(
        egs.path, "combine", e.objective.combination_sizes, egs.is_multitask
    )
    options = (
        f"--use-gpu={e.gpu_options}",
        f"--max-objective-evaluations={optimization.max_objective_evaluations}",
        "--verbose=3",
    )
    target = str(out)
    if e.is_acoustic:
        target = output_pipe(
            ("nnet3-am-copy", "--set-raw-nnet=-", str(e.model(schedule.count)), str(out))
        )
    words = e.objective.combine(options, tuple(map(str, models)), examples, target)
    return e.step("combine", words, out=out, wants_gpu=e.wants_gpu)


def _priors(e: Experiment, egs: EgsDir, schedule: Iterations) -> Stage:
    """The stage that computes mean outputs on training data; acoustic models get them as priors."""
    name = _last(e, schedule)
    vector = e.dir / f"post.{name}.vec"
    steps: list[Step] = [
        Remove((f"{e.dir}/post.{name}.*.vec",)),
        *_mean_output(e, egs, name, vector),
        Remove((f"{e.dir}/post.{name}.*.vec",)),
    ]
    out = vector
    if e.am is not None:
        out = e.model("final")
        words = ("nnet3-am-adjust-priors", str(e.model(name)), str(vector), str(out))
        steps.append(e.step("adjust_priors.final", words, out=out))
    return Stage(schedule.count + 1, "priors", tuple(steps), (out,), (e.model(name),))


def _mean_output(e: Experiment, egs: EgsDir, name: str | int, out: Path) -> list[Step]:
    t = e.options.trainer
    count = t.num_jobs_compute_prior
    # Kaldi's minibatch size is 128; a few examples may not fill a minibatch of that size.
    sizes = "1:128" if 0 < egs.egs_per_archive < _FEW else "128"
    vectors = [e.dir / f"post.{name}.{n}.vec" for n in range(1, count + 1)]
    jobs = []
    for n, vector in enumerate(vectors, start=1):
        part = 1 if count > egs.num_archives else n
        pipeline = (
            ("nnet3-copy-egs", f"ark:{egs.path}/egs.{part}.ark", "ark:-"),
            ("nnet3-subset-egs", f"--srand={n}", f"--n={t.prior_subset_size}", "ark:-", "ark:-"),
            ("nnet3-merge-egs", f"--minibatch-size={sizes}", "ark:-", "ark:-"),
            (
                "nnet3-compute-from-egs",
                f"--use-gpu={e.gpu_options}",
                "--apply-exp=true",
                str(e.model(name)),
                "ark:-",
                "ark:-",
            ),
            ("matrix-sum-rows", "ark:-", "ark:-"),
            ("vector-sum", "ark:-", str(vector)),
        )
        jobs.append(Job(e.log(f"get_post.{name}.{n}"), (pipeline,), f"train.{n}", e.wants_gpu))
    # A shell's order of file names; the order decides how sums are rounded.
    sums = ("vector-sum", *sorted(map(str, vectors)), str(out))
    return [Jobs(tuple(jobs), tuple(vectors)), e.step(f"vector_sum.{name}", sums, out=out)]


def tidying_steps(e: Experiment, schedule: Iterations) -> list[Step]:
    """Steps that remove the examples that this experiment made, and intermediate models."""
    run = e.options.run
    if not run.cleanup:
        return []
    steps: list[Step] = []
    ours = not e.options.egs.dir and not exists(e.egs_path / ".nodelete")
    if run.clean.remove_egs and ours:
        steps.append(Remove((f"{e.egs_path}/{e.objective.archive('*')}",)))
    interval = run.clean.preserve_model_interval
    models = [e.model(n) for n in range(schedule.count) if n % interval != 0]
    return [*steps, Remove(tuple(map(str, models)))]

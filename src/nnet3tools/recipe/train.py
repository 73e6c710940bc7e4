"""The body of all training programs: check, plan, choose a job runner, run all stages."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from nnet3tools.errors import OptionError, UserError
from nnet3tools.io import log
from nnet3tools.io.checked import exists
from nnet3tools.options import check_name, commands_are_refused
from nnet3tools.recipe.chain_egs import egs_making
from nnet3tools.recipe.chain_experiment import ChainExperiment
from nnet3tools.recipe.chain_options import ChainOptions
from nnet3tools.recipe.decoding_files import decoding_steps
from nnet3tools.recipe.driver import Driver, first_unfinished
from nnet3tools.recipe.egs_dir import EgsDir, open_egs_dir
from nnet3tools.recipe.experiment import Experiment
from nnet3tools.recipe.finishing import finishing_stages, tidying_steps
from nnet3tools.recipe.iterations import iteration_stages, schedule_of
from nnet3tools.recipe.jobs import JobRunner
from nnet3tools.recipe.options import DnnOptions, JobOptions, RnnOptions
from nnet3tools.recipe.path_options import check_paths
from nnet3tools.recipe.plan import Stage, WriteText, lines_at
from nnet3tools.recipe.preparation import (
    early_copies,
    egs_properties,
    stages_before_egs,
    stages_with_egs,
)
from nnet3tools.recipe.progress import Progress
from nnet3tools.recipe.record import RECORD, check_recorded, record_of, working_in, write_recorded
from nnet3tools.recipe.report.history import read_history
from nnet3tools.recipe.schedules import Iterations

_FROM_WHERE_IT_STOPPED = -1000
_SHARE_WITHOUT_REPORTS = 20.0
"""After a report is written, the next one waits for this many times the seconds that it took."""


def train(program: str, options: DnnOptions | RnnOptions | ChainOptions) -> None:
    """Run a training; `program` is the name of the training program.

    It begins with the stage --stage or, by default, with the stage after the last finished one.
    """
    if isinstance(options, ChainOptions):
        experiment: Experiment = ChainExperiment(program, options)
    else:
        experiment = Experiment(program, options)
    check_paths(options)
    experiment.check()
    with working_in(experiment.dir):
        _Training(experiment).run()


class _Training:
    """One run of a training program, which plans the stages and drives them."""

    def __init__(self, experiment: Experiment) -> None:
        self._e = experiment
        self._stage = experiment.options.run.stage
        self._resumes = self._stage == _FROM_WHERE_IT_STOPPED
        self._progress = Progress(experiment.log, experiment.options.trainer.num_epochs)
        self._next_report = 0.0
        self._num_together = 0
        """The most jobs of an iteration that average their models in memory."""
        if self._resumes and self._has_something():
            check_recorded(experiment.dir / RECORD, record_of(experiment))

    def run(self) -> None:
        """Run all stages of the training."""
        e = self._e
        before = stages_before_egs(e)
        if not e.options.egs.dir:
            making = egs_making(e)  # raises errors for missing inputs before anything runs
            if self._needs(before):
                making.check()
        decoding = decoding_steps(e)
        o = e.options.trainer.optimization
        most = max(o.num_jobs_initial, o.num_jobs_final)
        runner = make_runner(e.options.run, most, e.wants_gpu, e.options.egs.cmd)
        write_recorded(e.dir / RECORD, record_of(e))
        with contextlib.closing(runner):
            self._num_together = _most_together(e, most, runner.num_at_once)
            driver = Driver(runner, self._stage_ended, again=not self._resumes)
            driver.do([*early_copies(e), *decoding])
            if self._needs(before):
                self._run_stages(driver, before)
            egs = open_egs_dir(e)
            schedule = schedule_of(e, egs)
            driver.do(egs_properties(e))
            if isinstance(e, ChainExperiment) and not e.is_e2e:  # as only chain/train.py does
                driver.do([lines_at(e.dir / "num_iters", [schedule.count])])
            self._run_all(driver, egs, schedule)

    def _needs(self, before: list[Stage]) -> bool:
        """Whether any of the stages `before`, which end with the making of examples, must run."""
        if not self._resumes:
            return any(stage.number >= self._stage for stage in before)
        if self._has_model():
            return False
        return first_unfinished(before) < len(before)

    def _has_model(self) -> bool:
        """Whether the experiment's directory has a model of an earlier run."""
        e = self._e
        return any(e.dir.glob(e.model("[0-9]*").name)) or exists(e.model("final"))

    def _has_something(self) -> bool:
        """Whether the directory has models, examples or init.raw of an earlier run."""
        e = self._e
        results = (e.dir / "init.raw", e.dir / "egs" / "combine.egs")
        return self._has_model() or any(exists(path) for path in results)

    def _run_stages(self, driver: Driver, stages: list[Stage]) -> None:
        first = first_unfinished(stages) if self._resumes else 0
        if self._resumes and first:
            driver.tidy_after(stages[first - 1])
        for stage in stages[first:]:
            if self._resumes or stage.number >= self._stage:
                self._progress.begin(stage)
                driver.run(stage)

    def _run_all(self, driver: Driver, egs: EgsDir, schedule: Iterations) -> None:
        e = self._e
        stages = [
            *stages_with_egs(e, egs),
            *iteration_stages(e, egs, schedule, self._num_together),
            *finishing_stages(e, egs, schedule),
        ]
        log.log(
            f"Training will run for {e.options.trainer.num_epochs:g} epochs = {schedule.count} "
            "iterations"
        )
        exit_stage = e.options.run.exit_stage
        if exit_stage <= schedule.count:
            stages = [stage for stage in stages if stage.number < exit_stage]
        self._progress.schedule = schedule
        self._run_stages(driver, stages)
        if exit_stage <= schedule.count:
            log.log(f"Exiting early due to --exit-stage {exit_stage}")
            return
        driver.do(tidying_steps(e, schedule))
        _write_report(e.dir)
        # Only Kaldi's train_raw_dnn.py puts the name of the output into the name of the file.
        is_raw_dnn = e.raw is not None and not e.has_chunks
        name = f"accuracy{'.output' if is_raw_dnn else ''}.report"
        table = read_history(e.dir).accuracy_table(e.objective.reported_quantity)
        WriteText(e.dir / name, table).do()
        log.log(f"Trained {e.model('final')}")

    def _stage_ended(self, stage: Stage) -> None:
        self._progress.end(stage)
        if stage.iteration is not None and time.monotonic() >= self._next_report:
            began = time.monotonic()
            _write_report(self._e.dir)
            ended = time.monotonic()
            self._next_report = ended + _SHARE_WITHOUT_REPORTS * (ended - began)


def make_runner(
    run: JobOptions, most_jobs: int, wants_gpu: bool = False, egs_cmd: str = ""
) -> JobRunner:
    """Make the job runner that the options choose: this machine, a command (--cmd), or Slurm.

    On this machine, `most_jobs` jobs run at once, and one more for diagnostics; `wants_gpu`: each
    on a GPU. `egs_cmd`, if not "", is used instead of --cmd for jobs that make examples.
    """
    if commands_are_refused():
        raise OptionError("--no-commands: a training starts programs in pipes of a shell")
    executor = run.executor or ("cmd" if run.cmd else "local")
    if executor == "cmd":
        from nnet3tools.recipe.submitted import CommandRunner

        return CommandRunner(run.cmd, egs_cmd)
    if executor == "slurm":
        from nnet3tools.recipe.slurm import SlurmRunner

        return SlurmRunner(run.slurm_opts, run.slurm_gpu_opts)
    if executor != "local":
        raise OptionError(f"--executor={executor}: expected local, cmd or slurm")
    from nnet3tools.recipe.local import LocalRunner, this_machine

    machine = this_machine(run.num_jobs, most_jobs, wants_gpu, run.num_gpus)
    return LocalRunner(machine, run.hang_timeout)


def _most_together(e: Experiment, most_jobs: int, num_at_once: int) -> int:
    """The number of jobs of an iteration that may average their models in memory; 0 if none may.

    An iteration has up to `most_jobs` jobs; `num_at_once` run together. OptionError if impossible.
    """
    choice = e.options.run.average_in_memory
    interval = e.options.trainer.optimization.average_interval
    check_name("--average-in-memory", choice, ("yes", "no", "auto"))
    if choice == "auto" and e.wants_gpu and 1 < num_at_once >= most_jobs:
        choice = "yes"
    if choice != "yes":
        if interval:
            raise OptionError(
                f"--trainer.optimization.average-interval={interval}: expected "
                "--average-in-memory=yes"
            )
        return 0
    if e.gpu_options == "optional":
        raise OptionError("--average-in-memory=yes: expected --use-gpu=yes, wait or no")
    if num_at_once < most_jobs:
        raise OptionError(
            f"--average-in-memory=yes: {most_jobs} jobs must run at once on this machine, which "
            f"runs {num_at_once} (--num-jobs, --num-gpus)"
        )
    return num_at_once


def _write_report(folder: Path) -> None:
    """Write report.html of a training directory."""
    from nnet3tools.recipe.report import write_report

    try:
        write_report(folder)
    except (OSError, UserError) as error:
        log.warning(f"no report: {error}")

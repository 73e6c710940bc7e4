"""An experiment: the options of any training program in one form, and its directories."""

from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path

from nnet3tools.errors import DataError, OptionError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.recipe.data_dir import DataDir, number_of_jobs
from nnet3tools.recipe.jobs import Job
from nnet3tools.recipe.network_source import Contexts, NetworkSource
from nnet3tools.recipe.objective import Objective
from nnet3tools.recipe.options import (
    AlignmentOptions,
    ChunkEgsOptions,
    DnnOptions,
    RawTargetOptions,
    RnnOptions,
)
from nnet3tools.recipe.plan import Jobs
from nnet3tools.recipe.schedules import chunk_widths, parse_dropout_schedule
from nnet3tools.training.minibatch_rules import MinibatchRules


@dataclass(frozen=True)
class Experiment:
    """The training program's name, its options and its directories."""

    program: str
    options: DnnOptions | RnnOptions

    # -- what kind it is

    @property
    def am(self) -> AlignmentOptions | None:
        """The alignment options; None for chain models and models without transition model."""
        return getattr(self.options, "am", None)

    @property
    def raw(self) -> RawTargetOptions | None:
        """The target options of networks without a transition model; None for other models."""
        return getattr(self.options, "raw", None)

    @property
    def has_chunks(self) -> bool:
        """Whether examples are chunks of frames, as recurrent and chain models need them."""
        return isinstance(self.options.egs, ChunkEgsOptions)

    @cached_property
    def objective(self) -> Objective:
        """Names and options of the training programs; OptionError for malformed options."""
        o = self.options
        if isinstance(o, RnnOptions):
            size = o.trainer.rnn.num_chunk_per_minibatch
            return Objective(size, f"1:{size}", passes_per_archive=1)
        size = o.trainer.optimization.minibatch_size
        return Objective(size, f"1:{size}", o.egs.frames_per_eg, "--frame")

    @property
    def frames_per_eg(self) -> str:
        """The number of labels of an example, as text; several numbers if lengths vary."""
        egs = self.options.egs
        return egs.chunk_width if isinstance(egs, ChunkEgsOptions) else str(egs.frames_per_eg)

    # -- files

    @property
    def dir(self) -> Path:
        """The experiment's directory."""
        return Path(self.options.run.dir)

    @property
    def data(self) -> DataDir:
        """The data directory; OptionError if there is none."""
        if not self.options.feat_dir:
            raise OptionError("option --feat-dir is required, unless there is --egs.dir")
        return DataDir(Path(self.options.feat_dir))

    @property
    def tree_dir(self) -> Path | None:
        """The directory of tree, transition model, alignments; None for models without these."""
        return None if self.am is None else Path(self.am.ali_dir)

    def num_ali_jobs(self) -> int:
        """The number of files of alignments, or of graphs, in `tree_dir`."""
        assert self.tree_dir is not None
        return number_of_jobs(self.tree_dir)

    @property
    def is_acoustic(self) -> bool:
        """Whether the models are acoustic models, which contain a transition model."""
        return self.tree_dir is not None

    def model(self, number: int | str) -> Path:
        """The path of the model `number`, which may also be "final" or "combined"."""
        return self.dir / f"{number}.{'mdl' if self.is_acoustic else 'raw'}"

    @property
    def egs_path(self) -> Path:
        """The path of the directory of examples."""
        return Path(self.options.egs.dir) if self.options.egs.dir else self.dir / "egs"

    def log(self, name: str) -> str:
        """The path of the log file `name`."""
        return f"{self.dir}/log/{name}.log"

    def step(
        self, log: str, *programs: tuple[str, ...], out: Path, wants_gpu: bool = False
    ) -> Jobs:
        """A step of one job: the pipeline `programs`, which writes `out` and the log `log`."""
        return Jobs((Job(self.log(log), (programs,), "train.1", wants_gpu),), (out,))

    # -- options of programs

    @property
    def gpu_options(self) -> str:
        """The value of --use-gpu for programs that compute with the network, such as "wait"."""
        old = {"true": "yes", "false": "no"}
        return old.get(self.options.run.use_gpu, self.options.run.use_gpu)

    @property
    def wants_gpu(self) -> bool:
        """Whether training jobs use a GPU."""
        return self.gpu_options in ("yes", "wait")

    @cached_property
    def network(self) -> NetworkSource:
        """The source of the network: config files or --trainer.input-model."""
        return NetworkSource(self.dir, self.options.trainer.input_model)

    @property
    def has_init_config(self) -> bool:
        """Whether an LDA-like transform is estimated before model 0."""
        return self.network.has_init_config

    def contexts(self) -> Contexts:
        """The frames of input context that examples have around their labels."""
        extra = self.objective.extra_context
        left, right = (side + extra for side in self.network.contexts)
        egs = self.options.egs
        if not isinstance(egs, ChunkEgsOptions):
            return Contexts(left, right)
        first, last = egs.chunk_left_context_initial, egs.chunk_right_context_final
        return Contexts(
            left + egs.chunk_left_context,
            right + egs.chunk_right_context,
            left + first if first >= 0 else -1,
            right + last if last >= 0 else -1,
        )

    def deriv_time_words(self) -> tuple[str, ...]:
        """Command-line words that limit how far back in time derivatives are computed."""
        margin = getattr(self.options.trainer, "deriv_truncate_margin", -1)
        if margin < 0:
            return ()
        left, right = self.network.contexts
        return (
            f"--optimization.min-deriv-time={-margin - left}",
            f"--optimization.max-deriv-time-relative={margin + right}",
        )

    # -- checks

    def check(self) -> None:
        """Raise OptionError or DataError for mistakes that can be found before jobs run."""
        if not self.options.run.dir:
            raise OptionError("option --dir is required")
        if not self.dir.is_dir():
            raise DataError(f"--dir={self.dir}: there is no such directory")
        self._check_given()
        self.network.check()
        try:
            MinibatchRules(self.objective.minibatch_size)
        except OptionError as error:
            chunks = self.has_chunks
            name = "rnn.num-chunk-per-minibatch" if chunks else "optimization.minibatch-size"
            raise OptionError(f"--trainer.{name}: {error}") from None
        chunk_widths(self.frames_per_eg)
        self._check_numbers()

    def _check_given(self) -> None:
        """OptionError if a directory option that this kind of training needs is missing."""
        if self.am is not None and not self.am.ali_dir:
            raise OptionError("option --ali-dir is required")

    def _check_numbers(self) -> None:
        """OptionError if a schedule is malformed or a number is out of range."""
        trainer, clean = self.options.trainer, self.options.run.clean
        optimization = trainer.optimization
        parse_dropout_schedule(trainer.dropout_schedule)
        for name, value, least in (
            ("trainer.num-epochs", trainer.num_epochs, 0.0),
            ("trainer.samples-per-iter", trainer.samples_per_iter, 1),
            ("trainer.optimization.num-jobs-initial", optimization.num_jobs_initial, 1),
            ("trainer.optimization.num-jobs-final", optimization.num_jobs_final, 1),
            ("trainer.optimization.num-jobs-step", optimization.num_jobs_step, 1),
            ("trainer.optimization.max-models-combine", optimization.max_models_combine, 1),
            ("cleanup.preserve-model-interval", clean.preserve_model_interval, 1),
            ("trainer.num-jobs-compute-prior", trainer.num_jobs_compute_prior, 1),
        ):
            if value < least:
                raise OptionError(f"--{name}={value:g}: expected at least {least:g}")
        for name, rate in (
            ("initial", optimization.initial_effective_lrate),
            ("final", optimization.final_effective_lrate),
        ):
            if not rate > 0.0 or not math.isfinite(rate):
                raise OptionError(
                    f"--trainer.optimization.{name}-effective-lrate={rate:g}: expected a positive "
                    "number"
                )

"""An experiment: the options of any training program in one form, and its directories."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from nnet3tools.errors import DataError, OptionError
from nnet3tools.recipe.data_dir import DataDir, number_in
from nnet3tools.recipe.egs import EgsMaking
from nnet3tools.recipe.egs_dir import EgsDir, ExpectedEgs, open_egs_dir
from nnet3tools.recipe.egs_parts import (
    AlignedTargets,
    Contexts,
    GivenTargets,
    parse_egs_opts,
)
from nnet3tools.recipe.frame_targets import aligned_targets, given_targets
from nnet3tools.recipe.jobs import Job
from nnet3tools.recipe.network_source import NetworkSource
from nnet3tools.recipe.objective import ExampleNames, FrameObjective, Objective
from nnet3tools.recipe.option_checks import check_minibatch_size, check_trainer
from nnet3tools.recipe.options import (
    AlignmentOptions,
    ChunkEgsOptions,
    DnnOptions,
    ImageOptions,
    RawTargetOptions,
    RnnOptions,
)
from nnet3tools.recipe.plan import Jobs
from nnet3tools.recipe.schedules import Iterations, chunk_widths


@dataclass(frozen=True)
class Experiment:
    """A run of a training program, whose commands for models `objective` builds."""

    program: str
    options: DnnOptions | RnnOptions
    objective: Objective = field(default_factory=FrameObjective)

    # -- what kind it is

    @property
    def am(self) -> AlignmentOptions | None:
        """The options of alignments; None if the models are plain networks."""
        return getattr(self.options, "am", None)

    @property
    def raw(self) -> RawTargetOptions | None:
        """The options of targets; None if the models have transitions."""
        return getattr(self.options, "raw", None)

    @property
    def image(self) -> ImageOptions:
        """Options of random changes to images."""
        return getattr(self.options, "image", None) or ImageOptions()

    @property
    def has_chunks(self) -> bool:
        """Whether examples are chunks of frames, as recurrent and chain models need them."""
        return isinstance(self.options.egs, ChunkEgsOptions)

    @property
    def dir(self) -> Path:
        """The experiment's directory."""
        return Path(self.options.run.dir)

    @property
    def is_acoustic(self) -> bool:
        """Whether models have a transition model."""
        return self.am is not None

    @property
    def names(self) -> ExampleNames:
        """The names of example files and of the programs for examples."""
        return self.objective.names

    @property
    def suffix(self) -> str:
        """The suffix of the names of model files."""
        return "mdl" if self.is_acoustic else "raw"

    def model(self, number: int | str) -> Path:
        """The path of the model of an iteration, or of "final" or "combined"."""
        return self.dir / f"{number}.{self.suffix}"

    def log(self, name: str) -> str:
        """The path of the log file `name`."""
        return f"{self.dir}/log/{name}.log"

    def step(
        self, log: str, *programs: tuple[str, ...], out: Path, wants_gpu: bool = False
    ) -> Jobs:
        """A step of one job: a pipeline of programs, logged as `log`, that writes file `out`."""
        return Jobs((Job(self.log(log), (programs,), "train.1", wants_gpu),), (out,))

    @property
    def minibatch_size(self) -> str:
        """The value of --minibatch-size for training jobs."""
        o = self.options
        if isinstance(o, RnnOptions):
            return o.trainer.rnn.num_chunk_per_minibatch
        return o.trainer.optimization.minibatch_size

    @property
    def frames_per_eg(self) -> str:
        """The number of labels of an example, as text; several numbers if lengths vary."""
        o = self.options
        return o.egs.chunk_width if isinstance(o, RnnOptions) else str(o.egs.frames_per_eg)

    @property
    def passes_per_archive(self) -> int:
        """How often an epoch reads each archive: once, or once per frame of its examples."""
        return 1 if isinstance(self.options, RnnOptions) else self.options.egs.frames_per_eg

    @property
    def has_shifts(self) -> bool:
        """Whether each pass over an archive uses another frame of its examples."""
        return not isinstance(self.options, RnnOptions)

    @property
    def reported_quantity(self) -> str:
        """The quantity ("accuracies" or other) that accuracy.report shows."""
        return "accuracies"

    @property
    def combination_sizes(self) -> str:
        """The value of --minibatch-size for combining models."""
        return f"1:{self.minibatch_size}"

    def backstitch_scale(self, iteration: int) -> float:
        """The backstitch scale of an iteration."""
        return self.options.trainer.optimization.backstitch_training_scale

    @property
    def gpu_options(self) -> str:
        """The option --use-gpu for the programs that compute."""
        old = {"true": "yes", "false": "no"}
        return old.get(self.options.run.use_gpu, self.options.run.use_gpu)

    @property
    def wants_gpu(self) -> bool:
        """Whether training jobs use a GPU."""
        return self.gpu_options in ("yes", "wait")

    # -- checks

    def check(self) -> None:
        """OptionError or DataError for mistakes that can be found before any job runs."""
        o = self.options
        if not o.run.dir:
            raise OptionError("option --dir is required")
        if not self.dir.is_dir():
            raise DataError(f"--dir={self.dir}: there is no such directory")
        self._check_given()
        self.network.check()
        named = "rnn.num-chunk-per-minibatch" if self.has_chunks else "optimization.minibatch-size"
        check_minibatch_size(named, self.minibatch_size)
        chunk_widths(self.frames_per_eg)
        check_trainer(o.trainer, o.trainer.optimization, o.run.clean)

    def _check_given(self) -> None:
        """OptionError if a directory is missing that this kind of training needs."""
        if self.am is not None and not self.am.ali_dir:
            raise OptionError("option --ali-dir is required")

    # -- the network

    @property
    def network(self) -> NetworkSource:
        """The source of the network: config files or --trainer.input-model."""
        return NetworkSource(self.dir, self.options.trainer.input_model)

    def contexts(self) -> Contexts:
        """The frames of input context that examples have around their labels."""
        left, right = self.network.contexts()
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
        """The command-line words that limit how far back derivatives are computed."""
        margin = getattr(self.options.trainer, "deriv_truncate_margin", -1)
        if margin < 0:
            return ()
        left, right = self.network.contexts()
        return (
            f"--optimization.min-deriv-time={-margin - left}",
            f"--optimization.max-deriv-time-relative={margin + right}",
        )

    @property
    def has_init_config(self) -> bool:
        """Whether an LDA-like transform is estimated before model 0."""
        return self.network.has_init_config

    # -- examples

    @property
    def egs_path(self) -> Path:
        """The path of the directory of examples."""
        return Path(self.options.egs.dir) if self.options.egs.dir else self.dir / "egs"

    def egs_making(self) -> EgsMaking:
        """The plan of making examples; OptionError or DataError if an input of it is missing."""
        o = self.options
        if not o.feat_dir:
            raise OptionError("option --feat-dir is required, unless there is --egs.dir")
        data = DataDir(Path(o.feat_dir))
        return EgsMaking(
            data,
            self._targets(),
            self.egs_path,
            self.contexts(),
            self.frames_per_eg,
            o.trainer.samples_per_iter,
            o.trainer.srand,
            o.feat.cmvn_opts,
            o.feat.online_ivector_dir,
            parse_egs_opts(o.egs.opts),
        )

    def _targets(self) -> GivenTargets | AlignedTargets:
        if self.am is not None:
            return aligned_targets(Path(self.am.ali_dir), self.num_ali_jobs(), self.network)
        assert self.raw is not None
        return given_targets(self.raw, self.network)

    def num_ali_jobs(self) -> int:
        """The number of files of alignments in the alignments' directory."""
        assert self.am is not None
        return number_in(Path(self.am.ali_dir) / "num_jobs")

    def egs_dir(self) -> EgsDir:
        """The facts about the existing examples; DataError if they do not fit this experiment."""
        expected = ExpectedEgs(
            self.names,
            self.contexts(),
            self.frames_per_eg,
            "chunk-width" if self.has_chunks else "frames-per-eg",
            self.options.feat_dir,
            self.options.feat.online_ivector_dir,
        )
        return open_egs_dir(self.egs_path, expected)

    def most_jobs(self, egs: EgsDir) -> int:
        """The largest number of jobs that can train at once."""
        return egs.num_archives

    def iterations(self, egs: EgsDir) -> Iterations:
        """The schedule; OptionError if it has no iteration, or more jobs than archives."""
        optimization = self.options.trainer.optimization
        most = max(optimization.num_jobs_initial, optimization.num_jobs_final)
        if most > self.most_jobs(egs):
            raise OptionError(
                f"--trainer.optimization.num-jobs-final={most} is more than the "
                f"{egs.num_archives} archives in {egs.path}"
            )
        iterations = Iterations(
            egs.num_archives,
            self.passes_per_archive,
            self.options.trainer.num_epochs,
            optimization.num_jobs_initial,
            optimization.num_jobs_final,
            optimization.num_jobs_step,
            optimization.initial_effective_lrate,
            optimization.final_effective_lrate,
        )
        if iterations.count < 1:
            raise OptionError(
                f"--trainer.num-epochs={self.options.trainer.num_epochs:g} makes no iteration of "
                f"{egs.num_archives} archives"
            )
        return iterations

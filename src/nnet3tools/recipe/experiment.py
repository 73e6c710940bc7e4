"""An experiment: what the options of any of the programs say, in one form, and its directories."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from nnet3tools.errors import DataError, OptionError
from nnet3tools.recipe.data_dir import DataDir, first_matrix_dim, number_in, read_lines
from nnet3tools.recipe.egs import EgsMaking
from nnet3tools.recipe.egs_dir import EgsDir, ExpectedEgs, open_egs_dir
from nnet3tools.recipe.egs_parts import (
    AlignedTargets,
    Contexts,
    GivenTargets,
    parse_egs_opts,
)
from nnet3tools.recipe.objective import ExampleNames, FrameObjective, Objective
from nnet3tools.recipe.option_checks import check_minibatch_size, check_trainer
from nnet3tools.recipe.options import (
    AlignmentOptions,
    DnnOptions,
    ImageOptions,
    RawTargetOptions,
    RnnOptions,
)
from nnet3tools.recipe.schedules import Iterations, chunk_widths

__all__ = ["Experiment", "Recurrence"]


@dataclass(frozen=True)
class Recurrence:
    """What only recurrent networks have."""

    chunk_left_context: int
    chunk_right_context: int
    chunk_left_context_initial: int
    chunk_right_context_final: int
    shrink_value: float
    shrink_saturation_threshold: float
    deriv_truncate_margin: int


@dataclass(frozen=True)
class Experiment:
    """One run of a training program; `objective` says which programs train and judge."""

    program: str
    options: DnnOptions | RnnOptions
    objective: Objective = field(default_factory=FrameObjective)

    # -- what kind it is

    @property
    def am(self) -> AlignmentOptions | None:
        """Where alignments are, if the models are acoustic ones, with transitions."""
        return getattr(self.options, "am", None)

    @property
    def raw(self) -> RawTargetOptions | None:
        """Where targets are, if the models are plain networks."""
        return getattr(self.options, "raw", None)

    @property
    def image(self) -> ImageOptions:
        """How images are varied."""
        return getattr(self.options, "image", None) or ImageOptions()

    @property
    def recurrence(self) -> Recurrence | None:
        """What a recurrent network has besides."""
        o = self.options
        if not isinstance(o, RnnOptions):
            return None
        return Recurrence(
            o.egs.chunk_left_context,
            o.egs.chunk_right_context,
            o.egs.chunk_left_context_initial,
            o.egs.chunk_right_context_final,
            o.trainer.optimization.shrink_value,
            o.trainer.optimization.shrink_saturation_threshold,
            o.trainer.deriv_truncate_margin,
        )

    @property
    def dir(self) -> Path:
        """Its directory."""
        return Path(self.options.run.dir)

    @property
    def is_acoustic(self) -> bool:
        """Whether models have a transition model."""
        return self.am is not None

    @property
    def names(self) -> ExampleNames:
        """Of files of examples."""
        return self.objective.names

    @property
    def suffix(self) -> str:
        """Of the names of models."""
        return "mdl" if self.is_acoustic else "raw"

    def model(self, number: int | str) -> Path:
        """The model of an iteration, or "final" or "combined"."""
        return self.dir / f"{number}.{self.suffix}"

    def log(self, name: str) -> str:
        """A log file's path."""
        return f"{self.dir}/log/{name}.log"

    @property
    def minibatch_size(self) -> str:
        """The rule of minibatch sizes."""
        o = self.options
        if isinstance(o, RnnOptions):
            return o.trainer.rnn.num_chunk_per_minibatch
        return o.trainer.optimization.minibatch_size

    @property
    def frames_per_eg(self) -> str:
        """Labels of an example, perhaps several numbers."""
        o = self.options
        return o.egs.chunk_width if isinstance(o, RnnOptions) else str(o.egs.frames_per_eg)

    @property
    def passes_per_archive(self) -> int:
        """How often an archive is used in an epoch: once for each of its frames, or once."""
        return 1 if isinstance(self.options, RnnOptions) else self.options.egs.frames_per_eg

    @property
    def has_shifts(self) -> bool:
        """Whether each pass over an archive takes its examples at another frame."""
        return not isinstance(self.options, RnnOptions)

    @property
    def reported_quantity(self) -> str:
        """What the report at the end shows of each iteration."""
        return "accuracies"

    @property
    def combination_sizes(self) -> str:
        """The rule of minibatch sizes when models are combined."""
        return f"1:{self.minibatch_size}"

    def backstitch_scale(self, iteration: int) -> float:
        """Of an iteration's training."""
        return self.options.trainer.optimization.backstitch_training_scale

    @property
    def gpu_options(self) -> str:
        """--use-gpu as the programs have it."""
        old = {"true": "yes", "false": "no"}
        return old.get(self.options.run.use_gpu, self.options.run.use_gpu)

    @property
    def wants_gpu(self) -> bool:
        """Whether jobs of training are to be given a GPU."""
        return self.gpu_options in ("yes", "wait")

    # -- checks

    def check(self) -> None:
        """OptionError or DataError for what can be seen to be wrong before anything runs."""
        o = self.options
        if not o.run.dir:
            raise OptionError("option --dir is required")
        if not self.dir.is_dir():
            raise DataError(f"--dir={self.dir}: there is no such directory")
        self._check_given()
        model, configs = o.trainer.input_model, self.dir / "configs"
        if model and not os.path.isfile(model):
            raise DataError(f"--trainer.input-model={model}: there is no such file")
        if not model and not (configs / "final.config").is_file():
            raise DataError(
                f"there is no '{configs}/final.config' (nnet3-xconfig-to-configs makes it), and no "
                "--trainer.input-model"
            )
        named = "rnn.num-chunk-per-minibatch" if self.recurrence else "optimization.minibatch-size"
        check_minibatch_size(named, self.minibatch_size)
        chunk_widths(self.frames_per_eg)
        check_trainer(o.trainer, o.trainer.optimization, o.run.clean)

    def _check_given(self) -> None:
        """OptionError for a directory that this kind of training cannot do without."""
        if self.am is not None and not self.am.ali_dir:
            raise OptionError("option --ali-dir is required")

    def check_targets(self, num_targets: int, source: str) -> None:
        """DataError if the network's output is not that of the targets, as far as can be seen."""
        reference = self.dir / "configs" / "ref.raw"
        if not reference.is_file() or self.options.trainer.input_model:
            return
        from nnet3tools.nnet.model_file import read_nnet

        nnet = read_nnet(str(reference))
        node = nnet.node_index("output")
        if node >= 0 and (dim := nnet.output_dim("output")) != num_targets:
            raise DataError(
                f"{self.dir}/configs: the network's output has dimension {dim}, but {source} has "
                f"{num_targets} targets"
            )

    # -- the network

    def variables(self) -> dict[str, str]:
        """configs/vars, or the same of --trainer.input-model."""
        if model := self.options.trainer.input_model:
            from nnet3tools.graph.context import compute_simple_nnet_context
            from nnet3tools.nnet.model_file import read_nnet

            context = compute_simple_nnet_context(read_nnet(model))
            return {
                "model_left_context": str(context.left),
                "model_right_context": str(context.right),
            }
        found = {}
        path = self.dir / "configs" / "vars"
        for number, line in enumerate(read_lines(path), start=1):
            name, equals, value = line.partition("=")
            if not equals:
                raise DataError(f"{path}: line {number}: expected name=value, found '{line[:60]}'")
            found[name.strip()] = value.strip()
        return found

    def model_contexts(self) -> tuple[int, int]:
        """Left and right context of the network."""
        variables = self.variables()
        path = self.dir / "configs" / "vars"
        found = []
        for side in ("left", "right"):
            value = variables.get(f"model_{side}_context", variables.get(f"{side}_context", ""))
            if not value.lstrip("-").isdecimal():
                raise DataError(f"{path}: expected model_{side}_context=<number>, found '{value}'")
            found.append(int(value))
        return found[0], found[1]

    def contexts(self) -> Contexts:
        """Frames of input of examples around their labels."""
        left, right = self.model_contexts()
        r = self.recurrence
        if r is None:
            return Contexts(left, right)
        first, last = r.chunk_left_context_initial, r.chunk_right_context_final
        return Contexts(
            left + r.chunk_left_context,
            right + r.chunk_right_context,
            left + first if first >= 0 else -1,
            right + last if last >= 0 else -1,
        )

    def deriv_time_words(self) -> tuple[str, ...]:
        """Options that limit how far derivatives go back."""
        r = self.recurrence
        if r is None or r.deriv_truncate_margin < 0:
            return ()
        left, right = self.model_contexts()
        return (
            f"--optimization.min-deriv-time={-r.deriv_truncate_margin - left}",
            f"--optimization.max-deriv-time-relative={r.deriv_truncate_margin + right}",
        )

    @property
    def has_init_config(self) -> bool:
        """Whether there is an LDA-like transform to estimate."""
        is_new = not self.options.trainer.input_model
        return is_new and (self.dir / "configs" / "init.config").is_file()

    # -- examples

    @property
    def egs_path(self) -> Path:
        """The directory of examples."""
        return Path(self.options.egs.dir) if self.options.egs.dir else self.dir / "egs"

    def egs_making(self) -> EgsMaking:
        """How to make examples; OptionError or DataError if something for it is missing."""
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
            return self._aligned(Path(self.am.ali_dir))
        assert self.raw is not None
        if not self.raw.targets_scp:
            raise OptionError("option --targets-scp is required, unless there is --egs.dir")
        script = Path(self.raw.targets_scp)
        text = self.variables().get("num_targets", "")
        if text and not text.isdecimal():
            raise DataError(f"{self.dir}/configs/vars: num_targets={text}: expected a number")
        if not self.raw.use_dense_targets:
            if not text:
                raise DataError(f"{self.dir}/configs/vars: expected num_targets=<number>")
            self.check_targets(int(text), f"{self.dir}/configs/vars")
            return GivenTargets(script, False, int(text))
        dim = first_matrix_dim(script)
        if text and int(text) != dim:
            raise DataError(
                f"{script}: targets have dimension {dim}, but {self.dir}/configs/vars says "
                f"num_targets={text}"
            )
        self.check_targets(dim, str(script))
        return GivenTargets(script, True, dim)

    def _aligned(self, ali_dir: Path) -> AlignedTargets:
        num_jobs = self.num_ali_jobs()
        for name in ("final.mdl", "tree", *(f"ali.{n + 1}.gz" for n in range(num_jobs))):
            if not (ali_dir / name).is_file():
                raise DataError(f"--ali-dir={ali_dir}: there is no file '{ali_dir / name}'")
        from nnet3tools.io.files import open_input
        from nnet3tools.nnet.hmm.tree import ContextDependency

        with open_input(str(ali_dir / "tree")) as reader:
            tree = ContextDependency.read(reader)
        self.check_targets(tree.num_pdfs, f"{ali_dir}/tree")
        return AlignedTargets(ali_dir, tree.num_pdfs, num_jobs)

    def num_ali_jobs(self) -> int:
        """Number of files of alignments."""
        assert self.am is not None
        return number_in(Path(self.am.ali_dir) / "num_jobs")

    def egs_dir(self) -> EgsDir:
        """The examples that are there; DataError if they do not fit this experiment."""
        expected = ExpectedEgs(
            self.names,
            self.contexts(),
            self.frames_per_eg,
            "chunk-width" if self.recurrence else "frames-per-eg",
            self.options.feat_dir,
            self.options.feat.online_ivector_dir,
        )
        return open_egs_dir(self.egs_path, expected)

    def most_jobs(self, egs: EgsDir) -> int:
        """How many jobs may train at once."""
        return egs.num_archives

    def iterations(self, egs: EgsDir) -> Iterations:
        """The schedule; OptionError for too few archives for its jobs, or no iteration."""
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

"""An experiment of chain training, where it differs from training on targets of frames."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from nnet3tools.errors import DataError, OptionError
from nnet3tools.nnet.hmm.tree import ContextDependency
from nnet3tools.recipe.chain_egs import (
    ChainEgsMaking,
    ChainEgsOpts,
    E2eEgsOpts,
    SupervisionOptions,
    SupervisionSource,
    TrainingGraphs,
)
from nnet3tools.recipe.chain_objective import ChainObjective
from nnet3tools.recipe.chain_options import ChainOptions, E2eOptions, LatticeChainOptions
from nnet3tools.recipe.data_dir import DataDir, number_in, read_lines
from nnet3tools.recipe.egs_dir import EgsDir
from nnet3tools.recipe.egs_parts import Contexts, parse_egs_opts
from nnet3tools.recipe.experiment import Experiment

_BACKSTITCH_ITERATIONS = 15
"""Iterations until backstitch has its full scale."""


@dataclass(frozen=True)
class ChainExperiment(Experiment):
    """A run of nnet3-train-chain or nnet3-train-chain-e2e."""

    options: ChainOptions  # type: ignore[assignment]

    # -- what kind it is

    @property
    def tree_dir(self) -> Path:
        """The directory of the tree and its transition model."""
        return Path(self.options.tree_dir)

    @property
    def is_e2e(self) -> bool:
        """Whether training begins without alignments."""
        return isinstance(self.options, E2eOptions)

    @property
    def is_acoustic(self) -> bool:
        """True: chain models have transitions."""
        return True

    @property
    def minibatch_size(self) -> str:
        """The value of --minibatch-size for training jobs."""
        return self.options.trainer.num_chunk_per_minibatch

    @property
    def reported_quantity(self) -> str:
        """Always "plain_objectives", as in Kaldi: chain models have no accuracies."""
        return "plain_objectives"

    @property
    def combination_sizes(self) -> str:
        """The value of --minibatch-size for combining models."""
        return "1:64" if self.is_e2e else self.minibatch_size

    @property
    def frames_per_eg(self) -> str:
        """Frames of a chunk, as text; end to end, the allowed lengths of utterances."""
        if not self.is_e2e:
            return self.options.egs.chunk_width
        if not self.options.feat_dir:
            return ",".join(read_lines(self.egs_path / "info" / "frames_per_eg"))
        lengths = DataDir(Path(self.options.feat_dir)).lines("allowed_lengths.txt")
        return ",".join(line.strip() for line in lengths if line.strip())

    @property
    def passes_per_archive(self) -> int:
        """Passes over an archive in an epoch: one for each shift of frames."""
        return self.options.chain.frame_subsampling_factor

    @property
    def has_shifts(self) -> bool:
        """True: each pass shifts examples by another number of frames."""
        return True

    def backstitch_scale(self, iteration: int) -> float:
        """The backstitch scale of an iteration; it grows in the first iterations."""
        scale = self.options.trainer.optimization.backstitch_training_scale
        growing = iteration < _BACKSTITCH_ITERATIONS
        return scale * iteration / _BACKSTITCH_ITERATIONS if growing else scale

    def most_jobs(self, egs: EgsDir) -> int:
        """The largest number of jobs that can train at once: archives times shifts."""
        return egs.num_archives * self.passes_per_archive

    @property
    def has_init_config(self) -> bool:
        """Whether an LDA-like transform is estimated before model 0; never end to end."""
        return not self.is_e2e and super().has_init_config

    def contexts(self) -> Contexts:
        """The context frames of examples: the network's and half an output frame for shifts."""
        extra = self.options.chain.frame_subsampling_factor // 2
        found = super().contexts()
        first, last = found.left_initial, found.right_final
        return Contexts(
            found.left + extra,
            found.right + extra,
            first + extra if first >= 0 else -1,
            last + extra if last >= 0 else -1,
        )

    # -- checks

    def _check_given(self) -> None:
        if not self.options.tree_dir:
            raise OptionError("option --tree-dir is required")
        names = ["final.mdl", "tree"]
        if self.is_e2e:
            names += ["0.trans_mdl", "phone_lm.fst"]
        for name in names:
            if not (self.tree_dir / name).is_file():
                raise DataError(f"--tree-dir={self.tree_dir}: there is no file '{name}' in it")
        if self.options.chain.frame_subsampling_factor < 1:
            raise OptionError("--chain.frame-subsampling-factor: expected at least 1")
        if self.options.trainer.frames_per_iter < 1:
            raise OptionError("--trainer.frames-per-iter: expected at least 1")

    def _check_pdfs(self) -> None:
        tree = self.tree_dir / "tree"
        self.network.check_targets(ContextDependency.load(str(tree)).num_pdfs, str(tree))

    # -- examples

    def num_ali_jobs(self) -> int:
        """The number of files of alignments or graphs in the tree's directory."""
        return number_in(self.tree_dir / "num_jobs")

    def egs_making(self) -> ChainEgsMaking:
        """The plan of making examples; OptionError or DataError if an input of it is missing."""
        o = self.options
        if not o.feat_dir:
            raise OptionError("option --feat-dir is required, unless there is --egs.dir")
        self._check_pdfs()
        opts = parse_egs_opts(o.egs.opts, E2eEgsOpts if self.is_e2e else ChainEgsOpts)
        return ChainEgsMaking(
            DataDir(Path(o.feat_dir)),
            self._supervision(opts),
            self.egs_path,
            self.contexts(),
            self.frames_per_eg,
            o.trainer.frames_per_iter,
            o.trainer.srand,
            o.feat.cmvn_opts,
            o.feat.online_ivector_dir,
            opts,
            experiment=self.dir,
            frame_subsampling_factor=o.chain.frame_subsampling_factor,
            given_parts=o.egs.nj if isinstance(o, LatticeChainOptions) else 0,
        )

    def _supervision(self, opts: ChainEgsOpts | E2eEgsOpts) -> SupervisionSource | TrainingGraphs:
        o = self.options
        if not isinstance(o, LatticeChainOptions):
            self._require_parts(self.tree_dir, "fst.{}.scp", self.num_ali_jobs())
            return TrainingGraphs(self.tree_dir, self.num_ali_jobs())
        assert isinstance(opts, ChainEgsOpts)
        source = Path(o.lat_dir) if o.lat_dir else self.tree_dir
        num_jobs = number_in(source / "num_jobs")
        self._require_parts(source, "lat.{}.gz" if o.lat_dir else "ali.{}.gz", num_jobs)
        options = SupervisionOptions(
            o.chain.left_tolerance,
            o.chain.right_tolerance,
            o.chain.alignment_subsampling_factor,
            opts.lattice_lm_scale,
            opts.constrained,
        )
        return SupervisionSource(source, bool(o.lat_dir), num_jobs, self.dir, options)

    @staticmethod
    def _require_parts(folder: Path, pattern: str, count: int) -> None:
        for n in range(1, count + 1):
            if not (path := folder / pattern.format(n)).is_file():
                raise DataError(f"there is no file '{path}': num_jobs there is {count}")


def chain_experiment(program: str, options: ChainOptions) -> ChainExperiment:
    """The experiment that `options` describe; OptionError for values that cannot be parsed."""
    chain = options.chain
    try:
        extra = shlex.split(getattr(options, "chain_opts", ""))
    except ValueError as error:
        raise OptionError(f"--chain-opts: {error}") from None
    objective = ChainObjective(
        den_fst=Path(options.run.dir) / "den.fst",
        l2_regularize=chain.l2_regularize,
        leaky_hmm_coefficient=chain.leaky_hmm_coefficient,
        xent_regularize=chain.xent_regularize,
        apply_deriv_weights=chain.apply_deriv_weights,
        extra=tuple(extra),
    )
    return ChainExperiment(program, options, objective)

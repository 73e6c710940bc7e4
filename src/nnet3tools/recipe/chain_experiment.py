"""An experiment of chain training: what differs from training on one target per frame."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from nnet3tools.errors import DataError, OptionError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.recipe.chain_options import ChainOptions, E2eOptions
from nnet3tools.recipe.data_dir import read_lines
from nnet3tools.recipe.experiment import Experiment
from nnet3tools.recipe.jobs import split_words
from nnet3tools.recipe.objective import Objective


@dataclass(frozen=True)
class ChainExperiment(Experiment):
    """A run of nnet3-train-chain or nnet3-train-chain-e2e: options, directories, objective."""

    options: ChainOptions  # type: ignore[assignment]

    @property
    def tree_dir(self) -> Path:
        """The directory of the tree, the transition model, and the alignments or graphs."""
        return Path(self.options.tree_dir)

    @property
    def is_e2e(self) -> bool:
        """Whether this is end-to-end training, which begins without alignments."""
        return isinstance(self.options, E2eOptions)

    @cached_property
    def objective(self) -> Objective:
        """The names and options of the LF-MMI programs; OptionError for malformed --chain-opts."""
        chain, size = self.options.chain, self.options.trainer.num_chunk_per_minibatch
        extra = tuple(split_words("chain-opts", getattr(self.options, "chain_opts", "")))
        shared = (
            f"--l2-regularize={chain.l2_regularize}",
            f"--leaky-hmm-coefficient={chain.leaky_hmm_coefficient}",
        )
        weights = f"--apply-deriv-weights={str(chain.apply_deriv_weights).lower()}"
        xent = f"--xent-regularize={chain.xent_regularize}"
        return Objective(
            size,
            "1:64" if self.is_e2e else size,
            passes_per_archive=chain.frame_subsampling_factor,
            shift_option="--frame-shift",
            jobs_per_archive=chain.frame_subsampling_factor,
            extra_context=chain.frame_subsampling_factor // 2,
            backstitch_growth=15,
            reported_quantity="plain_objectives",
            files="cegs",
            programs="nnet3-chain-",
            graph=(str(self.dir / "den.fst"),),
            train_options=(weights, *shared, xent),
            prob_options=(*shared, xent, *extra),
            combine_options=shared,
            last_train_options=extra,
        )

    @property
    def frames_per_eg(self) -> str:
        """The value of --num-frames: chunk widths or, in end-to-end training, allowed lengths."""
        if not self.is_e2e:
            return self.options.egs.chunk_width
        if not self.options.feat_dir:
            return ",".join(read_lines(self.egs_path / "info" / "frames_per_eg"))
        lengths = self.data.lines("allowed_lengths.txt")
        return ",".join(line.strip() for line in lengths if line.strip())

    @property
    def has_init_config(self) -> bool:
        """Whether an LDA-like transform is estimated before model 0; not in end-to-end training."""
        return not self.is_e2e and super().has_init_config

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

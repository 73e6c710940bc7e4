"""Making chain examples: the steps of chain/get_egs.sh and chain/e2e/get_egs_e2e.sh."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.nnet.hmm.tree import ContextDependency
from nnet3tools.recipe.chain_experiment import ChainExperiment
from nnet3tools.recipe.chain_options import LatticeChainOptions
from nnet3tools.recipe.data_dir import number_of_jobs
from nnet3tools.recipe.egs import EgsMaking
from nnet3tools.recipe.egs_options import ChainEgsOpts, E2eEgsOpts, parse_egs_opts
from nnet3tools.recipe.experiment import Experiment
from nnet3tools.recipe.jobs import Pipeline
from nnet3tools.recipe.targets import check_pdfs, frame_targets, supervision, transcript_graphs


def egs_making(e: Experiment) -> EgsMaking:
    """Return the planner that makes the examples; OptionError or DataError for missing input."""
    text = e.options.egs.opts
    if not isinstance(e, ChainExperiment):
        return EgsMaking(e, frame_targets(e), parse_egs_opts(text))
    check_pdfs(e)
    if e.is_e2e:
        return ChainEgsMaking(e, transcript_graphs(e), parse_egs_opts(text, E2eEgsOpts))
    opts = parse_egs_opts(text, ChainEgsOpts)
    return ChainEgsMaking(e, supervision(e, opts), opts)


@dataclass(frozen=True)
class ChainEgsMaking(EgsMaking):
    """Plans the steps that make the examples of chain training."""

    experiment: ChainExperiment

    @property
    def _num_parts(self) -> int:
        """The number of parts to split the data into: --egs.nj or the number of alignment files."""
        o = self.experiment.options
        if not isinstance(o, LatticeChainOptions):
            return int(self.opts.nj)
        return o.egs.nj or number_of_jobs(Path(o.lat_dir or o.tree_dir))

    @property
    def _frames_per_archive(self) -> int:
        """The approximate number of frames in an archive, from --trainer.frames-per-iter."""
        return self.experiment.options.trainer.frames_per_iter

    def _held_out(self) -> tuple[list[str], list[str]]:
        """A pair: utterances for validation, and equally many training utterances for diagnostics.

        Except in end-to-end training, all copies of a recording are in the same set.
        """
        count = self.opts.num_utts_subset
        if self.experiment.is_e2e:
            return self._data.held_out(count, count, least=2 * count)
        return self._data.held_out_recordings(count)

    def _info_values(self) -> dict[str, Any]:
        """Values for files in egs/info that only chain examples have, by file name."""
        if self.experiment.is_e2e:
            return {}
        tree = f"{self.experiment.dir}/tree"
        return {"num_pdfs": ContextDependency.load(tree).num_pdfs}

    def _get_egs(self, name: str, out: str) -> Pipeline:
        """The pipeline that makes examples of a set, such as "valid" or "3"; `out`: wspecifier.

        Validation and diagnostic examples are normalized here, the others by `_shuffle`.
        """
        e, is_subset = self.experiment, not name.isdecimal()
        srand = e.options.trainer.srand + (0 if is_subset else int(name))
        words = (
            "nnet3-chain-e2e-get-egs" if e.is_e2e else "nnet3-chain-get-egs",
            *self._ivector_words(),
            f"--srand={srand}",
            *e.contexts().words(),
            f"--num-frames={e.frames_per_eg}",
            f"--frame-subsampling-factor={e.options.chain.frame_subsampling_factor}",
            f"--compress={str(self.opts.compress).lower()}",
            *self._chunk_words(is_subset),
            *(self._normalization() if is_subset else ()),
            self._features(name),
            "ark,s,cs:-",
            *((f"{e.dir}/0.trans_mdl",) if e.is_e2e else ()),
            out,
        )
        return (*self.targets.reading(self._egs / f"targets.{name}.scp"), words)

    def _chunk_words(self, is_subset: bool) -> tuple[str, ...]:
        """The options of nnet3-chain-get-egs that --egs.opts decides; none in end-to-end training.

        For a validation or diagnostic set (`is_subset`), --num-frames-overlap is left out.
        """
        if self.experiment.is_e2e:
            return ()
        opts, found = self.opts, []
        if opts.deriv_weights_scp:
            found.append(f"--deriv-weights-rspecifier=scp:{opts.deriv_weights_scp}")
        if not is_subset:
            found.append(f"--num-frames-overlap={opts.frames_overlap_per_eg}")
        if not opts.constrained:
            found.append(f"--transition-model={self.experiment.dir}/0.trans_mdl")
        return tuple(found)

    def _normalization(self) -> tuple[str, ...]:
        """The arguments of nnet3-chain-normalize-egs; empty if examples are not normalized."""
        fst = f"{self.experiment.dir}/normalization.fst"
        if self.experiment.is_e2e:
            return (fst,) if self.opts.normalize_egs else ()
        scale = 1.0 - float(self.opts.lattice_lm_scale or 0.0)
        return (f"--normalization-fst-scale={scale:g}", fst)

    def _subset_sizes(self) -> tuple[int, ...]:
        """The number of examples of each file in SUBSETS: valid_combine, valid_diagnostic, ..."""
        diagnostic = self.opts.num_egs_diagnostic
        valid, train = self.opts.num_valid_egs_combine, self.opts.num_train_egs_combine
        return (valid, diagnostic, train, diagnostic)

    def _shuffle(self, group: int, sources: str) -> Pipeline:
        """The pipeline that normalizes and shuffles training examples, without its output argument.

        `sources` is their rspecifier; they are for group number `group` of the archives.
        """
        if not (normalization := self._normalization()):
            return super()._shuffle(group, sources)
        normalize = ("nnet3-chain-normalize-egs", *normalization, sources, "ark:-")
        return (normalize, *super()._shuffle(group, "ark:-"))

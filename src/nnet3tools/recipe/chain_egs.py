"""Making chain examples: the steps of chain/get_egs.sh and chain/e2e/get_egs_e2e.sh."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnet3tools.cli.options import option
from nnet3tools.recipe.data_dir import read_lines
from nnet3tools.recipe.egs import EgsMaking
from nnet3tools.recipe.jobs import Job, Pipeline
from nnet3tools.recipe.objective import ExampleNames
from nnet3tools.recipe.plan import Jobs, Step

CHAIN_NAMES = ExampleNames("cegs", "nnet3-chain-")


@dataclass(frozen=True)
class _SharedEgsOpts:
    """The options inside --egs.opts that chain/get_egs.sh and get_egs_e2e.sh share."""

    compress: bool = option(True, "Compress features")
    num_valid_egs_combine: int = option(0, "Examples of validation data for combining models")
    num_train_egs_combine: int = option(1000, "Examples of training data for combining models")
    online_cmvn: bool = option(False, "Normalize with apply-cmvn-online")
    max_shuffle_jobs_run: int = option(50, "Not used: see --num-jobs")


@dataclass(frozen=True)
class ChainEgsOpts(_SharedEgsOpts):
    """Options inside --egs.opts, as in chain/get_egs.sh."""

    frames_overlap_per_eg: int = option(0, "Frames by which examples overlap")
    constrained: bool = option(True, "Phones keep their aligned times, within tolerances")
    num_utts_subset: int = option(300, "Utterances in the subsets for validation and diagnostics")
    num_egs_diagnostic: int = option(400, "Examples for diagnostics")
    lattice_lm_scale: str = option(
        "", "Scale of the lattices' graph weights in supervision (semi-supervised training)"
    )
    deriv_weights_scp: str = option("", "Script file of frame weights, a vector for each utterance")
    generate_egs_scp: bool = option(False, "Also write a script file for each archive")
    max_jobs_run: int = option(15, "Not used: see --num-jobs")


@dataclass(frozen=True)
class E2eEgsOpts(_SharedEgsOpts):
    """Options inside --egs.opts, as in chain/e2e/get_egs_e2e.sh."""

    nj: int = option(15, "Number of parts that the data is split into")
    normalize_egs: bool = option(True, "Compose the graphs with normalization.fst")
    num_utts_subset: int = option(1400, "Utterances in the subsets for validation and diagnostics")
    num_egs_diagnostic: int = option(700, "Examples for diagnostics")
    generate_egs_scp = False


# -- where supervision comes from


@dataclass(frozen=True)
class SupervisionOptions:
    """Options of chain-get-supervision for recipes: tolerances in frames, and subsampling."""

    left_tolerance: int
    right_tolerance: int
    alignment_subsampling_factor: int
    lm_scale: str = ""
    constrained: bool = True

    def words(self) -> tuple[str, ...]:
        """These options as command-line words of chain-get-supervision."""
        return (
            f"--frame-subsampling-factor={self.alignment_subsampling_factor}",
            f"--right-tolerance={self.right_tolerance}",
            f"--left-tolerance={self.left_tolerance}",
            *(() if self.constrained else ("--convert-to-pdfs=false",)),
            *((f"--lm-scale={self.lm_scale}",) if self.lm_scale else ()),
        )


@dataclass(frozen=True)
class SupervisionSource:
    """Chain supervision from the lattices (lat.N.gz) or alignments (ali.N.gz) in a directory.

    `experiment` is the directory of the network's tree and transition model.
    """

    source: Path
    has_lattices: bool
    num_jobs: int
    experiment: Path
    options: SupervisionOptions
    copies: tuple[str, ...] = ("supervision.ark", "supervision.scp")

    def steps_before(self, egs: Path) -> list[Step]:
        """The step that copies all lattices or alignments to one archive with a script file."""
        kind, program = ("lat", "lattice-copy") if self.has_lattices else ("ali", "copy-int-vector")
        files = " ".join(str(self.source / f"{kind}.{n + 1}.gz") for n in range(self.num_jobs))
        out = f"ark,scp:{egs}/supervision.ark,{egs}/supervision.scp"
        words = (program, f"ark:gunzip -c {files} |", out)
        job = Job(f"{egs}/log/copy_supervision.log", ((words,),), "egs.1")
        return [Jobs((job,), (egs / "supervision.scp",))]

    def lines(self, egs: Path) -> list[str]:
        """The lines of the script file (scp) that `steps_before` writes."""
        return read_lines(egs / "supervision.scp")

    def supervision(self, script: Path) -> Pipeline:
        """The pipeline that writes supervision of the utterances in a script file."""
        model = f"{self.source}/final.mdl"
        if self.has_lattices:
            align = ("lattice-align-phones", "--replace-output-symbols=true")
            phones = (*align, model, f"scp:{script}", "ark:-")
        else:
            phones = ("ali-to-phones", "--write-lengths=true", model, f"scp:{script}", "ark:-")
        get = (
            "chain-get-supervision",
            f"--lattice-input={str(self.has_lattices).lower()}",
            *self.options.words(),
            f"{self.experiment}/tree",
            f"{self.experiment}/0.trans_mdl",
            "ark:-",
            "ark:-",
        )
        return (phones, get)


@dataclass(frozen=True)
class TrainingGraphs:
    """End-to-end supervision from graphs of transcripts (fst.N.scp in a directory)."""

    source: Path
    num_jobs: int
    copies: tuple[str, ...] = ()

    def steps_before(self, egs: Path) -> list[Step]:
        """No steps: the graphs exist."""
        return []

    def lines(self, egs: Path) -> list[str]:
        """The lines of all script files fst.N.scp."""
        scripts = (self.source / f"fst.{n + 1}.scp" for n in range(self.num_jobs))
        return [line for script in scripts for line in read_lines(script)]

    def supervision(self, script: Path) -> Pipeline:
        """The program that writes the graphs of the utterances in a script file."""
        return (("fstcopy", f"scp:{script}", "ark:-"),)


# -- examples


@dataclass(frozen=True)
class ChainEgsMaking(EgsMaking):
    """Makes chain examples; the directory `experiment` has normalization.fst.

    `samples_per_iter` counts frames here (--trainer.frames-per-iter).
    """

    names: ExampleNames = CHAIN_NAMES
    experiment: Path = Path()
    frame_subsampling_factor: int = 3
    given_parts: int = 0

    @property
    def is_e2e(self) -> bool:
        """Whether the supervision is a graph of the whole utterance, without alignments."""
        return isinstance(self.targets, TrainingGraphs)

    @property
    def num_parts(self) -> int:
        """The number of parts of the data: files of alignments, or --egs.nj; end to end, --nj."""
        if self.is_e2e:
            return int(self.opts.nj)
        return self.given_parts or int(self.targets.num_jobs)

    def num_archives(self, num_frames: int) -> int:
        """The number of archives such that each has about --trainer.frames-per-iter frames."""
        return num_frames // self.samples_per_iter + 1

    def held_out(self) -> tuple[list[str], list[str]]:
        """The utterances for validation, and as many training utterances for diagnostics.

        Except end to end, all variants of a recording are in the same set.
        """
        count = self.opts.num_utts_subset
        if self.is_e2e:
            return self.data.held_out(count, count, least=2 * count)
        return self.data.held_out_recordings(count)

    def info_values(self) -> dict[str, Any]:
        """The chain entries of egs/info, beside the experiment's file frame_subsampling_factor."""
        if self.is_e2e:
            return {}
        from nnet3tools.nnet.hmm.tree import ContextDependency

        return {"num_pdfs": ContextDependency.load(f"{self.experiment}/tree").num_pdfs}

    def _get_egs(self, name: str, out: str) -> Pipeline:
        """The pipeline that writes part `name` to `out`; only subsets are normalized here."""
        is_subset = not name.isdecimal()
        srand = self.srand + (0 if is_subset else int(name))
        program = "nnet3-chain-e2e-get-egs" if self.is_e2e else "nnet3-chain-get-egs"
        normalization = self._normalization_fst() if is_subset else ()
        scale = () if self.is_e2e or not is_subset else self._normalization_scale()
        words = (
            program,
            *self._ivector_words(),
            f"--srand={srand}",
            *self.contexts.words(),
            f"--num-frames={self.frames_per_eg}",
            f"--frame-subsampling-factor={self.frame_subsampling_factor}",
            f"--compress={str(self.opts.compress).lower()}",
            *self._chunk_words(is_subset),
            *scale,
            *normalization,
            self._features(name),
            "ark,s,cs:-",
        )
        model = (f"{self.experiment}/0.trans_mdl",) if self.is_e2e else ()
        supervision = self.targets.supervision(self.egs / f"targets.{name}.scp")
        return (*supervision, (*words, *model, out))

    def _chunk_words(self, is_subset: bool) -> tuple[str, ...]:
        """The options that only nnet3-chain-get-egs, not the end-to-end program, has."""
        if self.is_e2e:
            return ()
        opts, found = self.opts, []
        if opts.deriv_weights_scp:
            found.append(f"--deriv-weights-rspecifier=scp:{opts.deriv_weights_scp}")
        if not is_subset:
            found.append(f"--num-frames-overlap={opts.frames_overlap_per_eg}")
        if not opts.constrained:
            found.append(f"--transition-model={self.experiment}/0.trans_mdl")
        return tuple(found)

    def _normalization_fst(self) -> tuple[str, ...]:
        if self.is_e2e and not self.opts.normalize_egs:
            return ()
        return (f"{self.experiment}/normalization.fst",)

    def _normalization_scale(self) -> tuple[str, ...]:
        scale = getattr(self.opts, "lattice_lm_scale", "")
        return (f"--normalization-fst-scale={1.0 - float(scale or 0.0):g}",)

    def _subset_sizes(self) -> tuple[tuple[str, str, int], ...]:
        opts = self.opts
        return (
            ("valid", "combine", opts.num_valid_egs_combine),
            ("valid", "diagnostic", opts.num_egs_diagnostic),
            ("train", "combine", opts.num_train_egs_combine),
            ("train", "diagnostic", opts.num_egs_diagnostic),
        )

    def _shuffle(self, group: int, sources: str) -> Pipeline:
        """The pipeline, except its last argument, that normalizes and shuffles a group."""
        if not (fst := self._normalization_fst()):
            return super()._shuffle(group, sources)
        scale = () if self.is_e2e else self._normalization_scale()
        normalize = ("nnet3-chain-normalize-egs", *scale, *fst, sources, "ark:-")
        return (normalize, *super()._shuffle(group, "ark:-"))

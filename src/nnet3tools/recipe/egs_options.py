"""The options of Kaldi's get_egs.sh scripts, which users may give as one string in --egs.opts."""

from __future__ import annotations

from typing import Any

from nnet3tools.cli.options import CommandLine, OptionGroup, option
from nnet3tools.errors import OptionError
from nnet3tools.recipe.jobs import split_words


class _SharedEgsOpts(OptionGroup):
    """The options inside --egs.opts that all kinds of examples have."""

    num_utts_subset: int = option(300, "Utterances in the subsets for validation and diagnostics")
    compress: bool = option(True, "Compress features")
    online_cmvn: bool = option(False, "Normalize with apply-cmvn-online")


class EgsOpts(_SharedEgsOpts):
    """Options inside --egs.opts, as in get_egs.sh."""

    nj: int = option(6, "Number of parts that the data is split into")
    num_utts_subset_valid: int = option(0, "Utterances in the validation subset, if positive")
    num_utts_subset_train: int = option(0, "Utterances in the diagnostic subset, if positive")
    num_valid_frames_combine: int = option(0, "Frames of validation data for combining models")
    num_train_frames_combine: int = option(60000, "Frames of training data for combining models")
    num_frames_diagnostic: int = option(10000, "Frames for diagnostics")
    frame_subsampling_factor: int = option(1, "Frames of input per frame of output")
    length_tolerance: int = option(2, "Frames by which lengths of features and targets may differ")
    generate_egs_scp: bool = option(False, "Also write a script file for each archive")


class _AnyChainEgsOpts(_SharedEgsOpts):
    """The options inside --egs.opts that chain/get_egs.sh and get_egs_e2e.sh share."""

    num_valid_egs_combine: int = option(0, "Examples of validation data for combining models")
    num_train_egs_combine: int = option(1000, "Examples of training data for combining models")
    num_egs_diagnostic: int = option(400, "Examples for diagnostics")
    max_shuffle_jobs_run: int = option(50, "Not used: see --num-jobs")


class ChainEgsOpts(_AnyChainEgsOpts):
    """Options inside --egs.opts, as in chain/get_egs.sh."""

    frames_overlap_per_eg: int = option(0, "Frames by which examples overlap")
    constrained: bool = option(True, "Phones keep their aligned times, within tolerances")
    lattice_lm_scale: str = option(
        "", "Scale of the lattices' graph weights in supervision (semi-supervised training)"
    )
    deriv_weights_scp: str = option("", "Script file of frame weights, a vector for each utterance")
    generate_egs_scp: bool = option(False, "Also write a script file for each archive")
    max_jobs_run: int = option(15, "Not used: see --num-jobs")


class E2eEgsOpts(_AnyChainEgsOpts):
    """Options inside --egs.opts, as in chain/e2e/get_egs_e2e.sh."""

    nj: int = option(15, "Number of parts that the data is split into")
    normalize_egs: bool = option(True, "Compose the graphs with normalization.fst")
    num_utts_subset: int = option(1400, "Utterances in the subsets for validation and diagnostics")
    num_egs_diagnostic: int = option(700, "Examples for diagnostics")
    generate_egs_scp = False


def parse_egs_opts(text: str, kind: type = EgsOpts) -> Any:
    """Parse --egs.opts to the dataclass `kind`; OptionError for unknown options or wrong values."""
    words = split_words("egs.opts", text)
    try:
        line: CommandLine[Any] = CommandLine("--egs.opts", "", kind, 0, values_apart=True)
        options, rest = line.parse(["--print-args=false", *words])
    except OptionError as error:
        raise OptionError(f"--egs.opts={text}: {error}") from None
    if rest:
        raise OptionError(f"--egs.opts={text}: expected options only, found '{rest[0]}'")
    if getattr(options, "nj", 1) < 1 or options.num_utts_subset < 1:
        raise OptionError(f"--egs.opts={text}: --nj and --num-utts-subset must be positive")
    return options

"""Options of chain training, with the names of steps/nnet3/chain/train.py and e2e/train_e2e.py."""

from __future__ import annotations

from nnet3tools.cli.options import OptionGroup, option, option_group
from nnet3tools.recipe.options import (
    ChunkEgsOptions,
    ChunkOptimizationOptions,
    CommonOptions,
    TrainerOptions,
)


class ChainEgsOptions(ChunkEgsOptions):
    """The options --egs.* of chain training."""

    chunk_width: str = option(
        "20", "Number of frames in a chunk; of a list (150,110,90) the first is preferred"
    )


class LatticeEgsOptions(ChainEgsOptions):
    """The options --egs.* of chain training from alignments or lattices."""

    nj: int = option(0, "Number of parts of the data (default: number of alignment files)")


class ChainObjectiveOptions(OptionGroup):
    """The options --chain.* that chain training has with and without alignments."""

    lm_opts: str = option("", "Options of chain-est-phone-lm")
    l2_regularize: float = option(0.0, "l2 regularization of the network's output")
    xent_regularize: float = option(0.0, "Weight of the cross-entropy of output-xent")
    leaky_hmm_coefficient: float = option(0.00001, "Probability of a transition to any state")
    apply_deriv_weights: bool = option(True, "Apply the weights of frames in the examples")
    frame_subsampling_factor: int = option(3, "Frames of input per frame of output")
    alignment_subsampling_factor: int = option(3, "Frames of alignments per frame of output")
    left_deriv_truncate: str = option("", "Not used: see --trainer.deriv-truncate-margin")


class LatticeObjectiveOptions(ChainObjectiveOptions):
    """The options --chain.* that only chain training from alignments or lattices has."""

    right_tolerance: int = option(5, "Frames by which phones may come later than aligned")
    left_tolerance: int = option(5, "Frames by which phones may come earlier than aligned")


class ChainOptimizationOptions(ChunkOptimizationOptions):
    """The options --trainer.optimization.* of chain training."""

    initial_effective_lrate: float = option(
        0.0002, "Learning rate of the first iteration, divided by its jobs"
    )
    final_effective_lrate: float = option(
        0.00002, "Learning rate of the last iteration, divided by its jobs"
    )


class ChainTrainerOptions(TrainerOptions):
    """The options --trainer.* of chain training."""

    num_epochs: float = option(10.0, "Passes over the data; each pass uses every shift of frames")
    frames_per_iter: int = option(800000, "Frames of input in an archive")
    num_chunk_per_minibatch: str = option(
        "128", "Chunks in a minibatch: a number, or rules for sizes"
    )
    deriv_truncate_margin: int = option(
        -1, "Frames beyond a chunk's context that derivatives go back to; negative: all"
    )
    optimization: ChainOptimizationOptions = option_group("optimization", ChainOptimizationOptions)


class ChainOptions(CommonOptions):
    """The options that nnet3-train-chain and nnet3-train-chain-e2e share."""

    egs: ChainEgsOptions = option_group("egs", ChainEgsOptions)
    chain: ChainObjectiveOptions = option_group("chain", ChainObjectiveOptions)
    trainer: ChainTrainerOptions = option_group("trainer", ChainTrainerOptions)
    tree_dir: str = option(
        "",
        "Directory of the tree (tree, final.mdl, phones.txt, num_jobs; with alignments ali.N.gz; "
        "end to end fst.N.scp, 0.trans_mdl, phone_lm.fst; required)",
    )
    lang: str = option("", "Language directory, which is copied to DIR/lang")


class LatticeChainOptions(ChainOptions):
    """Options of nnet3-train-chain, whose supervision is from lattices or alignments."""

    egs: LatticeEgsOptions = option_group("egs", LatticeEgsOptions)
    chain: LatticeObjectiveOptions = option_group("chain", LatticeObjectiveOptions)
    lat_dir: str = option(
        "", "Directory of lattices (lat.1.gz, ...); by default alignments in --tree-dir are used"
    )
    chain_opts: str = option(
        "", "Further options of nnet3-chain-train and nnet3-chain-compute-prob"
    )


class E2eOptions(ChainOptions):
    """Options of nnet3-train-chain-e2e, whose supervision is from graphs of transcripts."""

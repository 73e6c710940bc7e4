"""Options of the training programs, with the names of Kaldi's steps/nnet3/train_*.py."""

from __future__ import annotations

from nnet3tools.cli.options import OptionGroup, option, option_group


class FeatureOptions(OptionGroup):
    """The options --feat.* of the training programs."""

    online_ivector_dir: str = option("", "Directory of online iVectors")
    cmvn_opts: str = option("", "Options of apply-cmvn, such as --norm-vars=true")
    mfcc_config: str = option(
        "", "Options of the training features, for decoding (default: FEAT-DIR/conf/mfcc.conf)"
    )
    fbank_config: str = option("", "The same for filter banks")


class EgsOptions(OptionGroup):
    """The options --egs.* that all training programs have."""

    dir: str = option("", "Directory of existing examples (default: make examples in DIR/egs)")
    stage: int = option(0, "First stage of making examples (3: subsets, 4: all, 5: shuffle)")
    opts: str = option(
        "",
        "Options for making examples, as of Kaldi's get_egs.sh: '--num-utts-subset 300 --nj "
        "6 --num-frames-diagnostic 10000 ...'",
    )
    cmd: str = option("", "Script that starts the jobs of making examples (default: --cmd)")


class DnnEgsOptions(EgsOptions):
    """The options --egs.* for networks that see one frame at a time."""

    frames_per_eg: int = option(8, "Number of output labels of an example")


class ChunkEgsOptions(EgsOptions):
    """The options --egs.* for networks that see chunks of frames."""

    chunk_width: str = option(
        "20", "Number of frames in a chunk; of a list (20,15) the first is preferred"
    )
    chunk_left_context: int = option(0, "Frames of input to the left of a chunk besides context")
    chunk_right_context: int = option(0, "Frames of input to the right of a chunk besides context")
    chunk_left_context_initial: int = option(
        -1, "The same for the first chunk of an utterance; negative: as --egs.chunk-left-context"
    )
    chunk_right_context_final: int = option(
        -1, "The same for the last chunk of an utterance; negative: as --egs.chunk-right-context"
    )


class RnnEgsOptions(ChunkEgsOptions):
    """The options --egs.* for recurrent networks."""

    chunk_left_context: int = option(40, "Frames of input to the left of a chunk besides context")


class LdaOptions(OptionGroup):
    """The options --trainer.lda.* of the training programs."""

    rand_prune: float = option(4.0, "Pruning of the statistics of the LDA-like transform")
    max_lda_jobs: int = option(10, "Most jobs (one for each archive) for these statistics")


class OptimizationOptions(OptionGroup):
    """The options --trainer.optimization.* that all training programs have."""

    proportional_shrink: float = option(
        0.0, "Each iteration scales parameters by 1 - this * learning rate"
    )
    initial_effective_lrate: float = option(
        0.0003, "Learning rate of the first iteration, divided by its jobs"
    )
    final_effective_lrate: float = option(
        0.00003, "Learning rate of the last iteration, divided by its jobs"
    )
    num_jobs_initial: int = option(1, "Parallel training jobs at the beginning")
    num_jobs_final: int = option(8, "Parallel training jobs at the end")
    num_jobs_step: int = option(1, "More jobs than this are a multiple of it")
    max_models_combine: int = option(
        20, "Most models to combine at the end", aliases=("trainer.max-models-combine",)
    )
    max_objective_evaluations: int = option(
        30,
        "Most evaluations of the objective to combine models",
        aliases=("trainer.max-objective-evaluations",),
    )
    do_final_combination: bool = option(
        True, "Combine models at the end; if false, use the last one"
    )
    combine_sum_to_one_penalty: float = option(0.0, "Does nothing, as in Kaldi")
    momentum: float = option(0.0, "Momentum")
    backstitch_training_scale: float = option(0.0, "Backstitch: scale of the step back")
    backstitch_training_interval: int = option(1, "Backstitch: interval in minibatches")
    average_interval: int = option(
        0, "With --average-in-memory, minibatches between averages (0: one average an iteration)"
    )


class DnnOptimizationOptions(OptimizationOptions):
    """The options --trainer.optimization.* for networks that see one frame at a time."""

    minibatch_size: str = option("512", "Minibatch size (--minibatch-size of nnet3-merge-egs)")


class ChunkOptimizationOptions(OptimizationOptions):
    """The options --trainer.optimization.* for networks that see chunks of frames."""

    shrink_value: float = option(
        1.0, "Scale of parameters in iterations with saturated nonlinearities"
    )
    shrink_saturation_threshold: float = option(
        0.40, "Mean saturation of sigmoid and tanh above which parameters are shrunk"
    )


class RnnOptimizationOptions(ChunkOptimizationOptions):
    """The options --trainer.optimization.* for recurrent networks."""

    momentum: float = option(0.5, "Momentum")
    shrink_value: float = option(
        0.99, "Scale of parameters in iterations with saturated nonlinearities"
    )


class TrainerOptions(OptionGroup):
    """The options --trainer.* that all training programs have."""

    srand: int = option(0, "Seed of random numbers")
    num_epochs: float = option(8.0, "Passes over the data")
    shuffle_buffer_size: int = option(
        5000, "Examples among which order is random within an iteration"
    )
    max_param_change: float = option(2.0, "Limit on the change of all parameters in a minibatch")
    samples_per_iter: int = option(400000, "Number of examples in an archive")
    presoftmax_prior_scale_power: float = option(-0.25, "Power of the prior before the softmax")
    dropout_schedule: str = option(
        "", "Dropout by the fraction of data seen: 0,0.2@0.25,0 or 'pattern=0,0.1,0 ...'"
    )
    add_option: tuple[str, ...] = option(
        (), "An option for the training program (this option may be repeated)"
    )
    compute_per_dim_accuracy: bool = option(False, "Compute accuracies of each output")
    input_model: str = option("", "Initial model (default: made from DIR/configs)")
    prior_subset_size: int = option(20000, "Examples for computing priors")
    num_jobs_compute_prior: int = option(10, "Jobs for computing priors")
    lda: LdaOptions = option_group("lda", LdaOptions)


class DnnTrainerOptions(TrainerOptions):
    """The options --trainer.* for networks that see one frame at a time."""

    optimization: DnnOptimizationOptions = option_group("optimization", DnnOptimizationOptions)


class RnnOnlyOptions(OptionGroup):
    """The options --trainer.rnn.* for recurrent networks."""

    num_chunk_per_minibatch: str = option(
        "100", "Chunks in a minibatch: a number, or rules for sizes"
    )


class RnnTrainerOptions(TrainerOptions):
    """The options --trainer.* for recurrent networks."""

    samples_per_iter: int = option(20000, "Number of examples (chunks) in an archive")
    deriv_truncate_margin: int = option(
        8, "Frames beyond a chunk's context that derivatives go back to; negative: all"
    )
    rnn: RnnOnlyOptions = option_group("rnn", RnnOnlyOptions)
    optimization: RnnOptimizationOptions = option_group("optimization", RnnOptimizationOptions)


class CleanupOptions(OptionGroup):
    """The options --cleanup.*: which files training removes."""

    remove_egs: bool = option(True, "Remove the examples at the end")
    preserve_model_interval: int = option(100, "Models of multiples of this are kept")


class ReportingOptions(OptionGroup):
    """The options --reporting.* of the training programs."""

    email: str = option("", "Not used: see --exit-stage and the exit status")
    interval: float = option(0.1, "Not used")


class JobOptions(OptionGroup):
    """Options that say where and how jobs run; they do not change results."""

    executor: str = option(
        "", "How jobs run: local (worker processes), cmd (by --cmd), slurm (by sbatch)"
    )
    cmd: str = option(
        "", "Script that starts jobs, such as run.pl, queue.pl, slurm.pl, and options"
    )
    num_jobs: int = option(
        0, "Most parallel workers (default: as many as processors, memory and GPUs allow)"
    )
    num_gpus: int = option(0, "Most GPUs of this machine that jobs use (default: all)")
    average_in_memory: str = option(
        "auto",
        "Average the models of an iteration's jobs in memory, without files: yes, no, auto (yes if "
        "this machine has several GPUs for them)",
    )
    hang_timeout: float = option(
        1800.0, "Seconds after which a job that neither computes nor writes is ended"
    )
    slurm_opts: str = option("", "Options of sbatch, with --executor=slurm")
    slurm_gpu_opts: str = option("--gres=gpu:1", "Options of sbatch for jobs on GPUs")
    use_gpu: str = option(
        "optional", "Train on GPUs: yes, no, wait, optional (true: yes, false: no)"
    )


class RunOptions(JobOptions):
    """Options that say how a training program runs its stages; they do not change results."""

    stage: int = option(
        -1000, "First stage to run (default: continue after the last finished step)"
    )
    exit_stage: int = option(1 << 30, "Iteration before which training ends")
    cleanup: bool = option(True, "Remove examples and intermediate models at the end")
    dir: str = option("", "Directory of the experiment (required)")
    clean: CleanupOptions = option_group("cleanup", CleanupOptions)
    reporting: ReportingOptions = option_group("reporting", ReportingOptions)


class CommonOptions(OptionGroup):
    """The options that all training programs have."""

    run: RunOptions = option_group("", RunOptions)
    feat: FeatureOptions = option_group("feat", FeatureOptions)
    feat_dir: str = option("", "Directory of the training data (feats.scp, utt2spk, cmvn.scp)")


class CheckOptions(OptionGroup):
    """Limits for the checks of users' recordings and transcripts."""

    max_seconds: float = option(30.0, "Utterances longer than this are left out")
    max_unknown: float = option(
        0.1, "Largest share of running words that may be missing from the lexicon"
    )
    num_shown: int = option(10, "Most faults of each kind that are listed")


class ImageOptions(OptionGroup):
    """The options --image.* of the training programs."""

    augmentation_opts: str = option("", "Options of nnet3-egs-augment-image")


class RawTargetOptions(OptionGroup):
    """Options for the targets of networks without a transition model."""

    targets_scp: str = option("", "Targets: matrices, or vectors of integers if not dense")
    use_dense_targets: bool = option(True, "Targets are matrices")
    compute_average_posteriors: bool = option(False, "Compute post.final.vec, the mean output")
    nj: int = option(4, "Not used, as in Kaldi")


class AlignmentOptions(OptionGroup):
    """Options for the alignments, which are the targets of acoustic models."""

    ali_dir: str = option("", "Directory of alignments (required): ali.N.gz, num_jobs, tree ...")
    lang: str = option("", "Language directory, which is copied to DIR/lang")


class DnnOptions(CommonOptions):
    """Options of training feed-forward networks."""

    egs: DnnEgsOptions = option_group("egs", DnnEgsOptions)
    trainer: DnnTrainerOptions = option_group("trainer", DnnTrainerOptions)


class RnnOptions(CommonOptions):
    """Options of training recurrent networks."""

    egs: RnnEgsOptions = option_group("egs", RnnEgsOptions)
    trainer: RnnTrainerOptions = option_group("trainer", RnnTrainerOptions)


class RawDnnOptions(DnnOptions):
    """Options of nnet3-train-raw-dnn."""

    raw: RawTargetOptions = option_group("", RawTargetOptions)
    image: ImageOptions = option_group("image", ImageOptions)


class AmDnnOptions(DnnOptions):
    """Options of nnet3-train-dnn."""

    am: AlignmentOptions = option_group("", AlignmentOptions)


class RawRnnOptions(RnnOptions):
    """Options of nnet3-train-raw-rnn."""

    raw: RawTargetOptions = option_group("", RawTargetOptions)


class AmRnnOptions(RnnOptions):
    """Options of nnet3-train-rnn."""

    am: AlignmentOptions = option_group("", AlignmentOptions)

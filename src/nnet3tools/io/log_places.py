"""The function and file of Kaldi that each log line names.

Kaldi's scripts find lines by function and file: `:PrintTotalStats():nnet-diagnostics.cc:149)`. A
line that Kaldi's programs also print names Kaldi's function; the line number is that of this
package. A line that only this package prints names its own function and module.
"""

from __future__ import annotations

_OWN_PROGRAMS = frozenset(
    {
        "chain-objf",
        "nnet3-compile",
        "nnet3-computation-info",
        "nnet3-decode",
        "nnet3-make-graph",
        "nnet3-prepare-lang",
        "nnet3-text-to-phones",
        "nnet3-xconfig-to-configs",
    }
)
_OWN_PLACES = frozenset(
    {
        ("cli/gpu.py", "_open_best"),
        ("cli/gpu.py", "_set_math_mode"),
        ("cli/gpu.py", "choose_device"),
        ("cli/gpu_locks.py", "_folder"),
        ("cli/gpu_locks.py", "_try_lock"),
        ("cli/gpu_survey.py", "_query"),
        ("cli/gpu_survey.py", "_log_problem"),
        ("cli/progress.py", "step"),
        ("cli/nnet3_compute.py", "run_program_once"),
    }
)

_PLACES = {
    ("cli/nnet3_am_adjust_priors.py", "_log_change"): "PrintPriorDiagnostics():{program}.cc",
    ("cli/nnet3_average.py", "_weights"): "GetWeights():{program}.cc",
    ("cli/sums.py", "tables"): "TypeOneUsage():{program}.cc",
    ("cli/sums.py", "table"): "TypeTwoUsage():{program}.cc",
    ("cli/sums.py", "files"): "TypeThreeUsage():{program}.cc",
    ("cli/gpu.py", "_open_device"): "FinalizeActiveGpu():cu-device.cc",
    ("cli/gpu.py", "_open_when_free"): "SelectGpuId():cu-device.cc",
    ("cli/gpu_survey.py", "_any_is_exclusive"): "SelectGpuId():cu-device.cc",
    ("cli/gpu_survey.py", "survey"): "SelectGpuIdAuto():cu-device.cc",
    (
        "chain/compilation.py",
        "compile",
    ): "ProtoSupervisionToSupervision():chain-supervision.cc",
    ("chain/den_fst.py", "_log_coverage"): "CheckDenominatorFst():chain-den-graph.cc",
    ("chain/den_fst.py", "_log_size"): "CreateDenominatorFst():chain-den-graph.cc",
    ("chain/diagnostics.py", "print_objective"): "PrintTotalStats():nnet-chain-diagnostics.cc",
    ("chain/example_normalization.py", "_normalize"): "main():{program}.cc",
    ("chain/e2e.py", "_extension"): "ProcessFile():{program}.cc",
    ("chain/e2e.py", "supervision"): "ProcessFile():{program}.cc",
    ("chain/e2e.py", "pdf_acceptor"): "TrainingGraphToSupervisionE2e():chain-supervision.cc",
    ("chain/generation.py", "piece"): "ProcessFile():{program}.cc",
    ("chain/generation.py", "chunks"): "ProcessFile():{program}.cc",
    ("chain/generation.py", "lengths_match"): "ProcessFile():{program}.cc",
    ("chain/block_generation.py", "make_chain_examples"): "main():{program}.cc",
    ("chain/normalization.py", "_small"): "AddWeightToSupervisionFst():chain-supervision.cc",
    ("chain/objective.py", "_finished"): "ComputeChainObjfAndDeriv():chain-training.cc",
    ("chain/objective.py", "_is_near"): "BetaGeneralFrameDebug():chain-denominator.cc",
    ("chain/objective.py", "_warn_of_range"): "DenominatorComputation():chain-denominator.cc",
    ("chain/phone_lm.py", "_acceptor"): "OutputToFst():language-model.cc",
    ("chain/phone_lm.py", "drop_states"): "DoBackoff():language-model.cc",
    ("chain/phone_lm.py", "estimate_phone_lm"): "Estimate():language-model.cc",
    (
        "chain/unconstrained.py",
        "convert",
    ): "ConvertSupervisionToUnconstrained():chain-supervision.cc",
    (
        "cli/decoding_io.py",
        "write",
    ): "DecodeUtteranceLatticeFaster():decoder-wrappers.cc",
    (
        "cli/decoding/nnet3_latgen_faster_batch.py",
        "_report",
    ): "~NnetBatchDecoder():nnet-batch-compute.cc",
    ("decoding/alignment.py", "align"): "AlignUtteranceWrapper():decoder-wrappers.cc",
    (
        "decoding/phone_determinization.py",
        "_run",
    ): "DeterminizeLatticePruned():determinize-lattice-pruned.cc",
    (
        "decoding/phone_determinization.py",
        "determinize",
    ): "DeterminizeLatticePhonePruned():determinize-lattice-pruned.cc",
    ("decoding/utterance.py", "_lattice"): "DecodeUtteranceLatticeFaster():decoder-wrappers.cc",
    ("decoding/utterance.py", "finish"): "DecodeUtteranceLatticeFaster():decoder-wrappers.cc",
    ("executor/utterance_computer.py", "close"): "PrintMinibatchStats():nnet-batch-compute.cc",
    ("executor/computer.py", "_debugged"): "DebugAfterExecute():nnet-compute.cc",
    ("executor/debugging.py", "__init__"): "Init():nnet-compute.cc",
    (
        "executor/simple_options.py",
        "outputs_per_chunk",
    ): "CheckAndFixConfigs():nnet-am-decodable-simple.cc",
    ("executor/xvector_plans.py", "chunks"): "main():{program}.cc",
    ("executor/xvector_plans.py", "__init__"): "main():{program}.cc",
    ("io/files.py", "_warn_of_status"): "Close():kaldi-io.cc",
    ("nnet/am_nnet.py", "set_nnet"): "SetNnet():am-nnet-simple.cc",
    ("nnet/collapse.py", "collapse_model"): "Collapse():nnet-utils.cc",
    (
        "nnet/components/batchnorm.py",
        "_make_up_statistics",
    ): "ComputeDerived():nnet-normalize-component.cc",
    (
        "nnet/components/clip_gradient.py",
        "_log_first_repair",
    ): "RepairGradients():nnet-simple-component.cc",
    (
        "nnet/components/time_height_convolution.py",
        "init_from_config",
    ): "InitFromConfig():nnet-convolutional-component.cc",
    ("nnet/edits.py", "_convert_to_fixed_affine"): "ReadEditConfig():nnet-utils.cc",
    ("nnet/edits.py", "_set_learning_rate"): "ReadEditConfig():nnet-utils.cc",
    ("nnet/edits.py", "_set_learning_rate_factor"): "ReadEditConfig():nnet-utils.cc",
    ("nnet/edits.py", "_remove_output_nodes"): "ReadEditConfig():nnet-utils.cc",
    ("nnet/edits.py", "_set_dropout_proportion"): "ReadEditConfig():nnet-utils.cc",
    ("nnet/hmm/transition_update.py", "_log"): "MleUpdate():transition-model.cc",
    ("nnet/natural_gradient.py", "_initialize"): "InitDefault():natural-gradient-online.cc",
    ("nnet/orthonormal.py", "_check_ratio"): "ConstrainOrthonormalInternal():nnet-utils.cc",
    ("nnet/svd.py", "_candidate"): "ReduceRankOfComponents():nnet-utils.cc",
    ("nnet/svd.py", "reduce_rank"): "ReduceRankOfComponents():nnet-utils.cc",
    ("nnet/svd.py", "apply_svd"): "DecomposeComponents():nnet-utils.cc",
    ("nnet/topology.py", "warn_of_orphans"): "Check():nnet-nnet.cc",
    ("nnet/topology.py", "remove_orphan_nodes"): "RemoveOrphanNodes():nnet-nnet.cc",
    ("nnet/topology.py", "remove_orphan_components"): "RemoveOrphanComponents():nnet-nnet.cc",
    ("optimizer/cache_files.py", "load_cache"): "{trainer}():{trainer_file}.cc",
    ("optimizer/cache_files.py", "save_cache"): "~{trainer}():{trainer_file}.cc",
    (
        "optimizer/cached_compiler.py",
        "log_time",
    ): "~CachingOptimizingCompiler():nnet-optimize.cc",
    ("optimizer/compile_looped.py", "compile_looped"): "CompileLooped():nnet-compile-looped.cc",
    (
        "tensor/operators/fisher/__init__.py",
        "_orthonormalize",
    ): "ReorthogonalizeRt1():natural-gradient-online.cc",
    ("training/combination.py", "combine_models"): "main():{program}.cc",
    ("training/diagnostics.py", "print_objective"): "PrintTotalStats():nnet-diagnostics.cc",
    ("training/diagnostics.py", "_print_accuracy"): "PrintTotalStats():nnet-diagnostics.cc",
    ("training/diagnostics.py", "recompute_stats"): "RecomputeStats():nnet-utils.cc",
    (
        "training/feature_transform.py",
        "estimate_transform",
    ): "EstimateInternal():get-feature-transform.cc",
    ("training/feature_transform.py", "_cholesky"): "EstimateInternal():get-feature-transform.cc",
    ("training/feature_transform.py", "_limited"): "EstimateInternal():get-feature-transform.cc",
    ("features/frames.py", "paste"): "AppendFeats():paste-feats.cc",
    ("features/cmvn.py", "floor_variance"): "ApplyCmvn():cmvn.cc",
    ("discriminative/diagnostics.py", "_print_details"): "Print():discriminative-training.cc",
    (
        "discriminative/diagnostics.py",
        "print_objective",
    ): "PrintTotalStats():nnet-discriminative-diagnostics.cc",
    ("discriminative/generation.py", "examples"): "ProcessFile():{program}.cc",
    ("discriminative/generation.py", "make_discriminative_examples"): "main():{program}.cc",
    ("discriminative/objective.py", "_judged"): "Compute():discriminative-training.cc",
    (
        "discriminative/objective.py",
        "_log_likes",
    ): "ConvertAnswersToLogLike():discriminative-training.cc",
    (
        "discriminative/trainer.py",
        "_print_total",
    ): "PrintTotalStats():nnet-discriminative-training.cc",
    ("training/generation.py", "find"): "main():{program}.cc",
    ("training/generation.py", "examples_of_utterance"): "ProcessFile():{program}.cc",
    ("training/generation.py", "make_examples"): "main():{program}.cc",
    ("training/minibatch_rules.py", "_rules"): "ComputeDerived():nnet-example-utils.cc",
    ("training/merging_stats.py", "_print_specific"): "PrintSpecificStats():nnet-example-utils.cc",
    (
        "training/merging_stats.py",
        "_print_aggregate",
    ): "PrintAggregateStats():nnet-example-utils.cc",
    ("training/reporting.py", "_print_phase"): "PrintStatsForThisPhase():nnet-training.cc",
    ("training/reporting.py", "print_total"): "PrintTotalStats():nnet-training.cc",
    ("training/selection.py", "_warn"): "SelectFromExample():{program}.cc",
    ("features/sliding_cmvn.py", "_warn"): "SlidingWindowCmnInternal():feature-functions.cc",
    ("training/splitting.py", "chunk_sizes"): "ComputeDerived():nnet-example-utils.cc",
    ("training/splitting.py", "lengths_match"): "LengthsMatch():nnet-example-utils.cc",
    ("training/splitting.py", "print_stats"): "~UtteranceSplitter():nnet-example-utils.cc",
    ("training/update.py", "print"): "Print():nnet-utils.cc",
    ("training/update.py", "_log"): "UpdateNnetWithMaxChange():nnet-utils.cc",
    ("training/xvector_egs.py", "examples_of_utterance"): "WriteExamples():{program}.cc",
}
"""(module, function) -> Kaldi's function and file.

Lines of cli/ and recognizer/ that are not listed name main().
"""

_TRAINERS = {
    "nnet3-chain-train": ("NnetChainTrainer", "nnet-chain-training"),
    "nnet3-chain-train2": ("NnetChainTrainer2", "nnet-chain-training2"),
    "nnet3-discriminative-train": ("NnetDiscriminativeTrainer", "nnet-discriminative-training"),
}


def place(path: str, function: str, program: str) -> str:
    """Return `Function():file.cc` for a log line of `function` in the source file `path`."""
    module = path.replace("\\", "/").rpartition("/nnet3tools/")[2]
    key = module, function
    trainer, trainer_file = _TRAINERS.get(program, ("NnetTrainer", "nnet-training"))
    if known := _PLACES.get(key):
        return known.format(program=program, trainer=trainer, trainer_file=trainer_file)
    is_main = module.startswith(("cli/", "recognizer/")) and key not in _OWN_PLACES
    if is_main and program not in _OWN_PROGRAMS:
        return f"main():{program}.cc"
    return f"{function}():{module.rpartition('/')[2]}"

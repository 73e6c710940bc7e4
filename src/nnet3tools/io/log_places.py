"""The function and file of Kaldi that each log line names.

Kaldi's scripts find lines by function and file: `:PrintTotalStats():nnet-diagnostics.cc:149)`. A
line that Kaldi's programs also print names Kaldi's function; the line number is that of this
package. A line that only this package prints names its own function and module.
"""

_OWN_PROGRAMS = frozenset(
    {
        "chain-objf",
        "nnet3-compile",
        "nnet3-computation-info",
        "nnet3-decode",
        "nnet3-make-graph",
        "nnet3-make-request",
        "nnet3-prepare-lang",
        "nnet3-serve",
        "nnet3-text-to-phones",
        "nnet3-worker",
        "nnet3-xconfig-to-configs",
    }
)
_OWN_PLACES = frozenset(
    {
        "cli/gpu _open_best",
        "cli/gpu _set_math_mode",
        "cli/gpu choose_device",
        "cli/gpu_locks _folder",
        "cli/gpu_locks _try_lock",
        "cli/gpu_survey _query",
        "cli/gpu_survey _log_problem",
        "cli/progress step",
        "cli/nnet3_compute run_program_once",
    }
)

_PLACES = {
    "cli/am_models _log_change": "PrintPriorDiagnostics {program}",
    "cli/nnet3_average _weights": "GetWeights {program}",
    "cli/data/sums tables": "TypeOneUsage {program}",
    "cli/data/sums table": "TypeTwoUsage {program}",
    "cli/data/sums files": "TypeThreeUsage {program}",
    "cli/gpu _open_device": "FinalizeActiveGpu cu-device",
    "cli/gpu _open_when_free": "SelectGpuId cu-device",
    "cli/gpu_survey _any_is_exclusive": "SelectGpuId cu-device",
    "cli/gpu_survey survey": "SelectGpuIdAuto cu-device",
    "chain/compilation compile": "ProtoSupervisionToSupervision chain-supervision",
    "chain/den_fst _log_coverage": "CheckDenominatorFst chain-den-graph",
    "chain/den_fst _log_size": "CreateDenominatorFst chain-den-graph",
    "chain/diagnostics print_objective": "PrintTotalStats nnet-chain-diagnostics",
    "chain/example_normalization _normalize": "main {program}",
    "chain/e2e _extension": "ProcessFile {program}",
    "chain/e2e supervision": "ProcessFile {program}",
    "chain/e2e pdf_acceptor": "TrainingGraphToSupervisionE2e chain-supervision",
    "chain/generation _piece": "ProcessFile {program}",
    "chain/generation lengths_match": "ProcessFile {program}",
    "chain/generation make_chain_examples": "main {program}",
    "chain/normalization _small": "AddWeightToSupervisionFst chain-supervision",
    "chain/objective compute_chain_objective": "ComputeChainObjfAndDeriv chain-training",
    "chain/objective _is_near": "BetaGeneralFrameDebug chain-denominator",
    "chain/objective _warn_of_range": "DenominatorComputation chain-denominator",
    "chain/phone_lm _acceptor": "OutputToFst language-model",
    "chain/phone_lm drop_states": "DoBackoff language-model",
    "chain/phone_lm estimate_phone_lm": "Estimate language-model",
    "chain/unconstrained convert": "ConvertSupervisionToUnconstrained chain-supervision",
    "cli/decoding_io write": "DecodeUtteranceLatticeFaster decoder-wrappers",
    "cli/decoding/latgen _report_batch": "~NnetBatchDecoder nnet-batch-compute",
    "compiler/search_log log_deriv_needed": "ComputeDerivNeeded nnet-compile",
    "compiler/search_log log_distance": "Compute nnet-computation-graph",
    "compiler/search_log log_epochs": "ComputeEpochInfo nnet-computation-graph",
    "compiler/search_log _log_sccs": "ComputeNnetComputationEpochs nnet-graph",
    "decoding/alignment align": "AlignUtteranceWrapper decoder-wrappers",
    "decoding/phone_determinization _run": "DeterminizeLatticePruned determinize-lattice-pruned",
    "decoding/phone_determinization determinize": (
        "DeterminizeLatticePhonePruned determinize-lattice-pruned"
    ),
    "decoding/utterance _lattice": "DecodeUtteranceLatticeFaster decoder-wrappers",
    "decoding/utterance finish": "DecodeUtteranceLatticeFaster decoder-wrappers",
    "executor/utterance_computer close": "PrintMinibatchStats nnet-batch-compute",
    "executor/computer _debugged": "DebugAfterExecute nnet-compute",
    "executor/debugging __init__": "Init nnet-compute",
    "executor/simple_options outputs_per_chunk": "CheckAndFixConfigs nnet-am-decodable-simple",
    "executor/xvector_plans chunks": "main {program}",
    "executor/xvector_plans __init__": "main {program}",
    "nnet/am_nnet set_nnet": "SetNnet am-nnet-simple",
    "nnet/collapse collapse_model": "Collapse nnet-utils",
    "nnet/components/batchnorm _make_up_statistics": "ComputeDerived nnet-normalize-component",
    "nnet/components/clip_gradient _log_first_repair": "RepairGradients nnet-simple-component",
    "nnet/components/time_height_convolution init_from_config": (
        "InitFromConfig nnet-convolutional-component"
    ),
    "nnet/edits _convert_to_fixed_affine": "ReadEditConfig nnet-utils",
    "nnet/edits _set_learning_rate": "ReadEditConfig nnet-utils",
    "nnet/edits _set_learning_rate_factor": "ReadEditConfig nnet-utils",
    "nnet/edits _remove_output_nodes": "ReadEditConfig nnet-utils",
    "nnet/edits _set_dropout_proportion": "ReadEditConfig nnet-utils",
    "nnet/hmm/transition_update _log": "MleUpdate transition-model",
    "nnet/natural_gradient _initialize": "InitDefault natural-gradient-online",
    "nnet/orthonormal _check_ratio": "ConstrainOrthonormalInternal nnet-utils",
    "nnet/svd _candidate": "ReduceRankOfComponents nnet-utils",
    "nnet/svd reduce_rank": "ReduceRankOfComponents nnet-utils",
    "nnet/svd apply_svd": "DecomposeComponents nnet-utils",
    "nnet/topology warn_of_orphans": "Check nnet-nnet",
    "nnet/topology remove_orphan_nodes": "RemoveOrphanNodes nnet-nnet",
    "nnet/topology remove_orphan_components": "RemoveOrphanComponents nnet-nnet",
    "optimizer/cache_files load_cache": "{trainer} {trainer_file}",
    "optimizer/cache_files save_cache": "~{trainer} {trainer_file}",
    "optimizer/cached_compiler log_time": "~CachingOptimizingCompiler nnet-optimize",
    "optimizer/compile_looped compile_looped": "CompileLooped nnet-compile-looped",
    "tensor/operators/fisher/__init__ _orthonormalize": (
        "ReorthogonalizeRt1 natural-gradient-online"
    ),
    "training/combination combine_models": "main {program}",
    "training/diagnostics print_objective": "PrintTotalStats nnet-diagnostics",
    "training/diagnostics _print_accuracy": "PrintTotalStats nnet-diagnostics",
    "training/diagnostics recompute_stats": "RecomputeStats nnet-utils",
    "training/feature_transform estimate_transform": "EstimateInternal get-feature-transform",
    "training/feature_transform _cholesky": "EstimateInternal get-feature-transform",
    "training/feature_transform _limited": "EstimateInternal get-feature-transform",
    "features/frames paste": "AppendFeats paste-feats",
    "features/cmvn floor_variance": "ApplyCmvn cmvn",
    "discriminative/diagnostics _print_details": "Print discriminative-training",
    "discriminative/diagnostics print_objective": "PrintTotalStats nnet-discriminative-diagnostics",
    "discriminative/generation make_discriminative_examples": "main {program}",
    "discriminative/objective judge": "Compute discriminative-training",
    "discriminative/objective _log_likes": "ConvertAnswersToLogLike discriminative-training",
    "discriminative/trainer _print_total": "PrintTotalStats nnet-discriminative-training",
    "training/generation find": "main {program}",
    "training/generation make_examples": "main {program}",
    "training/minibatch_rules _rules": "ComputeDerived nnet-example-utils",
    "training/merging_stats _print_specific": "PrintSpecificStats nnet-example-utils",
    "training/merging_stats _print_aggregate": "PrintAggregateStats nnet-example-utils",
    "training/reporting _print_phase": "PrintStatsForThisPhase nnet-training",
    "training/reporting print_total": "PrintTotalStats nnet-training",
    "training/selection _warn": "SelectFromExample {program}",
    "features/cmvn _warn": "SlidingWindowCmnInternal feature-functions",
    "training/splitting chunks": "ProcessFile {program}",
    "training/splitting chunk_sizes": "ComputeDerived nnet-example-utils",
    "training/splitting lengths_match": "LengthsMatch nnet-example-utils",
    "training/splitting print_stats": "~UtteranceSplitter nnet-example-utils",
    "training/update print": "Print nnet-utils",
    "training/update _log": "UpdateNnetWithMaxChange nnet-utils",
    "training/xvector_egs examples_of_utterance": "WriteExamples {program}",
}
"""Module and function -> Kaldi's function and file.

Lines of cli/ and recognizer/ that are not listed name main().
"""

_TRAINERS = {
    "nnet3-train": ("NnetTrainer", "nnet-training"),
    "nnet3-chain-train": ("NnetChainTrainer", "nnet-chain-training"),
    "nnet3-chain-train2": ("NnetChainTrainer2", "nnet-chain-training2"),
    "nnet3-discriminative-train": ("NnetDiscriminativeTrainer", "nnet-discriminative-training"),
}


def place(path: str, function: str, program: str) -> str:
    """The text Function():file.cc that Kaldi's `program` logs for `function` of module `path`."""
    module = path.replace("\\", "/").rpartition("/nnet3tools/")[2]
    key = f"{module.removesuffix('.py')} {function}"
    trainer, trainer_file = _TRAINERS.get(program, ("", ""))
    if (known := _PLACES.get(key)) and (trainer or "{trainer}" not in known):
        name, file = known.split()
        named = f"{name}():{file}.cc"
        return named.format(program=program, trainer=trainer, trainer_file=trainer_file)
    in_main = known or module.startswith(("cli/", "recognizer/"))
    if in_main and key not in _OWN_PLACES and program not in _OWN_PROGRAMS:
        return f"main():{program}.cc"
    return f"{function}():{module.rpartition('/')[2]}"

"""Options of objectives over examples, which programs declare before they load anything else."""

from nnet3tools.compiler.options import CompilerOptions
from nnet3tools.executor.options import ComputeOptions
from nnet3tools.fast_dataclasses import field
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.options import OptionGroup, option


class ComputeProbOptions(OptionGroup):
    """Options of nnet3-compute-prob (Kaldi's NnetComputeProbOptions)."""

    debug_computation: bool = option(False, "If true, turn on debug for the actual computation")
    compute_accuracy: bool = option(
        True, "If true, compute accuracy values as well as objective functions"
    )
    compute_per_dim_accuracy: bool = option(False, "If true, compute accuracy values per-dim")
    optimization: OptimizeOptions = field(default_factory=OptimizeOptions)
    compiler: CompilerOptions = field(default_factory=CompilerOptions)
    computation: ComputeOptions = field(default_factory=ComputeOptions)

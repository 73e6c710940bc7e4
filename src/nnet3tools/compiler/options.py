"""Options of compilation, with Kaldi's names (CachingOptimizingCompilerOptions)."""

from nnet3tools.fast_dataclasses import field
from nnet3tools.options import OptionGroup, option


class CompilerOptions(OptionGroup):
    """Options of the compiler and of its cache."""

    use_shortcut: bool = option(
        True,
        "If true, use the 'shortcut' in compilation whereby computation requests with "
        "regular structure are identified as such, a computation with a smaller number of "
        "distinct values of 'n' is compiled (e.g. 2), and the compiled computation is expanded "
        "to match the size of the real computation request.",
    )
    cache_capacity: int = option(
        64,
        "Determines how many computations the computation-cache will store (most-recently-used).",
    )
    output_debug_info: bool = field(default=True, metadata={"hidden": True})
    """Keep the cindexes of each matrix's rows, which passes and printing use."""

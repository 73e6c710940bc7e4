"""Programs that combine models by the LF-MMI objective."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools.chain.options import ChainTrainingOptions
from nnet3tools.cli.combine_models import CombineOptions, combine_on_examples
from nnet3tools.cli.options import OptionGroup, option_group, program

if TYPE_CHECKING:
    from collections.abc import Callable

    from nnet3tools.chain.den_graph import DenominatorGraph
    from nnet3tools.chain.languages import LanguageGraphs
    from nnet3tools.nnet.nnet import Nnet
    from nnet3tools.training.example import NnetExample

CHAIN_COMBINE_USAGE = """Using a subset of training or held-out nnet3+chain examples, compute
the average over the first n nnet models where we maximize the
'chain' objective function for n. Note that the order of models has
been reversed before feeding into this binary. So we are actually
combining last n models.
Inputs and outputs are nnet3 raw nnets.

Usage:  nnet3-chain-combine [options] <den-fst> <raw-nnet-in1> <raw-nnet-in2> ... <raw-nnet-inN> <chain-examples-in> <raw-nnet-out>

e.g.:
 nnet3-chain-combine den.fst 35.raw 36.raw 37.raw 38.raw ark:valid.cegs final.raw
"""  # noqa: E501


class ChainCombineOptions(OptionGroup):
    combine: CombineOptions = option_group("", CombineOptions)
    chain: ChainTrainingOptions = option_group("", ChainTrainingOptions)


@program("nnet3-chain-combine", CHAIN_COMBINE_USAGE, ChainCombineOptions, num_args=(4, None))
def nnet3_chain_combine(options: ChainCombineOptions, args: list[str]) -> None:
    from nnet3tools.chain.output_objective import den_graph_of

    _combine(options, args, lambda nnet: den_graph_of(args[0], nnet, args[1]))


def _combine(
    options: ChainCombineOptions,
    args: list[str],
    graph_of: Callable[[Nnet], DenominatorGraph | LanguageGraphs],
    adapt: Callable[[str, NnetExample], NnetExample] | None = None,
) -> None:
    """Combine the models in `args` (graphs, models, examples, output); evaluate on the examples.

    `graph_of` reads the denominator graphs for a model; `adapt`, given a key and an example,
    returns the example to evaluate.
    """
    from nnet3tools.chain.diagnostics import ChainDiagnostics
    from nnet3tools.chain.minibatch import CHAIN_MINIBATCH

    options.chain.check()
    combine_on_examples(
        options.combine,
        args[1:],
        lambda nnet, device: ChainDiagnostics(options.chain, graph_of(nnet), device),
        CHAIN_MINIBATCH,
        adapt,
    )


CHAIN_COMBINE2_USAGE = """Using a subset of training or held-out nnet3+chain examples, compute
the average over the first n nnet models where we maximize the
'chain' objective function for n. Note that the order of models has
been reversed before feeding into this binary. So we are actually
combining last n models.
Examples with ?lang=NAME in their keys, and others as of the language 'default', are
evaluated at output-NAME with the denominator FST <den-fst-dir>/NAME.den.fst.

Usage:  nnet3-chain-combine2 [options] <den-fst-dir> <raw-nnet-in1> <raw-nnet-in2> ... <raw-nnet-inN> <chain-examples-in> <raw-nnet-out>

e.g.:
 nnet3-chain-combine2 egs/misc 35.raw 36.raw 37.raw 38.raw ark:valid.cegs final.raw
"""  # noqa: E501


@program("nnet3-chain-combine2", CHAIN_COMBINE2_USAGE, ChainCombineOptions, num_args=(4, None))
def nnet3_chain_combine2(options: ChainCombineOptions, args: list[str]) -> None:
    from nnet3tools.chain.languages import LanguageGraphs, with_language

    _combine(options, args, lambda nnet: LanguageGraphs(args[0], nnet), with_language)

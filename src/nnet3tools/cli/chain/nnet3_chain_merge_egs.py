"""nnet3-chain-merge-egs: chain examples to minibatches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from nnet3tools.cli.egs_tables import merge_table
from nnet3tools.cli.options import option, program
from nnet3tools.errors import DataError
from nnet3tools.training.minibatch_rules import MINIBATCH_SIZE_HELP, ExampleMergingOptions

if TYPE_CHECKING:
    from nnet3tools.chain.example import NnetChainExample
    from nnet3tools.training.merging import Mergeable

USAGE = """This copies nnet3+chain training examples from input to output, merging them
into composite examples.  The --minibatch-size option controls how many egs
are merged into a single output eg.

Usage:  nnet3-chain-merge-egs [options] <egs-rspecifier> <egs-wspecifier>

e.g.:
nnet3-chain-merge-egs --minibatch-size=128 ark:1.cegs ark:- | nnet3-chain-train ...
See also: nnet3-chain-copy-egs
"""


@dataclass(frozen=True)
class Options(ExampleMergingOptions):
    """Options of nnet3-chain-merge-egs."""

    minibatch_size: str = option("64", MINIBATCH_SIZE_HELP)
    multilingual_eg: bool = option(
        False,
        "Set to true if your egs have keys such as key?lang=NAME: outputs are then called "
        "output-NAME, and minibatches get ?lang=NAME as well (chain2 recipes)",
    )


def _for_its_language(key: str, example: NnetChainExample) -> NnetChainExample:
    """The example with its output named after the language in its key."""
    from nnet3tools.chain.languages import language_of

    if not example.outputs:
        raise DataError("it has no output")
    first = replace(example.outputs[0], name=f"output-{language_of(key)}")
    return replace(example, outputs=[first, *example.outputs[1:]])


def _language_suffix(example: NnetChainExample) -> str:
    name = example.outputs[0].name
    return "?lang=" + (name.partition("-")[2] if "-" in name else name)


@program("nnet3-chain-merge-egs", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> None:
    """Merge a table."""
    from nnet3tools.chain.merging import MERGEABLE_CHAIN

    kind: Mergeable[Any] = MERGEABLE_CHAIN
    if options.multilingual_eg:
        from nnet3tools.chain.example import CHAIN_EXAMPLE

        merge_table(args, options, CHAIN_EXAMPLE, kind, _for_its_language, _language_suffix)
    else:
        from nnet3tools.chain.example_bytes import CHAIN_BYTES

        merge_table(args, options, CHAIN_BYTES, kind)

"""The twelve programs that copy, merge, shuffle and choose examples of three kinds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from nnet3tools.cli.egs_tables import (
    Changes,
    CopyOptions,
    DrawOptions,
    ShuffleOptions,
    SubsetOptions,
    copy_examples,
    merge_table,
    shuffle_table,
    subset_table,
)
from nnet3tools.cli.egs_usage import USAGE
from nnet3tools.cli.options import Main, option, option_group, program
from nnet3tools.errors import DataError
from nnet3tools.training.minibatch_rules import MINIBATCH_SIZE_HELP, ExampleMergingOptions

if TYPE_CHECKING:
    from nnet3tools.chain.example import NnetChainExample
    from nnet3tools.io.holder import Holder
    from nnet3tools.training.merging import Mergeable

__all__ = ["MAINS"]


# -- options


@dataclass(frozen=True)
class _FrameCopyOptions:
    common: CopyOptions = option_group("", CopyOptions)
    frame_shift: int = option(
        0,
        "Allows you to shift time values in the supervision data (excluding iVector data).  Only "
        "really useful for topologies with modulus != 1.  Done after any frame selection.",
    )
    frame: str = option(
        "", "A number 0, 1, etc. to select a single frame of each example, or 'random'"
    )


def _frame_shift_of_sequences() -> int:
    return option(
        0,
        "Allows you to shift time values in the supervision data (excluding iVector data) - useful "
        "in augmenting data.  Note, the outputs will remain at the closest exact multiples of the "
        "frame subsampling factor",
    )


@dataclass(frozen=True)
class _ChainCopyOptions:
    common: CopyOptions = option_group("", CopyOptions)
    frame_shift: int = _frame_shift_of_sequences()


@dataclass(frozen=True)
class _DiscriminativeCopyOptions(DrawOptions):
    frame_shift: int = _frame_shift_of_sequences()


@dataclass(frozen=True)
class _SequenceMergeOptions(ExampleMergingOptions):
    minibatch_size: str = option("64", MINIBATCH_SIZE_HELP)


@dataclass(frozen=True)
class _ChainMergeOptions(_SequenceMergeOptions):
    multilingual_eg: bool = option(
        False,
        "Set to true if your egs have keys such as key?lang=NAME: outputs are then called "
        "output-NAME, and minibatches get ?lang=NAME as well (chain2 recipes)",
    )


# -- kinds of examples


@dataclass(frozen=True)
class _Kind:
    """A kind of examples; values that load NumPy or rooms are looked up by module and name.

    `encoded` and `mergeable_table` are the holders of tables that are passed on and merged;
    `merge_rules` is a Mergeable. `copy` runs the copying program.
    """

    prefix: str
    name_in_log: str
    encoded: tuple[str, str]
    mergeable_table: tuple[str, str]
    merge_rules: tuple[str, str]
    merge_options: type[ExampleMergingOptions]
    copy_options: type[Any]
    copy: Callable[[Any, list[str]], None]


def _imported(place: tuple[str, str]) -> Any:
    module, name = place
    return getattr(import_module(f"nnet3tools.{module}"), name)


def _copy_frames(options: _FrameCopyOptions, args: list[str]) -> None:
    common = options.common
    if common.changes_nothing and not options.frame and not options.frame_shift:
        copy_examples(args, common, _imported(_FRAMES.encoded), None)
        return
    from nnet3tools.training.batched_changes import FRAME_CHANGES, BatchedChanges
    from nnet3tools.training.same_layout import DECODABLE_EXAMPLES
    from nnet3tools.training.selection import FrameSelection

    contexts = common.left_context, common.right_context
    selection = FrameSelection(options.frame, *contexts, options.frame_shift)
    changes = BatchedChanges(FRAME_CHANGES, selection)
    copy_examples(args, common, DECODABLE_EXAMPLES, Changes.batched(changes))


def _copy_chain(options: _ChainCopyOptions, args: list[str]) -> None:
    common, holder = options.common, _imported(_CHAIN.encoded)
    if common.changes_nothing and not options.frame_shift:
        copy_examples(args, common, holder, None)
        return
    from nnet3tools.chain.selection import CHAIN_CHANGES, ChainSelection
    from nnet3tools.training.batched_changes import BatchedChanges
    from nnet3tools.training.selection import ContextCutter

    contexts = ContextCutter(common.left_context, common.right_context)
    changes = BatchedChanges(CHAIN_CHANGES, ChainSelection(options.frame_shift, contexts))
    copy_examples(args, common, holder, Changes.batched(changes))


def _copy_discriminative(options: _DiscriminativeCopyOptions, args: list[str]) -> None:
    from nnet3tools.chain.selection import shift_sequence_times

    common = CopyOptions(options.random, options.keep_proportion, options.srand)
    changes: Changes[Any] = Changes(
        scale=lambda example, key, weight: example,
        select=lambda example, key: shift_sequence_times(example, options.frame_shift),
        rename=lambda example, key, name: example,
    )
    copy_examples(args, common, _imported(_DISCRIMINATIVE.encoded), changes)


_FRAMES = _Kind(
    "nnet3",
    "neural-network",
    ("training.encoded_examples", "ENCODED_EXAMPLES"),
    ("training.same_layout", "BATCHED_EXAMPLES"),
    ("training.merging", "MERGEABLE_FRAMES"),
    ExampleMergingOptions,
    _FrameCopyOptions,
    _copy_frames,
)
_CHAIN = _Kind(
    "nnet3-chain",
    "nnet3+chain",
    ("chain.encoded_examples", "ENCODED_CHAIN_EXAMPLES"),
    ("chain.encoded_examples", "ENCODED_CHAIN_EXAMPLES"),
    ("chain.merging", "MERGEABLE_CHAIN"),
    _ChainMergeOptions,
    _ChainCopyOptions,
    _copy_chain,
)
_DISCRIMINATIVE = _Kind(
    "nnet3-discriminative",
    "neural-network discriminative",
    ("discriminative.example", "DISCRIMINATIVE_EXAMPLE"),
    ("discriminative.example", "DISCRIMINATIVE_EXAMPLE"),
    ("discriminative.merging", "MERGEABLE_DISCRIMINATIVE"),
    _SequenceMergeOptions,
    _DiscriminativeCopyOptions,
    _copy_discriminative,
)


# -- merging the examples of several languages


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


# -- programs


def _merge(kind: _Kind, options: ExampleMergingOptions, args: list[str]) -> None:
    rules: Mergeable[Any] = _imported(kind.merge_rules)
    if kind is _CHAIN and options.multilingual_eg:
        holder: Holder[Any] = _imported(("chain.example", "CHAIN_EXAMPLE"))
        merge_table(args, options, holder, rules, _for_its_language, _language_suffix)
    else:
        merge_table(args, options, _imported(kind.mergeable_table), rules)


def _programs_of(kind: _Kind) -> dict[str, Main]:
    """The four programs of a kind, by name."""

    def shuffle(options: ShuffleOptions, args: list[str]) -> None:
        shuffle_table(args, options, _imported(kind.encoded))

    def subset(options: SubsetOptions, args: list[str]) -> None:
        subset_table(args, options, _imported(kind.encoded), kind.name_in_log)

    def merge(options: ExampleMergingOptions, args: list[str]) -> None:
        _merge(kind, options, args)

    two_or_more: tuple[int, int | None] = (2, None)
    actions: tuple[tuple[str, type[Any], int | tuple[int, int | None], Callable], ...] = (
        ("copy", kind.copy_options, two_or_more, kind.copy),
        ("merge", kind.merge_options, 2, merge),
        ("shuffle", ShuffleOptions, 2, shuffle),
        ("subset", SubsetOptions, 2, subset),
    )
    return {
        (name := f"{kind.prefix}-{action}-egs"): program(name, USAGE[name], options, num_args)(body)
        for action, options, num_args, body in actions
    }


MAINS = {**_programs_of(_FRAMES), **_programs_of(_CHAIN), **_programs_of(_DISCRIMINATIVE)}
"""Program -> its `main`."""


def __getattr__(name: str) -> Main:
    """`nnet3_copy_egs` and its like, which entry points name."""
    if (main := MAINS.get(name.replace("_", "-"))) is None:
        raise AttributeError(name)
    return main

"""The twelve programs that copy, merge, shuffle and choose examples of three kinds (egs)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from nnet3tools.cli.egs_tables import (
    CopyOptions,
    ShuffleOptions,
    SubsetOptions,
    copy_examples,
    merge_table,
    shuffle_table,
    subset_table,
)
from nnet3tools.cli.egs_usage import usage
from nnet3tools.cli.options import Main, program
from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import replace

if TYPE_CHECKING:
    from nnet3tools.chain.example import NnetChainExample
    from nnet3tools.cli.egs_options import (
        ChainCopyOptions,
        DiscriminativeCopyOptions,
        ExampleMergingOptions,
        FrameCopyOptions,
    )
    from nnet3tools.io.holder import Holder
    from nnet3tools.training.merging import Mergeable


# -- kinds of examples


class _Kind(NamedTuple):
    """A kind of examples, and what the programs for its tables need.

    Programs are named `prefix`-ACTION-egs; log lines call the examples `name_in_log`. `encoded` and
    `mergeable_table` are the holders for copying and for merging tables, `merge_rules` has the
    functions that merge; each is a (module, name), as imports take time. `merge_options` and
    `copy_options` name classes of egs_options; `copy` runs the copying program.
    """

    prefix: str
    name_in_log: str
    encoded: tuple[str, str]
    mergeable_table: tuple[str, str]
    merge_rules: tuple[str, str]
    merge_options: str
    copy_options: str
    copy: Callable[[Any, list[str]], None]


def _imported(place: tuple[str, str]) -> Any:
    module, name = place
    return getattr(import_module(f"nnet3tools.{module}"), name)


def _copy_frames(options: FrameCopyOptions, args: list[str]) -> None:
    common = options.common
    if common.changes_nothing and not options.frame and not options.frame_shift:
        copy_examples(args, common, _imported(_FRAMES.encoded), None)
        return
    from nnet3tools.training.batched_changes import FRAME_CHANGES, BatchedChanges
    from nnet3tools.training.same_layout import BATCHED_EXAMPLES, DECODABLE_EXAMPLES
    from nnet3tools.training.selection import FrameSelection

    contexts = common.left_context, common.right_context
    selection = FrameSelection(options.frame, *contexts, options.frame_shift)
    changes = BatchedChanges(FRAME_CHANGES, selection)
    copy_examples(args, common, DECODABLE_EXAMPLES, changes, BATCHED_EXAMPLES)


def _copy_chain(options: ChainCopyOptions, args: list[str]) -> None:
    common, holder = options.common, _imported(_CHAIN.encoded)
    if common.changes_nothing and not options.frame_shift:
        copy_examples(args, common, holder, None)
        return
    from nnet3tools.chain.selection import CHAIN_CHANGES, ChainSelection
    from nnet3tools.training.batched_changes import BatchedChanges
    from nnet3tools.training.selection import ContextCutter

    contexts = ContextCutter(common.left_context, common.right_context)
    changes = BatchedChanges(CHAIN_CHANGES, ChainSelection(options.frame_shift, contexts))
    copy_examples(args, common, holder, changes)


def _copy_discriminative(options: DiscriminativeCopyOptions, args: list[str]) -> None:
    from nnet3tools.chain.selection import CHAIN_CHANGES, ChainSelection
    from nnet3tools.training.batched_changes import BatchedChanges
    from nnet3tools.training.selection import ContextCutter

    common = CopyOptions(options.random, options.keep_proportion, options.srand)
    selection = ChainSelection(options.frame_shift, ContextCutter())
    changes: BatchedChanges[Any] = BatchedChanges(CHAIN_CHANGES, selection)
    copy_examples(args, common, _imported(_DISCRIMINATIVE.encoded), changes)


_FRAMES = _Kind(
    "nnet3",
    "neural-network",
    ("training.example_format", "ENCODED_EXAMPLES"),
    ("training.same_layout", "BATCHED_EXAMPLES"),
    ("training.merging", "MERGEABLE_FRAMES"),
    "ExampleMergingOptions",
    "FrameCopyOptions",
    _copy_frames,
)
_CHAIN = _Kind(
    "nnet3-chain",
    "nnet3+chain",
    ("chain.example_format", "ENCODED_CHAIN_EXAMPLES"),
    ("chain.example_format", "ENCODED_CHAIN_EXAMPLES"),
    ("chain.merging", "MERGEABLE_CHAIN"),
    "ChainMergeOptions",
    "ChainCopyOptions",
    _copy_chain,
)
_DISCRIMINATIVE = _Kind(
    "nnet3-discriminative",
    "neural-network discriminative",
    ("discriminative.example", "DISCRIMINATIVE_EXAMPLE"),
    ("discriminative.example", "DISCRIMINATIVE_EXAMPLE"),
    ("discriminative.merging", "MERGEABLE_DISCRIMINATIVE"),
    "SequenceMergeOptions",
    "DiscriminativeCopyOptions",
    _copy_discriminative,
)


_KINDS = (_FRAMES, _CHAIN, _DISCRIMINATIVE)


# -- merging the examples of several languages


def _for_its_language(key: str, example: NnetChainExample) -> NnetChainExample:
    """A copy of the example; its first output is named output-LANG for a key with ?lang=LANG."""
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


def _program(kind: _Kind, action: str) -> Main:
    """The program for `action` (copy, merge, shuffle or subset) on tables of a kind of examples."""

    def shuffle(options: ShuffleOptions, args: list[str]) -> None:
        shuffle_table(args, options, _imported(kind.encoded))

    def subset(options: SubsetOptions, args: list[str]) -> None:
        subset_table(args, options, _imported(kind.encoded), kind.name_in_log)

    def merge(options: ExampleMergingOptions, args: list[str]) -> None:
        _merge(kind, options, args)

    actions: dict[str, tuple[str, Any, Any]] = {
        "copy": (kind.copy_options, (2, None), kind.copy),
        "merge": (kind.merge_options, 2, merge),
        "shuffle": ("ShuffleOptions", 2, shuffle),
        "subset": ("SubsetOptions", 2, subset),
    }
    options, num_args, body = actions[action]
    name, text = f"{kind.prefix}-{action}-egs", usage(kind.prefix, action)
    module = "egs_tables" if action in ("shuffle", "subset") else "egs_options"
    return program(name, text, _imported((f"cli.{module}", options)), num_args)(body)


@functools.cache
def __getattr__(name: str) -> Main:
    """The program with the given name, such as `nnet3_copy_egs`, which entry points import."""
    prefix, _, action = name.removesuffix("_egs").replace("_", "-").rpartition("-")
    kind = next((kind for kind in _KINDS if kind.prefix == prefix), None)
    if kind is None or action not in ("copy", "merge", "shuffle", "subset"):
        raise AttributeError(name)
    return _program(kind, action)

"""chain-get-supervision: make supervisions of utterances from alignments or phone lattices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools.chain.options import SupervisionOptions
from nnet3tools.cli.options import OptionGroup, option, option_group, program
from nnet3tools.io import log

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from nnet3tools.chain.proto_supervision import ProtoSupervision
    from nnet3tools.io.holder import Holder

USAGE = """Get a 'chain' supervision object for each file of training data.
This will normally be piped into nnet3-chain-get-egs, where it
will be split up into pieces and combined with the features.
Input can come in two formats: from alignments
(from ali-to-phones --write-lengths=true), or from lattices
(e.g. derived from aligning the data, see steps/align_fmllr_lats.sh)
that have been converged to phone-level lattices with
lattice-align-phones --replace-output-symbols=true.

Usage: chain-get-supervision [options] <tree> <transition-model> \
[<phones-with-lengths-rspecifier>|<phone-lattice-rspecifier>] <supervision-wspecifier>

e.g.:
chain-get-supervision --frame-subsampling-factor=3 tree 0.trans_mdl ark:ali.phones ark:sup.ark
See steps/nnet3/chain/get_egs.sh for example
"""


class Options(OptionGroup):
    lattice_input: bool = option(False, "If true, expect phone lattices as input")
    supervision: SupervisionOptions = option_group("", SupervisionOptions)


@program("chain-get-supervision", USAGE, Options, num_args=4)
def main(options: Options, args: list[str]) -> int:
    from nnet3tools.chain.compilation import SupervisionCompiler
    from nnet3tools.chain.supervision import SUPERVISION
    from nnet3tools.errors import naming
    from nnet3tools.io.table import SequentialTableReader, TableWriter
    from nnet3tools.nnet.hmm.transition_model import TransitionModel
    from nnet3tools.nnet.hmm.tree import ContextDependency

    options.supervision.check()
    tree_in, model_in, rspecifier, wspecifier = args
    model, tree = TransitionModel.load(model_in), ContextDependency.load(tree_in)
    compiler = SupervisionCompiler(tree, model, options.supervision.convert_to_pdfs)
    holder, find = _input_kind(options)
    num_done = num_errors = 0
    with (
        TableWriter(wspecifier, SUPERVISION) as writer,
        SequentialTableReader(rspecifier, holder) as reader,
    ):
        for key, value in reader:
            supervision = None
            with naming(f"{rspecifier}: key '{key}'"):
                if (proto := find(key, value)) is not None:
                    supervision = compiler.compile(proto)
            if proto is not None and supervision is None:
                log.warning(f"Failed creating supervision for utterance {key}")
            if supervision is None:
                num_errors += 1
                continue
            writer.write(key, supervision)
            num_done += 1
    log.log(
        f"Generated chain supervision information for {num_done} utterances, errors on {num_errors}"
    )
    return 0 if num_done > num_errors else 1


def _input_kind(
    options: Options,
) -> tuple[Holder[Any], Callable[[str, Any], ProtoSupervision | None]]:
    """The holder for the input table, and a function from key and object to ProtoSupervision.

    The function returns None, after a warning, for an object that it cannot convert.
    """
    from nnet3tools.chain.phone_lattice import PHONE_LATTICE
    from nnet3tools.chain.proto_supervision import of_alignment, of_lattice
    from nnet3tools.errors import DataError
    from nnet3tools.io.holders import INT32_PAIR_VECTOR

    def find_in_lattice(key: str, value: Any) -> ProtoSupervision | None:
        try:
            return of_lattice(value, options.supervision)
        except DataError as error:
            log.warning(f"Error creating proto-supervision for utterance {key}: {error}")
            return None

    def find_in_alignment(key: str, value: Any) -> ProtoSupervision:
        return of_alignment(value, options.supervision)

    if options.lattice_input:
        return PHONE_LATTICE, find_in_lattice
    return INT32_PAIR_VECTOR, find_in_alignment

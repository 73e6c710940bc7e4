"""Programs that make phone language models, graphs and supervisions of chain training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools.chain.options import LanguageModelOptions, SupervisionOptions
from nnet3tools.cli.options import NoOptions, OptionGroup, option, option_group, program
from nnet3tools.errors import DataError, naming
from nnet3tools.io import log

if TYPE_CHECKING:
    from typing import Any

    from nnet3tools.chain.proto_supervision import ProtoSupervision
    from nnet3tools.io.holder import Holder

CHAIN_EST_PHONE_LM_USAGE = """Initialize un-smoothed phone language model for 'chain' training
Output in FST format (epsilon-free deterministic acceptor)

Usage:  chain-est-phone-lm [options] <phone-seqs-rspecifier> <phone-lm-fst-out>

The phone-sequences are used to train a language model.
e.g.:
gunzip -c input_dir/ali.*.gz | ali-to-phones input_dir/final.mdl ark:- ark:- | \\
 chain-est-phone-lm --num-extra-lm-states=2000 ark:- dir/phone_G.fst
"""


class ChainEstPhoneLmOptions(OptionGroup):
    binary: bool = option(True, "Write output in binary mode (it always is, as in Kaldi)")
    lm: LanguageModelOptions = option_group("", LanguageModelOptions)


@program("chain-est-phone-lm", CHAIN_EST_PHONE_LM_USAGE, ChainEstPhoneLmOptions, num_args=2)
def chain_est_phone_lm(options: ChainEstPhoneLmOptions, args: list[str]) -> None:
    from nnet3tools.chain.phone_lm import estimate_phone_lm
    from nnet3tools.fst.files import save_fst
    from nnet3tools.io.holders import INT32_VECTOR
    from nnet3tools.io.table import SequentialTableReader

    options.lm.check()
    log.log("Reading phone sequences")
    with SequentialTableReader(args[0], INT32_VECTOR) as sentences, naming(args[0]):
        fst = estimate_phone_lm(sentences, options.lm)
    save_fst(args[1], fst)
    log.log(f"Estimated phone language model and wrote it to {args[1]}")


CHAIN_MAKE_DEN_FST_USAGE = """Created 'denominator' FST for 'chain' training
Outputs in FST format.  <denominator-fst-out> is an epsilon-free acceptor
<normalization-fst-out> is a modified version of <denominator-fst> (w.r.t.
initial and final probs) that is used in example generation.

Usage: chain-make-den-fst [options] <tree> <transition-model> <phone-lm-fst> \
<denominator-fst-out> <normalization-fst-out>

e.g.:
chain-make-den-fst dir/tree dir/0.trans_mdl dir/phone_lm.fst dir/den.fst dir/normalization.fst
"""


@program("chain-make-den-fst", CHAIN_MAKE_DEN_FST_USAGE, NoOptions, num_args=5)
def chain_make_den_fst(options: NoOptions, args: list[str]) -> None:
    from nnet3tools.chain.den_fst import make_denominator_fst, make_normalization_fst
    from nnet3tools.fst.files import load_fst, save_fst
    from nnet3tools.nnet.hmm.transition_model import TransitionModel
    from nnet3tools.nnet.hmm.tree import ContextDependency

    tree_in, model_in, lm_in, den_out, normalization_out = args
    tree, model = ContextDependency.load(tree_in), TransitionModel.load(model_in)
    phone_lm = load_fst(lm_in)
    with naming(lm_in):
        den_fst = make_denominator_fst(tree, model, phone_lm)
        normalization_fst = make_normalization_fst(den_fst)
    save_fst(den_out, den_fst)
    save_fst(normalization_out, normalization_fst)
    log.log(f"Write denominator FST to {den_out} and normalization FST to {normalization_out}")


CHAIN_MAKE_NUM_FST_E2E_USAGE = """\
Converts chain e2e numerator fst (containing transition-ids) to fst
(containing pdf-ids+1, and composed by the normalization fst)

Usage:  chain-make-num-fst-e2e [options] <model> <normalization-fst> \
<transition-fst-rspecifier> <pdf-fst-wspecifier>

e.g.:
 chain-make-num-fst-e2e 1.mdl normalization.fst ark:1.fst ark,t:-
"""


@program("chain-make-num-fst-e2e", CHAIN_MAKE_NUM_FST_E2E_USAGE, NoOptions, num_args=4)
def chain_make_num_fst_e2e(options: NoOptions, args: list[str]) -> None:
    from nnet3tools.chain.e2e import pdf_acceptor
    from nnet3tools.chain.normalization import load_normalizer
    from nnet3tools.cli.tables import convert_table
    from nnet3tools.fst.files import FST
    from nnet3tools.fst.fst import Fst
    from nnet3tools.nnet.hmm.transition_model import TransitionModel

    transition_model = TransitionModel.load(args[0])
    normalizer = load_normalizer(args[1])

    def convert(key: str, graph: Fst) -> Fst:
        acceptor = pdf_acceptor(graph, transition_model)
        return Fst.empty() if acceptor is None else normalizer.composed(acceptor)

    num_done, _ = convert_table(args[2], args[3], (FST, FST), convert)
    log.log(f"Converted {num_done} Fsts with transition-id to Fsts with pdf-id and normalized.")


CHAIN_GET_SUPERVISION_USAGE = """Get a 'chain' supervision object for each file of training data.
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


class ChainGetSupervisionOptions(OptionGroup):
    lattice_input: bool = option(False, "If true, expect phone lattices as input")
    supervision: SupervisionOptions = option_group("", SupervisionOptions)


@program(
    "chain-get-supervision", CHAIN_GET_SUPERVISION_USAGE, ChainGetSupervisionOptions, num_args=4
)
def chain_get_supervision(options: ChainGetSupervisionOptions, args: list[str]) -> int:
    from nnet3tools.chain.compilation import SupervisionCompiler
    from nnet3tools.chain.proto_supervision import PHONE_LATTICE, of_alignment, of_lattice
    from nnet3tools.chain.supervision import SUPERVISION, Supervision
    from nnet3tools.cli.tables import convert_table
    from nnet3tools.io.holders import INT32_PAIR_VECTOR
    from nnet3tools.nnet.hmm.transition_model import TransitionModel
    from nnet3tools.nnet.hmm.tree import ContextDependency

    options.supervision.check()
    tree_in, model_in, rspecifier, wspecifier = args
    model, tree = TransitionModel.load(model_in), ContextDependency.load(tree_in)
    compiler = SupervisionCompiler(tree, model, options.supervision.convert_to_pdfs)

    def proto_of(key: str, value: Any) -> ProtoSupervision | None:
        if not options.lattice_input:
            return of_alignment(value, options.supervision)
        try:
            return of_lattice(value, options.supervision)
        except DataError as error:
            log.warning(f"Error creating proto-supervision for utterance {key}: {error}")
            return None

    def convert(key: str, value: Any) -> Supervision | None:
        if (proto := proto_of(key, value)) is None:
            return None
        if (supervision := compiler.compile(proto)) is None:
            log.warning(f"Failed creating supervision for utterance {key}")
        return supervision

    holder: Holder[Any] = PHONE_LATTICE if options.lattice_input else INT32_PAIR_VECTOR
    holders = holder, SUPERVISION
    num_done, num_errors = convert_table(rspecifier, wspecifier, holders, convert)
    log.log(
        f"Generated chain supervision information for {num_done} utterances, errors on {num_errors}"
    )
    return 0 if num_done > num_errors else 1

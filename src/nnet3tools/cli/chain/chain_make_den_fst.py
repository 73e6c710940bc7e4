"""chain-make-den-fst: make the denominator FST and normalization FST of a phone language model."""

from nnet3tools.cli.options import NoOptions, program
from nnet3tools.io import log

USAGE = """Created 'denominator' FST for 'chain' training
Outputs in FST format.  <denominator-fst-out> is an epsilon-free acceptor
<normalization-fst-out> is a modified version of <denominator-fst> (w.r.t.
initial and final probs) that is used in example generation.

Usage: chain-make-den-fst [options] <tree> <transition-model> <phone-lm-fst> \
<denominator-fst-out> <normalization-fst-out>

e.g.:
chain-make-den-fst dir/tree dir/0.trans_mdl dir/phone_lm.fst dir/den.fst dir/normalization.fst
"""


@program("chain-make-den-fst", USAGE, NoOptions, num_args=5)
def main(options: NoOptions, args: list[str]) -> None:
    from nnet3tools.chain.den_fst import make_denominator_fst, make_normalization_fst
    from nnet3tools.errors import naming
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

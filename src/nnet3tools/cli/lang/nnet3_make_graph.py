"""nnet3-make-graph: make the decoding graph HCLG."""

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import naming
from nnet3tools.io import log

USAGE = """Makes the decoding graph of a system, as Kaldi's utils/mkgraph.sh does: a transducer from
transition-ids to words of HMMs, context, lexicon and language model.  The graph folder gets
HCLG.fst, and copies of the files of the lang folder that decoding and scoring need.

Usage:  nnet3-make-graph [options] <lang-dir> <tree> <model> <graph-dir>

<lang-dir> holds G.fst (see arpa2fst) beside what nnet3-prepare-lang writes; <model> is a
transition model or begins with one.

e.g.:
 nnet3-make-graph --self-loop-scale=1.0 data/lang exp/chain/tree exp/chain/final.mdl exp/chain/graph
"""


class Options(OptionGroup):
    transition_scale: float = option(1.0, "Scaling factor on transition probabilities.")
    self_loop_scale: float = option(
        0.1, "Scaling factor of self-loops' probabilities; 1.0 for chain models"
    )
    remove_oov: bool = option(
        False, "If true, paths with the word for unknown words (oov.int) are left out"
    )


@program("nnet3-make-graph", USAGE, Options, num_args=4)
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.fst.files import load_fst, save_const_fst
    from nnet3tools.lang import graphs
    from nnet3tools.lang.symbols import read_numbers
    from nnet3tools.nnet.hmm.transition_model import TransitionModel
    from nnet3tools.nnet.hmm.tree import ContextDependency

    lang, tree_in, model_in, graph_dir = args
    tree, model = ContextDependency.load(tree_in), TransitionModel.load(model_in)
    if not model.topology.is_hmm and options.self_loop_scale != 1.0:
        log.warning("chain models need '--self-loop-scale=1.0'")
    lexicon, grammar = load_fst(f"{lang}/L_disambig.fst"), load_fst(f"{lang}/G.fst")
    disambig = read_numbers(f"{lang}/phones/disambig.int")
    with naming(lang):
        fst = graphs.lexicon_and_grammar(lexicon, grammar)
        if options.remove_oov:
            fst = graphs.without_words(fst, read_numbers(f"{lang}/oov.int"))
        scales = graphs.GraphScales(options.transition_scale, options.self_loop_scale)
        fst = graphs.decoding_graph(tree, model, fst, disambig, scales)
    graphs.copy_lang_files(lang, graph_dir, model.num_pdfs)
    save_const_fst(f"{graph_dir}/HCLG.fst", fst)

"""chain-make-num-fst-e2e: convert numerator graphs to pdfs and add the normalization weights."""

from nnet3tools.cli.options import NoOptions, program
from nnet3tools.io import log

USAGE = """Converts chain e2e numerator fst (containing transition-ids) to fst
(containing pdf-ids+1, and composed by the normalization fst)

Usage:  chain-make-num-fst-e2e [options] <model> <normalization-fst> \
<transition-fst-rspecifier> <pdf-fst-wspecifier>

e.g.:
 chain-make-num-fst-e2e 1.mdl normalization.fst ark:1.fst ark,t:-
"""


@program("chain-make-num-fst-e2e", USAGE, NoOptions, num_args=4)
def main(options: NoOptions, args: list[str]) -> None:
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

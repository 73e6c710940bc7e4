"""post-to-pdf-post: converts posteriors of transition ids to posteriors of pdfs."""

from typing import TYPE_CHECKING

from nnet3tools.cli.options import NoOptions, program
from nnet3tools.io import log

if TYPE_CHECKING:
    pass

USAGE = """This program turns per-frame posteriors, which have transition-ids as
the integers, into pdf-level posteriors
See also: post-to-phone-post, post-to-weights, get-post-on-ali

Usage:  post-to-pdf-post [options] <model-file> <posteriors-rspecifier> <posteriors-wspecifier>
e.g.: post-to-pdf-post 1.mdl ark:- ark:-
"""


@program("post-to-pdf-post", USAGE, NoOptions, num_args=3)
def main(options: NoOptions, args: list[str]) -> None:
    """Convert a table of posteriors of transition ids to posteriors of pdfs.

    The pdfs of a frame are sorted; Kaldi writes them in hash order.
    """
    from nnet3tools.cli.tables import convert_table
    from nnet3tools.io.holders import POSTERIOR
    from nnet3tools.io.posterior import Posterior
    from nnet3tools.nnet.hmm.transition_model import TransitionModel

    model = TransitionModel.load(args[0])
    pdfs, num_pdfs = model.pdfs_of_ids(), model.num_pdfs

    def convert(key: str, posterior: Posterior) -> Posterior:
        model.check_transition_ids(posterior.pdfs)
        ids = Posterior(posterior.offsets, pdfs[posterior.pdfs], posterior.weights)
        sums = ids.to_sparse(num_pdfs)
        return Posterior(sums.row_offsets, sums.indices, sums.values)

    num_done, _ = convert_table(args[1], args[2], (POSTERIOR, POSTERIOR), convert)
    log.log(f"Done converting posteriors to pdf-level posteriors for {num_done} utterances.")

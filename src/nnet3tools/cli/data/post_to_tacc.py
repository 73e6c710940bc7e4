"""post-to-tacc: counts of transition ids in posteriors."""

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import naming
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

USAGE = """From posteriors, compute transition-accumulators
The output is a vector of counts/soft-counts, indexed by transition-id)
Note: the model is only read in order to get the size of the vector

Usage: post-to-tacc [options] <model> <post-rspecifier> <accs>
 e.g.: post-to-tacc --binary=false 1.mdl "ark:ali-to-post 1.ali ark:-|" 1.tacc
See also: get-post-on-ali
"""


class Options(OptionGroup):
    binary: bool = option(True, "Write output in binary mode.")
    per_pdf: bool = option(
        False, "if ture, accumulate counts per pdf-id rather than transition-id. (default: false)"
    )


@program("post-to-tacc", USAGE, Options, num_args=3)
def main(options: Options, args: list[str]) -> int:
    """Write the total posterior of each transition id, or pdf, of a table of posteriors.

    With --per-pdf=true all pdfs are counted; Kaldi omits the last.
    """
    from nnet3tools.cli.tables import write_object
    from nnet3tools.io.files import prove_output
    from nnet3tools.io.holders import POSTERIOR, VECTOR
    from nnet3tools.io.table import SequentialTableReader
    from nnet3tools.nnet.hmm.transition_model import TransitionModel

    model_in, posteriors_in, counts_out = args
    prove_output(counts_out)
    model = TransitionModel.load(model_in)
    counts = np.zeros(model.num_transition_ids + 1)
    num_done = 0
    with SequentialTableReader(posteriors_in, POSTERIOR) as posteriors:
        for key, posterior in posteriors:
            with naming(f"{posteriors_in}: utterance {key}"):
                model.check_transition_ids(posterior.pdfs)
            counts += np.bincount(posterior.pdfs, posterior.weights, len(counts))
            num_done += 1
    if options.per_pdf:
        log.log("accumulate counts per pdf-id")
        pdfs = model.pdfs_of_ids()[1:]
        counts = np.bincount(pdfs, counts[1:], model.num_pdfs).astype(np.float64)
    write_object(counts_out, VECTOR, counts.astype(np.float32), options.binary)
    log.log(
        f"Done computing transition stats over {num_done} utterances; wrote stats to {counts_out}"
    )
    return 0 if num_done else 1

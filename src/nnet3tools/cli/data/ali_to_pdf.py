"""ali-to-pdf: converts transition ids of alignments to pdfs."""

from __future__ import annotations

from nnet3tools.cli.options import NoOptions, program
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

USAGE = """Converts alignments (containing transition-ids) to pdf-ids, zero-based.
Usage:  ali-to-pdf  [options] <model> <alignments-rspecifier> <pdfs-wspecifier>
e.g.:
 ali-to-pdf 1.mdl ark:1.ali ark,t:-
"""


@program("ali-to-pdf", USAGE, NoOptions, num_args=3)
def main(options: NoOptions, args: list[str]) -> None:
    from nnet3tools.cli.tables import convert_table
    from nnet3tools.io.holders import INT32_VECTOR
    from nnet3tools.nnet.hmm.transition_model import TransitionModel

    model_in, alignments, pdfs_out = args
    model = TransitionModel.load(model_in)
    pdfs = model.pdfs_of_ids()

    def convert(key: str, ids: np.ndarray) -> np.ndarray:
        model.check_transition_ids(ids)
        return pdfs[ids]

    num_done, _ = convert_table(alignments, pdfs_out, (INT32_VECTOR, INT32_VECTOR), convert)
    log.log(f"Converted {num_done} alignments to pdf sequences.")

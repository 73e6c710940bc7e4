"""ali-to-post: converts alignments to posteriors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools.cli.options import NoOptions, program
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

if TYPE_CHECKING:
    from nnet3tools.io.posterior import Posterior

USAGE = """Convert alignments to posteriors.  This is simply a format change
from integer vectors to Posteriors, which are vectors of lists of
pairs (int, float) where the float represents the posterior.  The
floats would all be 1.0 in this case.
The posteriors will still be in terms of whatever integer index
the input contained, which will be transition-ids if they came
directly from decoding, or pdf-ids if they were processed by
ali-to-pdf.
Usage:  ali-to-post [options] <alignments-rspecifier> <posteriors-wspecifier>
e.g.:
 ali-to-post ark:1.ali ark:1.post
See also: ali-to-pdf, ali-to-phones, show-alignments, post-to-weights
"""


@program("ali-to-post", USAGE, NoOptions, num_args=2)
def main(options: NoOptions, args: list[str]) -> int:
    from nnet3tools.cli.tables import convert_table
    from nnet3tools.io.holders import INT32_VECTOR, POSTERIOR
    from nnet3tools.io.posterior import Posterior

    def convert(key: str, alignment: np.ndarray) -> Posterior:
        ones = np.ones(len(alignment))
        return Posterior.from_counts(ones, alignment, ones)

    num_done, _ = convert_table(args[0], args[1], (INT32_VECTOR, POSTERIOR), convert)
    log.log(f"Converted {num_done} alignments.")
    return 0 if num_done else 1

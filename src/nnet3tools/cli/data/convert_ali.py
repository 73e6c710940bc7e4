"""convert-ali: converts alignments to another model and tree."""

from __future__ import annotations

from nnet3tools.cli.options import NoOptions, program
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

USAGE = """Convert alignments from one decision-tree/model to another
Usage:  convert-ali  [options] <old-model> <new-model> <new-tree> <old-alignments-rspecifier> \
<new-alignments-wspecifier>
e.g.:
 convert-ali old/final.mdl new/0.mdl new/tree ark:old/ali.1 ark:new/ali.1
"""


@program("convert-ali", USAGE, NoOptions, num_args=5)
def main(options: NoOptions, args: list[str]) -> int:
    from nnet3tools.cli.tables import convert_table
    from nnet3tools.io.holders import INT32_VECTOR
    from nnet3tools.nnet.hmm.alignment_conversion import AlignmentConverter
    from nnet3tools.nnet.hmm.transition_model import TransitionModel
    from nnet3tools.nnet.hmm.tree import ContextDependency

    old_in, new_in, tree_in, alignments, target = args
    old, new = TransitionModel.load(old_in), TransitionModel.load(new_in)
    converter = AlignmentConverter(old, new, ContextDependency.load(tree_in))

    def convert(key: str, ids: np.ndarray) -> np.ndarray:
        return converter.convert(ids)

    num_done, _ = convert_table(alignments, target, (INT32_VECTOR, INT32_VECTOR), convert)
    log.log(f"Succeeded converting alignments for {num_done} files, failed for 0")
    return 0 if num_done else 1

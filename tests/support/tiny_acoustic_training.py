"""Alignments and options for trainings of acoustic models that take seconds."""

import gzip
import io
from pathlib import Path

import numpy as np

from nnet3tools.io.files import open_output
from nnet3tools.io.holders import INT32_VECTOR
from nnet3tools.io.reader import Reader
from nnet3tools.nnet.hmm.topology import HmmTopology
from nnet3tools.nnet.hmm.transition_model import TransitionModel
from nnet3tools.nnet.hmm.tree import ContextDependency
from support.configs import in_a_row
from support.programs import read_table, write_table
from support.tiny_training import OPTIONS

TOPOLOGY = """<Topology> <TopologyEntry> <ForPhones> 1 2 3 </ForPhones>
<State> 0 <PdfClass> 0 <Transition> 0 0.5 <Transition> 1 0.5 </State> <State> 1 </State>
</TopologyEntry> </Topology>
"""
LEAVES = "".join(f"TE -1 1 ( CE {i} ) " for i in range(3))
TREE = f"ContextDependency 1 0 ToPdf TE 0 4 ( NULL {LEAVES}) EndContextDependency "
RECURRENT = in_a_row("""input dim=4
w NaturalGradientAffineComponent input-dim=10 output-dim=6 \
input=Append(input, IfDefined(Offset(t, -1)))
t TanhComponent dim=6
o NaturalGradientAffineComponent input-dim=6 output-dim=3
s LogSoftmaxComponent dim=3""")
COMMON = tuple(w for w in OPTIONS if "targets" not in w and "frames-per-eg" not in w)
CHUNKS = (
    *(w for w in COMMON if "minibatch-size" not in w),
    "--egs.chunk-width=8,5",
    "--egs.chunk-left-context=3",
    "--egs.chunk-left-context-initial=0",
    "--trainer.samples-per-iter=40",
    "--trainer.rnn.num-chunk-per-minibatch=8,4",
    "--trainer.num-epochs=3",
    "--num-jobs=1",
)


def reader(text: str) -> Reader:
    return Reader(io.BytesIO(text.encode()))


def make_ali() -> None:
    """Write ali/ beside the data of tiny_training: alignments whose pdfs are the targets."""
    Path("ali").mkdir()
    Path("ali/tree").write_text(TREE)
    Path("ali/num_jobs").write_text("1\n")
    Path("ali/phones.txt").write_text("a 1\nb 2\nc 3\n")
    tree = ContextDependency.read(reader(TREE))
    model = TransitionModel.from_tree(tree, HmmTopology.read(reader(TOPOLOGY)))
    with open_output("ali/final.mdl") as writer:
        model.write(writer)
    targets = read_table("scp:targets.scp", INT32_VECTOR)
    ids = {name: (2 * pdfs + 1).astype(np.int32) for name, pdfs in targets.items()}
    write_table("ark:ali.ark", ids, INT32_VECTOR)
    Path("ali/ali.1.gz").write_bytes(gzip.compress(Path("ali.ark").read_bytes()))

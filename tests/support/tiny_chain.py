"""A tree, topology and transition model so small that everything about them can be enumerated."""

import io

from nnet3tools.io.stream import Reader
from nnet3tools.nnet.hmm.topology import HmmTopology
from nnet3tools.nnet.hmm.transition_model import TransitionModel
from nnet3tools.nnet.hmm.tree import ContextDependency

CHAIN_TOPOLOGY = """<Topology> <TopologyEntry> <ForPhones> 1 2 </ForPhones>
<State> 0 <ForwardPdfClass> 0 <SelfLoopPdfClass> 1
<Transition> 0 0.5 <Transition> 1 0.5 </State> <State> 1 </State>
</TopologyEntry> </Topology>
"""
"""Kaldi's for chain models: one state, whose first frame has a pdf of its own."""

STATES_TOPOLOGY = """<Topology> <TopologyEntry> <ForPhones> 1 2 </ForPhones>
<State> 0 <PdfClass> 0 <Transition> 0 0.3 <Transition> 1 0.7 </State>
<State> 1 <PdfClass> 1 <Transition> 1 0.4 <Transition> 2 0.6 </State> <State> 2 </State>
</TopologyEntry> </Topology>
"""
"""Two states from left to right."""

MONO_TREE = """ContextDependency 1 0 ToPdf TE 0 3 ( NULL
TE -1 2 ( CE 0 CE 1 ) TE -1 2 ( CE 2 CE 3 ) ) EndContextDependency """

BIPHONE_TREE = """ContextDependency 2 1 ToPdf TE 1 3 ( NULL
TE -1 2 ( SE 0 [ 0 1 ] { CE 0 CE 1 } CE 2 ) TE -1 2 ( SE 0 [ 2 ] { CE 3 CE 4 } CE 5 ) )
EndContextDependency """
"""The first pdf of a phone depends on the phone before it."""


TRIPHONE_TREE = """ContextDependency 3 1 ToPdf TE 1 3 ( NULL
TE -1 2 ( SE 2 [ 0 1 ] { CE 0 SE 0 [ 0 ] { CE 6 CE 1 } } CE 2 )
TE -1 2 ( SE 0 [ 2 ] { CE 3 CE 4 } SE 2 [ 0 ] { CE 5 CE 7 } ) ) EndContextDependency """
"""Pdfs depend on the phones on both sides."""


def model_of(tree: str, topology: str) -> tuple[ContextDependency, TransitionModel]:
    read_tree = ContextDependency.read(Reader(io.BytesIO(tree.encode())))
    read_topology = HmmTopology.read(Reader(io.BytesIO(topology.encode())))
    return read_tree, TransitionModel.from_tree(read_tree, read_topology)

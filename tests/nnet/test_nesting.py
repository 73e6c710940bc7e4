"""Files with absurdly deep nesting give a one-line error instead of a Python stack overflow."""

import pytest

from nnet3tools.errors import DataError
from nnet3tools.nnet.components.registry import read_component
from nnet3tools.nnet.hmm.topology import HmmTopology
from nnet3tools.nnet.hmm.tree import MAX_DEPTH, ContextDependency
from support.streams import bytes_reader

HEAD = (
    "<CompositeComponent> <LearningRateFactor> 1 <IsGradient> F <LearningRate> 0.001 "
    "<MaxRowsProcess> 4096 <NumComponents> 1 "
)


@pytest.mark.parametrize("depth", [2, 20_000])
def test_composites_in_composites(depth: int) -> None:
    text = HEAD * depth + "<NoOpComponent> "
    with pytest.raises(DataError, match=f"byte {len(HEAD) - 1}: .*cannot contain another one"):
        read_component(bytes_reader(text.encode()))


@pytest.mark.parametrize("kind", ["TE -1 1 ( ", "SE 0 [ 1 ] { "])
def test_decision_trees(kind: str) -> None:
    text = "ContextDependency 1 0 ToPdf " + kind * 20_000
    with pytest.raises(DataError, match="nested more than 250 levels deep"):
        ContextDependency.read(bytes_reader(text.encode()))


def test_a_phone_number_is_no_size() -> None:
    text = "<Topology> <TopologyEntry> <ForPhones> 100000000 </ForPhones> </TopologyEntry> "
    with pytest.raises(DataError, match="phone 100000000 is too large: at most 1000000"):
        HmmTopology.read(bytes_reader((text + "</Topology> ").encode()))


@pytest.mark.parametrize("kind", [("TE -1 1 ( ", ") "), ("SE 0 [ 1 ] { CE 0 ", "} ")])
def test_the_deepest_trees_that_are_read_can_be_asked(kind: tuple[str, str]) -> None:
    nested = kind[0] * MAX_DEPTH + "CE 3 " + kind[1] * MAX_DEPTH
    text = f"ContextDependency 1 0 ToPdf {nested}EndContextDependency "
    tree = ContextDependency.read(bytes_reader(text.encode()))
    assert tree.num_pdfs == 4
    assert tree.pdf_of([0], 0) == 3

"""A program whose precomputed indexes are for another configuration of a component is refused."""

import pytest

from nnet3tools.errors import ProgramError
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.program.checker import check_computation
from support.io_specifications import io_range
from support.plain_graph import compile_computation

CONFIGURATIONS = {
    "a time offset less": (
        "type=TdnnComponent input-dim=6 output-dim=4 time-offsets={}",
        ("-2,0,2", "-2,2"),
    ),
    "another time stride": (
        "type=RestrictedAttentionComponent num-heads=1 key-dim=1 value-dim=2 num-left-inputs=1 "
        "num-right-inputs=0 num-left-inputs-required=0 time-stride={}",
        ("1", "2"),
    ),
    "fewer height offsets": (
        "type=TimeHeightConvolutionComponent num-filters-in=2 num-filters-out=1 height-in=3 "
        "height-out=3 height-offsets={} time-offsets=-1,0,1",
        ("-1,0,1", "0"),
    ),
}


def network(component: str) -> Nnet:
    lines = (
        "input-node name=input dim=6",
        f"component name=layer {component}",
        "component-node name=layer component=layer input=input",
        "output-node name=output input=layer",
    )
    return Nnet.from_config(parse_config_lines("\n".join(lines), "test.config"))


@pytest.mark.parametrize("what", CONFIGURATIONS)
def test_indexes_of_another_configuration_are_refused(what: str) -> None:
    component, values = CONFIGURATIONS[what]
    made_for, other = (network(component.format(value)) for value in values)
    request = ComputationRequest([io_range("input", -4, 12)], [io_range("output", 0, 8)])
    program = compile_computation(made_for, request)
    check_computation(program, made_for, request, check_rewrite=True)
    with pytest.raises(ProgramError, match="not for component 'layer' as it is here"):
        check_computation(program, other, request, check_rewrite=True)

"""A small network and programs for it written by hand, command by command."""

from itertools import pairwise

import numpy as np

from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.indexes import make_indexes
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.program.commands import (
    AcceptInput,
    AllocMatrix,
    Backprop,
    Command,
    DeallocMatrix,
    GotoLabel,
    MatrixAdd,
    MatrixCopy,
    NoOperationLabel,
    NoOperationMarker,
    Propagate,
    ProvideOutput,
    SetConst,
    SwapMatrix,
)
from nnet3tools.program.computation import Computation, MatrixDebugInfo

ROWS = 5

CONFIG = """
input-node name=input dim=4
component name=affine type=AffineComponent input-dim=4 output-dim=3
component name=relu type=RectifiedLinearComponent dim=3
component name=norm type=BatchNormComponent dim=3
component name=affine2 type=AffineComponent input-dim=3 output-dim=2
component name=square type=AffineComponent input-dim=3 output-dim=3
component-node name=affine component=affine input=input
component-node name=relu component=relu input=affine
component-node name=norm component=norm input=relu
component-node name=affine2 component=affine2 input=norm
output-node name=output input=affine2
"""


def small_nnet() -> Nnet:
    """input(4) -> affine -> relu -> batch norm (keeps a memo) -> affine2 -> output(2).

    Component square, 3 -> 3, is not in use.
    """
    return Nnet.from_config(parse_config_lines(CONFIG, "test"))


class Program:
    """Builds a program: matrices by name, commands in order."""

    def __init__(self, nnet: Nnet) -> None:
        self.nnet, self.computation = nnet, Computation()
        self.named: dict[str, int] = {}

    def matrix(self, name: str, rows: int, cols: int) -> int:
        """Declare a matrix; `self[name]` is the submatrix that is the whole matrix."""
        self.named[name] = self.computation.new_matrix(rows, cols)
        return self.named[name]

    def __getitem__(self, name: str) -> int:
        return self.named[name]

    def add(self, *commands: Command) -> None:
        """Append commands."""
        self.computation.commands.extend(commands)

    def component(self, name: str) -> int:
        """Number of a component."""
        return self.nnet.component_index(name)

    def node(self, name: str) -> int:
        """Number of a node."""
        return self.nnet.node_index(name)


def small_program(nnet: Nnet, zeroed: bool = True) -> Program:
    """One forward and backward pass over ROWS rows, with or without needless zeroing."""
    p = Program(nnet)
    sizes = {"input": 4, "affine": 3, "relu": 3, "norm": 3, "output": 2}
    for name, cols in sizes.items():
        p.matrix(name, ROWS, cols)
    for name, cols in sizes.items():
        p.matrix(f"d{name}", ROWS, cols)
    p.add(AcceptInput(p["input"], p.node("input")))
    previous = "input"
    names = {"affine": "affine", "relu": "relu", "norm": "norm", "output": "affine2"}
    for name, component in names.items():
        memo = 1 if component == "norm" else 0
        p.add(
            AllocMatrix(p[name]),
            SetConst(p[name], 0.0),
            Propagate(p.component(component), 0, p[previous], p[name], memo),
        )
        previous = name
    p.add(ProvideOutput(p["output"], p.node("output")), NoOperationMarker())
    p.add(AcceptInput(p["doutput"], p.node("output")))
    chain = ["output", "norm", "relu", "affine", "input"]
    for name, below in pairwise(chain):
        component = names[name]
        needs_in, needs_out = name in ("affine", "output"), name in ("relu", "norm")
        p.add(
            AllocMatrix(p[f"d{below}"]),
            SetConst(p[f"d{below}"], 0.0),
            Backprop(
                p.component(component),
                0,
                p[below] if needs_in else 0,
                p[name] if needs_out else 0,
                p[f"d{name}"],
                p[f"d{below}"],
                1 if component == "norm" else 0,
            ),
        )
    p.add(*(DeallocMatrix(p[n]) for n in p.named if n not in ("output", "dinput")))
    p.add(ProvideOutput(p["dinput"], p.node("input")))
    if not zeroed:
        added_to = (p["dinput"], p["dnorm"])  # affine components add to their input derivative
        p.computation.commands = [
            c
            for c in p.computation.commands
            if not isinstance(c, SetConst) or c.submatrix in added_to
        ]
    p.computation.need_model_derivative = True
    indexes = make_indexes(0, np.arange(ROWS))
    nodes = np.zeros(ROWS, np.int32)
    p.computation.matrix_debug_info = [
        MatrixDebugInfo(False, nodes[:0], indexes[:0]),
        *(
            MatrixDebugInfo(n.startswith("d"), nodes + p.node(n.removeprefix("d")), indexes)
            for n in p.named
        ),
    ]
    return p


def looped_program(nnet: Nnet) -> Computation:
    """A loop: out = in + out of the round before; each round the state moves to another matrix."""
    p = Program(nnet)
    names = ("first", "state", "in", "out")
    first, state, x, out = (p.matrix(n, 5, 4) for n in names)
    node = p.node("input")
    p.add(
        AcceptInput(first, node),
        AllocMatrix(state),
        MatrixCopy(state, first),
        DeallocMatrix(first),
        ProvideOutput(state, node),
        NoOperationMarker(),
        NoOperationLabel(),
        AcceptInput(x, node),
        AllocMatrix(out),
        MatrixCopy(out, x),
        MatrixAdd(out, state),
        DeallocMatrix(x),
        DeallocMatrix(state),
        ProvideOutput(out, node),
        NoOperationMarker(),
        SwapMatrix(state, out),
        GotoLabel(6),
    )
    return p.computation

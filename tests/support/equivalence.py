"""Run programs on poisoned memory and compare what they give."""

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

from nnet3tools import tensor
from nnet3tools.executor.binding import Arena, bind_program
from nnet3tools.executor.computer import ComputeOptions, NnetComputer
from nnet3tools.graph.request import IoSpecification
from nnet3tools.nnet.arithmetic import scale_nnet, set_as_gradient
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.program.component_facts import ComponentTable
from nnet3tools.program.computation import Computation
from nnet3tools.program.operands import AccessType
from support.random_networks import Case

PASS_OPTIONS = (
    "consolidate_model_update",
    "convert_addition",
    "snip_row_ops",
    "split_row_ops",
    "optimize_row_ops",
    "extend_matrices",
    "remove_assignments",
    "propagate_in_place",
    "backprop_in_place",
    "initialize_undefined",
    "move_sizing_commands",
    "allocate_from_other",
    "memory_compression_level",
)
"""Options that switch a pass each."""
_MERGE_SIDES = ("allow_left_merge", "allow_right_merge")

ALL_OFF = OptimizeOptions(**dict.fromkeys(PASS_OPTIONS, False))

Results = dict[str, np.ndarray]


def variants() -> Iterator[tuple[str, OptimizeOptions]]:
    """Options: all passes; each pass alone; all passes except one."""
    yield "all", OptimizeOptions()
    for name in PASS_OPTIONS:
        yield f"only {name}", dataclasses.replace(ALL_OFF, **{name: True})
    for name in (*PASS_OPTIONS, *_MERGE_SIDES):
        yield f"all but {name}", dataclasses.replace(OptimizeOptions(), **{name: False})


def run(
    case: Case,
    computation: Computation,
    *,
    lossy: bool = False,
    wanted_times: tuple[int, int] | None = None,
) -> Results:
    """Outputs ("output"), input derivatives ("d input") and parameter gradients ("grad name").

    The memory is full of NaN at first, so that whatever reads what nobody wrote shows. `lossy`
    obeys compression that loses, as on a GPU. With `wanted_times` derivatives outside this range
    of times, both ends included, are set to zero as soon as they appear.
    """
    request = case.request
    gradient = case.nnet.copy()
    scale_nnet(gradient, 0.0)
    set_as_gradient(gradient)
    arena = Arena()
    arena.take(1 << 18)[:] = 0xFF
    tensor.random.seed(case.seed)
    computer = NnetComputer(ComputeOptions(), computation, case.nnet, gradient, arena=arena)
    if lossy:
        computer.program = bind_program(
            computation, case.nnet, gradient, gradient, arena=arena, compress_lossy=True
        )
        computer._recorded_steps = [segment.steps for segment in computer.program.segments]
        computer.reset()
    if wanted_times is not None:
        computer.observer = _Zeroing(computer, *wanted_times)
    rng = np.random.default_rng(case.seed)
    for io in request.inputs:
        computer.accept_input(io.name, _values(rng, io, case.nnet))
    computer.run()
    results = {name: computer.get_output(name).copy() for name in computer.available_outputs()}
    if request.needs_derivatives:
        for io in request.outputs:
            if io.has_deriv:
                values = _values(rng, io, case.nnet)
                if wanted_times is not None:
                    values[_outside(io.indexes, *wanted_times)] = 0.0
                computer.accept_input(io.name, values)
        computer.run()
        for name in computer.available_outputs():
            results[f"d {name}"] = computer.get_output(name).copy()
    if request.need_model_derivative:
        results |= _gradients(gradient)
    return results


def _values(rng: np.random.Generator, io: IoSpecification, nnet: Nnet) -> np.ndarray:
    shape = (len(io.indexes), nnet.dim(nnet.node_index(io.name)))
    return rng.standard_normal(shape).astype(np.float32)


def _outside(indexes: np.ndarray, first: int, last: int) -> np.ndarray:
    return (indexes[:, 1] < first) | (indexes[:, 1] > last)


class _Zeroing:
    """Runs a program and zeroes, after each command, the unwanted rows of derivatives it wrote."""

    def __init__(self, computer: NnetComputer, first: int, last: int) -> None:
        self.program, self.times = computer.program, (first, last)
        self.components = ComponentTable(computer.nnet)

    def __call__(self, c: int, step: Callable[[], None]) -> None:
        computation = self.program.computation
        step()
        for submatrix, kind in computation.commands[c].accesses(computation, self.components):
            info = computation.submatrices[submatrix]
            debug = computation.matrix_debug_info[info.matrix_index]
            if debug.is_deriv and kind & AccessType.WRITE:
                rows = slice(info.row_offset, info.row_offset + info.num_rows)
                unwanted = _outside(debug.indexes[rows], *self.times)
                self.program.view(c, submatrix)[unwanted] = 0.0


def _gradients(gradient: Nnet) -> Results:
    return {
        f"grad {name}.{parameter}": np.array(value)
        for name, component in gradient.updatable_components()
        for parameter, value in component.parameters().items()
    }


def difference(expected: Results, got: Results, tolerance: float = 2e-4) -> str:
    """A description of the first difference; "" if results are equal."""
    if expected.keys() != got.keys():
        return f"it gives {sorted(got)} instead of {sorted(expected)}"
    for name, value in expected.items():
        scale = max(1.0, float(np.abs(value).max(initial=0.0)))
        error = float(np.abs(got[name] - value).max(initial=0.0))
        if not error <= tolerance * scale:
            return f"{name} differs by {error:.3g} of {scale:.3g}"
    return ""


def describe(case: Case) -> str:
    """The text of config and request, for messages of failures."""
    request = case.request
    lines = [str(case), case.config]
    for kind, ios in (("input", request.inputs), ("output", request.outputs)):
        lines += [f"{kind} {io.name} deriv={io.has_deriv}: {io.indexes.tolist()}" for io in ios]
    lines.append(f"model derivative: {request.need_model_derivative}")
    return "\n".join(lines)

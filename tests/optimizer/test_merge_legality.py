"""When two matrices may share memory: each condition broken alone, and hazards by name.

The program at the root of all of them makes m2 from m1 by a copy:

    a = user input; b = affine(a); c = b; d = relu(c); output d

and each test changes one thing. "Broken" below are the names of the conditions that then fail.
"""

import numpy as np
import pytest

from nnet3tools.executor.computer import ComputeOptions, NnetComputer
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.access_times import AccessTimes
from nnet3tools.optimizer.merge_variables import (
    Merges,
    _Round,
    legal_merges,
    merge_conditions,
    merge_variables,
    order_allows,
)
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.optimizer.pass_context import PassContext
from nnet3tools.optimizer.renumber import renumber
from nnet3tools.program.analysis import Analysis
from nnet3tools.program.checker import check_computation
from nnet3tools.program.commands import (
    AcceptInput,
    AllocMatrix,
    Command,
    DeallocMatrix,
    MatrixAdd,
    MatrixCopy,
    NoOperation,
    NoOperationPermanent,
    Propagate,
    ProvideOutput,
    SetConst,
)
from nnet3tools.program.computation import Computation, StrideType
from support.handmade import Program
from support.random_networks import parse

CONFIG = """
input-node name=input dim=3
input-node name=side dim=3
component name=affine type=AffineComponent input-dim=3 output-dim=3 param-stddev=0.5
component name=relu type=RectifiedLinearComponent dim=3
component name=scale type=PerElementScaleComponent dim=3 param-stddev=0.5
component-node name=affine component=affine input=Append(input)
component-node name=relu component=relu input=affine
component-node name=scale component=scale input=side
output-node name=output input=relu
output-node name=other input=scale
"""
ROWS = 4
BOTH, LEFT, RIGHT, NEITHER = (True, True), (True, False), (False, True), (False, False)


class Small(Program):
    """A program over matrices of ROWS x 3."""

    def __init__(self, **rows: int) -> None:
        super().__init__(parse(CONFIG))
        for name in ("a", "b", "c", "d", "e"):
            self.matrix(name, rows.get(name, ROWS), 3)
        self.allocate("b", "c", "d")

    def allocate(self, *names: str) -> None:
        for name in names:
            self.add(AllocMatrix(self[name]), SetConst(self[name], 0.0))

    def free(self, *names: str) -> None:
        self.add(*(DeallocMatrix(self[name]) for name in names))

    def accept(self, name: str, node: str = "input") -> None:
        self.computation.commands.insert(0, AcceptInput(self[name], self.node(node)))

    def run_component(self, component: str, source: int, dest: int) -> None:
        self.add(Propagate(self.component(component), 0, source, dest))

    def give(self, name: str, node: str = "output") -> None:
        self.add(ProvideOutput(self[name], self.node(node)))

    def packed(self, name: str) -> None:
        matrices = self.computation.matrices
        m = self.computation.matrix_of(self[name])
        matrices[m] = matrices[m]._replace(stride_type=StrideType.EQUAL_NUM_COLS)

    @property
    def position(self) -> int:
        """Where the first copy is."""
        return next(i for i, c in enumerate(self.computation.commands) if type(c) is MatrixCopy)


def start(**rows: int) -> Small:
    p = Small(**rows)
    p.accept("a")
    p.run_component("affine", p["a"], p["b"])
    return p


def finish(p: Small, *freed: str) -> Small:
    p.run_component("relu", p["c"], p["d"])
    p.free("a", "b", "c", *freed)
    p.give("d")
    return p


def one(position: int, s1: int, s2: int) -> Merges:
    return Merges(np.array([position]), np.array([s1]), np.array([s2]))


def judge(p: Small, position: int | None = None):
    """(what legal_merges says, the names of the conditions that fail)."""
    times = AccessTimes(Analysis(p.computation, p.nnet))
    at = p.position if position is None else position
    command = p.computation.commands[at]
    pair = (
        (command.input, command.output)
        if isinstance(command, Propagate)
        else (command.src, command.dest)
    )
    merge = one(at, *pair)
    conditions = merge_conditions(times.analysis, merge)
    broken = {name for name, ok in conditions._asdict().items() if not ok[0]}
    if not order_allows(times, merge)[0]:
        broken.add("order")
    left, right = legal_merges(times.analysis, merge, OptimizeOptions())
    return (bool(left[0]), bool(right[0])), broken


def check_same_results(p: Small) -> Computation:
    """Merge whatever may be merged; the program must stay sound and compute the same."""
    program = renumber(p.computation)  # without the matrices that have names only
    check_computation(program, p.nnet, check_unused=False)
    merged = merge_variables(program, PassContext(p.nnet))
    check_computation(merged, p.nnet, check_unused=False)
    for name, expected in outputs(program, p.nnet).items():
        np.testing.assert_array_equal(outputs(merged, p.nnet)[name], expected)
    return merged


def outputs(computation: Computation, nnet: Nnet) -> dict[str, np.ndarray]:
    computer = NnetComputer(ComputeOptions(), computation, nnet)
    rng = np.random.default_rng(0)
    for name in computer.expected_inputs():
        buffer = computer.input_buffer(name)
        buffer[:] = rng.standard_normal(buffer.shape)
    computer.run()
    return {name: computer.get_output(name).copy() for name in computer.available_outputs()}


# -- the conditions


def plain() -> Small:
    p = start()
    p.add(MatrixCopy(p["c"], p["b"]))
    return finish(p)


def test_nothing_broken() -> None:
    assert judge(plain()) == (BOTH, set())
    merged = check_same_results(plain())
    assert not any(isinstance(c, MatrixCopy) for c in merged.commands)


def test_c1_both_are_outputs() -> None:
    p = start()
    p.add(MatrixCopy(p["c"], p["b"]))
    p.give("b"), p.give("c", "other"), p.free("a")
    # That both are the user's is also against the order, always: c1 says it without looking.
    assert judge(p) == (NEITHER, {"c1", "order"})


def test_c1_both_are_inputs() -> None:
    p = Small()
    p.computation.commands.clear()
    p.accept("b"), p.accept("c", "side")
    p.add(MatrixCopy(p["c"], p["b"]))
    assert judge(p) == (NEITHER, {"c1", "order"})


def test_c2_part_of_an_output_is_not_merged() -> None:
    p = start(d=2 * ROWS)
    top, bottom = (p.computation.new_submatrix(p["d"], r, ROWS) for r in (0, ROWS))
    p.add(MatrixCopy(top, p["b"]), MatrixCopy(bottom, p["b"]))
    p.free("a", "b"), p.give("d")
    p.computation.commands = [c for c in p.computation.commands if p["c"] not in c.submatrices()]
    result, broken = judge(p)
    # (s2 is not whole, so merging left is out in any case; merging right only c2 forbids.)
    assert result == NEITHER
    assert broken == {"c2", "c3"}


def test_c3_left_needs_all_of_s2() -> None:
    p = start(c=2 * ROWS, d=2 * ROWS)
    top, bottom = (p.computation.new_submatrix(p["c"], r, ROWS) for r in (0, ROWS))
    p.add(MatrixCopy(top, p["b"]), SetConst(bottom, 1.0))
    assert judge(finish(p)) == (RIGHT, {"c3"})
    check_same_results(p)


def test_c4_right_needs_all_of_s1() -> None:
    p = start(a=2 * ROWS, b=2 * ROWS)
    p.add(MatrixCopy(p["c"], p.computation.new_submatrix(p["b"], 1, ROWS)))
    assert judge(finish(p)) == (LEFT, {"c4"})
    check_same_results(p)


@pytest.mark.parametrize("shared", ["s1", "s2"])
def test_c5_what_was_merged_in_this_round_waits_for_the_next(shared: str) -> None:
    """Two copies that are legal by themselves, of the same source or one after the other."""
    p = start()
    p.add(MatrixCopy(p["c"], p["b"]))
    p.add(MatrixCopy(p["e"], p["b" if shared == "s1" else "c"]))
    p.computation.commands.insert(1, AllocMatrix(p["e"]))
    p.run_component("relu", p["e"], p["d"])
    p.free("a", "b", "c", "e"), p.give("d")
    first = p.position
    assert judge(p, first)[0] != NEITHER
    assert judge(p, first + 1)[0] != NEITHER
    this_round = _Round(p.computation, PassContext(p.nnet))
    assert this_round.run()
    kinds = [type(c) for c in this_round.computation.commands]
    assert kinds[first : first + 2] == [NoOperation, MatrixCopy]
    check_same_results(p)


def test_c6_left_must_not_give_padding_to_a_packed_s2() -> None:
    p = start(a=2 * ROWS, b=2 * ROWS)
    p.packed("c")
    p.add(MatrixCopy(p["c"], p.computation.new_submatrix(p["b"], 0, ROWS)))
    assert judge(finish(p)) == (NEITHER, {"c4", "c6"})


def test_c7_right_must_not_give_padding_to_a_packed_s1() -> None:
    p = start(c=2 * ROWS, d=2 * ROWS)
    p.packed("b")
    top, bottom = (p.computation.new_submatrix(p["c"], r, ROWS) for r in (0, ROWS))
    p.add(MatrixCopy(top, p["b"]), SetConst(bottom, 1.0))
    assert judge(finish(p)) == (NEITHER, {"c3", "c7"})


def test_packed_whole_matrices_merge_and_stay_packed() -> None:
    p = plain()
    p.packed("c")
    assert judge(p) == (BOTH, set())
    merged = check_same_results(p)
    assert any(m.stride_type == StrideType.EQUAL_NUM_COLS for m in merged.matrices)


@pytest.mark.parametrize(("option", "left"), [("allow_left_merge", 0), ("allow_right_merge", 1)])
def test_options_forbid_a_side(option: str, left: int) -> None:
    analysis = Analysis(plain().computation, plain().nnet)
    p = plain()
    merge = one(p.position, p["b"], p["c"])
    result = legal_merges(analysis, merge, OptimizeOptions(**{option: False}))
    assert np.concatenate(result).tolist() == ([False, True], [True, False])[left]


# -- hazards


def changed(*, before: list[Command] = (), after: list[Command] = ()) -> Small:
    """The plain program with commands just before and after the copy."""
    p = start()
    p.add(*before, MatrixCopy(p["c"], p["b"]), *after)
    return p


def names() -> Small:
    """Only to name matrices by their numbers, which are the same in all programs."""
    return Small()


def test_s2_written_before_the_copy() -> None:
    n = names()
    p = changed(before=[MatrixAdd(n["c"], n["b"])])
    assert judge(finish(p), position=p.position) == (NEITHER, {"order"})


def test_s1_written_after_the_copy() -> None:
    n = names()
    p = changed(after=[SetConst(n["b"], 1.0), MatrixAdd(n["d"], n["b"])])
    assert judge(finish(p)) == (NEITHER, {"order"})
    check_same_results(p)


def test_s1_read_after_s2_was_overwritten() -> None:
    n = names()
    p = changed(after=[SetConst(n["c"], 1.0)])
    p.run_component("affine", p["b"], p["d"])
    p.free("a", "b", "c"), p.give("d")
    assert judge(p) == (NEITHER, {"order"})


def test_s1_read_before_s2_is_overwritten() -> None:
    n = names()
    p = changed(after=[MatrixAdd(n["d"], n["b"]), MatrixAdd(n["c"], n["d"])])
    assert judge(finish(p)) == (BOTH, set())
    check_same_results(p)


def test_s1_read_after_s2_was_freed() -> None:
    p = start()
    p.add(MatrixCopy(p["c"], p["b"]), MatrixAdd(p["d"], p["c"]))
    p.free("c")
    p.add(MatrixAdd(p["d"], p["b"]))
    p.free("a", "b"), p.give("d")
    assert judge(p) == (NEITHER, {"order"})
    check_same_results(p)


def test_view_of_freed_matrix() -> None:
    """A part of s1 that is read once more after s2's matrix went."""
    p = start()
    part = p.computation.new_submatrix(p["b"], 1, 2)
    p.add(MatrixCopy(p["c"], p["b"]), MatrixAdd(p["d"], p["c"]))
    p.free("c")
    p.add(MatrixAdd(p.computation.new_submatrix(p["d"], 1, 2), part))
    p.free("a", "b"), p.give("d")
    assert judge(p) == (NEITHER, {"order"})
    check_same_results(p)


def test_copy_of_an_input_that_is_then_changed() -> None:
    """Input merged with a matrix that is written: fine, nobody looks at the input again."""
    p = Small()
    p.accept("a")
    p.add(MatrixCopy(p["c"], p["a"]), MatrixAdd(p["b"], p["c"]), MatrixAdd(p["c"], p["b"]))
    assert judge(finish(p)) == (BOTH, set())
    check_same_results(p)


def test_input_read_after_its_copy_was_changed() -> None:
    p = Small()
    p.accept("a")
    p.add(MatrixCopy(p["c"], p["a"]), MatrixCopy(p["c"], p["c"], 2.0), MatrixAdd(p["b"], p["a"]))
    p.add(MatrixAdd(p["c"], p["b"]))
    assert judge(finish(p)) == (NEITHER, {"order"})
    check_same_results(p)


def test_output_merged_with_input() -> None:
    """The identity: one matrix is then the user's input and output, and that is right."""
    p = Small()
    p.computation.commands.clear()
    p.allocate("d")
    p.accept("a")
    p.add(NoOperationPermanent(), MatrixCopy(p["d"], p["a"]))
    p.free("a"), p.give("d")
    assert judge(p) == (BOTH, set())
    assert len(check_same_results(p).matrices) == 2


def test_output_whose_source_is_used_on() -> None:
    """The output's matrix is used on by what comes after the copy, but only read."""
    p = start()
    p.add(MatrixCopy(p["d"], p["b"]))
    p.add(MatrixCopy(p["c"], p["b"]))
    p.run_component("relu", p["c"], p["e"])
    p.computation.commands.insert(1, AllocMatrix(p["e"]))
    p.free("a", "b", "c"), p.give("d"), p.give("e", "other")
    assert judge(p)[0] == BOTH
    check_same_results(p)


def test_destroyed_input_still_read() -> None:
    """relu in place of its input, which somebody reads afterwards."""
    p = start()
    p.run_component("relu", p["b"], p["c"])
    at = len(p.computation.commands) - 1
    p.add(MatrixAdd(p["d"], p["c"]), MatrixAdd(p["d"], p["b"]))
    p.free("a", "b", "c"), p.give("d")
    assert judge(p, position=at) == (NEITHER, {"order"})
    check_same_results(p)


def test_in_place_where_nobody_reads_the_input_again() -> None:
    p = start()
    p.run_component("relu", p["b"], p["c"])
    at = len(p.computation.commands) - 1
    p.add(MatrixAdd(p["d"], p["c"]))
    p.free("a", "b", "c"), p.give("d")
    assert judge(p, position=at) == (BOTH, set())
    merged = check_same_results(p)
    in_place = [c for c in merged.commands if isinstance(c, Propagate) and c.input == c.output]
    assert len(in_place) == 1


def test_copy_with_a_scale_is_no_assignment() -> None:
    """It may work in place, but then nobody may read the unscaled values any more."""
    p = start()
    p.add(MatrixCopy(p["c"], p["b"], -2.0), MatrixAdd(p["d"], p["b"]))
    assert judge(finish(p)) == (NEITHER, {"order"})
    check_same_results(p)
    p = start()
    p.add(MatrixCopy(p["c"], p["b"], -2.0))
    assert judge(finish(p)) == (BOTH, set())
    check_same_results(p)


def test_both_in_one_matrix_already() -> None:
    p = start(c=2 * ROWS, d=2 * ROWS)
    top, bottom = (p.computation.new_submatrix(p["c"], r, ROWS) for r in (0, ROWS))
    p.add(MatrixCopy(top, p["b"]), MatrixCopy(bottom, top))
    second = len(p.computation.commands) - 1
    assert judge(finish(p), position=second)[0] == NEITHER
    check_same_results(p)

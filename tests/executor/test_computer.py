"""NnetComputer: the same numbers as the plainest interpreter, and Kaldi's protocol."""

import numpy as np
import pytest

from nnet3tools.errors import DataError, ProgramError, UserError
from nnet3tools.executor.binding import Arena
from nnet3tools.executor.computer import ComputeOptions, NnetComputer
from nnet3tools.io import log
from nnet3tools.nnet.components.base import BackpropArgs
from nnet3tools.program.checker import check_computation
from nnet3tools.program.commands import (
    AcceptInput,
    AllocMatrix,
    Backprop,
    BackpropNoModelUpdate,
    CompressMatrix,
    DeallocMatrix,
    DecompressMatrix,
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
from support.handmade import ROWS, Program, looped_program, small_nnet, small_program
from support.interpreter import Interpreter
from support.random_programs import COLS, random_program

NNET = small_nnet()
INPUT = np.random.default_rng(3).normal(size=(ROWS, 4)).astype(np.float32)
DERIV = np.random.default_rng(4).normal(size=(ROWS, 2)).astype(np.float32)


def zero_gradient(nnet):
    gradient = nnet.copy()
    for component in gradient.components:
        component.scale(0.0)
    for _, component in gradient.updatable_components():
        component.set_as_gradient()
    return gradient


def dirty(computer):
    """Fill the memory with numbers that would spoil any result."""
    computer.program.arena.view(np.float32)[:] = np.nan


@pytest.mark.parametrize("seed", range(30))
def test_random_programs(seed):
    c = random_program(NNET, seed)
    x = np.random.default_rng(seed).normal(size=(6, COLS)).astype(np.float32)
    expected = Interpreter(NNET, c).run({"input": x})["output"]
    computer = NnetComputer(ComputeOptions(), c, NNET)
    for _ in range(2):  # twice in the same memory
        dirty(computer)
        computer.reset()
        computer.accept_input("input", x)
        computer.run()
        np.testing.assert_allclose(computer.get_output("output"), expected, rtol=2e-5, atol=1e-5)


def forward_backward(computer):
    computer.accept_input("input", INPUT)
    computer.run()
    output = computer.get_output("output").copy()
    computer.accept_input("output", DERIV)
    computer.run()
    return output, computer.get_output("input").copy()


def by_hand(nnet, gradient):
    """The same pass with the components called one after the other."""
    affine, relu, norm, affine2 = (
        nnet.component(nnet.component_index(n)) for n in ("affine", "relu", "norm", "affine2")
    )
    to_update = {n: gradient.component(gradient.component_index(n)) for n in ("affine", "affine2")}
    a, r, n, o = (np.zeros((ROWS, d), np.float32) for d in (3, 3, 3, 2))
    affine.propagate(None, INPUT, a)
    relu.propagate(None, a, r)
    memo = norm.propagate(None, r, n)
    affine2.propagate(None, n, o)
    dn, dr, da, di = (np.zeros((ROWS, d), np.float32) for d in (3, 3, 3, 4))
    affine2.backprop(BackpropArgs("", None, n, None, DERIV, None, to_update["affine2"], dn))
    norm.backprop(BackpropArgs("", None, None, n, dn, memo, None, dr))
    relu.backprop(BackpropArgs("", None, None, r, dr, None, None, da))
    affine.backprop(BackpropArgs("", None, INPUT, None, da, None, to_update["affine"], di))
    return o, di


def assert_gradients_equal(first, second):
    for (_, a), (_, b) in zip(
        first.updatable_components(), second.updatable_components(), strict=True
    ):
        np.testing.assert_allclose(a.vectorize(), b.vectorize(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("zeroed", [True, False])
def test_forward_and_backward(zeroed):
    c = small_program(NNET, zeroed).computation
    gradient, expected_gradient = zero_gradient(NNET), zero_gradient(NNET)
    computer = NnetComputer(ComputeOptions(), c, NNET, gradient)
    dirty(computer)
    output, deriv = forward_backward(computer)
    expected_output, expected_deriv = by_hand(NNET, expected_gradient)
    np.testing.assert_allclose(output, expected_output, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(deriv, expected_deriv, rtol=1e-5, atol=1e-6)
    assert_gradients_equal(gradient, expected_gradient)


def test_one_binding_serves_every_minibatch():
    c = small_program(NNET, zeroed=False).computation
    computer = NnetComputer(ComputeOptions(), c, NNET, zero_gradient(NNET))
    first = forward_backward(computer)
    arena = computer.program.arena
    computer.reset()
    computer.accept_input("input", 2 * INPUT)
    computer.reset()  # abandoned halfway
    dirty(computer)
    again = forward_backward(computer)
    assert computer.program.arena is arena
    for x, y in zip(first, again, strict=True):
        np.testing.assert_array_equal(x, y)


def test_computers_that_take_turns_may_share_memory():
    arena = Arena()
    c = small_program(NNET, zeroed=False).computation
    computers = [
        NnetComputer(ComputeOptions(), c, NNET, zero_gradient(NNET), arena=arena) for _ in range(2)
    ]
    results = [forward_backward(computer) for computer in computers]
    assert np.shares_memory(*(x.program.arena for x in computers))
    np.testing.assert_array_equal(results[0][1], results[1][1])


def test_updating_the_network_itself():
    nnet = small_nnet()
    component = nnet.component(0)
    before = component.vectorize()
    computer = NnetComputer(ComputeOptions(), small_program(nnet).computation, nnet, nnet)
    forward_backward(computer)
    assert np.abs(component.vectorize() - before).max() > 0


def test_no_model_update():
    p = small_program(NNET)
    commands = p.computation.commands
    for i, command in enumerate(commands):
        if type(command) is Backprop:
            commands[i] = BackpropNoModelUpdate(*(getattr(command, n) for n in command.ARGS))
    gradient = zero_gradient(NNET)
    forward_backward(NnetComputer(ComputeOptions(), p.computation, NNET, gradient))
    for _, component in gradient.updatable_components():
        assert not component.vectorize().any()


def test_model_derivative_needs_a_network():
    with pytest.raises(ProgramError, match="a network for it is needed"):
        NnetComputer(ComputeOptions(), small_program(NNET).computation, NNET)


def test_input_derivative_alone_needs_none():
    c = small_program(NNET).computation
    c.need_model_derivative = False
    _, deriv = forward_backward(NnetComputer(ComputeOptions(), c, NNET))
    assert deriv.any()


def test_statistics_go_where_they_are_wanted():
    p = small_program(NNET)
    at = [i for i, c in enumerate(p.computation.commands) if isinstance(c, Propagate)][1]
    p.computation.commands[at] = p.computation.commands[at].replace(store_stats=True)
    check_computation(p.computation, NNET)
    gradient, stats = zero_gradient(NNET), zero_gradient(NNET)
    forward_backward(
        NnetComputer(ComputeOptions(), p.computation, NNET, gradient, nnet_to_store_stats=stats)
    )
    relu = p.component("relu")
    assert stats.component(relu).info() != gradient.component(relu).info()


def in_place_program():
    """relu in place forward, batch norm in place forward."""
    p = Program(NNET)
    x, out = p.matrix("x", ROWS, 4), p.matrix("out", ROWS, 3)
    p.add(
        AcceptInput(x, p.node("input")),
        AllocMatrix(out),
        Propagate(p.component("affine"), 0, x, out),
        DeallocMatrix(x),
        Propagate(p.component("relu"), 0, out, out),
        Propagate(p.component("norm"), 0, out, out),
        ProvideOutput(out, p.node("input")),
    )
    return p.computation


def test_in_place_propagation():
    computer = NnetComputer(ComputeOptions(), in_place_program(), NNET)
    dirty(computer)
    computer.accept_input("input", INPUT)
    computer.run()
    expected = np.empty((ROWS, 3), np.float32)
    NNET.component(0).propagate(None, INPUT, expected)
    expected = np.maximum(expected, 0)
    norm = np.empty_like(expected)
    NNET.component(2).propagate(None, expected, norm)
    np.testing.assert_allclose(computer.get_output("input"), norm, rtol=1e-5, atol=1e-6)


# -- compression and loops


@pytest.mark.parametrize(
    ("kind", "value_range", "step"),
    [(1, 2.0, 2 / 127), (2, 2.0, 2 / 255), (3, 2.0, 2 / 32767), (4, 2.0, 2 / 65535)],
)
def test_lossy_compression_where_asked_for(kind, value_range, step):
    from nnet3tools.executor.binding import bind_program

    p = Program(NNET)
    x = p.matrix("x", 50, 4)
    p.add(
        AcceptInput(x, p.node("input")),
        CompressMatrix(x, kind, True, value_range),
        DecompressMatrix(x),
        ProvideOutput(x, p.node("input")),
    )
    values = np.linspace(-3, 3, 200, dtype=np.float32).reshape(50, 4)
    low = -2.0 - step if kind in (1, 3) else 0.0
    for lossy, expected in ((False, values), (True, np.clip(values, low, 2.0))):
        program = bind_program(p.computation, NNET, compress_lossy=lossy)
        program.segments[0].accepts[p.node("input")][:] = values
        for _, work in program.segments[0].steps:
            work()
        got = program.segments[1].provides[p.node("input")]
        assert np.abs(got - expected).max() <= (0.51 * step if lossy else 0)


def test_lack_of_memory_names_the_three_largest_matrices_largest_first(monkeypatch):
    take = Arena.take

    def take_little(arena, num_bytes):
        if num_bytes > 1 << 20:
            raise MemoryError
        return take(arena, num_bytes)

    p = Program(NNET)
    for rows in (300_000, 100_000, 400_000, 200_000):
        p.add(AcceptInput(p.matrix(f"m{rows}", rows, 4), p.node("input")))
    monkeypatch.setattr(Arena, "take", take_little)
    with pytest.raises(UserError, match=r"400000 x 4, 6\.1 MB.*300000 x 4, .*200000 x 4, 3\.1 MB"):
        NnetComputer(ComputeOptions(), p.computation, NNET)


def test_looped_program_carries_its_state():
    c = looped_program(NNET)
    check_computation(c, NNET)
    computer = NnetComputer(ComputeOptions(), c, NNET)
    dirty(computer)
    rng = np.random.default_rng(5)
    total = np.zeros((5, 4), np.float32)
    for _ in range(7):
        x = rng.normal(size=(5, 4)).astype(np.float32)
        total += x
        computer.accept_input("input", x)
        computer.run()
        np.testing.assert_allclose(computer.get_output("input"), total, rtol=1e-5, atol=1e-5)


def looped_in_mid_segment():
    """As Kaldi forms loops: the label stands in the midst of work, and state is kept twice over."""
    p = Program(NNET)
    names = ("in", "state", "old", "out", "next")
    x, state, old, out, following = (p.matrix(n, 5, 4) for n in names)
    node = p.node("input")
    p.add(
        AcceptInput(x, node),
        AllocMatrix(state),
        MatrixCopy(state, x),
        DeallocMatrix(x),
        AllocMatrix(old),
        SetConst(old, 1.0),
        NoOperationLabel(),
        AllocMatrix(out),
        MatrixCopy(out, state),
        MatrixAdd(out, old),
        ProvideOutput(out, node),
        NoOperationMarker(),
        AcceptInput(following, node),
        MatrixAdd(following, state),
        DeallocMatrix(out),
        DeallocMatrix(old),
        SwapMatrix(old, state),
        SwapMatrix(state, following),
        GotoLabel(6),
    )
    return p.computation


def test_loop_entered_in_mid_segment():
    c = looped_in_mid_segment()
    check_computation(c, NNET)
    computer = NnetComputer(ComputeOptions(), c, NNET)
    dirty(computer)
    rng = np.random.default_rng(5)
    state, old = np.zeros((5, 4), np.float32), np.ones((5, 4), np.float32)
    for i in range(7):
        x = rng.normal(size=(5, 4)).astype(np.float32)
        computer.accept_input("input", x)
        computer.run()
        old, state = (state, state + x) if i else (old, x)
        np.testing.assert_allclose(computer.get_output("input"), state + old, rtol=1e-5, atol=1e-5)


# -- protocol


@pytest.fixture
def computer():
    return NnetComputer(
        ComputeOptions(), small_program(NNET).computation, NNET, zero_gradient(NNET)
    )


def test_unknown_node(computer):
    with pytest.raises(DataError, match="no node named 'inptu'"):
        computer.accept_input("inptu", INPUT)


def test_wrong_size(computer):
    with pytest.raises(DataError, match=r"input 'input': 5 x 4 in .*request, 4 x 4 provided"):
        computer.accept_input("input", INPUT[:4])


def test_input_that_is_not_expected_yet(computer):
    with pytest.raises(DataError, match="accept input for network node 'output'"):
        computer.accept_input("output", DERIV)


def test_output_before_it_is_there(computer):
    with pytest.raises(DataError, match="provide output for network node 'output'"):
        computer.get_output("output")


def test_missing_input(computer):
    with pytest.raises(DataError, match="no input for node 'input'"):
        computer.run()


def test_running_on_after_the_end(computer):
    forward_backward(computer)
    computer.run()  # there is nothing left to do but to pass the last output
    with pytest.raises(ProgramError, match="finished"):
        computer.run()


def test_output_may_be_looked_at_twice_and_beside_the_derivative(computer):
    computer.accept_input("input", INPUT)
    computer.run()
    before = computer.get_output("output").copy()
    computer.accept_input("output", DERIV)
    np.testing.assert_array_equal(computer.get_output("output"), before)


def test_inputs_are_copied(computer):
    mine = INPUT.copy()
    computer.accept_input("input", mine)
    mine[:] = 1e9
    computer.run()
    assert np.abs(computer.get_output("output")).max() < 1e3


# -- failure, debugging, timing


def test_failing_command_is_named(computer, monkeypatch):
    relu = NNET.component_index("relu")

    def fail(*_):
        raise FloatingPointError("boom")

    nnet = small_nnet()
    monkeypatch.setattr(nnet.component(relu), "propagate", fail)
    c = small_program(nnet).computation
    computer = NnetComputer(ComputeOptions(), c, nnet, zero_gradient(nnet))
    computer.accept_input("input", INPUT)
    with pytest.raises(FloatingPointError, match="boom") as info:
        computer.run()
    note = info.value.__notes__[0]
    assert note.startswith("while running command c6: relu.Propagate(NULL, m2, &m3)\nafter\nc1: ")


def test_debug_logs_every_command(capfd):
    c = small_program(NNET).computation
    computer = NnetComputer(ComputeOptions(debug=True), c, NNET, zero_gradient(NNET))
    forward_backward(computer)
    text = capfd.readouterr().err
    assert "c3: affine.Propagate(NULL, m1, &m2)\t|\tm2: 0->" in text
    assert "affine2.Backprop" in text
    assert text.count("secs") == len(computer.seconds)


def test_verbose_5_turns_debugging_on(capfd):
    log.set_verbose(5)
    try:
        c = small_program(NNET).computation
        forward_backward(NnetComputer(ComputeOptions(), c, NNET, zero_gradient(NNET)))
    finally:
        log.set_verbose(0)
    assert "time: " in capfd.readouterr().err


def test_profile_times_commands():
    c = small_program(NNET).computation
    computer = NnetComputer(ComputeOptions(profile=True), c, NNET, zero_gradient(NNET))
    forward_backward(computer)
    report = computer.time_report()
    assert "Propagate" in report
    assert "Backprop" in report
    assert report.count("%") == len(report.splitlines())


def test_set_const_uses_its_value():
    p = Program(NNET)
    x, y = p.matrix("x", 2, 4), p.matrix("y", 2, 4)
    p.add(
        AcceptInput(x, p.node("input")),
        AllocMatrix(y),
        SetConst(y, 1.5),
        MatrixAdd(y, x, 2.0),
        DeallocMatrix(x),
        ProvideOutput(y, p.node("input")),
    )
    computer = NnetComputer(ComputeOptions(), p.computation, NNET)
    computer.accept_input("input", np.ones((2, 4), np.float32))
    computer.run()
    assert (computer.get_output("input") == 3.5).all()

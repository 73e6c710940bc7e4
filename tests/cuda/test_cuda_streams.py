"""The real cuda.py on a model of CuPy: streams, captures, pools that recycle, and little memory.

What a GPU is free to do, late, early or by chance (model_streams.Schedule), must not show.
"""

import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.cli.gpu_faults import not_usable
from nnet3tools.errors import ProgramError, UserError
from nnet3tools.executor.options import ComputeOptions
from nnet3tools.nnet.arithmetic import vectorize
from nnet3tools.nnet.components.updatable import UpdatableComponent
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.device import move_nnet
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.tensor import recording
from nnet3tools.tensor.cuda.device import use_device
from nnet3tools.tensor.cuda.fused_levels import capture
from nnet3tools.tensor.cuda.indexes import forget, uploaded
from nnet3tools.tensor.cuda.launches import launches_of
from nnet3tools.tensor.side_stream import wait_for_side_stream
from nnet3tools.training.trainer import NnetTrainer, NnetTrainerOptions
from support import model_cupy
from support.configs import in_a_row
from support.emulated_cuda import REAL, EmulatedDevice, fetch, needs_compiler, to_device
from support.model_memory import CUDARuntimeError
from support.model_streams import Schedule, Stream
from support.training_helpers import minibatch

pytestmark = [needs_compiler, pytest.mark.skipif(REAL, reason="of the model")]

CONFIG = in_a_row("""input dim=3
a NaturalGradientAffineComponent input-dim=9 output-dim=12 rank-in=3 rank-out=5 \
input=Append(Offset(input, -1), input, Offset(input, 1))
r RectifiedLinearComponent dim=12 self-repair-scale=1e-05
b BatchNormComponent dim=12
d GeneralDropoutComponent dim=12 dropout-proportion=0.2 continuous=true
t TdnnComponent input-dim=12 output-dim=5 time-offsets=0
ls LogSoftmaxComponent dim=5""")


@pytest.fixture(params=list(Schedule), ids=lambda schedule: schedule.name.lower())
def schedule(request: pytest.FixtureRequest) -> Schedule:
    return request.param


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """What makes devices; each is the one in use from then on."""
    model_cupy.install(monkeypatch)
    used = []

    def make(*args: Any, **options: Any) -> EmulatedDevice:
        device = EmulatedDevice(*args, **options)
        context = use_device(device)
        context.__enter__()
        used.append((device, context))
        return device

    yield make
    for device, context in used:
        device.close()
        context.__exit__(None, None, None)


Change = Callable[[NnetTrainer, int], None]


def train(
    graphs: bool, steps: int = 14, change: Change | None = None, config: str = CONFIG
) -> np.ndarray:
    """All parameters after so many minibatches; `change` is called before each."""
    tensor.random.seed(3)
    nnet = Nnet.from_config(parse_config_lines(config))
    options = NnetTrainerOptions(computation=ComputeOptions(cuda_graph=graphs), print_interval=1000)
    trainer = NnetTrainer(options, nnet, to_device(np.zeros(0, np.float32)))
    for i in range(steps):
        if change is not None:
            change(trainer, i)
        trainer.train(minibatch(seed=i % 2, size=6))
    move_nnet(nnet)
    return vectorize(nnet)


# -- streams


def test_what_runs_aside_comes_between_what_was_given_before_and_after_it(machines, schedule):
    device = machines(schedule)
    x = to_device(np.zeros(4, np.float32))
    double, triple = tensor.element("_1 = 2 * _1 + 1"), tensor.element("_1 = 3 * _1")
    for do in (double, triple):
        do(to_device(np.zeros(4, np.float32)))  # kernels are loaded
    run = device.capture(lambda: double(x), on_side_stream=True)
    for i in range(1, 6):
        triple(x)
        run()
        assert device.machine.current_stream().ptr == device.stream.ptr
        wait_for_side_stream()
        triple(x)
        if i == 1:
            assert (fetch(x) == 3).all()
    assert (fetch(x) == 3 * sum(18**k for k in range(5))).all()


def test_memory_of_what_runs_aside_is_nobody_elses_before_somebody_waits(machines, schedule):
    device = machines(schedule)
    add = tensor.element("_1 += 1")
    x = to_device(np.zeros(1000, np.float32))
    add(x)
    at, run = x.data.ptr, device.capture(partial(add, x), on_side_stream=True)
    run()
    del x, run
    gc.collect()
    others = [to_device(np.zeros(1000, np.float32)) for _ in range(4)]
    wait_for_side_stream()
    assert all((fetch(other) == 0).all() for other in others)
    gc.collect()
    assert at in [to_device(np.zeros(1000, np.float32)).data.ptr for _ in range(4)]


def test_after_an_upload_in_a_capture_kernels_are_still_captured(machines, schedule):
    """CuPy's `with stream` goes back to the top of its stack, where `use` has put nothing."""
    device = machines(schedule)
    x = to_device(np.zeros(4, np.float32))
    double = tensor.element("_1 = 2 * _1 + _2")
    double(x, 1.0)  # kernels are loaded
    kept = []

    def work() -> None:
        kept.append(uploaded(np.arange(3, dtype=np.int32)))
        double(x, 1.0)

    run = device.capture(work)
    assert device.machine.current_stream().ptr == device.stream.ptr
    assert (fetch(x) == 1).all()
    run()
    run()
    assert (fetch(x) == 7).all()
    assert fetch(kept[0]).tolist() == [0, 1, 2]


def test_fetching_an_array_with_gaps_leaves_the_stream(machines):
    """CuPy enters the current stream for that and then goes back to the one entered before."""
    device = machines()
    x = model_cupy.asarray(np.arange(12.0, dtype=np.float32).reshape(3, 4))
    assert x[:, :2].get().tolist() == [[0, 1], [4, 5], [8, 9]]
    assert device.machine.current_stream().ptr == device.stream.ptr


def test_an_upload_in_a_branch_leaves_the_branch(machines):
    device = machines()
    current, seen = device.machine.current_stream, list[tuple[int, int]]()

    def step() -> None:
        before = current().ptr
        device.upload(np.arange(3))
        seen.append((before, current().ptr))

    device.capture(lambda: device.side_by_side([step, step]))
    assert [before for before, _ in seen] == [after for _, after in seen]
    assert len({before for before, _ in seen}) == 2


def test_the_model_has_cupys_stack_of_streams(machines):
    entered = machines().stream
    first, second = Stream(), Stream()
    current = model_cupy.get_machine().current_stream
    first.use()
    with second:
        assert current() is second
    assert current() is entered


def test_the_model_refuses_what_cuda_refuses_in_captures(machines):
    machines()
    stream, other = Stream(non_blocking=True).use(), Stream(non_blocking=True)
    stream.begin_capture()
    with pytest.raises(RuntimeError, match="H2D"):
        model_cupy.asarray(np.zeros(3))
    event = stream.record()
    other.wait_event(event)
    other.do("kernel", lambda: None)
    with pytest.raises(CUDARuntimeError, match="Unjoined"):
        stream.end_capture()
    stream.begin_capture()
    with pytest.raises(CUDARuntimeError, match="waited"):
        stream.synchronize()
    with pytest.raises(CUDARuntimeError, match="waited"):
        stream.end_capture()


def test_branches_of_a_capture_may_run_in_any_order_but_what_is_joined_runs_after(machines):
    for schedule in Schedule:
        machines(schedule)
        done: list[str] = []
        stream, other = Stream(non_blocking=True), Stream(non_blocking=True)
        stream.begin_capture()
        stream.do("first", lambda done=done: done.append("first"))
        other.wait_event(stream.record())
        stream.do("a", lambda done=done: done.append("a"))
        other.do("b", lambda done=done: done.append("b"))
        stream.wait_event(other.record())
        stream.do("last", lambda done=done: done.append("last"))
        stream.end_capture().launch(stream)
        stream.synchronize()
        assert done[0] == "first"
        assert done[3] == "last"
        assert done[1:3] == (["b", "a"] if schedule is Schedule.EARLY else done[1:3])


# -- threads


def test_threads_open_no_context_on_another_device(machines):
    """CuPy's `with Device` ends by going back to the thread's device before: 0 in a new thread."""
    device = machines(device=3)
    with ThreadPoolExecutor(1) as reader:
        reader.submit(device.pinned, 100).result()
    names = ("k1", "k2")
    device.load([(f'extern "C" __global__ void {k}(long long n) {{ }}\n', k) for k in names])
    assert device.machine.contexts == {3}


def test_work_of_another_thread_is_not_collected_for_this_threads_graph(machines):
    device = machines()
    x, y = (to_device(np.zeros(4, np.float32)) for _ in range(2))
    increment = tensor.element("_1 += 1")
    increment(x)
    device.machine.flush()

    def work() -> None:
        increment(x)
        with ThreadPoolExecutor(1) as other:
            other.submit(increment, y).result()

    assert len(launches_of(work)) == 1
    assert (fetch(y) == 1).all()


def test_actions_of_another_thread_are_taken_while_a_recording_is_captured():
    done = list[int]()
    with recording.without_actions(), ThreadPoolExecutor(1) as other:
        recording.act(lambda: done.append(1))
        other.submit(recording.act, lambda: done.append(2)).result()
    assert done == [2]


# -- training


def test_training_with_graphs_is_that_without_bit_for_bit(machines, schedule):
    plain = train(False) if machines(schedule) else None
    device = machines(schedule)
    with_graphs = train(True)
    assert device.captures > 5
    assert device.uploads_for_graphs == 0  # tables are parameters
    np.testing.assert_array_equal(with_graphs, plain)


def learning_rates(trainer: NnetTrainer, i: int) -> None:
    """Another rate, 0 for a while, and back."""
    rates = {6: 0.01, 9: 0.0, 11: 0.003}
    if i in rates:
        for nnet in (trainer.nnet, trainer._delta):
            for _, component in nnet.updatable_components():
                component.learning_rate = rates[i]


def _dropout(trainer: NnetTrainer) -> Any:
    return trainer.nnet.component(trainer.nnet.component_index("d"))


def dropout(trainer: NnetTrainer, i: int) -> None:
    """Another proportion, none, and back."""
    proportions = {5: 0.5, 8: 0.0, 11: 0.2}
    if i in proportions:
        _dropout(trainer).dropout_proportion = proportions[i]


def test_mode(trainer: NnetTrainer, i: int) -> None:
    """Dropout off for some minibatches."""
    if i in (6, 9):
        _dropout(trainer).test_mode = i == 6


test_mode.__test__ = False  # type: ignore[attr-defined]


def l2(trainer: NnetTrainer, i: int) -> None:
    """Regularisation and limits of changes come and go."""
    if i in (6, 10):
        for nnet in (trainer.nnet, trainer._delta):
            for _, component in nnet.updatable_components():
                component.l2_regularize = 0.01 if i == 6 else 0.0
                component.max_change = 0.05 if i == 6 else 0.75


@pytest.mark.parametrize("change", [learning_rates, dropout, test_mode, l2])
def test_settings_changed_in_mid_run_hold_from_then_on_with_graphs_too(machines, change):
    machines()
    plain, without = train(False, 14, change), train(False)
    machines()
    np.testing.assert_array_equal(train(True, 14, change), plain)
    assert (plain != without).any()


def rates(trainer: NnetTrainer, i: int) -> None:
    """Another rate in each minibatch, as in a schedule."""
    for _, component in trainer._delta.updatable_components():
        component.set_underlying_learning_rate(0.01 * 0.9**i)


PLAIN = (
    CONFIG.replace("NaturalGradient", "")
    .replace("rank-in=3 rank-out=5", "")
    .replace("time-offsets=0", "time-offsets=0 use-natural-gradient=false")
)


@pytest.mark.parametrize("config", [CONFIG, PLAIN], ids=["natural gradient", "plain"])
def test_a_new_learning_rate_costs_no_capture_and_changes_no_bit(machines, monkeypatch, config):
    device = machines()
    train(True, 20, config=config)
    without = device.captures
    device = machines()
    found = train(True, 20, rates, config)
    assert device.captures == without
    machines()
    baked = property(lambda component: component.learning_rate)
    monkeypatch.setattr(UpdatableComponent, "rate", baked)
    np.testing.assert_array_equal(train(False, 20, rates, config), found)


def test_a_copy_of_a_component_has_its_own_learning_rate(machines):
    machines()
    nnet = Nnet.from_config(parse_config_lines(CONFIG))
    move_nnet(nnet, to_device(np.zeros(0, np.float32)))
    component = nnet.component(0)
    copy = component.copy()
    copy.learning_rate = 0.5
    assert float(copy.rate) == 0.5
    assert float(component.rate) == component.learning_rate == 0.001
    move_nnet(nnet)
    component.learning_rate = 0.25
    assert component.rate == 0.25


# -- memory


def test_graphs_keep_their_memory_when_pools_give_free_blocks_back(machines, schedule):
    """What a captured operator took and let go is still what the graph works with."""
    device = machines(schedule)
    x, out = to_device(np.ones(4, np.float32)), to_device(np.zeros(4, np.float32))
    copy = tensor.element("_1 = _2")
    copy(out, x)

    def work() -> None:
        temporary = device.empty((4,), np.dtype(np.float32))
        copy(temporary, x)
        copy(out, temporary)

    run = device.capture(work)
    gc.collect()
    device._capture_memory.free_all_blocks()
    run()
    assert (fetch(out) == 1).all()


def test_a_capture_gets_memory_that_only_the_other_pool_keeps(machines):
    device = machines(memory=40 << 20)  # 32 MB are cuBLAS's
    big = device.empty((5 << 20,), np.dtype(np.uint8))
    del big  # the default pool's
    device.capture(lambda: [device.empty((5 << 20,), np.dtype(np.uint8))].clear())()


def test_tables_of_a_graph_that_is_gone_are_not_overwritten_while_it_runs(machines, schedule):
    device = machines(schedule)
    out = to_device(np.zeros(3, np.float32))
    copy = tensor.element("_1 = _2")
    copy(out, uploaded(np.zeros(3, np.int32)))

    def graph(*values: int) -> Callable[[], None]:
        return device.capture(lambda: copy(out, uploaded(np.array(values, np.int32))))

    run = graph(1, 2, 3)
    run()  # perhaps not yet
    del run
    forget()
    gc.collect()
    graph(7, 8, 9)
    assert fetch(out).tolist() == [1, 2, 3]


def test_training_gives_the_same_in_as_little_memory_as_it_needs(machines):
    """Pools that are tidied up again and again."""
    device = machines()
    plain = train(True)
    machines(memory=device.machine.memory.used)
    np.testing.assert_array_equal(train(True), plain)


@pytest.mark.parametrize("part", [0.5, 0.9])
def test_training_in_too_little_memory_is_an_error_and_never_another_model(machines, part):
    device = machines()
    workspace = device.machine.memory.used
    train(True, 10)
    need = device.machine.memory.used - workspace
    machines(memory=workspace + int(part * need))
    with pytest.raises((UserError, MemoryError), match=r"(?i)memory"):
        train(True, 10)


@pytest.mark.parametrize("use", ["module", "kernel", "graph", "launch"])
def test_lack_of_memory_for_cudas_own_work_is_explained_as_that_of_arrays(machines, use):
    machines()

    def run_out(_: NnetTrainer, i: int) -> None:
        if i == 1:
            model_cupy.get_machine().lacks_memory_for = use

    with pytest.raises(UserError, match=r"out of memory on the GPU.* need less"):
        train(True, 4, run_out)


def test_other_errors_of_cuda_are_not_taken_for_lack_of_memory(machines):
    device = machines()
    with pytest.raises(CUDARuntimeError, match="waited"):
        device.capture(device.stream.synchronize)


def test_waiting_for_a_gpu_waits_if_cublas_lacks_memory(machines):
    with pytest.raises(MemoryError) as caught:
        machines(lacks_memory_for="cublas")
    assert not_usable(caught.value).in_use


def test_a_product_on_the_side_stream_is_refused(machines):
    machines()
    x, y = (to_device(np.ones((2, 2), np.float32)) for _ in range(2))
    product = tensor.prod.bind(y, x, x)
    capture(product)()
    with pytest.raises(ProgramError, match="side stream"):
        capture(product, on_side_stream=True)


def test_pinned_memory_stays_while_its_copy_is_under_way(machines):
    device = machines(Schedule.LATE)
    target = device.empty((64,), np.dtype(np.uint8))
    source = device.pinned(64)
    source[:] = 5
    device.copy_from_pinned(target, source, device.record())
    assert any(kept is source for _, kept in device._sending)
    del source
    device.machine.flush()
    device.copy_from_pinned(target, device.pinned(64), device.record())
    assert len(device._sending) == 1

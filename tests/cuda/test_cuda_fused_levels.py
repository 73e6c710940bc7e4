"""Level-scheduled fusion: fewer kernels compute the same."""

import numpy as np
import pytest
from test_cuda_training import DROPOUT, MIXED, mixed_training

from nnet3tools import tensor
from nnet3tools.errors import ProgramError
from nnet3tools.executor.options import ComputeOptions
from nnet3tools.nnet.arithmetic import vectorize
from nnet3tools.tensor.call import in_turn
from nnet3tools.tensor.cuda.fused_level import FusedLevel
from nnet3tools.tensor.cuda.fused_levels import capture, schedule
from nnet3tools.tensor.cuda.launches import Launch, launches_of
from nnet3tools.tensor.cuda.level_table import closing_turns, is_for_a_warp, smaller_grids
from nnet3tools.tensor.flags import Flags
from nnet3tools.tensor.recording import NotCapturable
from support import model_streams
from support.emulated_cuda import REAL, assert_same, fetch, needs_compiler, to_device

pytestmark = needs_compiler


def sizes_of(levels):
    """The number of launches in each level."""
    return [len(x.launches) if isinstance(x, FusedLevel) else len(x) for x in levels]


def run_both_ways(device, work, arrays):
    """What `work` leaves in arrays by itself, and replayed from a graph; its number of nodes."""
    before = [fetch(a) for a in arrays]
    work()
    expected = [fetch(a) for a in arrays]
    for array, old in zip(arrays, before, strict=True):
        array[...] = to_device(old)
    replay = capture(work)
    device.launched.clear()
    device.kernels_of_graphs = 0
    for _ in range(2):  # tickets are zeros again
        for array, old in zip(arrays, before, strict=True):
            array[...] = to_device(old)
        replay()
        for array, wanted in zip(arrays, expected, strict=True):
            assert_same(fetch(array), wanted)
    return device.kernels_of_graphs // 2


def matrices(*shapes):
    rng = np.random.default_rng(3)
    return [to_device(rng.normal(size=shape).astype(np.float32)) for shape in shapes]


def test_what_is_independent_is_one_kernel(device):
    a, b, c, d = matrices((30, 40), (7, 300), (5000,), (33, 9))
    total = to_device(np.zeros(9, np.float32))
    sum_rows = tensor.aggregate("_1", "sum", axis=0)

    def work():
        tensor.fill(a, 3.0)
        tensor.scale(b, 2.0)
        tensor.add(c, c, 0.5)
        sum_rows(total, d)

    assert run_both_ways(device, work, [a, b, c, d, total]) == 1


def test_the_same_points_go_on_and_others_wait(device):
    a, b, c = matrices((40, 50), (40, 50), (40, 50))

    def points():
        tensor.copy(b, a)
        tensor.scale(b, 3.0)
        tensor.add(c, b)

    assert run_both_ways(device, points, [a, b, c]) == 1
    rows = np.arange(39, -1, -1).astype(np.int32)

    def others():
        tensor.copy(b, a)
        tensor.copy_rows(c, b, rows)  # reads rows that other threads wrote

    assert run_both_ways(device, others, [a, b, c]) == 2


def test_what_is_read_is_not_overwritten_before(device):
    """Anti-dependencies: a later launch changes what an earlier one reads, in another layout."""
    a, b, c = matrices((40, 50), (50, 40), (40, 50))

    def work():
        tensor.transpose(b, a, (1, 0))
        tensor.copy(a, c)
        tensor.scale(c[:, 3:9], 2.0)
        tensor.copy_rows(c[:, :3], a[:, 3:6], np.arange(40, dtype=np.int32))

    assert run_both_ways(device, work, [a, b, c]) >= 2


def test_columns_side_by_side_do_not_wait_for_each_other(device):
    (a,) = matrices((400, 50))

    def work():
        tensor.fill(a[:, :20], 1.0)
        tensor.scale(a[:, 20:], 2.0)
        tensor.scale(a[:, 19:24], 2.0)

    assert sizes_of(schedule(launches_of(work))) == [2, 1]


@pytest.mark.parametrize(("count", "kernels"), [(1, 1), (9, 1), (31, 1), (32, 2), (90, 3)])
def test_a_level_has_no_more_launches_than_its_parameters_hold(device, count, kernels):
    """They may have 4096 bytes, which the model of CuPy checks."""
    arrays = matrices(*[(5, 3 + i) for i in range(count)])
    work = in_turn([tensor.scale.bind(a, 2.0) for a in arrays])
    assert run_both_ways(device, work, arrays) == kernels


@pytest.mark.parametrize("with_others", [False, True], ids=["alone", "with others"])
def test_optional_work_of_a_graph_is_done_while_its_flag_is_set(device, with_others):
    a, b, other = matrices((300, 40), (300, 40), (30, 40))
    sums = to_device(np.zeros(40))
    flags = Flags()
    flags.get(0, a).is_set = False
    flag = flags.get(50, a)  # of the second word
    steps = [tensor.add.bind(a, b), tensor.aggregate("_1", "sum", axis=0).bind(sums, a)]
    optional = flag.guard(in_turn(steps))
    expected = [fetch(x) for x in (a, sums, other)]

    def work():
        if with_others:
            tensor.scale(other, 2.0)
        optional()

    steps[0]()
    steps[1]()  # kernels are loaded
    replay = capture(work)
    a[...] = to_device(expected[0])
    sums[...] = to_device(expected[1])
    for is_set in (True, False, False, True, True):
        flag.is_set = is_set
        flags.send()
        replay()
        if is_set:
            expected[0] = expected[0] + fetch(b)
            expected[1] = fetch(a).astype(np.float64).sum(axis=0)
        expected[2] = expected[2] * (1 + with_others)
        assert_same(fetch(a), expected[0])
        np.testing.assert_allclose(fetch(sums), expected[1], rtol=1e-6)
        assert_same(fetch(other), expected[2])


def test_flags_are_sent_only_if_they_have_changed(device):
    (like,) = matrices((3, 3))
    flags = Flags()
    several = [flags.get(i, like) for i in (0, 5, 47, 48, 60)]
    for pattern in ([1, 0, 1, 1, 0], [0, 1, 1, 0, 1], [0, 1, 1, 0, 1]):
        for flag, is_set in zip(several, pattern, strict=True):
            flag.is_set = bool(is_set)
        device.launched.clear()
        flags.send()
        assert [float(fetch(flag.array)[0]) for flag in several] == pattern
    assert not device.launched


def test_optional_work_that_cannot_look_at_a_flag_is_not_captured(device):
    a, b = matrices((4, 4), (4, 4))
    flag = Flags().get(0, a)
    with pytest.raises(ProgramError, match="optional"):
        capture(flag.guard(tensor.prod.bind(b, a, a)))
    scale = tensor.scale.bind(a, 2.0)
    scale.block = (512, 1, 1)
    with pytest.raises(NotCapturable):
        capture(flag.guard(scale))


def test_numbers_have_no_kernels_of_their_own(device):
    """Sums, and a chain of what follows from them, which the last block computes."""
    a, b = matrices((3000, 40), (700,))
    out = to_device(np.zeros(1))
    ratio = tensor.element("_1 = sqrt(_2 / (_3 + 1))")
    first, second = to_device(np.zeros(1)), to_device(np.zeros(1))
    squares = tensor.aggregate("float64(_1) * _1", "sum", axis=0)

    def work():
        squares(first, a.reshape(-1))
        squares(second, b)
        ratio(out, first, second)
        tensor.scale(out, 0.5)
        tensor.scale(b[:1], 0.5)

    assert run_both_ways(device, work, [a, b, first, second, out]) == 1


def test_a_closing_step_sees_what_all_threads_did_in_the_one_before(device):
    a, b, c, d = matrices((700, 40), (30, 20), (30, 20), (30, 20))
    total = to_device(np.zeros(1))
    squares = tensor.aggregate("float64(_1) * _1", "sum", axis=0)
    scaled = tensor.element("_1 = _2 * float32(_3)")
    backwards = np.arange(29, -1, -1).astype(np.int32)

    def work():
        squares(total, a.reshape(-1))
        scaled(c, b, total)  # by the last block, as it waits for the number
        tensor.copy_rows(d, c, backwards)  # of which others of its threads made rows

    assert run_both_ways(device, work, [total, b, c, d]) == 1


def test_closing_steps_side_by_side_do_not_wait_for_each_other(device):
    a, b, c, wide = matrices((1, 1), (1, 1), (1, 1), (20, 30))

    def work():
        tensor.scale(a, 2.0)
        tensor.scale(b, 3.0)
        tensor.add(c, a)
        tensor.scale(wide, 0.5)
        tensor.add(c, b)

    nodes = launches_of(work)
    turns = closing_turns([node for node in nodes if isinstance(node, Launch)])
    assert [len(turn) for turn in turns] == [2, 1, 1, 1]
    assert [is_for_a_warp(turn[0]) for turn in turns] == [True, False, True, True]
    assert [turn[0].name == nodes[3].name for turn in turns].index(True) == 1


def test_only_parts_that_loop_get_fewer_blocks_and_each_keeps_one():
    grids, loops = [(1, 1888), (264, 1), (3, 704), (2112, 1)], [True, False, True, True]
    found = smaller_grids(grids, loops, 132)
    assert found[1] == (264, 1)
    assert sum(x * y for x, y in found) <= 132 * 8
    assert all(
        x * y >= 1 and x <= gx and y <= gy for (x, y), (gx, gy) in zip(found, grids, strict=True)
    )
    assert smaller_grids(grids, loops, 1000) == grids
    assert smaller_grids([(1, 1)] * 9000, [True] * 9000, 1) == [(1, 1)] * 9000


def test_products_keep_their_places(device):
    a, b, c, d = matrices((20, 30), (30, 20), (20, 20), (20, 20))

    def work():
        tensor.scale(a, 0.5)
        tensor.fill(d, 1.0)
        tensor.prod(c, a, b)
        tensor.scale(a, 2.0)  # after the product
        tensor.prod(d, c, c, beta=1.0)
        tensor.scale(c, 0.25)

    assert run_both_ways(device, work, [a, b, c, d]) == 4


def test_a_level_has_at_most_eight_kernels(device):
    arrays = matrices(*[(10,)] * 60)

    def work():
        for i, array in enumerate(arrays):
            tensor.element(f"_1 = _1 * {i + 1}.5 + {i}.25")(array)

    assert run_both_ways(device, work, arrays) == 8


def test_launches_say_what_they_read_and_write(device):
    a, b, total = matrices((9, 8), (9, 8), (8,))
    table = np.zeros(9, np.int32)

    def work():
        tensor.element("_1 = _2 + 1")(a, b)
        tensor.aggregate("_1", "sum", axis=0)(total, a)
        tensor.add_rows(a, b, table)
        tensor.copy_rows_multi(a, [b], table, table)
        tensor.copy_to_rows_multi(a[:1], [b], table[:1], table[:1])

    element, total_of, rows, multi, to_multi = launches_of(work)
    assert isinstance(element, Launch)
    assert element.writes[0] is a
    assert any(x is b for x in element.reads)
    assert total_of.writes[0] is total
    assert any(x is a for x in total_of.reads)
    assert rows.writes[0] is a
    assert len(rows.points) == 1
    assert any(x is b for x in multi.reads)
    assert any(x is b for x in to_multi.writes)


@pytest.mark.parametrize("dropout", [False, True])
def test_training_is_the_same_bit_for_bit_with_and_without_graphs(device, dropout):
    text = MIXED.format(dropout=DROPOUT if dropout else "", last="g2" if dropout else "s2")
    like = to_device(np.zeros(0, np.float32))
    models = []
    for graph in (False, True):
        options = ComputeOptions(cuda_graph=graph)
        models.append(vectorize(mixed_training(like, text, 12, computation=options)[0]))
    np.testing.assert_array_equal(models[1], models[0])


@pytest.mark.skipif(REAL, reason="looks into a model's graphs")
def test_products_that_do_not_wait_for_each_other_are_side_by_side(device):
    """On branches of the graph, which come together before what waits for them."""
    a, b, c = matrices((20, 30), (20, 31), (20, 32))
    outs = matrices((30, 30), (31, 31), (32, 32))
    (total,) = matrices((30, 30))

    def work():
        for x, out in zip((a, b, c), outs, strict=True):
            tensor.prod(out, x, x, trans_a=True)
        for out in outs:
            tensor.add(total, out[:30, :30])
        tensor.prod(outs[0], total, total)

    assert run_both_ways(device, work, [a, b, c, *outs, total]) == 5
    graphs = []
    with pytest.MonkeyPatch.context() as monkeypatch:
        made = model_streams.Graph.__init__

        def noted_graph(self, machine, nodes):
            made(self, machine, nodes)
            graphs.append(self)

        monkeypatch.setattr(model_streams.Graph, "__init__", noted_graph)
        capture(work)
    products = [n for n in graphs[0].nodes if n.launch.name == "gemm"]
    assert [len(n.after) for n in products] == [0, 0, 0, 1]
    (level,) = (n for n in graphs[0].nodes if n.launch.name not in ("", "gemm"))
    assert len(level.after) == 3


def test_streams_are_as_before_when_a_branch_fails(device):
    def fails():
        raise ValueError

    def work():
        device.side_by_side([lambda: None, fails, lambda: None])

    with pytest.raises(ValueError):  # noqa: PT011
        device.capture(work)
    (a,) = matrices((5, 6))
    assert run_both_ways(device, lambda: tensor.scale(a, 2.0), [a]) == 1

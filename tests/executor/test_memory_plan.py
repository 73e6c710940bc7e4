"""The memory plan: no two live matrices share a byte, and the arena is small."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnet3tools.executor.memory_plan import io_blocks, plan_memory
from nnet3tools.program.analysis import Analysis
from nnet3tools.program.commands import CompressMatrix, DecompressMatrix
from nnet3tools.program.component_facts import ComponentTable
from nnet3tools.tensor import offsets as offsets_module
from nnet3tools.tensor.offsets import ALIGNMENT, assign_offsets, live_bytes
from support.handmade import small_nnet, small_program
from support.random_programs import random_program

BLOCKS = st.lists(
    st.tuples(st.integers(1, 500), st.integers(0, 30), st.integers(0, 10)), min_size=1, max_size=25
)


@given(BLOCKS)
def test_blocks_alive_together_never_overlap(blocks):
    sizes = [size for size, _, _ in blocks]
    first = [begin for _, begin, _ in blocks]
    last = [begin + length for _, begin, length in blocks]
    offsets, total = assign_offsets(sizes, first, last)
    for i in range(len(blocks)):
        assert offsets[i] % ALIGNMENT == 0
        assert offsets[i] >= 0
        assert offsets[i] + sizes[i] <= total
        for j in range(i):
            if first[i] <= last[j] and first[j] <= last[i]:
                apart = offsets[i] + sizes[i] <= offsets[j] or offsets[j] + sizes[j] <= offsets[i]
                assert apart
    assert total <= sum(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)


@pytest.mark.parametrize("many", [3, 10**6])
def test_many_blocks_placed_in_order_of_time_never_overlap(many, monkeypatch):
    monkeypatch.setattr(offsets_module, "_MOST_RANKED", many)
    draws = np.random.default_rng(1)
    for _ in range(50):
        first = draws.integers(0, 60, 80)
        last, sizes = first + draws.integers(0, 12, 80), 64 * draws.integers(0, 9, 80)
        offsets, total = assign_offsets(sizes, first, last)
        for now in range(72):
            alive = (first <= now) & (last >= now) & (sizes > 0)
            begins = np.sort(np.array(offsets)[alive])
            ends = np.sort((np.array(offsets) + sizes)[alive])
            assert (begins[1:] >= ends[:-1]).all()
            assert total >= ends.max(initial=0)
        assert total <= 1.5 * live_bytes(sizes, first, last)


def test_the_time_of_many_blocks_is_nearly_linear():
    def seconds(count):
        draws = np.random.default_rng(count)
        first = draws.integers(0, count, count)
        last, sizes = first + draws.integers(0, 30, count), draws.integers(1, 9999, count)
        began = time.process_time()
        assign_offsets(sizes, first, last)
        return time.process_time() - began

    few = min(seconds(4000) for _ in range(3))
    assert any(seconds(32000) < 8 * 3 * few for _ in range(3)), "64 times is quadratic"


def test_blocks_that_never_meet_share_memory():
    offsets, total = assign_offsets([640, 640, 128], [0, 5, 3], [4, 9, 6])
    assert offsets[:2] == [0, 0]
    assert total == 768


def test_freed_gap_is_reused():
    # a [0,9] | b [0,3] | c [0,9]; then d [4,9] fits where b was
    offsets, total = assign_offsets([256, 128, 192, 64], [0, 0, 0, 4], [9, 3, 9, 9])
    assert total == 256 + 128 + 192
    assert offsets[3] == offsets[1]


def test_nothing_to_plan():
    assert assign_offsets([], [], []) == ([], 0)


def lives(computation, nnet):
    """(block key, bytes) -> the commands that touch it, worked out afresh.

    A key changes owner with a swap, and ends where compression changes the format.
    """
    where, touched, size = {}, {}, {}
    fresh = iter(range(10_000))
    for c, command in enumerate(computation.commands):
        if command.ALLOCATES == "a":  # swap
            where[computation.matrix_of(command.a)] = where.pop(computation.matrix_of(command.b))
            continue
        if command.ALLOCATES or type(command).__name__ == "AcceptInput":
            where[computation.matrix_of(command.submatrix)] = next(fresh)
        for access in command.accesses(computation, ComponentTable(nnet)):
            m = computation.matrix_of(access.submatrix)
            info = computation.matrices[m]
            touched.setdefault(where[m], set()).add(c)
            size.setdefault(where[m], info.num_rows * info.num_cols * 4)
        if isinstance(command, CompressMatrix | DecompressMatrix):
            m = computation.matrix_of(command.submatrix)
            info = computation.matrices[m]
            where[m] = next(fresh)
            touched[where[m]] = {c}
            width = 1 if isinstance(command, CompressMatrix) else 4
            size[where[m]] = info.num_rows * info.num_cols * width
    return [(min(t), max(t), size[key]) for key, t in touched.items()]


def most_alive(plan):
    """The most bytes alive at one command."""
    blocks = plan.blocks
    return live_bytes(*(np.array([getattr(b, name) for b in blocks]) for name in
                        ("num_bytes", "first", "last")))  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_plan_of_random_programs(seed):
    nnet = small_nnet()
    c = random_program(nnet, seed)
    analysis = Analysis(c, nnet)
    plan = plan_memory(c, analysis.matrix_accesses)
    used = [
        (b.first, b.last, b.num_bytes, offset)
        for b, offset in zip(plan.blocks, plan.offsets, strict=True)
        if b.num_bytes
    ]
    assert sorted((first, last, size) for first, last, size, _ in used) == sorted(lives(c, nnet))
    for i, (first, last, size, offset) in enumerate(used):
        for other_first, other_last, other_size, other in used[:i]:
            if first <= other_last and other_first <= last:
                assert offset + size <= other or other + other_size <= offset
    assert most_alive(plan) <= plan.num_bytes


def test_everything_exchanged_while_waiting_is_kept_apart():
    nnet = small_nnet()
    p = small_program(nnet, zeroed=False)
    plan = plan_memory(p.computation, Analysis(p.computation, nnet).matrix_accesses)
    waits = io_blocks(p.computation.commands)
    assert len(waits) == 3
    output, deriv = (p.computation.matrix_of(p[n]) for n in ("output", "doutput"))
    ranges = []
    for matrix in (output, deriv):
        index = plan.after(waits[1][1] - 1, matrix)
        ranges.append((plan.offsets[index], plan.offsets[index] + plan.blocks[index].num_bytes))
    (a, b), (c, d) = ranges
    assert b <= c or d <= a


def test_optimized_programs_need_less_than_all_matrices():
    nnet = small_nnet()
    c = small_program(nnet, zeroed=False).computation
    plan = plan_memory(c, Analysis(c, nnet).matrix_accesses)
    everything = sum(m.num_rows * m.num_cols * 4 for m in c.matrices)
    assert most_alive(plan) < everything
    sizes = np.array([b.num_bytes for b in plan.blocks])
    assert plan.num_bytes <= most_alive(plan) + ALIGNMENT * (sizes > 0).sum()

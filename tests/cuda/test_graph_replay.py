"""The bookkeeping of graph replay, with a capture made of Python lists: no device, no compiler."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.executor.graph_replay import GraphReplayer, WorkReplayer
from nnet3tools.io import log
from nnet3tools.tensor import host


class Machine:
    """Device work is a word: said at once, or noted while a graph is captured."""

    def __init__(self):
        self.said, self.graphs, self._recording = [], 0, None

    def do(self, word):
        (self.said if self._recording is None else self._recording).append(word)

    def capture(self, work):
        recorded = self._recording = []
        try:
            work()
        finally:
            self._recording = None

        def replay():
            self.graphs += 1
            self.said.extend(recorded)

        return replay


class Component:
    """Something with host state, as a component has."""

    def __init__(self):
        self.count = 0


def replayer_of(machine, steps, components=()):
    """What runs the steps once, as a program of one segment whose commands they are."""
    commands = [SimpleNamespace(component=i) for i in range(len(steps))]
    owners = {i: c for i, c in enumerate(components)}
    nnet = SimpleNamespace(component=lambda i: owners.get(i, Component()))
    binding = SimpleNamespace(
        computation=SimpleNamespace(commands=commands), nnet=nnet, nnet_to_update=None,
        nnet_to_store_stats=None,
    )  # fmt: skip
    replayer = GraphReplayer(binding, machine.capture)
    segment = SimpleNamespace(steps=list(enumerate(steps)))

    def run():
        before = len(machine.said)
        for _, step in replayer.steps(segment):
            step()
        return machine.said[before:]

    return run


def test_each_outcome_has_its_graph_and_decisions_keep_their_order():
    machine, drawn = Machine(), iter([0, 1, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1])

    def step(name):
        def run():
            machine.do(name + str(host.decide(lambda: next(drawn))))

        return run

    run = replayer_of(machine, [step("a"), lambda: machine.do("-"), step("b")])
    said = ["".join(run()) for _ in range(6)]
    assert said == ["a0-b1", "a0-b1", "a1-b0", "a0-b0", "a0-b1", "a1-b1"]
    assert machine.graphs == 5  # all but the first


def test_actions_are_done_once_a_run_also_where_a_variant_is_new():
    machine, component = Machine(), Component()
    drawn = iter([0, 0, 1, 0, 1])

    def count():
        component.count += 1

    def step():
        host.act(count)
        machine.do("x" if host.decide(lambda: next(drawn)) else "y")
        host.act(count)

    run = replayer_of(machine, [step], [component])
    for i in range(5):
        run()
        assert component.count == 2 * (i + 1)
    assert machine.graphs == 4


def test_changes_that_are_not_declared_keep_a_step_out_of_graphs(capsys):
    machine, component = Machine(), Component()

    def counting():
        component.count += 1
        machine.do(f"n{component.count}")

    log.set_verbose(2)
    try:
        run = replayer_of(machine, [lambda: machine.do("a"), counting], [Component(), component])
        assert ["".join(run()) for _ in range(4)] == ["an1", "an2", "an3", "an4"]
    finally:
        log.set_verbose(0)
    assert machine.graphs == 3
    assert "1 of 2 steps have work for the host" in capsys.readouterr().err


def test_an_undeclared_change_beside_declared_ones_is_seen():
    machine, component = Machine(), Component()

    def step():
        component.count += 1
        host.act(lambda: None)
        machine.do(str(component.count))

    run = replayer_of(machine, [step], [component])
    assert ["".join(run()) for _ in range(3)] == ["1", "2", "3"]
    assert machine.graphs == 0


def test_what_cannot_be_captured_runs_by_itself_and_only_then():
    machine, component = Machine(), Component()
    component.room = None

    def step():
        host.act(lambda: None)
        if host.decide(lambda: component.room is None):
            host.not_capturable()
            component.room = 1.0
            machine.do("room")
        machine.do("work")

    run = replayer_of(machine, [step], [component])
    assert run() == ["room", "work"]
    assert run() == ["work"]  # watched again: the first run was no example
    assert run() == ["work"]
    assert machine.graphs == 1
    component.room = None
    assert run() == ["room", "work"]
    assert run() == ["work"]
    component.room = None
    assert run() == ["room", "work"]
    assert machine.graphs == 2


def test_looking_at_the_device_during_a_capture_lets_the_variant_run_by_itself():
    machine, drawn, looked = Machine(), iter([0, 0, 1, 1, 0]), []

    def step():
        machine.do("a")
        if host.decide(lambda: next(drawn)):
            host.not_capturable()  # as tensor.to_host does
            looked.append(1)

    run = replayer_of(machine, [step])
    assert ["".join(run()) for _ in range(5)] == ["a"] * 5
    assert machine.graphs == 2
    assert len(looked) == 2


def test_what_cannot_be_captured_for_now_is_captured_the_next_time():
    machine, loaded = Machine(), []

    def step():
        if len(loaded) == 1:  # as a kernel that a first variant did not need
            host.not_capturable(for_now=True)
        loaded.append(1)
        machine.do("a")

    run = replayer_of(machine, [step])
    assert ["".join(run()) for _ in range(4)] == ["a"] * 4
    assert machine.graphs == 2


def test_arrays_of_memos_are_the_same_in_all_variants_and_runs():
    machine, drawn, seen = Machine(), iter([0, 1, 0, 1]), []

    def forward():
        host.decide(lambda: next(drawn))
        memo = host.kept((2,)), host.kept((2,))
        host.act(lambda: seen.append(memo))

    run = replayer_of(machine, [forward])
    for _ in range(4):
        run()
    assert len(seen) == 4
    assert all(a is seen[0][0] and b is seen[0][1] for a, b in seen)
    assert seen[0][0] is not seen[0][1]
    assert host.kept((2,)) is not host.kept((2,))  # where nobody replays, they are new


@pytest.mark.parametrize(("decisions", "graphs"), [(3, 1), (4, 2), (7, 3)])
def test_random_decisions_part_the_program_others_do_not(decisions, graphs):
    machine = Machine()

    def random():
        machine.do(str(host.decide(lambda: tensor.random.rand_int(0, 1))))

    def constant():
        machine.do(str(host.decide(lambda: 1)))

    run = replayer_of(machine, [random, constant] * decisions)
    tensor.random.seed(4)
    expected = [tensor.random.rand_int(0, 1) for _ in range(3 * decisions)]
    tensor.random.seed(4)
    said = [run() for _ in range(3)]
    assert [int(word) for words in said for word in words[::2]] == expected
    assert machine.graphs == 2 * graphs


def test_errors_of_decisions_reach_the_caller():
    machine = Machine()

    def step():
        host.decide(lambda: 1 // len(left))
        machine.do("a")

    left = [1]
    run = replayer_of(machine, [step])
    for _ in range(2):
        run()
    left.clear()
    with pytest.raises(ZeroDivisionError):
        run()


def test_outside_of_replays_everything_is_just_called():
    done = []
    assert host.decide(lambda: 7) == 7
    host.act(lambda: done.append(1))
    host.not_capturable()
    assert done == [1]
    assert host.kept((3, 2), dtype=np.float64).shape == (3, 2)
    assert not host.is_taped()


class Network:
    """Something with components."""

    def __init__(self, *components):
        self.components = components


def test_work_that_is_no_program_is_captured_by_key():
    machine = Machine()
    replayer = WorkReplayer([Network(Component())], machine.capture)
    for _ in range(3):
        for key in "ab":
            replayer.run(key, lambda key=key: machine.do(key))
    assert machine.said == list("ababab")
    assert machine.graphs == 4


def test_work_that_changes_its_networks_in_secret_is_not_captured():
    machine, component = Machine(), Component()
    replayer = WorkReplayer([Network(Component()), Network(component)], machine.capture)

    def work():
        component.count += 1
        machine.do(str(component.count))

    for _ in range(3):
        replayer.run("key", work)
    assert machine.said == ["1", "2", "3"]
    assert machine.graphs == 0


def test_what_an_event_asks_itself_is_no_event_of_its_own():
    machine, drawn = Machine(), iter([0, 1, 0, 1, 1])

    def step():
        machine.do(str(host.decide(lambda: host.decide(lambda: next(drawn)))))

    run = replayer_of(machine, [step])
    assert ["".join(run()) for _ in range(5)] == ["0", "1", "0", "1", "1"]

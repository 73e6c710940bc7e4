"""What is recorded, and when it is done again: with lists, and with a capture made of lists."""

from functools import partial

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.executor.replay import _MAX_SEQUENCES, Replayer, SideStreamStep
from nnet3tools.io import log
from nnet3tools.tensor import recording
from nnet3tools.tensor.recording import NotCapturable
from nnet3tools.tensor.settings import HasSettings
from nnet3tools.tensor.workspace import Workspace


class Machine:
    """Work is a word, which is said; a graph is captured by noting what would be."""

    def __init__(self, captures: bool) -> None:
        self.said, self.graphs, self._captured = [], 0, None
        self.python = 0
        """Calls of the code that says words, outside of replays."""
        self.replayer = Replayer(Workspace(), self.capture if captures else None)

    def do(self, word):
        self.python += 1
        recording.run(word, lambda: self._say(word))

    def _say(self, word):
        (self.said if self._captured is None else self._captured).append(word)

    def capture(self, work, on_side_stream=False):
        captured = self._captured = []
        try:
            work()
        finally:
            self._captured = None

        def replay():
            self.graphs += 1
            self.said.extend(captured)

        return replay

    def run(self, *steps):
        before = len(self.said)
        for _, step in self.replayer.steps("program", list(enumerate(steps))):
            step()
        return "".join(self.said[before:])


@pytest.fixture(params=[False, True], ids=["lists", "graphs"])
def machine(request):
    return Machine(request.param)


def test_each_outcome_has_its_recording_and_decisions_keep_their_order(machine):
    drawn = iter([0, 1] * 3 + [1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 1])

    def step(name):
        return lambda: machine.do(name + str(recording.decide(lambda: next(drawn))))

    steps = [step("a"), lambda: machine.do("-"), step("b")]
    said = [machine.run(*steps) for _ in range(9)]
    assert said == [
        "a0-b1", "a0-b1", "a0-b1", "a1-b0", "a0-b0", "a0-b1", "a1-b1", "a1-b1", "a0-b1",
    ]  # fmt: skip
    if machine.graphs:
        assert machine.python == 3 * 5  # live once, then once for each of four variants
        assert machine.graphs == 4
    else:
        assert machine.python == 3 + (2 + 1 + 2)


def test_actions_are_done_once_a_run_also_where_a_variant_is_new(machine):
    count, drawn = [0], iter([0, 0, 1, 0, 1])

    def add():
        count[0] += 1

    def step():
        recording.act(add)
        machine.do("x" if recording.decide(lambda: next(drawn)) else "y")
        recording.act(add)

    for i in range(5):
        assert machine.run(step) == "yyxyx"[i]
        assert count[0] == 2 * (i + 1)


def test_actions_without_any_decision_are_done_at_each_run(machine):
    counted = []

    def step():
        recording.act(lambda: counted.append(len(counted)))
        machine.do("a")

    for _ in range(8):
        assert machine.run(step, lambda: machine.do("b")) == "ab"
    assert counted == list(range(8))


def test_what_cannot_be_recorded_runs_by_itself_and_only_then(machine, capsys):
    room = [None]

    def step():
        recording.act(lambda: None)
        if recording.decide(lambda: room[0] is None):
            recording.not_capturable()
            room[0] = 1.0
            machine.do("room ")
        machine.do("work")

    log.set_verbose(2)
    try:
        said = [machine.run(step) for _ in range(4)]
        assert said == ["room work", "work", "work", "work"]
        for _ in range(3):
            room[0] = None
            assert [machine.run(step) for _ in range(2)] == ["room work", "work"]
    finally:
        log.set_verbose(0)
    assert capsys.readouterr().err.count("c0 has work for the host") == 1


def test_a_device_that_cannot_capture_for_now_is_asked_again():
    machine, loaded = Machine(True), []

    def load():
        if len(loaded) == 2:  # as a kernel that has to be loaded first
            loaded.append(1)
            raise NotCapturable
        loaded.append(1)
        machine._say("a")

    assert [machine.run(lambda: recording.run("a", load)) for _ in range(5)] == ["a"] * 5
    assert machine.graphs == 2


def test_arrays_of_memos_are_the_same_in_all_variants_and_runs(machine):
    drawn, seen = iter([0, 0, 1, 0, 1]), []

    def forward():
        recording.decide(lambda: next(drawn))
        memo = tensor.persistent_array((2,)), tensor.persistent_array((2,))
        recording.act(lambda: seen.append(memo))

    for _ in range(5):
        machine.run(forward)
    assert len(seen) == 5
    assert all(a is seen[1][0] and b is seen[1][1] for a, b in seen[1:])
    assert seen[1][0] is not seen[1][1]


@pytest.mark.parametrize(("decisions", "graphs"), [(3, 1), (4, 2), (7, 3)])
def test_random_decisions_part_the_program_others_do_not(decisions, graphs):
    machine = Machine(True)

    def random():
        machine.do(str(recording.decide(lambda: tensor.random.rand_int(0, 1))))

    def constant():
        machine.do(str(recording.decide(lambda: 1)))

    tensor.random.seed(4)
    expected = [tensor.random.rand_int(0, 1) for _ in range(6 * decisions)]
    tensor.random.seed(4)
    said = [machine.run(*[random, constant] * decisions) for _ in range(6)]
    assert [int(word) for words in said for word in words[::2]] == expected
    steps = machine.replayer.steps("program", [])
    assert len(steps) == graphs


def test_errors_of_decisions_reach_the_caller(machine):
    left = [1]

    def step():
        recording.decide(lambda: 1 // len(left))
        machine.do("a")

    for _ in range(3):
        machine.run(step)
    left.clear()
    with pytest.raises(ZeroDivisionError):
        machine.run(step)


def test_work_under_another_key_is_another_recording(machine):
    for _ in range(4):
        for key in "ab":
            machine.replayer.run(key, lambda key=key: machine.do(key))
    assert machine.said == list("abababab")
    assert machine.python == 4


def test_what_an_event_asks_itself_is_no_event_of_its_own(machine):
    drawn = iter([0, 1, 0, 1, 1])

    def step():
        machine.do(str(recording.decide(lambda: recording.decide(lambda: next(drawn)))))

    assert "".join(machine.run(step) for _ in range(5)) == "01011"


def test_a_changed_setting_makes_new_recordings(machine):
    class Thing(HasSettings):
        NO_SETTINGS = frozenset({"calls"})
        rate = 1

    thing = Thing()

    def step():
        machine.do(str(thing.rate))

    said = []
    for i in range(9):
        thing.calls = i
        said.append(machine.run(step))
        thing.rate = 1 if i < 4 else 2
    assert said == ["1"] * 5 + ["2"] * 4
    assert machine.python == 4


def test_scratch_of_a_recording_has_one_address_and_steps_share_it():
    replayer, seen = Replayer(Workspace()), []

    def step():
        like = np.empty(1, np.float32)
        with tensor.scratch((30, 7), like=like) as a, tensor.scratch((5,), like=like) as b:
            seen.append((a, b))
            tensor.fill(a, 1.0)
            tensor.fill(b, 2.0)

    for _ in range(4):
        for _, run in replayer.steps("key", [(0, step), (1, step)]):
            run()
    assert len(seen) == 4  # live and recorded, twice each
    first, second = seen[2:]
    assert [x.ctypes.data for x in first] == [x.ctypes.data for x in second]
    assert not np.shares_memory(*first)
    assert (first[0] == 1.0).all()
    assert (first[1] == 2.0).all()


def test_where_work_repeats_its_first_run_is_recorded_and_what_that_does_once_is_not():
    machine, room = Machine(False), []
    machine.replayer = Replayer(Workspace(), repeats=True)

    def step():
        if not room:
            recording.not_capturable()
            room.append(1.0)
            machine.do("room ")
        machine.do("work")

    said = [machine.run(lambda: machine.do("a "), step) for _ in range(5)]
    assert said == ["a room work", *["a work"] * 4]
    assert machine.python == 1 + 2 + 1


def test_a_step_on_the_side_stream_is_a_graph_with_its_own_scratch_memory():
    at, side_at, graphs = set(), set(), []

    def step(places):
        with tensor.scratch((30,), like=np.zeros(1, np.float32)) as a:
            places.add(a.ctypes.data)
            recording.run("note", lambda: None)

    def capture(work, on_side_stream=False):
        graphs.append(on_side_stream)
        return work

    replayer = Replayer(Workspace(), capture)
    steps = [
        (0, partial(step, at)),
        (1, SideStreamStep(partial(step, side_at))),
        (2, partial(step, at)),
    ]
    for run in range(4):
        if run == 1:  # only recordings are looked at
            at.clear()
            side_at.clear()
        for _, do in replayer.steps("program", steps):
            do()
    assert graphs == [False, True, False]
    assert len(at) == 1
    assert len(side_at) == 1
    assert at != side_at


def test_where_nothing_is_to_be_done_nothing_is_captured():
    machine, chosen = Machine(True), iter("-x-x-x-x-")

    def step():
        if recording.decide(lambda: next(chosen)) == "x":
            machine.do("x")

    said = [machine.run(lambda: machine.do("a"), SideStreamStep(step)) for _ in range(9)]
    assert said == ["a", "ax"] * 4 + ["a"]
    assert machine.graphs == 7 + 3


def test_recordings_of_memory_that_is_no_longer_used_are_given_up(machine):
    """Keys of inputs and objectives name their memory; a program's own keys come in each run."""
    replayer = machine.replayer
    for i in range(500):
        replayer.run("forward", lambda: machine.do("f"))
        replayer.run(("objective", i), lambda: machine.do("o"), begins_run=False)
        replayer.run("backward", lambda: machine.do("b"), begins_run=False)
    assert len(replayer._sequences) <= _MAX_SEQUENCES + 2
    assert machine.said == ["f", "o", "b"] * 500
    python = machine.python
    replayer.run("forward", lambda: machine.do("f"))
    replayer.run("backward", lambda: machine.do("b"), begins_run=False)
    assert machine.python == python

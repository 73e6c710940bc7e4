"""Memory that grows: what was made of its first bytes stays part of it."""

import mmap

import numpy as np
import pytest

from nnet3tools.tensor import host_memory
from nnet3tools.tensor.addresses import same_place
from nnet3tools.tensor.arrays import scratch
from nnet3tools.tensor.host_memory import reserve
from nnet3tools.tensor.recorder import Recorder
from nnet3tools.tensor.workspace import GrowingBytes, Workspace

MB = 1 << 20


def test_views_of_fewer_bytes_stay_part_of_more():
    memory = GrowingBytes()
    first = memory.first(1000)
    first[:] = 7
    for size in (2 * MB, 5 * MB, 40 * MB):
        more = memory.first(size)
        assert more.size == size
        assert same_place(more, first)
        assert (more[:1000] == 7).all()
    assert memory.moves == 1
    assert memory.size == 40 * MB
    assert same_place(memory.first(3), first)


def test_populated_memory_is_zero_as_other_new_memory_and_what_was_written_stays():
    memory = np.frombuffer(reserve(40 * MB), np.uint8)[100 : 40 * MB]
    memory[:5] = memory[-5:] = 7
    host_memory._populate(memory)
    assert (memory[:5] == 7).all()
    assert (memory[-5:] == 7).all()
    assert not memory[5:-5].any()


def test_where_no_thread_can_be_had_memory_is_populated_by_whoever_writes_to_it(monkeypatch):
    def start(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(host_memory.threading.Thread, "start", start)
    host_memory.populate_in_background(np.frombuffer(reserve(5 * MB), np.uint8))


def test_beyond_its_room_memory_moves_and_old_views_stay(monkeypatch):
    monkeypatch.setattr(host_memory, "_ROOM", MB)
    memory = GrowingBytes()
    first = memory.first(MB // 2)
    first[:] = 3
    more = memory.first(5 * MB)
    assert memory.moves == 2
    assert not same_place(first, more)
    assert (first == 3).all()


@pytest.mark.skipif(not hasattr(mmap, "MAP_PRIVATE"), reason="another kind of system")
def test_where_the_system_gives_no_room_there_is_what_is_needed(monkeypatch):
    whole = mmap.mmap

    def limited(fileno, length, *rest):
        if length > 3 * MB:
            raise OSError(12, "Cannot allocate memory")
        return whole(fileno, length, *rest)

    monkeypatch.setattr(host_memory.mmap, "mmap", limited)
    assert len(reserve(2 * MB)) == 2 * MB
    with pytest.raises(MemoryError):
        reserve(4 * MB)


def test_places_in_a_workspace_keep_their_addresses_as_it_grows():
    workspace = Workspace()
    workspace.reserve(1 << 12)
    place = workspace.take(1 << 12)
    place[:] = 5
    workspace.give_back(place)
    workspace.reserve(8 * MB)
    again = workspace.take(1 << 12)
    rest = workspace.take(4 * MB)
    rest[:] = 6
    assert same_place(again, place)
    assert not np.shares_memory(again, rest)
    assert (place == 5).all()


def test_a_live_run_takes_scratch_memory_where_recordings_do():
    workspace, like = Workspace(), np.empty(1, np.float32)
    with Recorder(scratch=workspace), scratch((1000, 1000), like) as x:
        x.fill(1.0)
        with scratch((300, 7), like) as y:
            y.fill(2.0)
            assert not np.shares_memory(x, y)
        assert (x == 1.0).all()
    with Recorder(workspace=workspace), scratch((1000, 1000), like) as again:
        assert same_place(again, x)

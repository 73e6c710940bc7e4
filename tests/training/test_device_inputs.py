"""Buffers for sending minibatches to a device: nothing is overwritten that is still read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnet3tools.training import device_inputs
from nnet3tools.training.device_inputs import DeviceInputs


class Event:
    """A point in the order of things; copies happen when somebody waits for them."""

    def __init__(self, device: RecordingDevice, what: str) -> None:
        self.device, self.what = device, what

    def synchronize(self) -> None:
        self.device.trace.append(("host waits", self.what))


class RecordingDevice:
    """Writes down what it is asked to do."""

    def __init__(self) -> None:
        self.trace: list[tuple[Any, ...]] = []
        self.num_events = self.num_copies = self.num_pinned = 0

    def pinned(self, num_bytes: int) -> np.ndarray:
        self.num_pinned += 1
        return np.zeros(num_bytes, np.uint8)

    def copy_from_pinned(self, dest: Any, source: np.ndarray, after: Event) -> Event:
        self.num_copies += 1
        name = f"copy {self.num_copies}"
        self.trace.append((name, dest.ctypes.data, source.ctypes.data, after.what))
        np.copyto(dest, source)
        return Event(self, name)

    def record(self) -> Event:
        self.num_events += 1
        self.trace.append((f"event {self.num_events}",))
        return Event(self, f"event {self.num_events}")

    def wait(self, event: Event) -> None:
        self.trace.append(("stream waits", event.what))


@pytest.fixture
def device() -> RecordingDevice:
    return RecordingDevice()


@pytest.fixture
def inputs(device: RecordingDevice) -> DeviceInputs:
    return DeviceInputs(device, np.zeros(0, np.float32))  # type: ignore[arg-type]


def arrays(i: int) -> list[np.ndarray]:
    rng = np.random.default_rng(i)
    return [
        rng.normal(size=(5, 3)).astype(np.float32),
        rng.integers(0, 9, 7).astype(np.int32),
        np.zeros((0, 4), np.float32),
        rng.normal(size=(3,)).astype(np.float32),
    ]


def test_every_array_arrives_where_loads_of_any_width_are_aligned(inputs):
    packed = inputs.pack(arrays(0))
    for found, expected in zip(inputs.arrays(packed), arrays(0), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    assert all(begin % 256 == 0 for begin, _, _ in packed.places)


def test_inputs_keep_their_place_where_other_arrays_differ(inputs):
    places = list[tuple[Any, Any]]()
    for size in (5, 7, 5):
        packed = inputs.pack([*arrays(0), np.zeros(size)], num_inputs=4)
        packed.buffers.number = 1  # as if all three were in the same memory
        places.append((packed.place, packed.place_of_inputs))
    assert places[0] == places[2]
    assert places[0][0] != places[1][0]
    assert places[0][1] == places[1][1]


def test_layouts_do_not_accumulate(inputs):
    for size in range(3000):
        inputs.pack([np.zeros(size, np.uint8)])
    assert len(device_inputs._layouts) <= 1024


def test_a_minibatch_is_one_copy_that_the_device_waits_for(device, inputs):
    packed = inputs.pack(arrays(0))
    inputs.send(packed)
    inputs.send(packed)  # the second time nothing is left to do
    inputs.arrays(packed)
    inputs.release(packed)
    kinds = [entry[0] for entry in device.trace]
    assert kinds == ["event 1", "copy 1", "stream waits", "event 2"]
    assert device.trace[2] == ("stream waits", "copy 1")


def test_two_pairs_of_buffers_take_turns(device, inputs):
    places = []
    for i in range(6):
        packed = inputs.pack(arrays(i))
        inputs.arrays(packed)
        places.append(next(e for e in device.trace[::-1] if e[0].startswith("copy"))[1:3])
        inputs.release(packed)
    assert len(set(places)) == 2
    assert places[0] == places[2] == places[4] != places[1] == places[3] == places[5]
    assert device.num_pinned == 2


def test_a_device_buffer_is_overwritten_only_after_its_last_use(device, inputs):
    uses: dict[int, str] = {}
    for i in range(6):
        packed = inputs.pack(arrays(i))
        inputs.arrays(packed)
        copy = next(e for e in device.trace[::-1] if e[0].startswith("copy"))
        if copy[1] in uses:
            assert copy[3] == uses[copy[1]]
        inputs.release(packed)
        uses[copy[1]] = device.trace[-1][0]  # the event behind the work of minibatch i


def test_pinned_memory_is_written_to_only_after_its_copy(device, inputs):
    written = []
    for i in range(4):
        before = len(device.trace)
        packed = inputs.pack(arrays(i))
        written.append([e for e in device.trace[before:] if e[0] == "host waits"])
        inputs.arrays(packed)
        inputs.release(packed)
    assert written == [[], [], [("host waits", "copy 1")], [("host waits", "copy 2")]]


def test_minibatches_that_wait_together_never_share_buffers(inputs):
    packed = [inputs.pack(arrays(i)) for i in range(5)]
    for i, one in enumerate(packed):
        for found, expected in zip(inputs.arrays(one), arrays(i), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_buffers_grow_for_a_larger_minibatch_and_new_memory_waits_for_its_last_owner(
    device, inputs
):
    for _ in range(2):
        packed = inputs.pack(arrays(0))
        inputs.arrays(packed)
        inputs.release(packed)
    large = [np.ones((300, 300), np.float32)]
    packed = inputs.pack(large)
    before = len(device.trace)
    np.testing.assert_array_equal(inputs.arrays(packed)[0], large[0])
    event, copy = device.trace[before : before + 2]
    assert copy[3] == event[0]

"""Segments of recordings: lines of a segments file, and cutting out their samples."""

from __future__ import annotations

import numpy as np

from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io.wave import Wave
from nnet3tools.number_text import parse_double, parse_int


@dataclass(frozen=True)
class Segment:
    """A part of a recording, from `start` to `end` in seconds (-1: end of the recording).

    `channel` is -1 if the recording has one channel.
    """

    name: str
    recording: str
    start: float
    end: float
    channel: int


def parse_segment(line: str) -> Segment:
    """The segment in a line `segment recording start end [channel]`; DataError if malformed."""
    words = line.split()
    if len(words) not in (4, 5):
        raise DataError(f"Invalid line in segments file: {line}")
    found = (parse_double(word) for word in words[2:4])
    start, end = (np.nan if time is None else time for time in found)
    for name, time in (("start", start), ("end", end)):
        if not np.isfinite(time):
            raise DataError(f"Invalid line in segments file [bad {name}]: {line}")
    if start < 0.0 or (end <= 0.0 and end != -1.0) or 0.0 < end <= start:
        raise DataError(f"Invalid line in segments file [empty or invalid segment]: {line}")
    channel = -1
    if len(words) == 5:
        if (number := parse_int(words[4], 0)) is None:
            raise DataError(f"Invalid line in segments file [bad channel]: {line}")
        channel = number
    return Segment(words[0], words[1], start, end, channel)


def cut_segment(wave: Wave, segment: Segment, min_length: float, max_overshoot: float) -> Wave:
    """Cut a segment out of the recording `wave`; DataError if it is outside or too short.

    A segment may end `max_overshoot` seconds after the recording, and has at least `min_length`
    seconds.
    """
    length, num_samples = wave.duration, wave.samples.shape[1]
    if segment.start > length:
        raise DataError(f"Segment start is out of file data range [0, {length:g}s]; skipping")
    if segment.end > length + max_overshoot:
        raise DataError(f"Segment end is too far out of file data range [0,{length:g}s]; skipping")
    end = length if segment.end < 0.0 or segment.end > length else segment.end
    if end - segment.start < min_length:
        raise DataError("too short, skipping it.")
    channel = max(segment.channel, 0)
    if channel >= len(wave.samples):
        raise DataError(f"Invalid channel {channel} >= {len(wave.samples)}. Skipping it")
    first = int(segment.start * wave.rate + 0.5)
    last = min(int(end * wave.rate + 0.5), num_samples)
    return Wave(wave.rate, wave.samples[channel : channel + 1, first:last])

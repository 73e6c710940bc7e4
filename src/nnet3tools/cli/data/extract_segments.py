"""extract-segments: cuts segments, given by a file of times, out of recordings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import DataError, naming
from nnet3tools.io import log

if TYPE_CHECKING:
    from nnet3tools.io.table import RandomAccessTableReader
    from nnet3tools.io.wave import Wave

USAGE = """Extract segments from a large audio file in WAV format.
Usage:  extract-segments [options] <wav-rspecifier> <segments-file> <wav-wspecifier>
e.g.: extract-segments scp:wav.scp segments ark:- | <some-other-program>
 segments-file format: each line is either
<segment-id> <recording-id> <start-time> <end-time>
e.g. call-861225-A-0050-0065 call-861225-A 5.0 6.5
or (less frequently, and not supported in scripts):
<segment-id> <wav-file-name> <start-time> <end-time> <channel>
where <channel> will normally be 0 (left) or 1 (right)
e.g. call-861225-A-0050-0065 call-861225 5.0 6.5 1
And <end-time> of -1 means the segment runs till the end of the WAV file
See also: extract-feature-segments, wav-copy, wav-to-duration
"""


class Options(OptionGroup):
    min_segment_length: float = option(
        0.1, "Minimum segment length in seconds (reject shorter segments)"
    )
    max_overshoot: float = option(
        0.5,
        "End segments overshooting audio by less than this (in seconds) are truncated, else "
        "rejected.",
    )


@program("extract-segments", USAGE, Options, num_args=3)
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.io.files import read_text_lines
    from nnet3tools.io.table import RandomAccessTableReader, TableWriter
    from nnet3tools.io.wave import WAVE

    sound, segments, target = args
    num_done = 0
    lines = read_text_lines(segments)
    with RandomAccessTableReader(sound, WAVE) as reader, TableWriter(target, WAVE) as writer:
        for number, line in enumerate(lines, start=1):
            with naming(f"{segments}: line {number}"):
                found = _piece(line, reader, options)
            if found is not None:
                writer.write(*found)
                num_done += 1
    log.log(f"Successfully processed {num_done} lines out of {len(lines)} in the segments file. ")


def _piece(
    line: str, reader: RandomAccessTableReader[Wave], options: Options
) -> tuple[str, Wave] | None:
    """(name, sound) of a line's segment, cut from a recording in `reader`; None if impossible."""
    from nnet3tools.features.segments import cut_segment, parse_segment

    try:
        segment = parse_segment(line)
    except DataError as error:
        log.warning(str(error))
        return None
    if (wave := reader.get(segment.recording)) is None:
        log.warning(
            f"Could not find recording {segment.recording}, skipping segment {segment.name}"
        )
        return None
    if segment.channel < 0 and len(wave.samples) != 1:
        raise DataError(
            f"{segment.recording} has {len(wave.samples)} channels: specify the channel in the "
            "segments file"
        )
    try:
        limits = options.min_segment_length, options.max_overshoot
        return segment.name, cut_segment(wave, segment, *limits)
    except DataError as error:
        log.warning(f"Segment {segment.name}: {error}")
        return None

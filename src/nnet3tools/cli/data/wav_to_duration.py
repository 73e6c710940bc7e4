"""wav-to-duration: writes the duration of each sound in seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import DataError
from nnet3tools.io import log

if TYPE_CHECKING:
    from nnet3tools.io.wave import Wave, WaveInfo

USAGE = """Read wav files and output an archive consisting of a single float:
the duration of each one in seconds.
Usage:  wav-to-duration [options...] <wav-rspecifier> <duration-wspecifier>
e.g.: wav-to-duration scp:wav.scp ark,t:-
See also: wav-copy extract-segments feat-to-len
"""


class Options(OptionGroup):
    read_entire_file: bool = option(
        False, "If true, read the samples, too, to ensure the returned duration is correct."
    )


@program("wav-to-duration", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> int:
    from nnet3tools.cli.tables import convert_table
    from nnet3tools.io.holders import FLOAT, Holder
    from nnet3tools.io.specifiers import TableKind, parse_rspecifier
    from nnet3tools.io.wave import WAVE, WAVE_INFO

    # In an archive, the samples must be read to reach the next key.
    in_archive = parse_rspecifier(args[0]).kind is TableKind.ARCHIVE
    holder: Holder = WAVE if options.read_entire_file or in_archive else WAVE_INFO
    durations: list[float] = []

    def convert(key: str, wave: Wave | WaveInfo) -> float:
        if getattr(wave, "num_samples", 0) < 0:
            raise DataError(
                "no duration in header. Check the source, and/or try --read-entire-file."
            )
        durations.append(wave.duration)
        return wave.duration

    convert_table(args[0], args[1], (holder, FLOAT), convert)
    log.log(f"Printed duration for {len(durations)} audio files.")
    if not durations:
        return 1
    mean, least, most = sum(durations) / len(durations), min(durations), max(durations)
    log.log(f"Mean duration was {mean:g}, min and max durations were {least:g}, {most:g}")
    return 0

"""wav-copy: copies sound between files and archives."""

from nnet3tools.cli.options import NoOptions, program
from nnet3tools.io import log

USAGE = """Copy wave file or archives of wave files

Usage: wav-copy [options] <wav-rspecifier> <wav-wspecifier>
  or:  wav-copy [options] <wav-rxfilename> <wav-wxfilename>
e.g.: wav-copy scp:wav.scp ark:-
     wav-copy wav.ark:123456 -
See also: wav-to-duration extract-segments
"""


@program("wav-copy", USAGE, NoOptions, num_args=2)
def main(options: NoOptions, args: list[str]) -> int:
    from nnet3tools.cli.tables import are_tables, convert_table, read_object
    from nnet3tools.io.files import open_output
    from nnet3tools.io.wave import WAVE

    source, target = args
    if not are_tables(source, target, "sound"):
        wave = read_object(source, WAVE)
        with open_output(target, header=False) as writer:
            WAVE.write(writer, wave)
        return 0
    num_done, _ = convert_table(source, target, (WAVE, WAVE), lambda key, wave: wave)
    log.log(f"Copied {num_done} wave files")
    return 0 if num_done else 1

"""wav-perturb-speed: copies of sound at other speeds or at given numbers of frames."""

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.io import log

USAGE = """Writes copies of mono sound at other speeds, which change tempo and pitch together.
<copies> is a text file. Each line has the key of a copy, the key of the sound that it is of, and
the number of samples to play that sound in. Lines are in the order of the sound table.

Usage: wav-perturb-speed [options] <copies> <wav-rspecifier> <wav-wspecifier>
e.g.: wav-perturb-speed copies.txt scp:wav.scp ark:- | compute-mfcc-feats ark:- ark:feats.ark
"""


class Options(OptionGroup):
    channel: int = option(0, "The channel that is used of sound with several channels")


@program("wav-perturb-speed", USAGE, Options, num_args=3)
def main(options: Options, args: list[str]) -> int:
    from nnet3tools.errors import DataError, naming
    from nnet3tools.features.perturbation import at_size
    from nnet3tools.io.files import read_text_lines
    from nnet3tools.io.table import SequentialTableReader, TableWriter
    from nnet3tools.io.wave import WAVE, Wave

    copies: dict[str, list[tuple[str, int]]] = {}
    for number, line in enumerate(read_text_lines(args[0]), start=1):
        words = line.split()
        if len(words) != 3 or not words[2].isdecimal() or int(words[2]) < 1:
            raise DataError(f"{args[0]}:{number}: expected a copy, its sound and a size")
        copies.setdefault(words[1], []).append((words[0], int(words[2])))
    num_done = 0
    with TableWriter(args[2], WAVE) as writer, SequentialTableReader(args[1], WAVE) as reader:
        for key, wave in reader:
            if not 0 <= options.channel < len(wave.samples):
                raise DataError(f"{args[1]}: key '{key}': it has no channel {options.channel}")
            samples = wave.samples[options.channel]
            with naming(f"{args[1]}: key '{key}'"):
                if any(size > 16 * len(samples) for _, size in copies.get(key, ())):
                    raise DataError(f"a copy in {args[0]} is more than 16 times as long")
            for copy, size in copies.get(key, ()):
                writer.write(copy, Wave(wave.rate, at_size(samples, size)[None]))
                num_done += 1
    log.log(f"Wrote {num_done} copies")
    return 0 if num_done else 1

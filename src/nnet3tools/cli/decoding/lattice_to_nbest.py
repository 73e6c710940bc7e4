"""lattice-to-nbest: writes the best paths of lattices, each as a lattice."""

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import OptionError, naming
from nnet3tools.io import log

USAGE = """Work out N-best paths in lattices and write out as FSTs
Note: only guarantees distinct word sequences if distinct paths in
input lattices had distinct word-sequences (this will not be true if
you produced lattices with --determinize-lattice=false, i.e. state-level
lattices).
Usage: lattice-to-nbest [options] <lattice-rspecifier> <lattice-wspecifier>
 e.g.: lattice-to-nbest --acoustic-scale=0.1 --n=10 ark:1.lats ark:nbest.lats
"""


class Options(OptionGroup):
    acoustic_scale: float = option(1.0, "Scaling factor for acoustic likelihoods")
    lm_scale: float = option(1.0, "Scaling factor for language model scores.")
    n: int = option(1, "Number of distinct paths")
    random: bool = option(
        False,
        "If true, generate n random paths instead of n-best paths. In this case, all costs in "
        "generated paths will be zero.",
    )
    srand: int = option(0, "Seed for random number generator (only relevant if --random=true)")

    def check(self) -> None:
        """OptionError if an option's value is out of its range."""
        if self.n <= 0:
            raise OptionError("--n must be greater than 0")
        if self.acoustic_scale == 0.0 or self.lm_scale == 0.0:
            raise OptionError("Do not use a zero acoustic or LM scale (cannot be inverted)")


@program("lattice-to-nbest", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> int:
    from random import Random

    from nnet3tools.fst.lattice_conversion import compacted
    from nnet3tools.fst.lattice_files import COMPACT_LATTICE, LATTICE
    from nnet3tools.fst.shortest_paths import best_paths, random_paths
    from nnet3tools.fst.weights import single
    from nnet3tools.io.table import SequentialTableReader, TableWriter

    options.check()
    random = Random(options.srand)
    graph, acoustic = single(options.lm_scale), single(options.acoustic_scale)
    num_done = num_paths = 0
    with (
        TableWriter(args[1], COMPACT_LATTICE) as writer,
        SequentialTableReader(args[0], LATTICE) as reader,
    ):
        for key, lattice in reader:
            with naming(f"{args[0]}: key '{key}'"):
                lattice = lattice.scaled(graph, acoustic)
                if options.random:
                    paths = random_paths(lattice, options.n, random)
                else:
                    paths = best_paths(lattice, options.n)
            if not paths:
                log.warning(f"Possibly empty lattice for utterance-id {key}(no N-best entries)")
                continue
            for number, path in enumerate(paths, start=1):
                writer.write(f"{key}-{number}", compacted(path.scaled(1.0 / graph, 1.0 / acoustic)))
            num_done += 1
            num_paths += len(paths)
    average = num_paths / num_done if num_done else 0.0
    log.log(
        f"Done applying N-best algorithm to {num_done} lattices with n = {options.n}, average "
        f"actual #paths is {average:g}"
    )
    return 0 if num_done else 1

"""Options of programs that keep compiled programs in a file from one run to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools.cli.options import OptionGroup, option
from nnet3tools.io import log
from nnet3tools.io.checked import exists

if TYPE_CHECKING:
    from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler


class ProgramCacheOptions(OptionGroup):
    """Files of compiled programs to read at the start and to write at the end."""

    read_cache: str = option(
        "", "The location from which to read compiled programs (see --write-cache)"
    )
    write_cache: str = option(
        "",
        "The location to which to write the compiled programs, for the next run on the same "
        "network with the same options",
    )
    binary_write_cache: bool = option(True, "Write computation cache in binary mode")

    def check(self) -> None:
        """Raise DataError if the file of --write-cache cannot be written."""
        from nnet3tools.io.files import prove_output

        if self.write_cache:
            prove_output(self.write_cache)

    def read(self, compiler: CachingOptimizingCompiler) -> None:
        """Put the programs of --read-cache into the compiler's cache; warn if they are unusable."""
        from nnet3tools.io.files import FileKind, classify_input
        from nnet3tools.optimizer.cache_files import load_cache

        is_file = classify_input(self.read_cache) is FileKind.FILE
        if self.read_cache and is_file and not exists(self.read_cache):
            log.warning(f"--read-cache={self.read_cache}: no such file, compiling anew")
        elif self.read_cache:
            load_cache(self.read_cache, compiler)

    def write(self, compiler: CachingOptimizingCompiler) -> None:
        """Write the programs in the compiler's cache to --write-cache."""
        from nnet3tools.optimizer.cache_files import save_cache

        if self.write_cache:
            save_cache(self.write_cache, compiler, self.binary_write_cache)

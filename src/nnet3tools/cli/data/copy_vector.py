"""copy-vector: copies vectors, optionally resized or scaled."""

from __future__ import annotations

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

USAGE = """Copy vectors, or archives of vectors (e.g. transition-accs; speaker vectors)

Usage: copy-vector [options] (<vector-in-rspecifier>|<vector-in-rxfilename>) \
(<vector-out-wspecifier>|<vector-out-wxfilename>)
 e.g.: copy-vector --binary=false 1.mat -
   copy-vector ark:2.trans ark,t:-
see also: dot-weights, append-vector-to-feats
"""


class Options(OptionGroup):
    binary: bool = option(True, "Write in binary mode (only relevant if output is a wxfilename)")
    change_dim: int = option(-1, "Use this option to truncate or zero-pad the vectors.")
    scale: float = option(1.0, "This option can be used to scale the vectors being copied.")

    def resize(self, vector: np.ndarray) -> np.ndarray:
        """A copy of the vector with the requested dimension: truncated, or padded with zeros."""
        if self.change_dim < 0:
            return vector
        return np.pad(vector[: self.change_dim], (0, max(0, self.change_dim - len(vector))))


@program("copy-vector", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> int:
    """Copy vectors: a table, or a single vector (not scaled, as in Kaldi)."""
    from nnet3tools.cli.tables import are_tables, convert_table, read_object, write_object
    from nnet3tools.io.holders import VECTOR

    source, target = args
    if not are_tables(source, target, "vectors"):
        write_object(target, VECTOR, options.resize(read_object(source, VECTOR)), options.binary)
        log.log(f"Copied vector to {target}")
        return 0
    scale = np.float32(options.scale)
    num_done, _ = convert_table(
        source, target, (VECTOR, VECTOR), lambda key, vector: options.resize(vector) * scale
    )
    changed = options.change_dim >= 0 or options.scale != 1.0
    how = f", setting dim to {options.change_dim} scaled by {options.scale:g}" if changed else "."
    log.log(f"Copied {num_done} vectors{how}")
    return 0 if num_done else 1

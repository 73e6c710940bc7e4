"""copy-feats: copy features, compressed or not, and tell their lengths."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nnet3tools.cli.options import option, program
from nnet3tools.errors import OptionError
from nnet3tools.io import log

if TYPE_CHECKING:
    import numpy as np

    from nnet3tools.io.general_matrix import GeneralMatrix

USAGE = """Copy features [and possibly change format]
Usage: copy-feats [options] <feature-rspecifier> <feature-wspecifier>
or:   copy-feats [options] <feats-rxfilename> <feats-wxfilename>
e.g.: copy-feats ark:- ark,scp:foo.ark,foo.scp
 or: copy-feats ark:foo.ark ark,t:txt.ark
See also: copy-matrix, select-feats, subset-feats, subsample-feats, splice-feats, paste-feats
"""


@dataclass(frozen=True)
class Options:
    """Options of copy-feats."""

    binary: bool = option(True, "Binary-mode output (not relevant if writing to archive)")
    compress: bool = option(
        False,
        "If true, write output in compressed form(only currently supported for wxfilename, i.e. "
        "archive/script,output)",
    )
    compression_method: int = option(
        1,
        "Only relevant if --compress=true; the method (1 through 7) to compress the matrix.  "
        "Search for CompressionMethod in src/matrix/compressed-matrix.h.",
    )
    write_num_frames: str = option(
        "",
        "Wspecifier to write length in frames of each utterance. e.g. 'ark,t:utt2num_frames'.  "
        "Only applicable if writing tables, not when this program is writing individual files.  "
        "See also feat-to-len.",
    )


@program("copy-feats", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> int:
    """Copy a table, or a single matrix."""
    from nnet3tools.cli.tables import are_tables, convert_table, read_object, write_object
    from nnet3tools.io.general_matrix import CompressionMethod, compress
    from nnet3tools.io.holders import GENERAL_MATRIX, INT32, MATRIX
    from nnet3tools.io.table import TableWriter

    source, target = args
    if not 1 <= options.compression_method <= 7:
        raise OptionError(f"--compression-method={options.compression_method}: expected 1 to 7")
    if not are_tables(source, target, "features"):
        if options.compress or options.write_num_frames:
            raise OptionError(
                "--compress and --write-num-frames are not supported when writing/reading single "
                "files."
            )
        write_object(target, MATRIX, read_object(source, MATRIX), options.binary)
        log.log(f"Copied features from {source} to {target}")
        return 0
    method = CompressionMethod(options.compression_method)
    with contextlib.ExitStack() as stack:
        lengths = None
        if options.write_num_frames:
            lengths = stack.enter_context(TableWriter(options.write_num_frames, INT32))

        def convert(key: str, features: np.ndarray) -> GeneralMatrix:
            if lengths is not None:
                lengths.write(key, len(features))
            return compress(features, method) if options.compress else features

        num_done, _ = convert_table(source, target, (MATRIX, GENERAL_MATRIX), convert)
    log.log(f"Copied {num_done} feature matrices.")
    return 0 if num_done else 1

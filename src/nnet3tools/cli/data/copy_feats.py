"""copy-feats: copies features, optionally compressed, and writes their lengths."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import OptionError
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

if TYPE_CHECKING:
    from nnet3tools.io.foreign_features import HtkFeatures
    from nnet3tools.io.general_matrix import GeneralMatrix
    from nnet3tools.io.holders import Holder

USAGE = """Copy features [and possibly change format]
Usage: copy-feats [options] <feature-rspecifier> <feature-wspecifier>
or:   copy-feats [options] <feats-rxfilename> <feats-wxfilename>
e.g.: copy-feats ark:- ark,scp:foo.ark,foo.scp
 or: copy-feats ark:foo.ark ark,t:txt.ark
See also: copy-matrix, select-feats, subset-feats, subsample-feats, splice-feats, paste-feats
"""


class Options(OptionGroup):
    htk_in: bool = option(False, "Read input as HTK features")
    sphinx_in: bool = option(False, "Read input as Sphinx features")
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
    from nnet3tools.cli.tables import are_tables, read_object, write_object
    from nnet3tools.io.holders import MATRIX

    source, target = args
    if not 1 <= options.compression_method <= 7:
        raise OptionError(f"--compression-method={options.compression_method}: expected 1 to 7")
    if are_tables(source, target, "features"):
        num_done = _copy_table(options, source, target)
        log.log(f"Copied {num_done} feature matrices.")
        return 0 if num_done else 1
    if options.compress or options.write_num_frames:
        raise OptionError(
            "--compress and --write-num-frames are not supported when writing/reading single files."
        )
    if options.sphinx_in and not options.htk_in:
        raise OptionError("For single files, sphinx input is not yet supported.")
    features = _plain(read_object(source, _holder(options)))
    write_object(target, MATRIX, features, options.binary)
    log.log(f"Copied features from {source} to {target}")
    return 0


def _copy_table(options: Options, source: str, target: str) -> int:
    """Copy a table of features as the options say; returns the number of matrices."""
    from nnet3tools.cli.tables import convert_table
    from nnet3tools.io.general_matrix import CompressionMethod, compress
    from nnet3tools.io.holders import GENERAL_MATRIX, INT32
    from nnet3tools.io.table import TableWriter

    method = CompressionMethod(options.compression_method)
    with contextlib.ExitStack() as stack:
        lengths = None
        if options.write_num_frames:
            lengths = stack.enter_context(TableWriter(options.write_num_frames, INT32))

        def convert(key: str, value: np.ndarray | HtkFeatures) -> GeneralMatrix:
            features = _plain(value)
            if lengths is not None:
                lengths.write(key, len(features))
            return compress(features, method) if options.compress else features

        num_done, _ = convert_table(source, target, (_holder(options), GENERAL_MATRIX), convert)
    return num_done


def _holder(options: Options) -> Holder:
    """The holder that reads the input's file format (Kaldi, HTK or Sphinx)."""
    from nnet3tools.io.holders import MATRIX

    if not (options.htk_in or options.sphinx_in):
        return MATRIX
    from nnet3tools.io.foreign_features import HTK, SPHINX

    return HTK if options.htk_in else SPHINX


def _plain(value: np.ndarray | HtkFeatures) -> np.ndarray:
    from nnet3tools.io.foreign_features import HtkFeatures

    return value.features if isinstance(value, HtkFeatures) else value

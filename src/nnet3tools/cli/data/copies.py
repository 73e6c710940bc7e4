"""Programs that copy tables and single objects."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from nnet3tools.cli.options import NoOptions, OptionGroup, option, program
from nnet3tools.errors import OptionError
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nnet3tools.io.foreign_features import HtkFeatures
    from nnet3tools.io.general_matrix import GeneralMatrix
    from nnet3tools.io.holders import Holder

COPY_FEATS_USAGE = """Copy features [and possibly change format]
Usage: copy-feats [options] <feature-rspecifier> <feature-wspecifier>
or:   copy-feats [options] <feats-rxfilename> <feats-wxfilename>
e.g.: copy-feats ark:- ark,scp:foo.ark,foo.scp
 or: copy-feats ark:foo.ark ark,t:txt.ark
See also: copy-matrix, select-feats, subset-feats, subsample-feats, splice-feats, paste-feats
"""


class CopyFeatsOptions(OptionGroup):
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


@program("copy-feats", COPY_FEATS_USAGE, CopyFeatsOptions, num_args=2)
def copy_feats(options: CopyFeatsOptions, args: list[str]) -> int:
    from nnet3tools.cli.tables import are_tables, read_object, write_object

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
    from nnet3tools.io.holders import MATRIX

    features = _plain(read_object(source, _holder(options)))
    write_object(target, MATRIX, features, options.binary)
    log.log(f"Copied features from {source} to {target}")
    return 0


def _copy_table(options: CopyFeatsOptions, source: str, target: str) -> int:
    """Copy a table of features from `source` to `target`; returns the number of matrices."""
    from nnet3tools.cli.tables import OptionalTable, convert_table
    from nnet3tools.io.passed_matrix import PASSED_MATRIX

    if not (options.htk_in or options.sphinx_in or options.compress or options.write_num_frames):
        holders = PASSED_MATRIX, PASSED_MATRIX
        return convert_table(source, target, holders, lambda key, matrix: matrix)[0]
    from nnet3tools.io.general_matrix import CompressionMethod, compress
    from nnet3tools.io.holders import GENERAL_MATRIX, INT32

    method = CompressionMethod(options.compression_method)
    with contextlib.ExitStack() as stack:
        lengths = OptionalTable(options.write_num_frames, INT32, stack)

        def convert(key: str, value: np.ndarray | HtkFeatures) -> GeneralMatrix:
            features = _plain(value)
            lengths.write(key, len(features))
            return compress(features, method) if options.compress else features

        num_done, _ = convert_table(source, target, (_holder(options), GENERAL_MATRIX), convert)
    return num_done


def _holder(options: CopyFeatsOptions) -> Holder:
    """The holder that reads the input's file format (Kaldi, HTK or Sphinx)."""
    from nnet3tools.io.holders import MATRIX

    if not (options.htk_in or options.sphinx_in):
        return MATRIX
    from nnet3tools.io.foreign_features import HTK, SPHINX

    return HTK if options.htk_in else SPHINX


def _plain(value: np.ndarray | HtkFeatures) -> np.ndarray:
    from nnet3tools.io.foreign_features import HtkFeatures

    return value.features if isinstance(value, HtkFeatures) else value


COPY_MATRIX_USAGE = """Copy matrices, or archives of matrices (e.g. features or transforms)
Also see copy-feats which has other format options

Usage: copy-matrix [options] <matrix-in-rspecifier> <matrix-out-wspecifier>
  or: copy-matrix [options] <matrix-in-rxfilename> <matrix-out-wxfilename>
 e.g.: copy-matrix --binary=false 1.mat -
   copy-matrix ark:2.trans ark,t:-
See also: copy-feats, matrix-sum
"""


class CopyMatrixOptions(OptionGroup):
    binary: bool = option(True, "Write in binary mode (only relevant if output is a wxfilename)")
    scale: float = option(1.0, "This option can be used to scale the matrices being copied.")
    apply_log: bool = option(
        False,
        "This option can be used to apply log on the matrices. Must be avoided if matrix has "
        "negative quantities.",
    )
    apply_exp: bool = option(False, "This option can be used to apply exp on the matrices")
    apply_power: float = option(1.0, "This option can be used to apply a power on the matrices")
    apply_softmax_per_row: bool = option(
        False, "This option can be used to apply softmax per row of the matrices"
    )

    def apply(self, matrix: NDArray[np.float32]) -> NDArray[np.float32]:
        """A copy of the matrix, scaled or changed in its elements as the options say."""
        if self.scale != 1.0:
            matrix = matrix * np.float32(self.scale)
        if self.apply_log:
            matrix = np.log(np.maximum(matrix, np.float32(1.0e-20)))
        if self.apply_exp:
            matrix = np.exp(matrix)
        if self.apply_softmax_per_row and matrix.size:
            matrix = np.exp(matrix - matrix.max(axis=1, keepdims=True))
            matrix /= matrix.sum(axis=1, keepdims=True)
        if self.apply_power != 1.0:
            matrix = matrix ** np.float32(self.apply_power)
        return matrix


@program("copy-matrix", COPY_MATRIX_USAGE, CopyMatrixOptions, num_args=2)
def copy_matrix(options: CopyMatrixOptions, args: list[str]) -> int:
    from nnet3tools.cli.tables import are_tables, convert_table, read_object, write_object
    from nnet3tools.io.holders import MATRIX

    source, target = args
    if options.apply_log + options.apply_exp + options.apply_softmax_per_row > 1:
        raise OptionError("Only one of apply-log, apply-exp and apply-softmax-per-row can be given")
    if not are_tables(source, target, "matrices"):
        matrix = options.apply(read_object(source, MATRIX))
        write_object(target, MATRIX, matrix, options.binary)
        log.log(f"Copied matrix to {target}")
        return 0
    num_done, _ = convert_table(
        source, target, (MATRIX, MATRIX), lambda key, matrix: options.apply(matrix)
    )
    log.log(f"Copied {num_done} matrices.")
    return 0 if num_done else 1


COPY_VECTOR_USAGE = """Copy vectors, or archives of vectors (e.g. transition-accs; speaker vectors)

Usage: copy-vector [options] (<vector-in-rspecifier>|<vector-in-rxfilename>) \
(<vector-out-wspecifier>|<vector-out-wxfilename>)
 e.g.: copy-vector --binary=false 1.mat -
   copy-vector ark:2.trans ark,t:-
see also: dot-weights, append-vector-to-feats
"""


class CopyVectorOptions(OptionGroup):
    binary: bool = option(True, "Write in binary mode (only relevant if output is a wxfilename)")
    change_dim: int = option(-1, "Use this option to truncate or zero-pad the vectors.")
    scale: float = option(1.0, "This option can be used to scale the vectors being copied.")

    def resize(self, vector: np.ndarray) -> np.ndarray:
        """A copy of the vector with the requested dimension: truncated, or padded with zeros."""
        if self.change_dim < 0:
            return vector
        return np.pad(vector[: self.change_dim], (0, max(0, self.change_dim - len(vector))))


@program("copy-vector", COPY_VECTOR_USAGE, CopyVectorOptions, num_args=2)
def copy_vector(options: CopyVectorOptions, args: list[str]) -> int:
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


COPY_INT_VECTOR_USAGE = """Copy vectors of integers, or archives of vectors of integers
(e.g. alignments)

Usage: copy-int-vector [options] (vector-in-rspecifier|vector-in-rxfilename) \
(vector-out-wspecifier|vector-out-wxfilename)
 e.g.: copy-int-vector --binary=false foo -
   copy-int-vector ark:1.ali ark,t:-
"""


class CopyIntVectorOptions(OptionGroup):
    binary: bool = option(True, "Write in binary mode (only relevant if output is a wxfilename)")


@program("copy-int-vector", COPY_INT_VECTOR_USAGE, CopyIntVectorOptions, num_args=2)
def copy_int_vector(options: CopyIntVectorOptions, args: list[str]) -> int:
    from nnet3tools.cli.tables import are_tables
    from nnet3tools.io.files import open_input, open_output
    from nnet3tools.io.object_runs import INT32_VECTOR_RUNS, convert_runs

    source, target = args
    if not are_tables(source, target, "vectors"):
        with open_input(source) as reader:
            values = reader.read_int32_vector()
        with open_output(target, options.binary) as writer:
            writer.write_int32_vector(values)
        log.log(f"Copied vector to {target}")
        return 0
    holders = INT32_VECTOR_RUNS, INT32_VECTOR_RUNS
    num_done = convert_runs(source, target, holders, lambda run: run)
    log.log(f"Copied {num_done} vectors of int32.")
    return 0 if num_done else 1


COPY_TRANSITION_MODEL_USAGE = """Copies a transition model (this can be used to separate transition
 models from the acoustic models they are written with.
Usage:  copy-transition-model [options] <transition-model or model file> <transition-model-out>
e.g.:
 copy-transition-model --binary=false 1.mdl 1.txt
"""


class CopyTransitionModelOptions(OptionGroup):
    binary: bool = option(True, "Write output in binary mode.")


@program(
    "copy-transition-model", COPY_TRANSITION_MODEL_USAGE, CopyTransitionModelOptions, num_args=2
)
def copy_transition_model(options: CopyTransitionModelOptions, args: list[str]) -> None:
    from nnet3tools.io.files import open_output
    from nnet3tools.nnet.hmm.transition_model import TransitionModel

    model = TransitionModel.load(args[0])
    with open_output(args[1], options.binary) as writer:
        model.write(writer)
    log.log("Copied transition model.")


WAV_COPY_USAGE = """Copy wave file or archives of wave files

Usage: wav-copy [options] <wav-rspecifier> <wav-wspecifier>
  or:  wav-copy [options] <wav-rxfilename> <wav-wxfilename>
e.g.: wav-copy scp:wav.scp ark:-
     wav-copy wav.ark:123456 -
See also: wav-to-duration extract-segments
"""


@program("wav-copy", WAV_COPY_USAGE, NoOptions, num_args=2)
def wav_copy(options: NoOptions, args: list[str]) -> int:
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


FSTCOPY_USAGE = """Copy tables/archives of FSTs, indexed by a string (e.g. utterance-id)

Usage: fstcopy <fst-rspecifier1> <fst-wspecifier1>

e.g.:
fstcopy ark:1.fsts ark,t:-
"""


@program("fstcopy", FSTCOPY_USAGE, NoOptions, num_args=2)
def fstcopy(options: NoOptions, args: list[str]) -> int:
    from nnet3tools.cli.tables import convert_table
    from nnet3tools.fst.files import FST

    num_done, _ = convert_table(args[0], args[1], (FST, FST), lambda key, fst: fst)
    log.log(f"Copied {num_done} FSTs.")
    return 0 if num_done else 1

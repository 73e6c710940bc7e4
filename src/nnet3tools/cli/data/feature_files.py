"""Programs that join and transform features, and print their sizes."""

from __future__ import annotations

from contextlib import ExitStack

from nnet3tools.cli.options import NoOptions, OptionGroup, option, program
from nnet3tools.errors import DataError
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

CONCAT_FEATS_USAGE = """Concatenate feature files (assuming they have the same dimensions),
so the output file has the sum of the num-frames of the inputs.
Usage: concat-feats <in-rxfilename1> <in-rxfilename2> [<in-rxfilename3> ...] <out-wxfilename>
 e.g.: concat-feats mfcc/foo.ark:12343 mfcc/foo.ark:56789 -
See also: copy-feats, append-vector-to-feats, paste-feats
"""


class ConcatFeatsOptions(OptionGroup):
    binary: bool = option(True, "If true, output files in binary")


@program("concat-feats", CONCAT_FEATS_USAGE, ConcatFeatsOptions, num_args=(3, None))
def concat_feats(options: ConcatFeatsOptions, args: list[str]) -> None:
    from nnet3tools.cli.tables import read_object, write_object
    from nnet3tools.io.holders import MATRIX

    *sources, target = args
    parts = [read_object(source, MATRIX) for source in sources]
    dim = parts[0].shape[1]
    for source, part in zip(sources, parts, strict=True):
        if part.shape[1] != dim:
            raise DataError(f"{source} has dimension {part.shape[1]}, {sources[0]} has {dim}")
    write_object(target, MATRIX, np.concatenate(parts), options.binary)


FEAT_TO_DIM_USAGE = """Reads an archive of features.  If second argument is wxfilename, writes
the feature dimension of the first feature file; if second argument is
wspecifier, writes an archive of the feature dimension, indexed by utterance
id.
Usage: feat-to-dim [options] <feat-rspecifier> (<dim-wspecifier>|<dim-wxfilename>)
e.g.: feat-to-dim scp:feats.scp -
"""


@program("feat-to-dim", FEAT_TO_DIM_USAGE, NoOptions, num_args=2)
def feat_to_dim(options: NoOptions, args: list[str]) -> None:
    from nnet3tools.cli.tables import convert_table, is_table
    from nnet3tools.io.files import open_output
    from nnet3tools.io.holders import INT32, MATRIX
    from nnet3tools.io.table import SequentialTableReader

    source, target = args
    if is_table(target):
        convert_table(source, target, (MATRIX, INT32), lambda key, matrix: matrix.shape[1])
        return
    with SequentialTableReader(source, MATRIX) as reader:
        first = next(iter(reader), None)
    if first is None:
        raise DataError(f"{source}: Could not read any features (empty archive?)")
    with open_output(target, binary=False) as writer:
        writer.write_text(f"{first[1].shape[1]}\n")


FEAT_TO_LEN_USAGE = """Reads an archive of features and writes a corresponding archive
that maps utterance-id to utterance length in frames, or (with
one argument) print to stdout the total number of frames in the
input archive.
Usage: feat-to-len [options] <in-rspecifier> [<out-wspecifier>]
e.g.: feat-to-len scp:feats.scp ark,t:feats.lengths
or: feat-to-len scp:feats.scp
"""


@program("feat-to-len", FEAT_TO_LEN_USAGE, NoOptions, num_args=(1, 2))
def feat_to_len(options: NoOptions, args: list[str]) -> None:
    from nnet3tools.cli.tables import convert_table
    from nnet3tools.io.holders import INT32, MATRIX
    from nnet3tools.io.table import SequentialTableReader

    if len(args) == 2:
        convert_table(args[0], args[1], (MATRIX, INT32), lambda key, matrix: len(matrix))
        return
    with SequentialTableReader(args[0], MATRIX) as reader:
        print(sum(len(matrix) for _, matrix in reader))


PASTE_FEATS_USAGE = """Paste feature files (assuming they have about the same durations,
see --length-tolerance), appending the features on each frame;
think of the unix command 'paste'.
Usage: paste-feats <in-rspecifier1> <in-rspecifier2> [<in-rspecifier3> ...] <out-wspecifier>
 or: paste-feats <in-rxfilename1> <in-rxfilename2> [<in-rxfilename3> ...] <out-wxfilename>
 e.g.: paste-feats ark:feats1.ark "ark:select-feats 0-3 ark:feats2.ark ark:- |" ark:feats-out.ark
  or: paste-feats foo.mat bar.mat baz.mat
See also: copy-feats, copy-matrix, append-vector-to-feats, concat-feats
"""


class PasteFeatsOptions(OptionGroup):
    length_tolerance: int = option(
        0,
        "If length is different, trim as shortest up to a frame  difference of length-tolerance, "
        "otherwise exclude segment.",
    )
    binary: bool = option(
        True,
        "If true, output files in binary (only relevant for single-file operation, i.e. no tables)",
    )


@program("paste-feats", PASTE_FEATS_USAGE, PasteFeatsOptions, num_args=(3, None))
def paste_feats(options: PasteFeatsOptions, args: list[str]) -> int:
    from nnet3tools.cli.tables import is_table, read_object, write_object
    from nnet3tools.features.frames import paste
    from nnet3tools.io.holders import MATRIX

    *sources, target = args
    if is_table(sources[0]):
        return _paste_tables(sources, target, options.length_tolerance)
    pasted = paste([read_object(name, MATRIX) for name in sources], options.length_tolerance)
    if pasted is None:
        return 1
    write_object(target, MATRIX, pasted, options.binary)
    log.log(f"Wrote appended features to {target}")
    return 0


def _paste_tables(sources: list[str], target: str, tolerance: int) -> int:
    """Paste the utterances that all tables contain; returns the exit status.

    Lengths may differ by `tolerance` frames.
    """
    from nnet3tools.features.frames import paste
    from nnet3tools.io.holders import MATRIX
    from nnet3tools.io.table import RandomAccessTableReader, SequentialTableReader, TableWriter

    num_done = num_failed = 0
    with ExitStack() as stack:
        writer = stack.enter_context(TableWriter(target, MATRIX))
        reader = stack.enter_context(SequentialTableReader(sources[0], MATRIX))
        others = [
            stack.enter_context(RandomAccessTableReader(source, MATRIX)) for source in sources[1:]
        ]
        for key, features in reader:
            parts = [features]
            for source, table in zip(sources[1:], others, strict=True):
                if (part := table.get(key)) is None:
                    log.warning(f"Missing utt {key} from input {source}")
                    break
                parts.append(part)
            complete = len(parts) == len(sources)
            pasted = paste(parts, tolerance, key) if complete else None
            if pasted is None:
                num_failed += 1
                continue
            writer.write(key, pasted)
            num_done += 1
    log.log(f"Done {num_done} utts, errors on {num_failed}")
    return 0 if num_done else 255


TRANSFORM_FEATS_USAGE = """Apply transform (e.g. LDA; HLDA; fMLLR/CMLLR; MLLT/STC)
Linear transform if transform-num-cols == feature-dim, affine if
transform-num-cols == feature-dim+1 (->append 1.0 to features)
Per-utterance by default, or per-speaker if utt2spk option provided
Global if transform-rxfilename provided.
Usage: transform-feats [options] (<transform-rspecifier>|<transform-rxfilename>) \
<feats-rspecifier> <feats-wspecifier>
e.g.: transform-feats lda.mat scp:feats.scp ark:-
See also: transform-vec, copy-feats, compose-transforms
"""


class TransformFeatsOptions(OptionGroup):
    utt2spk: str = option("", "rspecifier for utterance to speaker map")


@program("transform-feats", TRANSFORM_FEATS_USAGE, TransformFeatsOptions, num_args=3)
def transform_feats(options: TransformFeatsOptions, args: list[str]) -> int:
    from nnet3tools.cli.tables import convert_table, lookup_by_speaker
    from nnet3tools.features.frames import transform
    from nnet3tools.io.holders import MATRIX

    transforms, source, target = args
    determinants = _Determinants()
    with ExitStack() as stack:
        refusal = "--utt2spk needs a table of transforms (did you forget ark:?)"
        find = lookup_by_speaker(transforms, MATRIX, options.utt2spk, stack, refusal)

        def convert(key: str, features: np.ndarray) -> np.ndarray | None:
            if (matrix := find(key)) is None:
                log.warning(
                    f"No fMLLR transform available for utterance {key}, producing no output for "
                    "this utterance"
                )
                return None
            if (output := transform(features, matrix)) is None:
                rows, columns = matrix.shape
                log.warning(
                    f"Transform matrix for utterance {key} has bad dimension {rows}x{columns} "
                    f"versus feat dim {features.shape[1]}"
                )
                return None
            determinants.add(matrix, features)
            return output

        num_done, num_failed = convert_table(source, target, (MATRIX, MATRIX), convert)
    determinants.log()
    log.log(f"Applied transform to {num_done} utterances; {num_failed} had errors.")
    return 0 if num_done else 1


class _Determinants:
    """The mean log-determinant of feature transforms over frames, for the log.

    It is not defined if the first transform adds dimensions.
    """

    def __init__(self) -> None:
        self._kind: str | None = None
        self._frames = self._total = 0.0
        self._last: tuple[np.ndarray | None, float] = None, 0.0

    def add(self, matrix: np.ndarray, features: np.ndarray) -> None:
        """Add log det(T T') / 2 for each frame of `features`; T is the matrix's linear part."""
        rows, dim = len(matrix), features.shape[1]
        if self._kind is None:
            self._kind = "" if rows == dim else "[pseudo-]" if rows < dim else "none"
        if self._kind == "none":
            return
        if self._last[0] is not matrix:
            linear = matrix[:, :dim].astype(np.float64)
            self._last = matrix, 0.5 * float(np.linalg.slogdet(linear @ linear.T)[1])
        value = self._last[1]
        if not np.isfinite(value):
            log.warning(f"Matrix has bad logdet {value:g}")
            return
        self._frames += len(features)
        self._total += len(features) * value

    def log(self) -> None:
        """Log the mean log-determinant over all frames."""
        if self._kind in ("", "[pseudo-]"):
            mean = self._total / self._frames if self._frames else float("nan")
            log.log(f"Overall average {self._kind}logdet is {mean:g} over {self._frames:g} frames.")

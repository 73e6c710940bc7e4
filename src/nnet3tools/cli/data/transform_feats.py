"""transform-feats: multiplies features by a matrix."""

from __future__ import annotations

from contextlib import ExitStack

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

USAGE = """Apply transform (e.g. LDA; HLDA; fMLLR/CMLLR; MLLT/STC)
Linear transform if transform-num-cols == feature-dim, affine if
transform-num-cols == feature-dim+1 (->append 1.0 to features)
Per-utterance by default, or per-speaker if utt2spk option provided
Global if transform-rxfilename provided.
Usage: transform-feats [options] (<transform-rspecifier>|<transform-rxfilename>) \
<feats-rspecifier> <feats-wspecifier>
e.g.: transform-feats lda.mat scp:feats.scp ark:-
See also: transform-vec, copy-feats, compose-transforms
"""


class Options(OptionGroup):
    utt2spk: str = option("", "rspecifier for utterance to speaker map")


@program("transform-feats", USAGE, Options, num_args=3)
def main(options: Options, args: list[str]) -> int:
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

"""select-voiced-frames: selects the frames of features that are speech."""

from __future__ import annotations

from nnet3tools.cli.options import NoOptions, program
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

USAGE = """Select a subset of frames of the input files, based on the output of
compute-vad or a similar program (a vector of length num-frames,
containing 1.0 for voiced, 0.0 for unvoiced).  Caution: this is
mostly useful only in speaker identification applications.
Usage: select-voiced-frames [options] <feats-rspecifier>  <vad-rspecifier> <feats-wspecifier>
e.g.: select-voiced-frames scp:feats.scp scp:vad.scp ark:-
"""


@program("select-voiced-frames", USAGE, NoOptions, num_args=3)
def main(options: NoOptions, args: list[str]) -> int:
    from nnet3tools.cli.tables import convert_table
    from nnet3tools.io.holders import MATRIX, VECTOR
    from nnet3tools.io.table import RandomAccessTableReader

    def problem(key: str, features: np.ndarray, voiced: np.ndarray | None) -> str:
        if len(features) == 0:
            return f"Empty feature matrix for utterance {key}"
        if voiced is None:
            return f"No VAD input found for utterance {key}"
        if len(features) != len(voiced):
            return (
                f"Mismatch in number for frames {len(features)} for features and VAD "
                f"{len(voiced)}, for utterance {key}"
            )
        return "" if voiced.any() else f"No features were judged as voiced for utterance {key}"

    with RandomAccessTableReader(args[1], VECTOR) as vad:

        def convert(key: str, features: np.ndarray) -> np.ndarray | None:
            voiced = vad.get(key)
            if message := problem(key, features, voiced):
                log.warning(message)
                return None
            return features[voiced != 0.0]

        num_done, num_failed = convert_table(args[0], args[2], (MATRIX, MATRIX), convert)
    log.log(
        f"Done selecting voiced frames; processed {num_done} utterances, {num_failed} had errors."
    )
    return 0 if num_done else 1

"""ali-to-phones: converts alignments to phones, optionally with lengths or times."""

from __future__ import annotations

from collections.abc import Callable

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import OptionError
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

USAGE = """Convert model-level alignments to phone-sequences (in integer, not text, form)
Usage:  ali-to-phones  [options] <model> <alignments-rspecifier> \
<phone-transcript-wspecifier|ctm-wxfilename>
e.g.:
 ali-to-phones 1.mdl ark:1.ali ark:-
or:
 ali-to-phones --ctm-output 1.mdl ark:1.ali 1.ctm
See also: ali-to-pdf, ali-to-post
"""


class Options(OptionGroup):
    ctm_output: bool = option(
        False,
        "If true, output the alignments in ctm format (the confidences will be set to 1)",
    )
    frame_shift: float = option(0.01, "frame shift used to control the times of the ctm output")
    per_frame: bool = option(
        False, "If true, write out the frame-level phone alignment (else phone sequence)"
    )
    write_lengths: bool = option(
        False, "If true, write the #frames for each phone (different format)"
    )


@program("ali-to-phones", USAGE, Options, num_args=3)
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.cli.tables import convert_table
    from nnet3tools.io.holders import INT32_PAIR_VECTOR, INT32_VECTOR, Holder

    model_in, alignments, target = args
    if options.per_frame and options.write_lengths:
        raise OptionError("--per-frame and --write-lengths do not go together")
    phones_of = _phones_by(model_in)
    if options.ctm_output:
        num_done = _write_ctm(phones_of, alignments, target, options.frame_shift)
    else:
        holder: Holder = INT32_PAIR_VECTOR if options.write_lengths else INT32_VECTOR

        def convert(key: str, ids: np.ndarray) -> np.ndarray:
            runs = phones_of(ids)
            if options.write_lengths:
                return runs
            return runs[:, 0].repeat(runs[:, 1]) if options.per_frame else runs[:, 0]

        num_done, _ = convert_table(alignments, target, (INT32_VECTOR, holder), convert)
    log.log(f"Done {num_done} utterances.")


def _phones_by(model_in: str) -> Callable[[np.ndarray], np.ndarray]:
    """A function from an alignment to its phones and their lengths, shape (phones, 2)."""
    from nnet3tools.nnet.hmm.alignment import phone_ends
    from nnet3tools.nnet.hmm.transition_model import TransitionModel

    model = TransitionModel.load(model_in)
    transitions = model.transitions()

    def phones_of(ids: np.ndarray) -> np.ndarray:
        model.check_transition_ids(ids)
        ends = phone_ends(transitions, ids)
        starts = np.concatenate([[0], ends[:-1]])[: len(ends)].astype(np.intp)
        return np.stack([transitions.phones[ids[starts]], ends - starts], axis=1).astype(np.int32)

    return phones_of


def _write_ctm(
    phones_of: Callable[[np.ndarray], np.ndarray], alignments: str, target: str, shift: float
) -> int:
    """Write lines `key 1 start length phone`, in seconds; return the number of utterances."""
    from nnet3tools.errors import naming
    from nnet3tools.io.files import open_output
    from nnet3tools.io.holders import INT32_VECTOR
    from nnet3tools.io.table import SequentialTableReader

    digits = 2 if shift >= 0.01 else 3
    num_done = 0
    with (
        open_output(target, binary=False) as writer,
        SequentialTableReader(alignments, INT32_VECTOR) as reader,
    ):
        for key, ids in reader:
            with naming(f"{alignments}: key '{key}'"):
                runs = phones_of(ids)
            lengths = np.float32(shift) * runs[:, 1].astype(np.float32)
            starts = np.cumsum(lengths, dtype=np.float32) - lengths
            rows = zip(starts.tolist(), lengths.tolist(), runs[:, 0].tolist(), strict=True)
            writer.write_text(
                "".join(f"{key} 1 {s:.{digits}f} {n:.{digits}f} {p}\n" for s, n, p in rows)
            )
            num_done += 1
    return num_done

"""Programs that convert alignments and posteriors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools.cli.options import NoOptions, OptionGroup, option, program
from nnet3tools.errors import OptionError, naming
from nnet3tools.fast_dataclasses import replace
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

if TYPE_CHECKING:
    from nnet3tools.io.object_runs import ObjectRun
    from nnet3tools.nnet.hmm.transition_model import TransitionModel

ALI_TO_PDF_USAGE = """Converts alignments (containing transition-ids) to pdf-ids, zero-based.
Usage:  ali-to-pdf  [options] <model> <alignments-rspecifier> <pdfs-wspecifier>
e.g.:
 ali-to-pdf 1.mdl ark:1.ali ark,t:-
"""


@program("ali-to-pdf", ALI_TO_PDF_USAGE, NoOptions, num_args=3)
def ali_to_pdf(options: NoOptions, args: list[str]) -> None:
    from nnet3tools.io.object_runs import INT32_VECTOR_RUNS, convert_runs
    from nnet3tools.nnet.hmm.transition_model import TransitionModel

    model_in, alignments, pdfs_out = args
    model = TransitionModel.load(model_in)
    pdfs = model.pdfs_of_ids()

    def convert(run: ObjectRun) -> ObjectRun:
        model.check_transition_ids(run.rows)
        return replace(run, rows=pdfs[run.rows])

    holders = INT32_VECTOR_RUNS, INT32_VECTOR_RUNS
    num_done = convert_runs(alignments, pdfs_out, holders, convert)
    log.log(f"Converted {num_done} alignments to pdf sequences.")


ALI_TO_PHONES_USAGE = """\
Convert model-level alignments to phone-sequences (in integer, not text, form)
Usage:  ali-to-phones  [options] <model> <alignments-rspecifier> \
<phone-transcript-wspecifier|ctm-wxfilename>
e.g.:
 ali-to-phones 1.mdl ark:1.ali ark:-
or:
 ali-to-phones --ctm-output 1.mdl ark:1.ali 1.ctm
See also: ali-to-pdf, ali-to-post
"""


class AliToPhonesOptions(OptionGroup):
    ctm_output: bool = option(
        False, "If true, output the alignments in ctm format (the confidences will be set to 1)"
    )
    frame_shift: float = option(0.01, "frame shift used to control the times of the ctm output")
    per_frame: bool = option(
        False, "If true, write out the frame-level phone alignment (else phone sequence)"
    )
    write_lengths: bool = option(
        False, "If true, write the #frames for each phone (different format)"
    )


@program("ali-to-phones", ALI_TO_PHONES_USAGE, AliToPhonesOptions, num_args=3)
def ali_to_phones(options: AliToPhonesOptions, args: list[str]) -> None:
    from nnet3tools.io.holders import INT32_PAIR_VECTOR, INT32_VECTOR, Holder
    from nnet3tools.io.object_runs import INT32_VECTOR_RUNS, convert_runs
    from nnet3tools.nnet.hmm.transition_model import TransitionModel

    model_in, alignments, target = args
    if options.per_frame and options.write_lengths:
        raise OptionError("--per-frame and --write-lengths do not go together")
    model = TransitionModel.load(model_in)
    if options.ctm_output:
        num_done = _write_ctm(model, alignments, target, options.frame_shift)
    else:
        holder: Holder = INT32_PAIR_VECTOR if options.write_lengths else INT32_VECTOR

        def convert(run: ObjectRun) -> ObjectRun:
            pairs, ends = _phones(model, run.rows, run.ends)
            if options.per_frame:
                return replace(run, rows=pairs[:, 0].repeat(pairs[:, 1]))
            return replace(run, rows=pairs if options.write_lengths else pairs[:, 0], ends=ends)

        num_done = convert_runs(alignments, target, (INT32_VECTOR_RUNS, holder), convert)
    log.log(f"Done {num_done} utterances.")


def _phones(
    model: TransitionModel, ids: np.ndarray, ends: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Rows (phone, number of frames) of alignments, and the end of each one's rows.

    `ids` are the transition ids of one alignment after another, `ends` the end of each in `ids`.
    """
    from nnet3tools.nnet.hmm.alignment import phone_ends

    model.check_transition_ids(ids)
    transitions = model.transitions()
    phone_end = phone_ends(transitions, ids, ends)
    lengths = np.diff(phone_end, prepend=0)
    pairs = np.stack([transitions.phones[ids[phone_end - lengths]], lengths], axis=1)
    return pairs.astype(np.int32), np.searchsorted(phone_end, ends, side="right")


def _write_ctm(model: TransitionModel, alignments: str, target: str, shift: float) -> int:
    """Write lines `key 1 start length phone`, in seconds; return the number of utterances.

    `model` gives the phones of the alignments; a frame lasts `shift` seconds.
    """
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
                runs, _ = _phones(model, ids, np.array([len(ids)]))
            lengths = np.float32(shift) * runs[:, 1].astype(np.float32)
            starts = np.cumsum(lengths, dtype=np.float32) - lengths
            rows = zip(starts.tolist(), lengths.tolist(), runs[:, 0].tolist(), strict=True)
            writer.write_text(
                "".join(f"{key} 1 {s:.{digits}f} {n:.{digits}f} {p}\n" for s, n, p in rows)
            )
            num_done += 1
    return num_done


ALI_TO_POST_USAGE = """Convert alignments to posteriors.  This is simply a format change
from integer vectors to Posteriors, which are vectors of lists of
pairs (int, float) where the float represents the posterior.  The
floats would all be 1.0 in this case.
The posteriors will still be in terms of whatever integer index
the input contained, which will be transition-ids if they came
directly from decoding, or pdf-ids if they were processed by
ali-to-pdf.
Usage:  ali-to-post [options] <alignments-rspecifier> <posteriors-wspecifier>
e.g.:
 ali-to-post ark:1.ali ark:1.post
See also: ali-to-pdf, ali-to-phones, show-alignments, post-to-weights
"""


@program("ali-to-post", ALI_TO_POST_USAGE, NoOptions, num_args=2)
def ali_to_post(options: NoOptions, args: list[str]) -> int:
    from nnet3tools.io.object_runs import INT32_VECTOR_RUNS, POSTERIOR_RUNS, convert_runs
    from nnet3tools.io.posterior import Posterior

    def convert(run: ObjectRun) -> ObjectRun:
        ones = np.ones(len(run.rows))
        return replace(run, rows=Posterior.from_counts(ones, run.rows, ones))

    num_done = convert_runs(args[0], args[1], (INT32_VECTOR_RUNS, POSTERIOR_RUNS), convert)
    log.log(f"Converted {num_done} alignments.")
    return 0 if num_done else 1


CONVERT_ALI_USAGE = """Convert alignments from one decision-tree/model to another
Usage:  convert-ali  [options] <old-model> <new-model> <new-tree> <old-alignments-rspecifier> \
<new-alignments-wspecifier>
e.g.:
 convert-ali old/final.mdl new/0.mdl new/tree ark:old/ali.1 ark:new/ali.1
"""


@program("convert-ali", CONVERT_ALI_USAGE, NoOptions, num_args=5)
def convert_ali(options: NoOptions, args: list[str]) -> int:
    from nnet3tools.io.object_runs import INT32_VECTOR_RUNS, convert_runs
    from nnet3tools.nnet.hmm.alignment import AlignmentConverter
    from nnet3tools.nnet.hmm.transition_model import TransitionModel
    from nnet3tools.nnet.hmm.tree import ContextDependency

    old_in, new_in, tree_in, alignments, target = args
    old, new = TransitionModel.load(old_in), TransitionModel.load(new_in)
    converter = AlignmentConverter(old, new, ContextDependency.load(tree_in))

    def convert(run: ObjectRun) -> ObjectRun:
        return replace(run, rows=converter.convert(run.rows, run.ends))

    num_done = convert_runs(alignments, target, (INT32_VECTOR_RUNS, INT32_VECTOR_RUNS), convert)
    log.log(f"Succeeded converting alignments for {num_done} files, failed for 0")
    return 0 if num_done else 1


POST_TO_PDF_POST_USAGE = """This program turns per-frame posteriors, which have transition-ids as
the integers, into pdf-level posteriors
See also: post-to-phone-post, post-to-weights, get-post-on-ali

Usage:  post-to-pdf-post [options] <model-file> <posteriors-rspecifier> <posteriors-wspecifier>
e.g.: post-to-pdf-post 1.mdl ark:- ark:-
"""


@program("post-to-pdf-post", POST_TO_PDF_POST_USAGE, NoOptions, num_args=3)
def post_to_pdf_post(options: NoOptions, args: list[str]) -> None:
    """Convert a table of posteriors of transition ids to posteriors of pdfs.

    The pdfs of a frame are sorted; Kaldi writes them in hash order.
    """
    from nnet3tools.io.object_runs import POSTERIOR_RUNS, convert_runs
    from nnet3tools.io.posterior import Posterior
    from nnet3tools.nnet.hmm.transition_model import TransitionModel

    model = TransitionModel.load(args[0])
    pdfs, num_pdfs = model.pdfs_of_ids(), model.num_pdfs

    def convert(run: ObjectRun) -> ObjectRun:
        model.check_transition_ids(run.rows.pdfs)
        sums = replace(run.rows, pdfs=pdfs[run.rows.pdfs]).to_sparse(num_pdfs)
        return replace(run, rows=Posterior(sums.row_offsets, sums.indices, sums.values))

    num_done = convert_runs(args[1], args[2], (POSTERIOR_RUNS, POSTERIOR_RUNS), convert)
    log.log(f"Done converting posteriors to pdf-level posteriors for {num_done} utterances.")


POST_TO_SMAT_USAGE = """This program turns an archive of per-frame posteriors, e.g. from
ali-to-post | post-to-pdf-post,
into an archive of SparseMatrix.  This is just a format transformation.
This may not make sense if the indexes in question are one-based (at least,
you'd have to increase the dimension by one.

See also: post-to-phone-post, ali-to-post, post-to-pdf-post

Usage:  post-to-smat [options] <posteriors-rspecifier> <sparse-matrix-wspecifier>
e.g.: post-to-smat --dim=1038 ark:- ark:-
"""


class PostToSmatOptions(OptionGroup):
    dim: int = option(
        -1,
        "The num-cols in each output SparseMatrix.  All the integers in the input posteriors are "
        "expected to be >= 0 and < dim.  This must be specified.",
    )


@program("post-to-smat", POST_TO_SMAT_USAGE, PostToSmatOptions, num_args=2)
def post_to_smat(options: PostToSmatOptions, args: list[str]) -> None:
    from nnet3tools.io.holders import GENERAL_MATRIX
    from nnet3tools.io.object_runs import POSTERIOR_RUNS, convert_runs

    if options.dim <= 0:
        raise OptionError("The --dim option must be specified.")

    def convert(run: ObjectRun) -> ObjectRun:
        return replace(run, rows=run.rows.to_sparse(options.dim))

    count = convert_runs(args[0], args[1], (POSTERIOR_RUNS, GENERAL_MATRIX), convert)
    log.log(f"Done converting {count} posteriors into sparse matrices.")


POST_TO_TACC_USAGE = """From posteriors, compute transition-accumulators
The output is a vector of counts/soft-counts, indexed by transition-id)
Note: the model is only read in order to get the size of the vector

Usage: post-to-tacc [options] <model> <post-rspecifier> <accs>
 e.g.: post-to-tacc --binary=false 1.mdl "ark:ali-to-post 1.ali ark:-|" 1.tacc
See also: get-post-on-ali
"""


class PostToTaccOptions(OptionGroup):
    binary: bool = option(True, "Write output in binary mode.")
    per_pdf: bool = option(
        False, "if ture, accumulate counts per pdf-id rather than transition-id. (default: false)"
    )


@program("post-to-tacc", POST_TO_TACC_USAGE, PostToTaccOptions, num_args=3)
def post_to_tacc(options: PostToTaccOptions, args: list[str]) -> int:
    """Write the total posterior of each transition id, or pdf, of a table of posteriors.

    With --per-pdf=true all pdfs are counted; Kaldi omits the last.
    """
    from nnet3tools.cli.tables import write_object
    from nnet3tools.io.files import prove_output
    from nnet3tools.io.holders import VECTOR
    from nnet3tools.io.object_runs import POSTERIOR_RUNS, converted_runs
    from nnet3tools.io.table import SequentialTableReader
    from nnet3tools.nnet.hmm.transition_model import TransitionModel

    model_in, posteriors_in, counts_out = args
    prove_output(counts_out)
    model = TransitionModel.load(model_in)
    counts: np.ndarray = np.zeros(model.num_transition_ids + 1)
    num_done = 0

    def check(run: ObjectRun) -> ObjectRun:
        model.check_transition_ids(run.rows.pdfs)
        return run

    with SequentialTableReader(posteriors_in, POSTERIOR_RUNS) as posteriors:
        for run in converted_runs(
            posteriors, check, lambda key: f"{posteriors_in}: utterance {key}"
        ):
            ids = np.concatenate([np.arange(len(counts)), run.rows.pdfs])
            counts = np.bincount(ids, np.concatenate([counts, run.rows.weights]))
            num_done += len(run.keys)
    if options.per_pdf:
        log.log("accumulate counts per pdf-id")
        pdfs = model.pdfs_of_ids()[1:]
        counts = np.bincount(pdfs, counts[1:], model.num_pdfs).astype(np.float64)
    write_object(counts_out, VECTOR, counts.astype(np.float32), options.binary)
    log.log(
        f"Done computing transition stats over {num_done} utterances; wrote stats to {counts_out}"
    )
    return 0 if num_done else 1

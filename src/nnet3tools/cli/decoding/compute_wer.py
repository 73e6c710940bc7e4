"""compute-wer: word and sentence error rates of transcripts."""

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import DataError, OptionError

USAGE = """Compute WER by comparing different transcriptions
Takes two transcription files, in integer or text format,
and outputs overall WER statistics to standard output.

Usage: compute-wer [options] <ref-rspecifier> <hyp-rspecifier>
e.g.: compute-wer --text --mode=present ark:data/train/text ark:hyp_text
"""

_MODES = ("strict", "present", "all")


class Options(OptionGroup):
    mode: str = option(
        "strict",
        'Scoring mode: "present"|"all"|"strict":\n'
        '  "present" means score those we have transcriptions for\n'
        '  "all" means treat absent transcriptions as empty\n'
        '  "strict" means die if all in ref not also in hyp',
    )
    text: bool = option(False, "Deprecated option! Keeping for compatibility reasons.")


@program("compute-wer", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.decoding.edit_distance import WordErrors, word_errors
    from nnet3tools.io.holders import TOKEN_VECTOR
    from nnet3tools.io.table import RandomAccessTableReader, SequentialTableReader

    if options.mode not in _MODES:
        raise OptionError(
            f'--mode option invalid: expected "present"|"all"|"strict", got {options.mode}'
        )
    errors = WordErrors()
    num_words = num_sentences = num_wrong = num_absent = 0
    with (
        SequentialTableReader(args[0], TOKEN_VECTOR) as references,
        RandomAccessTableReader(args[1], TOKEN_VECTOR) as hypotheses,
    ):
        for key, reference in references:
            if (hypothesis := hypotheses.get(key)) is None:
                if options.mode == "strict":
                    raise DataError(f"No hypothesis for key {key} and strict mode specifier.")
                num_absent += 1
                if options.mode == "present":
                    continue
            said = hypothesis or []
            errors += word_errors(reference, said)
            num_words += len(reference)
            num_sentences += 1
            num_wrong += list(reference) != list(said)
    partial = " [PARTIAL]" if num_absent else ""
    print(
        f"%WER {_percent(errors.total, num_words)} [ {errors.total} / {num_words}, "
        f"{errors.insertions} ins, {errors.deletions} del, {errors.substitutions} sub ]{partial}\n"
        f"%SER {_percent(num_wrong, num_sentences)} [ {num_wrong} / {num_sentences} ]\n"
        f"Scored {num_sentences} sentences, {num_absent} not present in hyp."
    )


def _percent(part: int, whole: int) -> str:
    """`part` / `whole` as a percentage with two digits; for 0 / 0 the text that C++ prints."""
    if whole:
        return f"{100.0 * part / whole:.2f}"
    return "inf" if part else "-nan"

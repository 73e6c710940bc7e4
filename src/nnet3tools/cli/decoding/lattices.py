"""Programs that copy, scale and align lattices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import OptionError
from nnet3tools.io import log

if TYPE_CHECKING:
    from nnet3tools.fst.lattice import CompactLattice, Lattice
    from nnet3tools.io.holders import Holder

LATTICE_ADD_PENALTY_USAGE = """Add word insertion penalty to the lattice.
Note: penalties are negative log-probs, base e, and are added to the
'language model' part of the cost.

Usage: lattice-add-penalty [options] <lattice-rspecifier> <lattice-wspecifier>
 e.g.: lattice-add-penalty --word-ins-penalty=1.0 ark:- ark:-
"""


class LatticeAddPenaltyOptions(OptionGroup):
    word_ins_penalty: float = option(0.0, "Word insertion penalty")


@program("lattice-add-penalty", LATTICE_ADD_PENALTY_USAGE, LatticeAddPenaltyOptions, num_args=2)
def lattice_add_penalty(options: LatticeAddPenaltyOptions, args: list[str]) -> int:
    from nnet3tools.cli.tables import convert_table
    from nnet3tools.fst.lattice_files import COMPACT_LATTICE

    num_done, _ = convert_table(
        args[0],
        args[1],
        (COMPACT_LATTICE, COMPACT_LATTICE),
        lambda key, lattice: lattice.with_penalty(options.word_ins_penalty),
    )
    log.log(f"Done adding word insertion penalty to {num_done} lattices.")
    return 0 if num_done else 1


LATTICE_ALIGN_PHONES_USAGE = """\
Convert lattices so that the arcs in the CompactLattice format correspond with phones.
The output symbols are still words, unless you specify --replace-output-symbols=true
Usage: lattice-align-phones [options] <model> <lattice-rspecifier> <lattice-wspecifier>
 e.g.: lattice-align-phones final.mdl ark:1.lats ark:phone_aligned.lats
See also: lattice-best-path, ali-to-phones
"""


class LatticeAlignPhonesOptions(OptionGroup):
    output_error_lats: bool = option(
        True, "Output lattices that aligned with errors (e.g. due to force-out)"
    )
    reorder: bool = option(
        True, "True if lattice was created from HCLG with --reorder=true option."
    )
    remove_epsilon: bool = option(
        True,
        "If true, removes epsilons from the phone lattice; if replace-output-symbols==false, this "
        "will mean that an arc can have multiple phones on it.",
    )
    replace_output_symbols: bool = option(
        False, "If true, the output symbols (typically words) will be replaced with phones."
    )


@program("lattice-align-phones", LATTICE_ALIGN_PHONES_USAGE, LatticeAlignPhonesOptions, num_args=3)
def lattice_align_phones(options: LatticeAlignPhonesOptions, args: list[str]) -> int:
    from nnet3tools.cli.tables import convert_table
    from nnet3tools.decoding.phone_alignment import PhoneAligner
    from nnet3tools.fst.lattice_files import COMPACT_LATTICE
    from nnet3tools.nnet.hmm.transition_model import TransitionModel

    aligner = PhoneAligner(
        TransitionModel.load(args[0]),
        is_reordered=options.reorder,
        removes_epsilons=options.remove_epsilon,
        has_phone_labels=options.replace_output_symbols,
    )
    num_wrong = 0

    def aligned(key: str, lattice: CompactLattice) -> CompactLattice | None:
        nonlocal num_wrong
        result = aligner.align(lattice)
        if result.problem:
            num_wrong += 1
            log.warning(f"Lattice for {key} did not align correctly: {result.problem}")
            if not options.output_error_lats:
                return None
        if not result.lattice.fst.num_states:
            if not result.problem:
                num_wrong += 1
                log.warning(f"Lattice was empty for key {key}")
            return None
        if result.problem:
            log.log(f"Outputting partial lattice for {key}")
        return result.lattice

    done, left = convert_table(args[1], args[2], (COMPACT_LATTICE, COMPACT_LATTICE), aligned)
    num_done = done + left - num_wrong
    log.log(f"Successfully aligned {num_done} lattices; {num_wrong} had errors.")
    return 0 if num_done > num_wrong else 1


LATTICE_COPY_USAGE = """Copy lattices (e.g. useful for changing to text mode or changing
format to standard from compact lattice.)
The --include and --exclude options can be used to copy only a subset of lattices, where the \
--include option specifies the utterances that are copied and the --exclude option those that \
are not copied.
Only one of --include and --exclude can be supplied.
Usage: lattice-copy [options] lattice-rspecifier lattice-wspecifier
 e.g.: lattice-copy --write-compact=false ark:1.lats ark,t:text.lats
See also: lattice-scale
"""


class LatticeCopyOptions(OptionGroup):
    write_compact: bool = option(True, "If true, write in normal (compact) form.")
    include: str = option(
        "",
        "Text file, the first field of each line being interpreted as the utterance-id whose "
        "lattices will be included",
    )
    exclude: str = option(
        "",
        "Text file, the first field of each line being interpreted as an utterance-id whose "
        "lattices will be excluded",
    )
    ignore_missing: bool = option(False, "Exit with status 0 even if no lattices are copied")


@program("lattice-copy", LATTICE_COPY_USAGE, LatticeCopyOptions, num_args=2)
def lattice_copy(options: LatticeCopyOptions, args: list[str]) -> int:
    from nnet3tools.cli.tables import convert_table
    from nnet3tools.fst.lattice_files import COMPACT_LATTICE, LATTICE

    if options.include and options.exclude:
        raise OptionError("should not have both --exclude and --include option!")
    listed = _first_fields(options.include or options.exclude)
    wanted = bool(options.include)
    holder: Holder = COMPACT_LATTICE if options.write_compact else LATTICE
    num_done, num_left = convert_table(
        args[0],
        args[1],
        (holder, holder),
        lambda key, lattice: lattice if listed is None or (key in listed) == wanted else None,
    )
    if listed is None:
        log.log(f"Done copying {num_done} lattices.")
    else:
        log.log(f"Wrote {num_done} out of {num_done + num_left} utterances.")
    return 0 if num_done or options.ignore_missing else 1


def _first_fields(rxfilename: str) -> set[str] | None:
    from nnet3tools.io.files import read_text_lines

    if not rxfilename:
        return None
    return {fields[0] for line in read_text_lines(rxfilename) if (fields := line.split())}


LATTICE_SCALE_USAGE = """Apply scaling to lattice weights
Usage: lattice-scale [options] lattice-rspecifier lattice-wspecifier
 e.g.: lattice-scale --lm-scale=0.0 ark:1.lats ark:scaled.lats
"""


class LatticeScaleOptions(OptionGroup):
    write_compact: bool = option(True, "If true, write in normal (compact) form.")
    acoustic_scale: float = option(1.0, "Scaling factor for acoustic likelihoods")
    inv_acoustic_scale: float = option(
        1.0, "An alternative way of setting the acoustic scale: you can set its inverse."
    )
    lm_scale: float = option(1.0, "Scaling factor for graph/lm costs")
    acoustic2lm_scale: float = option(0.0, "Add this times original acoustic costs to LM costs")
    lm2acoustic_scale: float = option(0.0, "Add this times original LM costs to acoustic costs")


@program("lattice-scale", LATTICE_SCALE_USAGE, LatticeScaleOptions, num_args=2)
def lattice_scale(options: LatticeScaleOptions, args: list[str]) -> int:
    from nnet3tools.cli.tables import convert_table
    from nnet3tools.fst.lattice_files import COMPACT_LATTICE, LATTICE
    from nnet3tools.fst.weights import single

    acoustic = options.acoustic_scale
    if options.inv_acoustic_scale != 1.0:
        if acoustic != 1.0 or options.inv_acoustic_scale == 0.0:
            raise OptionError(
                "--inv-acoustic-scale must not be 0, nor be given with --acoustic-scale"
            )
        acoustic = 1.0 / options.inv_acoustic_scale

    scales = options.lm_scale, acoustic, options.acoustic2lm_scale, options.lm2acoustic_scale
    singles = [single(scale) for scale in scales]  # Kaldi's options are float32

    def scaled(key: str, lattice: Lattice | CompactLattice) -> Lattice | CompactLattice:
        return lattice.scaled(*singles)

    holder: Holder = COMPACT_LATTICE if options.write_compact else LATTICE
    num_done, _ = convert_table(args[0], args[1], (holder, holder), scaled)
    log.log(f"Done {num_done} lattices.")
    return 0 if num_done else 1

"""nnet3-am-train-transitions: estimate transition probabilities and priors from alignments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import DataError, OptionError, naming
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nnet3tools.nnet.am_nnet import AmNnet

USAGE = """Train the transition probabilities of an nnet3 neural network acoustic model

Usage:  nnet3-am-train-transitions [options] <nnet-in> <alignments-rspecifier> <nnet-out>
e.g.:
 nnet3-am-train-transitions 1.nnet "ark:gunzip -c ali.*.gz|" 2.nnet
"""


class Options(OptionGroup):
    binary: bool = option(True, "Write output in binary mode")
    set_priors: bool = option(
        True, "If true, also set priors in neural net (we divide by these in test time)"
    )
    prior_floor: float = option(5.0e-06, "When setting priors, floor for priors")
    transition_floor: float = option(0.01, "Floor for transition probabilities")
    transition_min_count: float = option(
        5.0, "Minimum count required to update transitions from a state"
    )
    share_for_pdfs: bool = option(
        False, "If true, share all transition parameters where the states have the same pdf."
    )


@program("nnet3-am-train-transitions", USAGE, Options, num_args=3)
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.cli.am_models import load_am_nnet
    from nnet3tools.io.files import prove_output
    from nnet3tools.nnet.hmm.transition_update import update_transitions

    model_in, alignments, model_out = args
    if not 0.0 < options.prior_floor < 1.0:
        raise OptionError(f"--prior-floor={options.prior_floor:g}: expected between 0 and 1")
    prove_output(model_out)
    model = load_am_nnet(model_in)
    counts = _count(model, alignments)
    update = update_transitions(
        model.transition_model,
        counts,
        options.transition_floor,
        options.transition_min_count,
        options.share_for_pdfs,
    )
    log.log(
        f"Transition model update: average {update.average:g} log-like improvement per frame over "
        f"{update.count:g} frames."
    )
    model.transition_model = update.model
    if options.set_priors:
        log.log("Setting priors of pdfs in the model.")
        with naming(f"{model_in} with {alignments}"):
            _set_priors(model, counts, options.prior_floor)
    model.save(model_out, options.binary)
    log.log(f"Trained transitions of neural network model and wrote it to {model_out}")


def _count(model: AmNnet, alignments: str) -> NDArray[np.float64]:
    """The count of each transition id in a table of alignments, (ids + 1,)."""
    from nnet3tools.io.holders import INT32_VECTOR
    from nnet3tools.io.table import SequentialTableReader
    from nnet3tools.nnet.hmm.transition_update import count_transitions

    counts = np.zeros(model.transition_model.num_transition_ids + 1)
    num_done = 0
    with SequentialTableReader(alignments, INT32_VECTOR) as reader:
        for key, alignment in reader:
            with naming(f"{alignments}: utterance {key}"):
                count_transitions(model.transition_model, alignment, counts)
            num_done += 1
    log.log(f"Accumulated transition stats from {num_done} utterances.")
    return counts


def _set_priors(model: AmNnet, counts: NDArray[np.float64], floor: float) -> None:
    """Set the priors of `model` to the relative counts of pdfs, floored at about `floor`."""
    transition_model = model.transition_model
    num_pdfs, dim = transition_model.num_pdfs, model.nnet.output_dim("output")
    if num_pdfs != dim:
        raise DataError(f"the transition model has {num_pdfs} pdfs, the output dimension {dim}")
    pdfs = transition_model.pdfs_of_ids()[1:]
    priors = np.bincount(pdfs, counts[1:], num_pdfs).astype(np.float32)
    if not priors.sum() > 0.0:
        raise DataError("no transitions were counted: there is nothing to set priors from")
    priors = np.maximum(priors / priors.sum(), np.float32(floor))
    model.set_priors(priors / priors.sum())

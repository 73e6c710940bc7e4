"""Programs that make acoustic models and set their probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import DataError, OptionError, naming
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nnet3tools.nnet.am_nnet import AmNnet


def load_am_nnet(rxfilename: str) -> AmNnet:
    """The acoustic model in a file, with its context computed anew, as stored ones may be wrong."""
    from nnet3tools.nnet.am_nnet import AmNnet

    model = AmNnet.load(rxfilename)
    set_context(model)
    return model


def set_context(model: AmNnet) -> None:
    """Compute the left and right context of a model whose network is new or has changed."""
    from nnet3tools.graph.context import compute_simple_nnet_context

    model.check_simple("the network")
    context = compute_simple_nnet_context(model.nnet)
    model.left_context, model.right_context = context.left, context.right


AM_INIT_USAGE = """\
Initialize a nnet3 acoustic model (a neural network with its transition model) from a
tree and a topology, or an existing transition model, and a network.
Priors are not set.

Usage:  nnet3-am-init [options] <tree-in> <topology-in> <input-raw-nnet> <output-am-nnet>
  or:  nnet3-am-init [options] <trans-model-in> <input-raw-nnet> <output-am-nnet>
e.g.:
 nnet3-am-init tree topo 0.raw 0.mdl
See also: nnet3-init, nnet3-am-copy, nnet3-am-info, nnet3-am-adjust-priors
"""


class AmInitOptions(OptionGroup):
    binary: bool = option(True, "Write output in binary mode")


@program("nnet3-am-init", AM_INIT_USAGE, AmInitOptions, num_args=(3, 4))
def nnet3_am_init(options: AmInitOptions, args: list[str]) -> None:
    from nnet3tools.nnet.am_nnet import AmNnet
    from nnet3tools.nnet.hmm.topology import HmmTopology
    from nnet3tools.nnet.hmm.transition_model import TransitionModel
    from nnet3tools.nnet.hmm.tree import ContextDependency
    from nnet3tools.nnet.model_file import read_nnet

    *sources, nnet_in, model_out = args
    if len(sources) == 2:
        tree = ContextDependency.load(sources[0])
        transition_model = TransitionModel.from_tree(tree, HmmTopology.load(sources[1]))
    else:
        transition_model = TransitionModel.load(sources[0])
    model = AmNnet(transition_model, read_nnet(nnet_in))
    set_context(model)
    model.save(model_out, options.binary)
    log.log(f"Initialized am-nnet (neural net acoustic model) and wrote to {model_out}")


AM_ADJUST_PRIORS_USAGE = """\
Set the priors of a nnet3 acoustic model to the posteriors that its network gives on
average on typical data, such as training data. The vector of posteriors need
not be normalized; it comes, say, from nnet3-compute or nnet3-compute-from-egs,
matrix-sum-rows and vector-sum.

Usage: nnet3-am-adjust-priors [options] <nnet-in> <summed-posterior-vector-in> <nnet-out>
e.g.:
 nnet3-am-adjust-priors final.mdl counts.vec final.mdl
"""


class AmAdjustPriorsOptions(OptionGroup):
    binary: bool = option(True, "Write output in binary mode")
    prior_floor: float = option(1.0e-15, "Accepted for Kaldi's sake; priors are not floored")


@program("nnet3-am-adjust-priors", AM_ADJUST_PRIORS_USAGE, AmAdjustPriorsOptions, num_args=3)
def nnet3_am_adjust_priors(options: AmAdjustPriorsOptions, args: list[str]) -> None:
    from nnet3tools.io.files import open_input

    model_in, posteriors_in, model_out = args
    model = load_am_nnet(model_in)
    with open_input(posteriors_in) as reader:
        posteriors = reader.read_vector()
    total = posteriors.sum()
    if not (np.isfinite(posteriors).all() and total > 0.0):
        raise DataError(f"{posteriors_in}: expected posteriors with a positive sum, found {total}")
    posteriors = posteriors * np.float32(1.0 / float(total))
    _log_change(model.priors, posteriors)
    with naming(posteriors_in):
        model.set_priors(posteriors)
    model.save(model_out, options.binary)
    log.log(f"Modified priors of neural network model and wrote it to {model_out}")


def _log_change(old: NDArray[np.float32], new: NDArray[np.float32]) -> None:
    if len(old) == 0 or len(old) != len(new):
        log.log("Model did not previously have priors attached.")
        return
    pdf = int(np.abs(new - old).argmax())
    with np.errstate(divide="ignore", invalid="ignore"):
        divergence = np.nansum(old * np.log(old / new))
    log.log(
        f"Adjusting priors: largest absolute difference was for pdf {pdf}, "
        f"{old[pdf]:g} -> {new[pdf]:g}"
    )
    log.log(f"Adjusting priors: K-L divergence from old to new is {divergence:g}")


AM_TRAIN_TRANSITIONS_USAGE = """\
Train the transition probabilities of an nnet3 neural network acoustic model

Usage:  nnet3-am-train-transitions [options] <nnet-in> <alignments-rspecifier> <nnet-out>
e.g.:
 nnet3-am-train-transitions 1.nnet "ark:gunzip -c ali.*.gz|" 2.nnet
"""


class AmTrainTransitionsOptions(OptionGroup):
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


@program(
    "nnet3-am-train-transitions", AM_TRAIN_TRANSITIONS_USAGE, AmTrainTransitionsOptions, num_args=3
)
def nnet3_am_train_transitions(options: AmTrainTransitionsOptions, args: list[str]) -> None:
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
    """Set the priors of `model` to the relative counts of pdfs, raised to `floor`, then normalized.

    `counts` has the count of each transition id, 0 for id 0.
    """
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

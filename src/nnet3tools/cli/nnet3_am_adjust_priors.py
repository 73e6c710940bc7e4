"""nnet3-am-adjust-priors: set the priors of an acoustic model from its average posteriors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import DataError, naming
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

USAGE = """Set the priors of a nnet3 acoustic model to the posteriors that its network gives on
average on typical data, such as training data. The vector of posteriors need
not be normalized; it comes, say, from nnet3-compute or nnet3-compute-from-egs,
matrix-sum-rows and vector-sum.

Usage: nnet3-am-adjust-priors [options] <nnet-in> <summed-posterior-vector-in> <nnet-out>
e.g.:
 nnet3-am-adjust-priors final.mdl counts.vec final.mdl
"""


class Options(OptionGroup):
    binary: bool = option(True, "Write output in binary mode")
    prior_floor: float = option(1.0e-15, "Accepted for Kaldi's sake; priors are not floored")


@program("nnet3-am-adjust-priors", USAGE, Options, num_args=3)
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.cli.am_models import load_am_nnet
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

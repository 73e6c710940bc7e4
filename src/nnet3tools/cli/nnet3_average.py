"""nnet3-average: the weighted average of several networks."""

from __future__ import annotations

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import OptionError
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

USAGE = """Average the parameters of a number of 'raw' nnet3 networks of the same structure.

Usage:  nnet3-average [options] <model1> <model2> ... <modelN> <model-out>

e.g.:
 nnet3-average 1.1.nnet 1.2.nnet 1.3.nnet 2.nnet
"""


class Options(OptionGroup):
    binary: bool = option(True, "Write output in binary mode")
    weights: str = option(
        "",
        "Colon-separated list of weights, one for each input model. These will be normalized to "
        "sum to one.",
    )
    num_threads: int = option(
        -1, "Number of threads to read the models (will be set automatically if not set.)"
    )


@program("nnet3-average", USAGE, Options, num_args=(2, None))
def main(options: Options, args: list[str]) -> None:
    """Write the weighted average of several networks; additions have Kaldi's order."""
    from nnet3tools.io.files import prove_output
    from nnet3tools.nnet.model_file import write_nnet
    from nnet3tools.training.averaging import average_models

    *models, nnet_out = args
    prove_output(nnet_out)
    weights = _weights(options.weights, len(models))
    nnet = average_models(models, weights, options.num_threads)
    write_nnet(nnet, nnet_out, options.binary)
    log.log(f"Averaged parameters of {len(models)} neural nets, and wrote to {nnet_out}")


def _weights(text: str, num_models: int) -> list[float]:
    """The float32 weights in the text of --weights, normalized to sum to one.

    If the text is empty, all `num_models` models have the same weight.
    """
    from nnet3tools.nnet.config import parse_float

    if not text:
        values: list[float | None] = [1.0 / num_models] * num_models
    else:
        values = [parse_float(part) for part in text.split(":") if part]
    known = np.array([value for value in values if value is not None], np.float32)
    if len(known) != len(values) or len(known) != num_models:
        raise OptionError(
            f"--weights={text}: expected {num_models} numbers separated by colons, one a model"
        )
    total = known.sum(dtype=np.float32)
    if not np.isfinite(total) or total == 0.0:
        raise OptionError(f"--weights={text}: the weights sum to {total:g}")
    if abs(total - 1.0) > 0.01:
        log.warning(f"Normalizing weights to sum to one, sum was {total:g}")
    return [float(weight) for weight in known / total]

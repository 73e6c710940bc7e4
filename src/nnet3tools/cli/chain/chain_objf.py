"""chain-objf: compute the LF-MMI objective and derivative of given matrices (not in Kaldi)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import DataError, OptionError
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np
from nnet3tools.number_text import parse_int

if TYPE_CHECKING:
    from nnet3tools.chain.objective import ChainObjective

USAGE = """Compute the LF-MMI objective function of matrices of network outputs, and its
derivative, as nnet3-chain-train does (this program is not one of Kaldi's).

For each key KEY.txt in the output directory has the objective and its parts, KEY.deriv the
derivative with respect to the output, KEY.xent-deriv the posteriors of the numerator;
initial-probs.txt has the initial probabilities of the denominator graph's states.  Rows of the
outputs are those of the first frame of all sequences, then of the second, and so on.

Usage:  chain-objf [options] <num-pdfs> <den-fst> <supervision-rspecifier> <output-rspecifier> <dir>

e.g.: chain-objf --leaky-hmm-coefficient=0.1 8 den.fst ark:sup.ark ark:output.ark dir
"""


class Options(OptionGroup):
    leaky_hmm_coefficient: float = option(
        1.0e-05, "Probability of leaving a state for any other, by their initial probabilities"
    )
    l2_regularize: float = option(0.0, "l2 regularization constant on the output")
    out_of_range_regularize: float = option(
        0.01, "Constant of the penalty on outputs outside the range [-30,30]"
    )
    apply_out_of_range: bool = option(
        False,
        "Begin each computation with random numbers that apply that penalty, twice as large, which "
        "training does every other time.  Of plain supervisions it is the second number that "
        "decides, as in training, of end-to-end ones the first",
    )


_SEEDS = {False: 1, True: 2}
"""Seeds of rand() for which the first RandInt(0, 1) omits (False) or applies (True) the penalty."""


@program("chain-objf", USAGE, Options, num_args=5)
def main(options: Options, args: list[str]) -> int:
    from nnet3tools import tensor
    from nnet3tools.chain.den_graph import load_denominator_graph
    from nnet3tools.chain.objective import compute_chain_objective
    from nnet3tools.chain.options import ChainTrainingOptions
    from nnet3tools.chain.supervision import SUPERVISION
    from nnet3tools.io.holders import MATRIX
    from nnet3tools.io.table import RandomAccessTableReader, SequentialTableReader

    num_pdfs, den_fst, supervisions, outputs, directory = args
    if (num := parse_int(num_pdfs, 1)) is None:
        raise OptionError(f"expected a number of pdfs, found '{num_pdfs[:80]}'")
    training = ChainTrainingOptions(
        l2_regularize=options.l2_regularize,
        leaky_hmm_coefficient=options.leaky_hmm_coefficient,
        out_of_range_regularize=options.out_of_range_regularize,
    )
    training.check()
    graph = load_denominator_graph(den_fst, num)
    os.makedirs(directory, exist_ok=True)
    _write_matrix(os.path.join(directory, "initial-probs.txt"), graph.initial_probs)
    num_done = num_missing = 0
    with (
        SequentialTableReader(supervisions, SUPERVISION) as reader,
        RandomAccessTableReader(outputs, MATRIX) as matrices,
    ):
        for key, supervision in reader:
            if key not in matrices:
                log.warning(f"No output for {key}")
                num_missing += 1
                continue
            output = matrices[key]
            deriv, xent_deriv = np.empty_like(output), np.empty_like(output)
            tensor.random.seed(_SEEDS[options.apply_out_of_range])
            objective = compute_chain_objective(
                training, graph, supervision, output, deriv, xent_deriv
            )
            path = _path(directory, key)
            _write_parts(path + ".txt", objective)
            _write_matrix(path + ".deriv", deriv)
            _write_matrix(path + ".xent-deriv", xent_deriv)
            num_done += 1
    log.log(f"Computed {num_done} objective functions; {num_missing} had no output.")
    return 0 if num_done else 1


def _path(directory: str, key: str) -> str:
    """The path, without suffix, of the files for `key`; DataError if the key is no file name."""
    if "/" in key or key.startswith("."):
        raise DataError(f"key '{key}' cannot be the name of a file")
    return os.path.join(directory, key)


def _write_parts(path: str, objective: ChainObjective) -> None:
    from nnet3tools.io.files import open_output

    lines = {
        "objf": objective.objective,
        "l2-term": objective.l2_term,
        "weight": objective.weight,
        "objf-per-frame": objective.objective / objective.weight if objective.weight else 0.0,
        "num-logprob-weighted": objective.numerator,
        "den-logprob": objective.denominator_log_prob,
        "den-logprob-weighted": objective.denominator,
    }
    with open_output(path, binary=False, header=False) as writer:
        writer.write_text("".join(f"{name} {value:.7g}\n" for name, value in lines.items()))


def _write_matrix(path: str, array: np.ndarray) -> None:
    """Write a vector or matrix to the file `path` in text form."""
    from nnet3tools.io.files import open_output

    with open_output(path, binary=False) as writer:
        if array.ndim == 1:
            writer.write_vector(array)
        else:
            writer.write_matrix(array)

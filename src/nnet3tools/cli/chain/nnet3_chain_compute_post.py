"""nnet3-chain-compute-post: compute the denominator graph's posteriors for whole utterances."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from nnet3tools.chain.options import ChainTrainingOptions
from nnet3tools.cli.device_options import DeviceOptions
from nnet3tools.cli.options import OptionGroup, option, option_group, program
from nnet3tools.errors import DataError, naming
from nnet3tools.executor.simple_options import SimpleComputationOptions
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np
from nnet3tools.recognizer.utterances import (
    IvectorOptions,
    NothingDoneError,
    UtteranceCounts,
    utterances,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

USAGE = """Compute posteriors from 'denominator FST' of chain model and optionally map them to
phones.

Usage: nnet3-chain-compute-post [options] <nnet-in> <den-fst> <features-rspecifier> <matrix-wspecifier>
 e.g.: nnet3-chain-compute-post --transform-mat=transform.mat final.raw den.fst scp:feats.scp ark:nnet_prediction.ark
See also: nnet3-compute
"""  # noqa: E501


class Options(OptionGroup):
    simple: SimpleComputationOptions = option_group("", SimpleComputationOptions)
    inputs: IvectorOptions = option_group("", IvectorOptions)
    device: DeviceOptions = option_group("", DeviceOptions)
    leaky_hmm_coefficient: float = option(
        0.1,
        "'Leaky HMM' coefficient: smaller values will tend to lead to more confident posteriors.  "
        "0.1 is what we normally use in training.",
    )
    transform_mat: str = option(
        "",
        "Location to read the matrix to transform posteriors to phones.  Matrix is of dimension "
        "num-phones by num-pdfs.",
    )


@program("nnet3-chain-compute-post", USAGE, Options, num_args=4)
def main(options: Options, args: list[str]) -> int:
    from nnet3tools.chain.objective import denominator_posteriors
    from nnet3tools.chain.output_objective import den_graph_of
    from nnet3tools.io.holders import MATRIX
    from nnet3tools.io.table import TableWriter
    from nnet3tools.recognizer.models import read_model
    from nnet3tools.recognizer.outputs import computer_for_tables, outputs_in_order

    nnet_in, den_fst, features_in, posteriors_out = args
    ChainTrainingOptions(leaky_hmm_coefficient=options.leaky_hmm_coefficient).check()
    options.inputs.check()
    options.simple.check()
    device = options.device.choose()
    counts, total, num_frames = UtteranceCounts(), 0.0, 0
    nnet, _ = read_model(nnet_in, use_priors=False)
    graph = den_graph_of(den_fst, nnet, nnet_in)
    with naming(nnet_in):
        computer = computer_for_tables([posteriors_out], nnet, options.simple, like=device)
    transform = _transform(options.transform_mat, graph.num_pdfs)
    with contextlib.suppress(NothingDoneError), TableWriter(posteriors_out, MATRIX) as writer:
        given = ((*each, None) for each in utterances(features_in, options.inputs, counts))
        for key, output, _ in outputs_in_order(computer, given):
            leak = options.leaky_hmm_coefficient
            log_prob, posteriors = denominator_posteriors(graph, output, leak)
            log.vlog(
                1,
                f"For utterance {key}, log-prob per frame was {log_prob / len(output):g} over "
                f"{len(output)} frames.",
            )
            if posteriors is None:
                log.warning(
                    f"Something went wrong for utterance {key}; forward-prob = {log_prob:g}, "
                    f"num-frames = {len(output)}"
                )
                counts.failed += 1
                continue
            writer.write(key, posteriors if transform is None else posteriors @ transform.T)
            total += log_prob
            num_frames += len(output)
            counts.done += 1
        counts.check()
    status = counts.report()
    if num_frames:
        log.log(
            f"Overall log-prob per (output) frame was {total / num_frames:g} over "
            f"{num_frames} frames."
        )
    return status


def _transform(rxfilename: str, num_pdfs: int) -> NDArray[np.float32] | None:
    """The matrix (phones, pdfs) in a file, which maps pdfs to phones; None without a file."""
    from nnet3tools.cli.tables import read_object
    from nnet3tools.io.holders import MATRIX

    if not rxfilename:
        return None
    matrix = read_object(rxfilename, MATRIX)
    if matrix.shape[1] != num_pdfs:
        raise DataError(
            f"transform-mat from {rxfilename} has {matrix.shape[1]} cols, expected {num_pdfs}"
        )
    return matrix

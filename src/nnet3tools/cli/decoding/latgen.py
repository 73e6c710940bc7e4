"""Programs that write the lattices of utterances."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from nnet3tools.cli.device_options import CudaDeviceOptions
from nnet3tools.cli.gpu import choose_cpu_kernels, cpu_kernels_option
from nnet3tools.cli.options import OptionGroup, option, option_group, program
from nnet3tools.cli.program_cache import ProgramCacheOptions
from nnet3tools.decoding.options import LatticeDecoderOptions
from nnet3tools.errors import naming
from nnet3tools.executor.simple_options import BatchDecodingOptions, DecodingOptions
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np
from nnet3tools.recognizer.in_order import InOrder
from nnet3tools.recognizer.utterances import (
    InputPauses,
    IvectorOptions,
    NothingDoneError,
    UtteranceCounts,
)

if TYPE_CHECKING:
    from nnet3tools.cli.decoding_io import DecodingOutputs
    from nnet3tools.decoding.graph import DecodingGraph
    from nnet3tools.decoding.utterance import Decoded
    from nnet3tools.executor.chunks import Ivectors
    from nnet3tools.executor.utterance_computer import UtteranceComputer
    from nnet3tools.nnet.hmm.transition_model import TransitionModel


class LatgenOptions(OptionGroup):
    """The common options of nnet3-latgen-faster and nnet3-latgen-faster-batch."""

    decoder: LatticeDecoderOptions = option_group("", LatticeDecoderOptions)
    inputs: IvectorOptions = option_group("", IvectorOptions)
    word_symbol_table: str = option("", "Symbol table for words [for debug output]")
    allow_partial: bool = option(
        False, "If true, produce output even if end state was not reached."
    )
    cache: ProgramCacheOptions = option_group("", ProgramCacheOptions)

    def check(self) -> None:
        """OptionError if an option's value is out of its range."""
        self.decoder.check()
        self.inputs.check()
        self.cache.check()


class _Latgen:
    """Decodes utterances to lattices with one model; each utterance may have its own graph."""

    def __init__(
        self,
        model: TransitionModel,
        options: LatgenOptions,
        acoustic_scale: float,
        num_threads: int = 1,
    ) -> None:
        """Prepare to search in `num_threads` threads; `acoustic_scale` is undone in lattices."""
        from nnet3tools.decoding.utterance import DecodingTotals, UtteranceDecoder

        self.counts, self.totals = UtteranceCounts(), DecodingTotals()
        self._options = options
        self._decoder = UtteranceDecoder(
            model, options.decoder, acoustic_scale, options.allow_partial
        )
        self._work = InOrder(num_threads)
        self._latest = threading.local()
        """The `graph` that each thread searched last, and its `search` over it."""

    def decode_all(
        self,
        tables: list[str],
        computer: UtteranceComputer,
        utterances: Iterable[tuple[str, np.ndarray, Ivectors | None, DecodingGraph]],
        pauses: InputPauses,
    ) -> None:
        """Decode utterances (key, features, i-vectors, graph) and write the results to `tables`.

        `tables`: wspecifiers of lattices and perhaps words and alignments. When `pauses()` says
        that the input waits, all results so far are written. NothingDoneError if none was decoded.
        """
        from nnet3tools.cli.decoding_io import DecodingOutputs
        from nnet3tools.recognizer.outputs import outputs_in_order

        options, work = self._options, self._work
        with contextlib.ExitStack() as stack:
            outputs = DecodingOutputs(
                options.decoder.determinize_lattice, tables, options.word_symbol_table, stack
            )

            def flush() -> None:
                work.finish()
                outputs.flush()

            found = outputs_in_order(
                *(computer, utterances, lambda graph: graph.num_bytes, pauses, flush)
            )
            for key, loglikes, graph in found:
                work.give(
                    partial(self._decoded, key, loglikes, graph), partial(self._take, key, outputs)
                )
            work.finish()
            self.counts.check()
        options.cache.write(computer.compiler)

    def _decoded(self, key: str, loglikes: np.ndarray, graph: DecodingGraph) -> Decoded | None:
        """Search the graph of an utterance; None if no path is found.

        Each thread keeps its latest Search, and uses it again for the same graph.
        """
        latest = self._latest
        if getattr(latest, "graph", None) is not graph:
            latest.graph, latest.search = graph, self._decoder.decoder(graph)
        return self._decoder.decode(latest.search, key, loglikes)

    def _take(
        self, key: str, outputs: DecodingOutputs, result: Callable[[], Decoded | None]
    ) -> None:
        """Write `result()` of utterance `key` to `outputs` and count it; None counts as failed."""
        with naming(f"utterance {key}"):
            decoded = result()
        if decoded is None:
            self.counts.failed += 1
            return
        outputs.write(key, decoded)
        self.totals.add(decoded)
        self.counts.done += 1


LATGEN_FASTER_USAGE = """Generate lattices using nnet3 neural net model.
Usage: nnet3-latgen-faster [options] <nnet-in> <fst-in|fsts-rspecifier> <features-rspecifier> \
<lattice-wspecifier> [ <words-wspecifier> [<alignments-wspecifier>] ]
e.g.:
 nnet3-latgen-faster --frame-subsampling-factor=3 --acoustic-scale=1.0 final.mdl HCLG.fst \\
   scp:feats.scp ark:lat.ark ark,t:words.txt
See also: nnet3-latgen-faster-batch, nnet3-decode
"""


class LatgenFasterOptions(LatgenOptions):
    simple: DecodingOptions = option_group("", DecodingOptions)
    cpu_kernels: str | None = cpu_kernels_option()


@program("nnet3-latgen-faster", LATGEN_FASTER_USAGE, LatgenFasterOptions, num_args=(4, 6))
def nnet3_latgen_faster(options: LatgenFasterOptions, args: list[str]) -> int:
    from nnet3tools.recognizer.models import read_acoustic_model
    from nnet3tools.recognizer.outputs import computer_for_tables

    options.check()
    options.simple.check()
    choose_cpu_kernels(options.cpu_kernels)
    model, nnet, priors = read_acoustic_model(args[0])
    with naming(args[0]):
        computer = computer_for_tables(args[3:], nnet, options.simple, priors)
    options.cache.read(computer.compiler)
    latgen = _Latgen(model, options, options.simple.acoustic_scale)
    with contextlib.suppress(NothingDoneError):
        pauses = InputPauses()
        utterances = _utterances(options, args, model, latgen.counts, pauses)
        latgen.decode_all(args[3:], computer, utterances, pauses)
    computer.close()
    return _report(latgen, options.simple.frame_subsampling_factor)


def _utterances(
    options: LatgenFasterOptions,
    args: list[str],
    model: TransitionModel,
    counts: UtteranceCounts,
    pauses: InputPauses,
) -> Iterator[tuple[str, np.ndarray, Ivectors | None, DecodingGraph]]:
    """(key, features, i-vectors or None, graph) of each utterance, for the program's words `args`.

    `graph` is the utterance's or the common one. `pauses` will watch the table read first.
    """
    from nnet3tools.cli.decoding_io import GraphTable
    from nnet3tools.cli.tables import is_table
    from nnet3tools.decoding.graph import DecodingGraph
    from nnet3tools.fst.files import FST, load_fst
    from nnet3tools.io.table import SequentialTableReader
    from nnet3tools.recognizer.utterances import complete_utterances, utterances

    name, features = args[1:3]
    if not is_table(name):
        graph = DecodingGraph.of(load_fst(name), model, name)
        counts.began = time.perf_counter()
        for utterance in utterances(features, options.inputs, counts, pauses):
            yield *utterance, graph
        return
    with SequentialTableReader(name, FST) as graphs:
        pauses.watch(graphs)
        missing = "Not decoding utterance {key} because no features available."
        table = GraphTable(graphs, features, counts, missing)
        for utterance in complete_utterances(table, name, options.inputs, counts):
            own = DecodingGraph.of(table.graph, model, f"{name}: key '{utterance[0]}'")
            yield *utterance, own


def _report(latgen: _Latgen, factor: int) -> int:
    """Log times and counts as Kaldi does, and return the exit status.

    `factor` is the number of input frames per output frame.
    """
    counts, totals = latgen.counts, latgen.totals
    seconds, frames = counts.seconds, totals.num_frames
    real_time = seconds * 100.0 / (frames * factor) if frames else float("nan")
    log.log(f"Time taken {seconds:g}s: real-time factor assuming 100 frames/sec is {real_time:g}")
    log.log(f"Done {counts.done} utterances, failed for {counts.failed}")
    average = totals.loglike / frames if frames else float("nan")
    log.log(f"Overall log-likelihood per frame is {average:g} over {frames} frames.")
    return 0 if counts.done else 1


LATGEN_FASTER_BATCH_USAGE = """\
Generate lattices using nnet3 neural net model.  This version is optimized
for GPU-based inference.
Usage: nnet3-latgen-faster-batch [options] <nnet-in> <fst-in> <features-rspecifier> \
<lattice-wspecifier>
e.g.:
 nnet3-latgen-faster-batch --frame-subsampling-factor=3 --acoustic-scale=1.0 final.mdl HCLG.fst \\
   scp:feats.scp ark:lat.ark
"""


class LatgenFasterBatchOptions(LatgenOptions):
    batch: BatchDecodingOptions = option_group("", BatchDecodingOptions)
    num_threads: int = option(
        1, "Number of threads that search, besides the network's computation; results are the same"
    )
    device: CudaDeviceOptions = option_group("", CudaDeviceOptions)


@program(
    "nnet3-latgen-faster-batch", LATGEN_FASTER_BATCH_USAGE, LatgenFasterBatchOptions, num_args=4
)
def nnet3_latgen_faster_batch(options: LatgenFasterBatchOptions, args: list[str]) -> int:
    from nnet3tools.decoding.graph import DecodingGraph
    from nnet3tools.executor.utterance_computer import computer_together
    from nnet3tools.fst.files import load_fst
    from nnet3tools.recognizer.models import read_acoustic_model
    from nnet3tools.recognizer.utterances import InputPauses, utterances

    options.check()
    options.batch.check()
    device = options.device.choose()
    model, nnet, priors = read_acoustic_model(args[0])
    with naming(args[0]):
        computer = computer_together(nnet, options.batch, priors, like=device)
    options.cache.read(computer.compiler)
    latgen = _Latgen(model, options, options.batch.acoustic_scale, options.num_threads)
    counts = latgen.counts
    graph = DecodingGraph.of(load_fst(args[1]), model, args[1])
    counts.began = time.perf_counter()
    with contextlib.suppress(NothingDoneError):
        pauses = InputPauses()
        given = ((*each, graph) for each in utterances(args[2], options.inputs, counts, pauses))
        latgen.decode_all(args[3:], computer, given, pauses)
    computer.close(log_batches=True)
    return _report_batch(latgen, options.batch.frame_subsampling_factor, options.num_threads)


def _report_batch(latgen: _Latgen, factor: int, num_threads: int) -> int:
    """Log times and counts as Kaldi's batch program does, and return the exit status.

    `factor` is the number of input frames per output frame.
    """
    counts, totals = latgen.counts, latgen.totals
    frames = totals.num_frames
    average = totals.loglike / max(frames, 1)
    log.log(f"Overall likelihood per frame was {average:g} over {frames} frames.")
    seconds = counts.seconds
    log.log(
        f"Time taken {seconds:g}s: real-time factor assuming 100 frames/sec is "
        f"{num_threads * seconds * 100.0 / max(frames * factor, 1):g} (per thread; with "
        f"{num_threads} threads)."
    )
    log.log(
        f"Done {counts.done} utterances ({totals.num_partial} forced out); failed for "
        f"{counts.failed}"
    )
    return 0 if counts.done else 1

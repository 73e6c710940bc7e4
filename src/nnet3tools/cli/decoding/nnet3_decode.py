"""nnet3-decode: decodes sound to words with times and confidences."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from nnet3tools.cli.gpu import choose_cpu_kernels, cpu_kernels_option
from nnet3tools.cli.options import option, program
from nnet3tools.cli.recognizing import directory_words, is_graph, read_options
from nnet3tools.cli.sound_files import skipping, waves
from nnet3tools.errors import OptionError
from nnet3tools.io import log
from nnet3tools.recognizer.options import RecognizerOptions
from nnet3tools.recognizer.utterances import UtteranceCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nnet3tools.cli.live_decoding import Output
    from nnet3tools.recognizer.recognizer import Recognizer
    from nnet3tools.recognizer.results import Result
    from nnet3tools.recognizer.whole_files import Utterance, UtteranceQueue

USAGE = """Decode sound: words with times and confidences as text, CTM or JSON lines.
The model directory says how: docs/recognizer.md lists its files, nnet3-recognizer-info what is
there. Its model.conf has options of this program, which those of the command line override. If a
file that decides the result is missing, the program names it and does not decode.
A second argument that is a folder, a file *.fst or a file in OpenFst's format is the graph (the
folder has HCLG.fst, words.txt, and phones/align_lexicon.int and phones/silence.csl for exact
times); without it the graph is <model-dir>/graph.
With --stream=true sound is decoded as it comes: features, network and search go on with each piece.
Standard input (-) is then live: raw samples (--sample-rate, --sample-format) or a wave file. Its
utterances end by Kaldi's endpoint rules (--endpoint.*), and partial results are lines of JSON, too.
Files may also be FLAC, Ogg, MP3 or other WAV, which the package soundfile reads.

Usage: nnet3-decode [options] <model-dir> [<graph>] <wav-rspecifier>|<wav-file> [<wav-file> ...]
e.g.:
 nnet3-decode exp/chain one.wav two.wav
 arecord -q -t raw -f S16_LE -r 16000 | nnet3-decode --stream=true --format=json exp/chain -
 nnet3-decode --format=ctm exp/chain/tdnn exp/chain/tdnn/graph scp:data/test/wav.scp
See also: nnet3-recognizer-info, nnet3-latgen-faster
"""


class Options(RecognizerOptions):
    format: str = option(
        "text", "What is written: text (key and words), ctm, json, or vosk (JSON in Vosk's form)"
    )
    output: str = option("-", "Where to write it (wxfilename)")
    num_threads: int = option(
        1, "Number of threads that search whole utterances; results are the same"
    )
    cpu_kernels: str | None = cpu_kernels_option()

    def check(self) -> None:
        """OptionError if a value is unknown or options contradict each other."""
        if self.format not in ("text", "ctm", "json", "vosk"):
            raise OptionError(f"--format must be text, ctm, json or vosk, found {self.format}")
        super().check()


@program("nnet3-decode", USAGE, Options, num_args=(2, None), words_before=directory_words)
def main(options: Options, args: list[str]) -> int:
    from nnet3tools.cli.live_decoding import Output, decode_streams
    from nnet3tools.io.files import open_output
    from nnet3tools.recognizer.loading import load_recognizer

    options.check()
    choose_cpu_kernels(options.cpu_kernels)
    folder, graph, sources = args[0], None, args[1:]
    if is_graph(sources[0]):
        graph, sources = sources[0], sources[1:]
    if not sources:
        raise OptionError(f"expected sound after the graph {graph}, found no further argument")
    recognizer = load_recognizer(options, folder, graph, read_options)
    counts = UtteranceCounts()
    with open_output(options.output, binary=False) as writer:
        output = Output(writer, options.format)
        decode = decode_streams if options.stream else _decode_files
        seconds = decode(recognizer, options, sources, output, counts)
    factor = counts.seconds / seconds if seconds else float("nan")
    log.log(
        f"Time taken {counts.seconds:g}s for {seconds:g}s of sound: real-time factor {factor:g}"
    )
    log.log(f"Done {counts.done} utterances, failed for {counts.failed}")
    return 0 if counts.done else 1


def _decode_files(
    recognizer: Recognizer,
    options: Options,
    sources: list[str],
    output: Output,
    counts: UtteranceCounts,
) -> float:
    """Decode all `sources`, write to `output`, and count in `counts`; returns seconds of sound."""
    from nnet3tools.recognizer.in_order import InOrder
    from nnet3tools.recognizer.whole_files import UtteranceQueue

    queue, work, seconds = UtteranceQueue(recognizer), InOrder(options.num_threads), 0.0

    def take(utterance: Utterance, result: Callable[[], tuple[Result, float] | None]) -> None:
        nonlocal seconds
        found = None
        with skipping(utterance.key, counts):
            found = result()
            counts.failed += found is None
        if found is not None:
            output.write_result(utterance.key, *found)
            counts.done += 1
            seconds += utterance.duration

    for utterance in _utterances(queue, sources, counts):
        work.give(partial(queue.recognize, utterance, options.nbest), partial(take, utterance))
    work.finish()
    return seconds


def _utterances(
    queue: UtteranceQueue, sources: list[str], counts: UtteranceCounts
) -> Iterator[Utterance]:
    """Yield the utterances of `sources` as soon as `queue` has computed them; count faulty ones."""
    for key, samples, rate in waves(sources, counts):
        with skipping(key, counts):
            queue.accept(key, samples, rate)
        yield from queue.ready()
    queue.finish()
    yield from queue.ready()

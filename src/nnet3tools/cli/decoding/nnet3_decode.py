"""nnet3-decode: decodes sound to words with times and confidences."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nnet3tools.cli.gpu import choose_cpu_kernels, cpu_kernels_option
from nnet3tools.cli.options import option, program
from nnet3tools.cli.recognizing import directory_words, read_options
from nnet3tools.errors import DataError, OptionError, naming
from nnet3tools.io import log
from nnet3tools.recognizer.options import RecognizerOptions
from nnet3tools.recognizer.utterances import UtteranceCounts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nnet3tools.io.wave import Wave
    from nnet3tools.recognizer.recognizer import Recognizer, Utterance

USAGE = """Decode sound: words with times and confidences as text, CTM or JSON lines.
The model directory says how: docs/recognizer.md lists its files, nnet3-recognizer-info what is
there. Its model.conf has options of this program, which those of the command line override. If a
file that decides the result is missing, the program names it and does not decode.
A second argument that is a folder, a file *.fst or a file in OpenFst's format is the graph (the
folder has HCLG.fst, words.txt, and phones/align_lexicon.int and phones/silence.csl for exact
times); without it the graph is <model-dir>/graph.
With --stream=true sound is taken in pieces, as if it came from a microphone: features, network
(as a looped computation) and search go on with each piece.

Usage: nnet3-decode [options] <model-dir> [<graph>] <wav-rspecifier>|<wav-file> [<wav-file> ...]
e.g.:
 nnet3-decode exp/chain one.wav two.wav
 nnet3-decode --format=ctm exp/chain/tdnn exp/chain/tdnn/graph scp:data/test/wav.scp
See also: nnet3-recognizer-info, nnet3-latgen-faster
"""


@dataclass(frozen=True)
class Options(RecognizerOptions):
    """Options of nnet3-decode."""

    format: str = option("text", "What is written: text (key and words), ctm or json")
    output: str = option("-", "Where to write it (wxfilename)")
    cpu_kernels: str | None = cpu_kernels_option()

    def check(self) -> None:
        """OptionError if a value is unknown or options contradict each other."""
        if self.format not in ("text", "ctm", "json"):
            raise OptionError(f"--format must be text, ctm or json, found {self.format}")
        super().check()


@program("nnet3-decode", USAGE, Options, num_args=(2, None), words_before=directory_words)
def main(options: Options, args: list[str]) -> int:
    """Recognize sound with a model directory; writes words with times and confidences."""
    from nnet3tools.io.files import open_output
    from nnet3tools.recognizer.directory import is_graph
    from nnet3tools.recognizer.loading import load_recognizer
    from nnet3tools.recognizer.recognizer import text_of

    options.check()
    choose_cpu_kernels(options.cpu_kernels)
    folder, graph, sources = args[0], None, args[1:]
    if is_graph(sources[0]):
        graph, sources = sources[0], sources[1:]
    if not sources:
        raise OptionError(f"expected sound after the graph {graph}, found no further argument")
    recognizer = load_recognizer(options, folder, graph, read_options)
    counts, seconds = UtteranceCounts(), 0.0
    with open_output(options.output, binary=False) as writer:
        for utterance in _utterances(recognizer, sources, counts):
            try:
                with naming(f"utterance {utterance.key}"):
                    result = recognizer.recognize(utterance)
            except DataError as error:
                log.skipped(error)
                result = None
            if result is None:
                counts.failed += 1
                continue
            writer.write_text(text_of(utterance.key, result, options.format))
            counts.done += 1
            seconds += utterance.duration
    recognizer.report()
    factor = counts.seconds / seconds if seconds else float("nan")
    log.log(
        f"Time taken {counts.seconds:g}s for {seconds:g}s of sound: real-time factor {factor:g}"
    )
    log.log(f"Done {counts.done} utterances, failed for {counts.failed}")
    return 0 if counts.done else 1


def _utterances(
    recognizer: Recognizer, sources: list[str], counts: UtteranceCounts
) -> Iterator[Utterance]:
    """The utterances in `sources` that can be recognized; the rest is logged and counted."""
    for key, wave in _waves(sources, counts):
        try:
            with naming(f"utterance {key}"):
                recognizer.accept(key, wave)
        except DataError as error:
            log.skipped(error)
            counts.failed += 1
        yield from recognizer.ready()
    recognizer.finish()
    yield from recognizer.ready()


def _waves(sources: list[str], counts: UtteranceCounts) -> Iterator[tuple[str, Wave]]:
    """Pairs (key, sound) from tables and files; a file's key is its name without extension."""
    from pathlib import PurePath

    from nnet3tools.cli.tables import is_table, read_object
    from nnet3tools.io.table import SequentialTableReader
    from nnet3tools.io.wave import WAVE

    with contextlib.ExitStack() as stack:
        for source in sources:
            if is_table(source):
                yield from stack.enter_context(SequentialTableReader(source, WAVE))
                continue
            try:
                wave = read_object(source, WAVE)
            except DataError as error:
                log.skipped(error)
                counts.failed += 1
                continue
            yield PurePath(source).stem, wave

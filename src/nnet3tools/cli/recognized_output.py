"""The output of nnet3-decode: results and partial results in one of the formats."""

from nnet3tools.io.writer import Writer
from nnet3tools.recognizer.json_results import partial_text, result_text
from nnet3tools.recognizer.results import Partial, Result


class Output:
    """Writes results, each flushed at once."""

    def __init__(self, writer: Writer, form: str) -> None:
        """Make an output to `writer` in the format `form`: text, ctm, json or vosk."""
        self._writer, self._form = writer, form
        self.shows_partial = form in ("json", "vosk")
        """Whether partial results are written."""

    def write_result(self, key: str, result: Result, real_time_factor: float | None = None) -> None:
        """Write the result of utterance `key`; JSON has `real_time_factor` unless it is None."""
        self._write(result_text(key, result, self._form, real_time_factor))

    def write_partial(self, key: str, partial: Partial) -> None:
        """Write the partial result of utterance `key`."""
        self._write(partial_text(key, partial, self._form))

    def _write(self, text: str) -> None:
        self._writer.write_text(text)
        self._writer.flush()

"""nnet3-serve: recognizes the live sound of many clients."""

import gc

from nnet3tools.cli.gpu import choose_cpu_kernels, cpu_kernels_option
from nnet3tools.cli.options import option, option_group, program
from nnet3tools.cli.recognizing import directory_words, read_options
from nnet3tools.errors import OptionError
from nnet3tools.recognizer.options import RecognizerOptions
from nnet3tools.recognizer.server_options import ServerOptions

USAGE = """Serve live recognition by vosk-server's WebSocket protocol: sound in, JSON results out.
The model directory is that of nnet3-decode; clients of vosk-server work unchanged. The page / of
the server records from the microphone of a browser, /health tells whether the server works (JSON),
/metrics has counters for Prometheus. SIGTERM and SIGINT end the server after the last results.
Anybody who reaches the port can use it: --host=0.0.0.0 belongs behind a firewall or a proxy.

Usage: nnet3-serve [options] <model-dir> [<graph>]
e.g.:
 nnet3-serve exp/chain
 nnet3-serve --host=0.0.0.0 --tls-certificate=cert.pem --tls-key=key.pem exp/chain
See also: nnet3-decode --stream=true; docs/server.md
"""


class Options(RecognizerOptions):
    stream: bool = option(True, "Must be true: the server takes sound in pieces")
    sample_rate: float = option(
        0.0, "Sampling rate of clients that send none; 0: the one of the features"
    )
    nbest: int = option(0, "Number of alternatives in results for clients that ask for no number")
    allow_downsample: bool = option(
        True, "If true, accept sound with a higher sampling rate than the features' (resample it)"
    )
    server: ServerOptions = option_group("", ServerOptions)
    cpu_kernels: str | None = cpu_kernels_option()

    def check(self) -> None:
        """OptionError if a value is unknown or options contradict each other."""
        super().check()
        self.server.check()
        if not self.stream or self.sample_format != "int16":
            raise OptionError("the server needs --stream=true and --sample-format=int16")


@program("nnet3-serve", USAGE, Options, num_args=(1, 2), words_before=directory_words)
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.recognizer.loading import load_recognizer
    from nnet3tools.recognizer.server import serve

    options.check()
    choose_cpu_kernels(options.cpu_kernels)
    recognizer = load_recognizer(options, args[0], args[1] if args[1:] else None, read_options)
    recognizer.prepare_for_many_streams()
    # asyncio and websockets leave each connection that has ended, and the last message of one that
    # was cut off, in reference cycles. run_program's threshold would let 5000 connections gather.
    gc.freeze()  # excludes the recognizer from these collections
    gc.set_threshold(1000, 10, 10)
    serve(recognizer, options.server)

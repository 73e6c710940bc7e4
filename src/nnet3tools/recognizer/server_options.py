"""Options of the server. Only declarations: programs parse options before they load NumPy."""

from __future__ import annotations

from nnet3tools.errors import OptionError
from nnet3tools.options import OptionGroup, option


class ServerOptions(OptionGroup):
    """Options of the server: the address to listen at, and limits."""

    host: str = option("127.0.0.1", "Address to listen on; 0.0.0.0 is every IPv4 address")
    port: int = option(2700, "Port to listen on (0: any free port, which a LOG line names)")
    tls_certificate: str = option("", "File with the certificate chain in PEM form: serve TLS")
    tls_key: str = option("", "File with the certificate's private key in PEM form")
    sample_rate: float = option(
        0.0, "Sampling rate of clients that send none; 0: the one of the features"
    )
    nbest: int = option(0, "Number of alternatives in results for clients that ask for no number")
    max_streams: int = option(100, "Connections at a time; further ones are refused (code 1013)")
    max_message_bytes: int = option(
        1 << 20, "Bytes of a message; a client with a longer one is disconnected (code 1009)"
    )
    max_utterance_seconds: float = option(
        60.0, "Length of an utterance that is ended even if it has no end point"
    )
    handshake_timeout: float = option(
        30.0, "Seconds that a client has for the handshake, and then for its first message"
    )
    idle_timeout: float = option(
        300.0, "Seconds without a message after which a client is disconnected (code 1008)"
    )
    send_timeout: float = option(
        20.0, "Seconds that an answer may wait because the client does not read"
    )
    stop_timeout: float = option(
        10.0, "Seconds for the last results after SIGTERM or SIGINT, before connections are cut"
    )
    num_threads: int = option(8, "Streams that features, network and search work on at a time")

    def check(self) -> None:
        """OptionError if a value is impossible."""
        if not 0 <= self.port < 1 << 16:
            raise OptionError(f"--port must be from 0 to 65535, found {self.port}")
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise OptionError("TLS needs both --tls-certificate and --tls-key")
        for name in (
            "max_streams",
            "max_message_bytes",
            "max_utterance_seconds",
            "handshake_timeout",
            "idle_timeout",
            "send_timeout",
            "stop_timeout",
            "num_threads",
        ):
            if not getattr(self, name) > 0:
                raise OptionError(
                    f"--{name.replace('_', '-')} must be greater than 0, found "
                    f"{getattr(self, name)}"
                )
        if not 0.0 <= self.sample_rate < float("inf"):
            raise OptionError(f"--sample-rate must not be negative, found {self.sample_rate}")

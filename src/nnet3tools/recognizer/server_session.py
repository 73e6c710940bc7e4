"""One client of the server: receives sound and commands, sends results (vosk-server's protocol)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, Any

from nnet3tools.errors import DataError, UserError
from nnet3tools.io import log
from nnet3tools.recognizer.json_results import json_line, vosk_result
from nnet3tools.recognizer.results import Alternative, Result
from nnet3tools.recognizer.server_counters import Counters
from nnet3tools.recognizer.server_options import ServerOptions
from nnet3tools.recognizer.server_protocol import Command, StreamConfig, parse_text

if TYPE_CHECKING:
    from websockets.asyncio.server import ServerConnection

    from nnet3tools.recognizer.recognizer import Recognizer
    from nnet3tools.recognizer.stream import Stream

INVALID_DATA, POLICY, INTERNAL_ERROR, GOING_AWAY, TRY_AGAIN = 1007, 1008, 1011, 1001, 1013
"""Close codes of RFC 6455."""
_LONGEST_REASON = 120
"""Bytes of the reason in a close frame."""


class Disconnection(Exception):
    """Raised to end a connection; carries the reason and a WebSocket close code."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


async def disconnect(socket: ServerConnection, reason: Disconnection) -> None:
    """Send {"error": reason}, then close the connection with the reason's code."""
    await socket.send(_json({"error": str(reason)}))
    short = str(reason).encode()[:_LONGEST_REASON].decode(errors="ignore")
    await socket.close(reason.code, short)


class Session:
    """Recognizes the sound of one client; its messages are processed one after the other.

    While a message is processed, the server reads only a few more WebSocket frames. A client that
    sends sound faster than it is recognized therefore has to wait.
    """

    def __init__(
        self,
        socket: ServerConnection,
        recognizer: Recognizer,
        options: ServerOptions,
        pool: Executor,
        counters: Counters,
    ) -> None:
        self._socket, self._recognizer, self._options = socket, recognizer, options
        self._pool, self._counters = pool, counters
        rate = options.sample_rate or recognizer.sample_rate
        self._config = StreamConfig(rate, max_alternatives=options.nbest)
        self._stream: Stream | None = None
        self._utterance_seconds = 0.0
        self._has_received = self._is_stopping = False
        self._timer: asyncio.Timeout | None = None

    async def run(self) -> None:
        """Answer messages until the client or the server ends; Disconnection for client errors."""
        while (message := await self._receive()) is not None:
            if isinstance(message, bytes):
                self._counters.sound_seconds_total += self._seconds(message)
                await self._answer(partial(self._accept, message))
                continue
            command = self._parsed(message)
            if isinstance(command, Command):
                await self._answer(self._final)
                if command is Command.EOF:
                    return
        await self._answer(self._final)
        await self._socket.close(GOING_AWAY, "the server stops")

    def stop(self) -> None:
        """Make `run` process the messages that have arrived, send the last result, and return."""
        self._is_stopping = True
        if self._timer is not None:
            self._timer.reschedule(asyncio.get_running_loop().time())

    def cut(self) -> None:
        """End the connection at once, without a closing handshake."""
        self._socket.transport.abort()

    async def _receive(self) -> str | bytes | None:
        """The next message; None if the server stops; Disconnection if none comes in time."""
        options = self._options
        seconds = options.idle_timeout if self._has_received else options.handshake_timeout
        try:
            async with asyncio.timeout(0.0 if self._is_stopping else seconds) as self._timer:
                message = await self._socket.recv()
        except TimeoutError:
            if self._is_stopping:
                return None
            raise Disconnection(POLICY, f"no message came in {seconds:g} s") from None
        finally:
            self._timer = None
        self._has_received = True
        return message

    def _parsed(self, text: str) -> Command | None:
        """The command in a text message; None if the message changed the configuration instead."""
        try:
            found = parse_text(text, self._config)
            if isinstance(found, Command):
                return found
            self._recognizer.features.check_rate(found.sample_rate)
            if self._stream is not None and found.sample_rate != self._config.sample_rate:
                raise DataError(
                    f"config: sample_rate is {self._config.sample_rate:g} since the sound began: "
                    "it cannot change"
                )
        except DataError as error:
            raise Disconnection(INVALID_DATA, str(error)) from None
        if found.has_phrase_list and not self._config.has_phrase_list:
            log.warning(f"{self.name}: phrase_list is ignored: the model's graph has all phrases")
        self._config = found
        return None

    @property
    def name(self) -> str:
        """The client's address, for log lines."""
        return client_name(self._socket)

    async def _answer(self, work: Callable[[], tuple[str, int]]) -> None:
        """Send the answer of `work`, which runs in a thread of the pool.

        `work` returns (answer, the number of its words or -1 for a partial result).
        """
        began = time.perf_counter()
        loop = asyncio.get_running_loop()
        try:
            text, num_words = await loop.run_in_executor(self._pool, work)
        except UserError as error:
            raise Disconnection(INVALID_DATA, str(error)) from None
        self._counters.work_seconds_total += time.perf_counter() - began
        if num_words >= 0:
            self._counters.results_total += 1
            self._counters.words_total += num_words
        try:
            async with asyncio.timeout(self._options.send_timeout):
                await self._socket.send(text)
        except TimeoutError:
            self.cut()
            seconds = self._options.send_timeout
            raise Disconnection(POLICY, f"answers were not read for {seconds:g} s") from None

    # -- in a thread of the pool

    def _accept(self, data: bytes) -> tuple[str, int]:
        """Process sound; return (JSON answer, its number of words or -1 for a partial result)."""
        if self._stream is None:
            config = self._config
            self._stream = self._recognizer.stream(
                config.sample_rate, nbest=config.max_alternatives, name=self.name
            )
        self._utterance_seconds += self._seconds(data)
        is_long = self._utterance_seconds > self._options.max_utterance_seconds
        if not self._stream.accept(data) and not is_long:
            return _json({"partial": self._stream.partial().text}), -1
        self._utterance_seconds = 0.0
        results = [self._stream.result() for _ in range(max(1, self._stream.num_waiting))]
        return self._shown(results)

    def _final(self) -> tuple[str, int]:
        """End the utterance; return its result (JSON) and its number of words."""
        self._utterance_seconds = 0.0
        return self._shown([Result() if self._stream is None else self._stream.final()])

    def _seconds(self, data: bytes) -> float:
        return len(data) / 2 / self._config.sample_rate

    def _shown(self, results: list[Result]) -> tuple[str, int]:
        """(the JSON answer for the results of some utterances, joined; the number of its words)."""
        result = joined(results)
        if self._config.max_alternatives and not result.words and not result.alternatives:
            return _json({"alternatives": [{"text": "", "confidence": 1.0}]}), 0
        return _json(vosk_result(result, self._config.words)), len(result.words)


def _json(answer: dict[str, Any]) -> str:
    return json_line(answer).rstrip("\n")


def joined(results: list[Result]) -> Result:
    """Join the results of consecutive utterances into one result.

    If there are several, the only alternative consists of the best alternative of each.
    """
    if len(results) == 1:
        return results[0]
    best = [result.alternatives[0] for result in results if result.alternatives]
    words = tuple(word for part in best for word in part.words)
    alternatives = (Alternative(words, sum(part.loglike for part in best)),) if best else ()
    words = tuple(word for result in results for word in result.words)
    return Result(words, alternatives, results[0].start, results[-1].end)


def client_name(socket: ServerConnection) -> str:
    """The address and port of a client, for log lines."""
    address = socket.remote_address
    return f"client {address[0]}:{address[1]}" if address else "client"

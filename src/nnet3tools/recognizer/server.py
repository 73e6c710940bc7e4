"""The server of live recognition: many clients, one model in memory, WebSocket and plain HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import signal
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from importlib import resources
from typing import TYPE_CHECKING, Any

from nnet3tools.errors import DataError, install_command
from nnet3tools.io import log
from nnet3tools.recognizer.server_counters import Counters
from nnet3tools.recognizer.server_options import ServerOptions
from nnet3tools.recognizer.server_session import (
    INTERNAL_ERROR,
    TRY_AGAIN,
    Disconnection,
    Session,
    client_name,
    disconnect,
)

if TYPE_CHECKING:
    from nnet3tools.recognizer.recognizer import Recognizer

try:
    from websockets.asyncio.server import ServerConnection
    from websockets.asyncio.server import serve as serve_websockets
    from websockets.exceptions import ConnectionClosed, ConnectionClosedOK
    from websockets.http11 import Request, Response
except ImportError:
    raise DataError(
        f"the server needs the package websockets (14 or later): {install_command('server')}"
    ) from None

_MAX_QUEUE = 4
"""Frames of a client that are read before the frames that wait have been worked on."""
_SECONDS_BETWEEN_FAILURES = 60.0
_PAGES = {"/": ("index.html", "text/html"), "/recorder.js": ("recorder.js", "text/javascript")}


class Server:
    """Serves a recognizer to WebSocket clients until it is stopped."""

    def __init__(self, recognizer: Recognizer, options: ServerOptions) -> None:
        """Prepare the server without listening; DataError for TLS files that cannot be used."""
        self._recognizer, self._options = recognizer, options
        self._tls = _tls_context(options) if options.tls_certificate else None
        self._pool = ThreadPoolExecutor(options.num_threads, "stream")
        self._sessions: set[Session] = set()
        self._is_stopping = False
        self.counters = Counters()

    async def run(self, stop: asyncio.Event, port: asyncio.Future[int] | None = None) -> None:
        """Serve until `stop` is set; then send the last results. `port` gets the port's number.

        DataError if the server cannot listen on its address.
        """
        options = self._options
        asyncio.get_running_loop().set_exception_handler(_failure_logger())
        try:
            server = await serve_websockets(
                self._handle,
                options.host,
                options.port,
                ssl=self._tls,
                ssl_handshake_timeout=options.handshake_timeout if self._tls else None,
                process_request=self._http,
                compression=None,  # it would cost more time and memory than sound saves by it
                open_timeout=options.handshake_timeout,
                close_timeout=options.send_timeout,
                ping_timeout=None,  # a client that has to wait cannot answer; idle_timeout applies
                max_size=options.max_message_bytes,
                max_queue=_MAX_QUEUE,
                logger=_logger(),
            )
        except OSError as error:
            reason = error.strerror or error
            raise DataError(f"cannot listen on {options.host}:{options.port}: {reason}") from None
        number = next(iter(server.sockets)).getsockname()[1]
        scheme = "wss" if self._tls else "ws"
        log.log(f"Listening on {scheme}://{options.host}:{number} ({options.max_streams} streams)")
        if port is not None:
            port.set_result(number)
        await stop.wait()
        self._is_stopping = True
        log.log(f"Stopping: {len(self._sessions)} streams get their last results")
        server.close(close_connections=False)
        for session in self._sessions:
            session.stop()
        try:
            await asyncio.wait_for(server.wait_closed(), options.stop_timeout)
        except TimeoutError:
            log.warning(f"{len(self._sessions)} streams did not end in {options.stop_timeout:g} s")
            for session in self._sessions:
                session.cut()
            await server.wait_closed()
        self._pool.shutdown()

    async def _handle(self, socket: ServerConnection) -> None:
        """Serve one client until the connection ends; log an error as one WARNING line."""
        counters = self.counters
        counters.connections_total += 1
        try:
            await self._serve_client(socket)
        except Disconnection as reason:
            if reason.code == TRY_AGAIN:
                counters.refused_total += 1
            else:
                counters.faults_total += 1
            log.warning(f"{client_name(socket)}: {reason}")
            try:
                async with asyncio.timeout(self._options.send_timeout):
                    await disconnect(socket, reason)
            except (TimeoutError, ConnectionClosed):
                pass
        except ConnectionClosedOK:
            pass
        except ConnectionClosed as error:
            counters.faults_total += 1
            log.warning(f"{client_name(socket)}: {error}")
        except Exception as error:
            counters.failures_total += 1
            log.warning(f"{client_name(socket)}: internal error: {type(error).__name__}: {error}")
            await socket.close(INTERNAL_ERROR, "internal error")

    async def _serve_client(self, socket: ServerConnection) -> None:
        if len(self._sessions) >= self._options.max_streams:
            raise Disconnection(
                TRY_AGAIN, f"all {self._options.max_streams} streams are in use: try again later"
            )
        session = Session(socket, self._recognizer, self._options, self._pool, self.counters)
        self._sessions.add(session)
        self.counters.streams = len(self._sessions)
        try:
            await session.run()
        finally:
            self._sessions.discard(session)
            self.counters.streams = len(self._sessions)

    # -- plain HTTP

    def _http(self, socket: ServerConnection, request: Request) -> Response | None:
        """The answer to a plain HTTP request; None for a request to open a WebSocket."""
        if "Upgrade" in request.headers:
            return None
        path = request.path.partition("?")[0]
        if path in _PAGES:
            name, kind = _PAGES[path]
            page = resources.files("nnet3tools.recognizer") / "page" / name
            return _response(socket, HTTPStatus.OK, kind, page.read_text("utf-8"))
        if path == "/health":
            status = HTTPStatus.SERVICE_UNAVAILABLE if self._is_stopping else HTTPStatus.OK
            state = {
                "status": "stopping" if self._is_stopping else "ok",
                "streams": len(self._sessions),
                "max_streams": self._options.max_streams,
            }
            return _response(socket, status, "application/json", json.dumps(state) + "\n")
        if path == "/metrics":
            if (batches := self._recognizer.network.batches) is not None:
                self.counters.network_chunks_total = batches.num_chunks
                self.counters.network_minibatches_total = batches.num_minibatches
            return _response(socket, HTTPStatus.OK, "text/plain", self.counters.text())
        return _response(socket, HTTPStatus.NOT_FOUND, "text/plain", "not found\n")


def serve(recognizer: Recognizer, options: ServerOptions) -> None:
    """Run the server until SIGTERM or SIGINT; DataError if it cannot start."""

    async def run() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await Server(recognizer, options).run(stop)

    asyncio.run(run())


def _response(socket: ServerConnection, status: HTTPStatus, kind: str, text: str) -> Response:
    response = socket.respond(status, text)
    del response.headers["Content-Type"]
    response.headers["Content-Type"] = f"{kind}; charset=utf-8"
    return response


def _tls_context(options: ServerOptions) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(options.tls_certificate, options.tls_key)
    except (OSError, ssl.SSLError) as error:
        files = f"{options.tls_certificate}, {options.tls_key}"
        raise DataError(f"{files}: expected a certificate and its key: {error}") from None
    return context


def _failure_logger() -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """An exception handler for asyncio's event loop that logs each kind of error once a minute.

    An example is the lack of file descriptors, which asyncio meets a hundred times in a second.
    """
    logged: dict[str, float] = {}

    def log_failure(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        kind, error = context["message"], context.get("exception")
        if loop.time() - logged.get(kind, -math.inf) > _SECONDS_BETWEEN_FAILURES:
            logged[kind] = loop.time()
            log.warning(f"{kind}{f': {error}' if error else ''}")

    return log_failure


def _logger() -> logging.Logger:
    """The logger for the websockets library; its errors are logged as WARNING lines."""
    logger = logging.getLogger("nnet3tools.server")
    logger.propagate = False
    logger.setLevel(logging.WARNING)
    logger.handlers = [_OneLineHandler()]
    return logger


class _OneLineHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        """Log the message, the client's address and the exception in one line."""
        socket = getattr(record, "websocket", None)
        where = f"{client_name(socket)}: " if socket is not None else ""
        error = record.exc_info[1] if record.exc_info else None
        log.warning(f"{where}{record.getMessage()}{f': {error}' if error else ''}")

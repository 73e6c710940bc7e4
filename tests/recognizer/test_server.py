"""The server's protocol, limits and end, with a stand-in for the recognizer."""

import asyncio
import contextlib
import json
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

pytest.importorskip("websockets", reason="the extra [server] is not installed")

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from nnet3tools.recognizer.server import Server
from nnet3tools.recognizer.server_options import ServerOptions
from support.fake_recognizer import BAD, BUG, END, SLOW, FakeRecognizer, sound

EOF = '{"eof" : 1}'
HEAD = b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
OPEN = HEAD + b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n\r\n"


class Running:
    """A server that runs in this event loop."""

    def __init__(self, options: ServerOptions) -> None:
        self.recognizer = FakeRecognizer()
        self.server = Server(self.recognizer, options)  # type: ignore[arg-type]
        self.stop = asyncio.Event()
        self.port = 0

    def connect(self, **options: Any) -> connect:
        return connect(f"ws://127.0.0.1:{self.port}", close_timeout=1, **options)

    def get(self, path: str) -> Awaitable[tuple[int, str, str]]:
        """(status, content type, text) of a plain HTTP request."""
        return asyncio.to_thread(get, f"http://127.0.0.1:{self.port}{path}")


def get(url: str) -> tuple[int, str, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


def serving(test: Callable[[Running], Awaitable[None]], **options: Any) -> Running:
    """Run a server, and `test` with it; then stop the server, which must end."""

    async def run() -> Running:
        running = Running(ServerOptions(port=0, **options))
        port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(running.server.run(running.stop, port))
        running.port = await asyncio.wait_for(port, 10)
        try:
            await asyncio.wait_for(test(running), 30)
        finally:
            running.stop.set()
            await asyncio.wait_for(task, 10)
        return running

    return asyncio.run(run())


async def ask(client: ClientConnection, message: str | bytes) -> dict[str, Any]:
    """The answer to a message."""
    await client.send(message)
    return json.loads(await asyncio.wait_for(client.recv(), 10))


async def code_of(client: ClientConnection) -> tuple[int, str]:
    """The code with which the server closes the connection, and the last answer before."""
    last = ""
    try:
        while True:
            last = str(await asyncio.wait_for(client.recv(), 10))
    except ConnectionClosed as closed:
        return (closed.rcvd.code if closed.rcvd else 1006), last


def warnings(err: str) -> list[str]:
    assert "Traceback" not in err
    return [line.split(") ", 1)[1] for line in err.splitlines() if line.startswith("WARNING")]


# -- the protocol


def test_each_message_of_sound_gets_one_answer_and_eof_the_rest() -> None:
    async def test(running: Running) -> None:
        async with running.connect() as client:
            await client.send('{ "config" : { "sample_rate" : 8000 } }')
            assert await ask(client, sound(1, 2, rate=8000)) == {"partial": "w1 w2"}
            assert await ask(client, b"") == {"partial": "w1 w2"}
            answer = await ask(client, sound(END, rate=8000))
            assert answer["text"] == "w1 w2"
            assert [word["start"] for word in answer["result"]] == [0.0, 0.1]
            assert set(answer["result"][0]) == {"conf", "start", "end", "word"}
            assert await ask(client, sound(3, rate=8000)) == {"partial": "w3"}
            assert (await ask(client, EOF))["text"] == "w3"
            assert await code_of(client) == (1000, "")
        assert running.recognizer.rates == [8000.0]

    serving(test)


def test_settings_of_results(capfd) -> None:
    async def test(running: Running) -> None:
        config = {"words": 0, "phrase_list": ["one two"], "sample_rate": "16000", "unknown": 1}
        async with running.connect() as client:
            await client.send(json.dumps({"config": config}))
            assert await ask(client, sound(1)) == {"partial": "w1"}
            assert await ask(client, EOF) == {"text": "w1"}
        async with running.connect() as client:
            await client.send(json.dumps({"config": {"max_alternatives": 3}}))
            await ask(client, sound(1))
            assert [a["text"] for a in (await ask(client, EOF))["alternatives"]] == ["w1"] * 3

    serving(test)
    assert [w.split(": ")[1] for w in warnings(capfd.readouterr().err)] == [
        "phrase_list is ignored"
    ]


def test_reset_gives_the_result_and_the_connection_goes_on() -> None:
    async def test(running: Running) -> None:
        async with running.connect() as client:
            assert await ask(client, '{"reset":1}') == {"text": ""}
            await ask(client, sound(1))
            assert (await ask(client, '{"reset" : 1}'))["text"] == "w1"
            assert await ask(client, sound(2)) == {"partial": "w2"}
            assert (await ask(client, EOF))["text"] == "w2"

    serving(test)


def test_utterances_that_end_in_one_message_are_one_answer() -> None:
    async def test(running: Running) -> None:
        async with running.connect() as client:
            await client.send('{"config": {"max_alternatives": 2}}')
            answer = await ask(client, sound(1, END, 2, END, 3))
            assert [a["text"] for a in answer["alternatives"]] == ["w1 w2"]
            assert (await ask(client, EOF))["alternatives"][0]["text"] == "w3"

    serving(test)


def test_a_sample_cut_by_two_messages_is_whole() -> None:
    async def test(running: Running) -> None:
        async with running.connect() as client:
            data = sound(1, 2)
            assert await ask(client, data[:3201]) == {"partial": "w1"}
            assert await ask(client, data[3201:]) == {"partial": "w1 w2"}

    serving(test)


def test_an_utterance_without_an_end_point_is_ended() -> None:
    async def test(running: Running) -> None:
        async with running.connect() as client:
            answers = [await ask(client, sound(n, 0)) for n in range(1, 7)]
            texts = [answer.get("text") for answer in answers]
            assert texts == [None, None, "w1 w2 w3", None, None, "w4 w5 w6"]

    serving(test, max_utterance_seconds=0.5)


# -- plain HTTP


def test_health_counters_and_pages() -> None:
    async def test(running: Running) -> None:
        async with running.connect() as client:
            await ask(client, sound(1, 2, END))
            status, kind, text = await running.get("/health")
            assert (status, kind) == (200, "application/json; charset=utf-8")
            assert json.loads(text) == {"status": "ok", "streams": 1, "max_streams": 100}
            status, kind, text = await running.get("/metrics")
            values = dict(line.split() for line in text.splitlines() if line[0] != "#")
            assert values["nnet3_streams"] == values["nnet3_connections_total"] == "1"
            assert values["nnet3_words_total"] == "2"
            assert float(values["nnet3_sound_seconds_total"]) == pytest.approx(0.3)
            kinds = re.findall(r"^# TYPE (\w+) (\w+)$", text, re.M)
            assert all(name.endswith("_total") == (kind == "counter") for name, kind in kinds)
        assert (await running.get("/nothing"))[0] == 404
        for path in ("/", "/?x=1", "/recorder.js"):
            status, kind, text = await running.get(path)
            assert (status, "AudioWorklet" in text) == (200, True)

    serving(test)


# -- limits


def test_one_connection_too_many_is_refused_and_the_others_go_on(capfd) -> None:
    async def test(running: Running) -> None:
        async with running.connect() as first, running.connect() as second:
            await ask(first, sound(1))
            async with running.connect() as third:
                code, last = await code_of(third)
                assert code == 1013
                assert json.loads(last) == {"error": "all 2 streams are in use: try again later"}
            assert await ask(first, sound(2)) == {"partial": "w1 w2"}
            await ask(second, EOF)
        async with running.connect() as client:
            assert await ask(client, sound(5)) == {"partial": "w5"}

    running = serving(test, max_streams=2)
    assert running.server.counters.refused_total == 1
    assert len(warnings(capfd.readouterr().err)) == 1


@pytest.mark.parametrize("messages", [[], [b"", b""]])
def test_a_silent_client_is_disconnected(messages: list[bytes], capfd) -> None:
    async def test(running: Running) -> None:
        async with running.connect() as client:
            for message in messages:
                await ask(client, message)
            code, last = await code_of(client)
            assert (code, json.loads(last)["error"]) == (1008, "no message came in 1 s")

    serving(test, **{"idle_timeout" if messages else "handshake_timeout": 1.0})
    assert len(warnings(capfd.readouterr().err)) == 1


def test_a_client_that_is_too_fast_has_to_wait() -> None:
    async def test(running: Running) -> None:
        async with running.connect() as client:
            sent = 0

            async def send() -> None:
                nonlocal sent
                while True:
                    await client.send(sound(SLOW) + bytes(1 << 19))
                    sent += 1

            task = asyncio.create_task(send())
            await asyncio.sleep(1.0)
            task.cancel()
            # Five are worked on; the rest is in the queues of both sides and of the kernel.
            assert sent < 40
            assert (await running.get("/health"))[0] == 200

    serving(test)


def test_a_client_that_does_not_read_answers_is_disconnected(capfd) -> None:
    async def test(running: Running) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port, limit=1 << 10)
        writer.write(OPEN)
        await reader.readuntil(b"\r\n\r\n")
        data = sound(*range(100, 400))
        frame = b"\x82\xff" + len(data).to_bytes(8, "big") + bytes(4) + data

        async def flood() -> None:
            while True:
                writer.write(frame)
                await writer.drain()

        task = asyncio.create_task(flood())
        while not running.server.counters.faults_total:
            await asyncio.sleep(0.05)
        task.cancel()
        writer.close()

    serving(test, send_timeout=0.3)
    (line,) = warnings(capfd.readouterr().err)
    assert "answers were not read for 0.3 s" in line


# -- hostile and faulty clients

HOSTILE = {
    "no JSON": ("hello", 1007, "expected a JSON object, found 'hello'"),
    "empty": ("", 1007, "expected a JSON object, found nothing"),
    "deeply nested": ("[" * 60000, 1007, "expected a JSON object"),
    "nested in config": ('{"config": ' * 5000, 1007, "expected a JSON object"),
    "too long": ('{"config": {}}' + " " * 70000, 1007, "a text message of 70014 characters"),
    "no object": ("[1]", 1007, "expected {"),
    "config is no object": ('{"config": 5}', 1007, "expected {"),
    "eof is 0": ('{"eof": 0}', 1007, "expected {"),
    "rate is text": ('{"config": {"sample_rate": "fast"}}', 1007, "sample_rate must be a number"),
    "rate is NaN": ('{"config": {"sample_rate": NaN}}', 1007, "sample_rate must be a number"),
    "rate is infinite": ('{"config": {"sample_rate": "inf"}}', 1007, "must be a number"),
    "rate is huge": ('{"config": {"sample_rate": 1e300}}', 1007, "must be from 1000 to 400000"),
    "rate has many digits": ('{"config": {"sample_rate": %s}}' % ("9" * 4000), 1007, "a number"),
    "rate is negative": ('{"config": {"sample_rate": -16000}}', 1007, "found -16000"),
    "rate is 0": ('{"config": {"sample_rate": 0}}', 1007, "must be from 1000 to 400000, found 0"),
    "rate is prime": ('{"config": {"sample_rate": 16001}}', 1007, "cannot resample from 16001"),
    "rate is a list": ('{"config": {"sample_rate": [8000]}}', 1007, "must be a number"),
    "rate is true": ('{"config": {"sample_rate": true}}', 1007, "must be a number, found 'True'"),
    "alternatives": ('{"config": {"max_alternatives": 1e9}}', 1007, "from 0 to 100"),
    "half an alternative": ('{"config": {"max_alternatives": 0.5}}', 1007, "from 0 to 100"),
    "model": ('{"config": {"model": "/etc"}}', 1007, "one model"),
    "rate changes": ('{"config": {"sample_rate": 8000}}', 1007, "sample_rate is 16000 since"),
    "oversized frame": (bytes(2 << 20), 1009, ""),
    "bad sound": (sound(BAD), 1007, "bad sound"),
    "bug": (sound(BUG), 1011, ""),
}


def test_faulty_clients_are_told_and_do_not_disturb_others(capfd) -> None:
    async def talk(client: ClientConnection, stop: asyncio.Event) -> tuple[list[str], int]:
        """Send word after word; returns the words of results and the number sent."""
        words, sent = [], 0
        while not stop.is_set() or sent % 4:
            sent += 1
            answer = await ask(client, sound(sent, END if sent % 4 == 0 else 0))
            words += answer.get("text", "").split()
            await asyncio.sleep(0.002)
        return words, sent

    async def test(running: Running) -> None:
        stop = asyncio.Event()
        async with running.connect() as normal:
            task = asyncio.create_task(talk(normal, stop))
            for name, (message, code, error) in HOSTILE.items():
                async with running.connect() as client:
                    await ask(client, sound(7))  # sound before any configuration
                    await client.send(message)
                    found, last = await code_of(client)
                    assert found == code, name
                    assert error in (json.loads(last)["error"] if error else ""), name
            stop.set()
            words, sent = await task
            assert words == [f"w{n + 1}" for n in range(sent)]

    running = serving(test)
    lines = warnings(capfd.readouterr().err)
    assert len(lines) == len(HOSTILE)
    counters = running.server.counters
    assert (counters.faults_total, counters.failures_total) == (len(HOSTILE) - 1, 1)


NO_HANDSHAKE = {
    "other protocol": b"SSH-2.0-OpenSSH_9.2p1\r\n\r\n",
    "binary": bytes(range(256)) * 20,
    "long line": b"GET /" + b"a" * 100_000,
    "many headers": b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 1000 + b"\r\n",
    "no key": HEAD + b"Sec-WebSocket-Version: 13\r\n\r\n",
    "post": b"POST / HTTP/1.1\r\nHost: x\r\n\r\n",
    "nothing": b"",
    "half a request": b"GET / HTTP",
}


@pytest.mark.parametrize("name", NO_HANDSHAKE)
def test_what_is_no_handshake_ends_in_one_line(name: str, capfd) -> None:
    async def test(running: Running) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(NO_HANDSHAKE[name])
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(1 << 20), 5)
        writer.close()
        async with running.connect() as client:
            assert await ask(client, sound(1)) == {"partial": "w1"}

    serving(test, handshake_timeout=0.5)
    assert len(warnings(capfd.readouterr().err)) <= 1


def test_bad_frames_end_only_their_own_connection(capfd) -> None:
    async def test(running: Running) -> None:
        for frame in (b"\xff\xff" * 20, b"\x82\x05abcde", b"\x81\x82abcd\xff\xff"):
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            key = (
                b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n\r\n"
            )
            writer.write(HEAD + key)
            await reader.readuntil(b"\r\n\r\n")
            writer.write(frame)
            await asyncio.wait_for(reader.read(), 5)
            writer.close()

    serving(test)
    assert len(warnings(capfd.readouterr().err)) == 3


def test_clients_that_vanish_leave_nothing(capfd) -> None:
    async def test(running: Running) -> None:
        for _ in range(10):
            client = await running.connect()
            await client.send(sound(SLOW))
            client.transport.abort()
        while running.server.counters.streams or running.server.counters.connections_total < 10:
            await asyncio.sleep(0.05)

    serving(test, max_streams=10)
    assert len(warnings(capfd.readouterr().err)) == 10


# -- the end


def test_streams_get_their_last_results_when_the_server_stops() -> None:
    async def test(running: Running) -> None:
        async with running.connect() as waiting, running.connect() as working:
            await ask(waiting, sound(1, 2))
            await working.send(sound(SLOW, 3))
            await working.send(sound(4))
            while running.server.counters.sound_seconds_total < 0.35:  # the first has begun
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            running.stop.set()
            answers = [json.loads(await working.recv()) for _ in range(3)]
            assert [answer.get("text") for answer in answers] == [None, None, "w3 w4"]
            code, last = await code_of(waiting)
            assert (code, json.loads(last)["text"]) == (1001, "w1 w2")
            with pytest.raises(ConnectionRefusedError):
                await running.connect()

    serving(test)


def test_a_client_that_goes_on_sending_does_not_hold_the_server_up(capfd) -> None:
    async def test(running: Running) -> None:
        client = await running.connect()

        async def send() -> None:
            with contextlib.suppress(ConnectionClosed):
                while True:
                    await client.send(sound(SLOW))

        task = asyncio.create_task(send())
        await asyncio.sleep(0.2)
        running.stop.set()
        await asyncio.wait_for(task, 5)

    serving(test, stop_timeout=0.5)
    assert "1 streams did not end in 0.5 s" in warnings(capfd.readouterr().err)


def test_an_address_in_use_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        options = ServerOptions(port=taken.getsockname()[1])
        with pytest.raises(Exception, match=r"cannot listen on 127\.0\.0\.1:"):
            asyncio.run(Server(FakeRecognizer(), options).run(asyncio.Event()))  # type: ignore[arg-type]


def test_a_failure_that_repeats_is_logged_once(capfd) -> None:
    async def test(running: Running) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(100):
            loop.call_exception_handler({"message": "no file left", "exception": OSError(24, "x")})

    serving(test)
    assert warnings(capfd.readouterr().err) == ["no file left: [Errno 24] x"]

"""nnet3-serve under load: real-time streams; connections opened, closed and killed beside them.

usage: python benchmarks/server.py [--streams 24] [--seconds 60] [--churn 1000] [--kills 200]
           MODEL_DIR WAV [WAV...]

Every stream plays the files one after the other in real time, in pieces of 0.2 s, with a pause of
one second after each. Its words have to be those of a stream that the server had for itself. While
the last number of streams plays, other connections are opened and closed (--churn) and cut off in
the middle (--kills).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import time
import wave
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from processes import ours
from websockets.asyncio.client import connect

PIECE = 0.2
PAUSE = 1.0


@dataclass
class Load:
    """The answers and times that the clients of one run have seen."""

    lags: list[float] = field(default_factory=list)
    """Seconds from sending a piece to its answer."""
    finals: list[float] = field(default_factory=list)
    """Seconds from sending the end of a file to its last result."""
    num_words: int = 0
    num_lost: int = 0
    """Words of files whose result differs from that of a stream alone."""
    memory: list[float] = field(default_factory=list)
    """Resident memory of the server in MB, once a second."""
    cpu: float = 0.0
    """Seconds of processor time of the server."""
    sound: float = 0.0
    """Seconds of sound."""


class Serving:
    """A running server."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process, self.url = process, f"ws://127.0.0.1:{port}"

    @property
    def megabytes(self) -> float:
        """Resident memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024

    @property
    def cpu_seconds(self) -> float:
        """Processor time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def serving(options: list[str], model: str) -> AsyncIterator[Serving]:
    """A server in a process of its own, which has to end with status 0."""
    command = ours("nnet3-serve", "--port=0", "--max-streams=1000", *options, model)
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    assert process.stderr
    log = ""
    while not (found := re.search(r"Listening on \S+:(\d+)", log)):
        line = (await process.stderr.readline()).decode()
        if not line:
            raise SystemExit(f"the server did not start:\n{log}")
        log += line
    drain = asyncio.create_task(process.stderr.read())
    try:
        yield Serving(process, int(found[1]))
    finally:
        process.send_signal(signal.SIGTERM)
        warnings = (await drain).decode().count("WARNING")
        print(f"the server ended with status {await process.wait()}, {warnings} WARNING lines")


def read_sound(path: str) -> tuple[int, bytes]:
    """(sampling rate, samples with a pause after them) of a wave file with 16 bits, one channel.

    The pause repeats the noise of the file's first 0.2 s.
    """
    with wave.open(path, "rb") as file:
        rate = file.getframerate()
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    noise = samples[: rate // 5]
    pause = np.resize(np.concatenate([noise[::-1], noise]), int(PAUSE * rate))
    return rate, np.concatenate([samples, pause]).tobytes()


async def recognize(
    server: Serving, sound: tuple[int, bytes], load: Load, real_time: bool = True
) -> list[str]:
    """The words of one file, which a connection of its own plays."""
    rate, data = sound
    size = 2 * int(PIECE * rate)
    words: list[str] = []
    async with connect(server.url, compression=None, ping_interval=None) as client:
        await client.send(json.dumps({"config": {"sample_rate": rate}}))
        began = time.perf_counter()
        for number, begin in enumerate(range(0, len(data), size)):
            if real_time:
                await asyncio.sleep(began + number * PIECE - time.perf_counter())
            sent = time.perf_counter()
            await client.send(data[begin : begin + size])
            words += json.loads(await client.recv()).get("text", "").split()
            load.lags.append(time.perf_counter() - sent)
        sent = time.perf_counter()
        await client.send('{"eof" : 1}')
        words += json.loads(await client.recv())["text"].split()
        load.finals.append(time.perf_counter() - sent)
    return words


async def watch(server: Serving, load: Load) -> None:
    """Note the memory of the server once a second."""
    while True:
        load.memory.append(server.megabytes)
        await asyncio.sleep(1.0)


async def play(
    server: Serving,
    sounds: list[tuple[int, bytes]],
    expected: list[list[str]],
    load: Load,
    streams: int,
    seconds: float,
) -> None:
    """Let streams play files in real time, each for about this time."""
    end = time.perf_counter() + seconds

    async def stream(number: int) -> None:
        await asyncio.sleep(PIECE * number / streams)
        turn = number * 7
        while time.perf_counter() < end:
            turn += 1
            i = turn % len(sounds)
            words = await recognize(server, sounds[i], load)
            load.sound += len(sounds[i][1]) / 2 / sounds[i][0]
            load.num_words += len(expected[i])
            load.num_lost += len(expected[i]) if words != expected[i] else 0

    watching = asyncio.create_task(watch(server, load))
    before = server.cpu_seconds
    await asyncio.gather(*(stream(number) for number in range(streams)))
    load.cpu = server.cpu_seconds - before
    watching.cancel()


async def churn(server: Serving, sound: tuple[int, bytes], count: int, kills: bool) -> None:
    """Open connections, ten at a time, send a piece, and close them or cut them off."""
    gate = asyncio.Semaphore(10)
    rate, data = sound

    async def once() -> None:
        async with gate:
            client = await connect(server.url, compression=None, ping_interval=None)
            await client.send(json.dumps({"config": {"sample_rate": rate}}))
            await client.send(data[: rate // 2])
            if kills:
                client.transport.abort()
                return
            await client.recv()
            await client.close()

    await asyncio.gather(*(once() for _ in range(count)))


async def disturb(server: Serving, sound: tuple[int, bytes], args: argparse.Namespace) -> None:
    """Open, close and kill connections, ten at a time."""
    await asyncio.sleep(args.seconds / 3)
    for count, kills in ((args.churn, False), (args.kills, True)):
        if count:
            before, began = server.megabytes, time.perf_counter()
            await churn(server, sound, count, kills)
            took = time.perf_counter() - began
            print(
                f"{count} connections {'killed' if kills else 'opened and closed'} in "
                f"{took:.1f} s: memory {before:.0f} to {server.megabytes:.0f} MB"
            )


def describe(title: str, load: Load, seconds: float) -> None:
    """Print one line about a run."""
    lags, finals = 1000 * np.array(load.lags), 1000 * np.array(load.finals)
    memory = " ".join(f"{load.memory[i * (len(load.memory) - 1) // 6]:.0f}" for i in range(7))
    print(
        f"{title}: piece to answer p50 {np.percentile(lags, 50):.0f} ms, p99 "
        f"{np.percentile(lags, 99):.0f} ms, max {lags.max():.0f} ms; end to last result p50 "
        f"{np.percentile(finals, 50):.0f} ms, p99 {np.percentile(finals, 99):.0f} ms; words "
        f"{load.num_words}, in results that differ {load.num_lost}; server "
        f"{load.cpu / seconds:.2f} cores, {1000 * load.cpu / load.sound:.1f} ms for a second of "
        f"sound, memory at equal intervals {memory} MB, at most {max(load.memory):.0f}",
        flush=True,
    )


async def run(args: argparse.Namespace) -> None:
    """Run all parts and print what was measured."""
    sounds = [read_sound(path) for path in args.waves]
    print(f"load before: {os.getloadavg()[0]:.1f}")
    async with serving(args.option, args.model) as server:
        alone = Load()
        expected = [await recognize(server, sound, alone, real_time=False) for sound in sounds]
        print(f"{len(sounds)} files, {sum(map(len, expected))} words; {server.megabytes:.0f} MB")
        numbers = [int(number) for number in args.streams.split(",")]
        for streams in numbers:
            load, began = Load(), time.perf_counter()
            others = asyncio.create_task(
                disturb(server, sounds[0], args) if streams == numbers[-1] else asyncio.sleep(0)
            )
            await play(server, sounds, expected, load, streams, args.seconds)
            describe(f"{streams} streams", load, time.perf_counter() - began)
            await others
        again = [await recognize(server, sound, alone, real_time=False) for sound in sounds[:10]]
        print(f"afterwards the words are {'equal' if again == expected[:10] else 'DIFFERENT'}")
    print(f"load after: {os.getloadavg()[0]:.1f}")


def main() -> None:
    """Measure a server for one model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", default="24", help="numbers of streams, such as 8,16,32")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--churn", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--option", action="append", default=[], help="an option of nnet3-serve")
    parser.add_argument("model")
    parser.add_argument("waves", nargs="+", metavar="wav")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()

"""The page that records from the microphone, in Chromium with a wave file as microphone."""

import asyncio
import wave
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("websockets", reason="the extra [server] is not installed")

from nnet3tools.recognizer.results import Word
from nnet3tools.recognizer.server import Server
from nnet3tools.recognizer.server_options import ServerOptions
from support.chromium import CHROMIUM, browsing
from support.fake_recognizer import FakeRecognizer, FakeStream

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on PATH"),
]


class LoudStream(FakeStream):
    """Makes the word "loud" of each half second of sound that is loud; silence ends utterances."""

    samples = np.zeros(0, np.int16)

    def accept(self, data: bytes) -> bool:
        self.samples = np.concatenate([self.samples, np.frombuffer(data, "<i2")])
        size = int(self.rate / 2)
        while len(self.samples) >= size:
            block, self.samples = self.samples[:size], self.samples[size:]
            begin = self.num_samples / self.rate
            self.num_samples += size
            if np.abs(block.astype(float)).max() > 3000:
                self.words.append(Word("loud", begin, begin + 0.5, 0.6))
            elif self.words:
                self._end()
        return bool(self.finished)


class LoudRecognizer(FakeRecognizer):
    def stream(self, sample_rate: float, nbest: int = 0, name: str = "") -> FakeStream:
        self.rates.append(sample_rate)
        return LoudStream(sample_rate, nbest)


def test_the_page_shows_partial_results_and_results(tmp_path: Path) -> None:
    time = np.arange(6 * 16000) / 16000
    tone = 9000 * np.sin(2 * np.pi * 440 * time) * (time % 3 < 1.5)
    with wave.open(str(tmp_path / "tone.wav"), "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes(tone.astype("<i2").tobytes())

    async def run() -> None:
        recognizer, stop = LoudRecognizer(), asyncio.Event()
        server = Server(recognizer, ServerOptions(port=0))  # type: ignore[arg-type]
        port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(server.run(stop, port))
        url = f"http://127.0.0.1:{await port}/"
        async with browsing(url, tmp_path / "profile", tmp_path / "tone.wav") as page:
            await page.wait_for(
                "document.readyState === 'complete' && !!document.getElementById('record')"
            )
            await page.value("document.getElementById('record').click()")
            await page.wait_for("partial.textContent.startsWith('loud')")
            await page.wait_for("results.children.length >= 2")
            assert "recording at" in await page.value("statusLine.textContent")
            assert (await page.value("results.children[0].textContent")).endswith("loud ")
            assert await page.value("results.querySelectorAll('span.unsure').length") > 0
            await page.value("document.getElementById('record').click()")
            await page.wait_for("button.textContent === 'Record'")
            assert await page.value("statusLine.textContent") == ""
            assert recognizer.rates == [await page.value("new AudioContext().sampleRate")]
        stop.set()
        await asyncio.wait_for(task, 20)
        assert server.counters.faults_total == 0

    asyncio.run(run())


def test_the_page_tells_why_the_server_refuses(tmp_path: Path) -> None:
    """Partial and result are unused here: the only stream of the server is in use."""
    with wave.open(str(tmp_path / "silence.wav"), "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes(bytes(32000))

    async def run() -> None:
        from websockets.asyncio.client import connect

        stop = asyncio.Event()
        server = Server(FakeRecognizer(), ServerOptions(port=0, max_streams=1))  # type: ignore[arg-type]
        port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(server.run(stop, port))
        address = f"127.0.0.1:{await port}/"
        async with (
            connect(f"ws://{address}"),
            browsing(f"http://{address}", tmp_path / "profile", tmp_path / "silence.wav") as page,
        ):
            await page.wait_for(
                "document.readyState === 'complete' && !!document.getElementById('record')"
            )
            await page.value("document.getElementById('record').click()")
            await page.wait_for("statusLine.textContent.startsWith('all 1 streams are in use')")
            assert await page.value("button.textContent") == "Record"
        stop.set()
        await asyncio.wait_for(task, 20)

    asyncio.run(run())

"""Headless Chromium, driven over its debugging protocol."""

import asyncio
import contextlib
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update --remote-debugging-port=0 "
    "--use-fake-ui-for-media-stream --use-fake-device-for-media-stream"
).split()


class Page:
    """A page of the browser."""

    def __init__(self, socket: Any) -> None:
        self._socket, self._number = socket, 0

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a method of the debugging protocol."""
        self._number += 1
        await self._socket.send(
            json.dumps({"id": self._number, "method": method, "params": parameters})
        )
        while True:
            answer = json.loads(await self._socket.recv())
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    async def value(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        found = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, userGesture=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def wait_for(self, expression: str, seconds: float = 20.0) -> Any:
        """The value of an expression when it is true."""
        async with asyncio.timeout(seconds):
            while not (value := await self.value(expression)):
                await asyncio.sleep(0.05)
        return value


@contextlib.asynccontextmanager
async def browsing(url: str, profile: Path, sound: Path) -> AsyncIterator[Page]:
    """A page at `url` in a new browser whose microphone plays the wave file `sound`."""
    from websockets.asyncio.client import connect

    assert CHROMIUM
    command = [
        CHROMIUM, *_FLAGS, f"--use-file-for-fake-audio-capture={sound}",
        f"--user-data-dir={profile}", url,
    ]  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        port_file = profile / "DevToolsActivePort"
        async with asyncio.timeout(60):
            while not (port_file.exists() and (words := port_file.read_text().split())):
                await asyncio.sleep(0.05)
        async with connect(f"ws://127.0.0.1:{words[0]}{words[1]}", max_size=None) as socket:
            browser = Page(socket)
            async with asyncio.timeout(60):
                while True:
                    targets = (await browser.call("Target.getTargets"))["targetInfos"]
                    pages = [t["targetId"] for t in targets if t["type"] == "page"]
                    if pages:
                        break
                    await asyncio.sleep(0.05)
        page_url = f"ws://127.0.0.1:{words[0]}/devtools/page/{pages[0]}"
        async with connect(page_url, max_size=None) as socket:
            yield Page(socket)
    finally:
        process.terminate()
        await process.wait()

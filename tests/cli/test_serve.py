"""nnet3-serve as a process: docs/server.md's commands and client, TLS, its end and its errors."""

import contextlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.programs import run
from support.tiny_recognizer import write_recognizer, write_wave

pytest.importorskip("websockets", reason="the extra [server] is not installed")
pytest.importorskip("kaldi_native_fbank", reason="the extra [server] is not installed")

PAGE = (Path(__file__).parents[2] / "docs/server.md").read_text()
COMMANDS = re.findall(r"^nnet3-serve .*", PAGE, re.M)
CLIENT = re.search(r"```python\n(.*?)```", PAGE, re.S)

BEAM = "--lattice-beam=0.3"
"""Random models make large lattices, which tests determinize in Python."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the model exp/chain and one.wav."""
    monkeypatch.chdir(tmp_path)
    write_recognizer(Path("exp/chain"))
    write_wave(Path("one.wav"), 1.0)
    return tmp_path


@contextlib.contextmanager
def serving(*words: str) -> Iterator[str]:
    """The URL of a server; SIGTERM then has to end it with status 0, without a traceback."""
    command = [sys.executable, "-m", "nnet3tools.cli", "nnet3-serve", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        log = ""
        try:
            while not (found := re.search(r"Listening on (wss?://\S+)", log)):
                line = process.stderr.readline()
                assert line, log
                log += line
            yield found[1]
            process.send_signal(signal.SIGTERM)
            log += process.stderr.read()
            assert process.wait(30) == 0, log
        finally:
            process.kill()
    assert "Traceback" not in log
    assert "Stopping: 0 streams get their last results" in log


def words_of_page(command: str) -> list[str]:
    """The arguments of a command of the page, but on a free port of this machine."""
    words = shlex.split(command.partition(" #")[0])[1:]
    return [*words[:-1], "--port=0", "--host=127.0.0.1", BEAM, words[-1]]


def test_the_page_s_server_and_client_give_nnet3_decode_s_words(folder: Path, capfd) -> None:
    assert run("nnet3-decode", "--stream=true", BEAM, "exp/chain", "one.wav") == 0
    words = capfd.readouterr().out.split()[1:]
    assert words
    assert CLIENT
    Path("client.py").write_text(CLIENT[1])
    with serving(*words_of_page(COMMANDS[0])) as url:
        client = [sys.executable, "client.py", url, "one.wav"]
        done = subprocess.run(client, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == words


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl on PATH")
def test_the_page_s_server_with_tls(folder: Path) -> None:
    import ssl

    from websockets.exceptions import InvalidMessage
    from websockets.sync.client import connect

    make = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -days 2"
    made = [*make.split(), "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(made, check=True, capture_output=True)
    context = ssl.create_default_context(cafile="cert.pem")
    context.check_hostname = False
    with serving(*words_of_page(COMMANDS[1])) as url:
        with connect(url, ssl=context) as client:
            client.send('{"eof" : 1}')
            assert client.recv() == '{"text": ""}'
        with pytest.raises(InvalidMessage), connect(url.replace("wss", "ws")):
            pass


def test_what_cannot_be_served_is_one_line(folder: Path, capfd, monkeypatch) -> None:
    def refusal(*words: str) -> str:
        assert run("nnet3-serve", *words, "exp/chain") == 255
        err = capfd.readouterr().err
        assert "Traceback" not in err
        return next(line for line in err.splitlines() if line.startswith("ERROR"))

    assert "--port must be from 0 to 65535, found 70000" in refusal("--port=70000")
    assert "TLS needs both --tls-certificate and --tls-key" in refusal("--tls-key=x")
    assert "--max-streams must be greater than 0, found 0" in refusal("--max-streams=0")
    assert "expected a certificate and its key" in refusal("--tls-key=x", "--tls-certificate=x")
    assert "cannot listen on 203.0.113.1:0:" in refusal("--host=203.0.113.1", "--port=0")
    assert "not with --stream=true" in refusal("--cmvn=utterance")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "websockets.asyncio.server", None)
        patch.delitem(sys.modules, "nnet3tools.recognizer.server")
        assert "needs the package websockets" in refusal()
    Path("exp/chain/graph/phones/silence.csl").unlink()
    assert "silence.csl" in refusal()

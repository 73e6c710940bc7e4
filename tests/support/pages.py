"""Markdown pages as tests: their commands run in order, and print what the pages show.

A fenced block has a language. `<!-- test: WORDS -->` above it changes what is done with it.

sh      One shell script; every command must succeed. Words: `slow` (run with --slow only), `parse`
        (options and program names are checked, the commands do not run; `parse PROGRAM ...` does
        so for these programs only), `status=N` (the expected exit status).
python  Runs; the blocks of a page share one namespace. Words: `slow`.
text    What the block above prints; `...` stands for any text, on a line of its own for any lines.
        Word: `log` (the block above prints it to standard error).
config  Lines of a network, which are read. Lines of a whole network are built.

Words for blocks of any language: `file=NAME` (written to this file, for the blocks below),
`in TEST` (a path: this test reads the block), `shown` (neither a command nor an output).
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from nnet3tools.cli.programs import PROGRAMS, main_of
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.config_reader import make_component
from nnet3tools.nnet.nnet import Nnet

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
LANGUAGES = {"sh", "python", "text", "config", "xconfig", "json", "mermaid"}

_BLOCK = re.compile(
    r"(?:^<!-- test: (?P<words>[^>]*?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.S | re.M,
)
_SEPARATORS = {"|", "||", "&&", ";", "&"}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str
    words: tuple[str, ...]
    """The words of its comment `<!-- test: WORDS -->`."""

    @property
    def place(self) -> str:
        """Page and line, for messages."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def value(self, key: str) -> str | None:
        """The value of `key=VALUE` among the words; None if there is none."""
        found = [word.partition("=")[2] for word in self.words if word.startswith(f"{key}=")]
        return found[0] if found else None

    @property
    def commands(self) -> list[str]:
        """The lines of a script, without comments; continued lines are joined."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line for line in lines if line.strip() and not line.startswith("#")]

    @property
    def is_output(self) -> bool:
        """Whether the block shows what the block above prints."""
        return self.language == "text" and self.words[:1] in ((), ("log",))

    @property
    def is_run(self) -> bool:
        """Whether the block is a script or code that this module runs or parses."""
        return self.language in ("sh", "python") and not {"in", "shown"} & set(self.words[:1])


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text()
    return [
        Block(
            page,
            text.count("\n", 0, found.start("language")) + 1,
            found["language"],
            found["text"],
            tuple((found["words"] or "").split()),
        )
        for found in _BLOCK.finditer(text)
    ]


def simple_commands(command: str) -> Iterator[list[str]]:
    """The words of each command of a pipeline or list, without redirections."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    words: list[str] = []
    skip = False
    for word in [*lexer, ";"]:
        if word in _SEPARATORS:
            yield words
            words = []
        elif skip or set(word) <= set("<>&"):
            skip = not skip
        else:
            words.append(word)


def parse_command(command: str) -> None:
    """Check the options of this toolkit's programs in a command, and paths of other programs."""
    for words in simple_commands(command):
        while words and re.match(r"\w+=", words[0]):
            del words[0]
        if not words:
            continue
        name = words[0].rpartition("/")[2]
        if name in PROGRAMS:
            with mock.patch.dict(os.environ):  # --no-commands sets a variable
                main_of(name).command_line.parse(words[1:])
        elif words[0].startswith(("bin/", "tests/", "benchmarks/", "egs/")):
            assert (ROOT / words[0]).exists(), command
        else:
            assert not name.startswith(("nnet3-", "chain-")), f"unknown program: {command}"


def matches(expected: str, found: str) -> bool:
    """Whether a shown output stands for a found one; `...` stands for any text or any lines."""
    pattern = ""
    for line in expected.splitlines():
        in_line = ".*?".join(map(re.escape, line.split("..."))) + "\n"
        pattern += "(?:.*\n)*?" if line.strip() == "..." else in_line
    return re.fullmatch(pattern, found) is not None


class PageRunner:
    """Runs the blocks of a page in `folder`, which is the working directory."""

    def __init__(self, folder: Path, run_slow: bool) -> None:
        self._folder, self._run_slow = folder, run_slow
        self.names: dict[str, object] = {}
        self._printed: str | None = ""
        self._log = ""

    def run(self, block: Block) -> None:
        """Run, check or write a block."""
        words = block.words
        if (name := block.value("file")) is not None:
            path = self._folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        if words[:1] == ("in",):
            assert block.page.name in (ROOT / words[1]).read_text(), block.place
        elif block.is_output:
            self._compare(block)
        elif "slow" in words and not self._run_slow:
            self._printed = None
        elif block.is_run:
            self._run_script(block) if block.language == "sh" else self._run_code(block)
        elif block.language == "config" and words[:1] != ("shown",):
            read_config_block(block.text)

    def _compare(self, block: Block) -> None:
        if self._printed is None:
            return
        found = self._log if "log" in block.words else self._printed
        shown = f"{block.place}: the page shows\n{block.text}\nfound\n{found}"
        assert matches(block.text, found), shown

    def _run_script(self, block: Block) -> None:
        words = block.words
        parsed = words[1:] if words[:1] == ("parse",) else None
        script = []
        for command in block.commands:
            if parsed is not None and (not parsed or command.split()[0] in parsed):
                parse_command(command)
            else:
                script.append(command)
        environment = {**os.environ, "PATH": f"{ROOT}/bin:{os.environ['PATH']}"}
        done = subprocess.run(
            ["bash", "-c", "set -eo pipefail\n" + "\n".join(script)],
            cwd=self._folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == int(block.value("status") or 0), (
            f"{block.place}: status {done.returncode}\n{done.stdout[-1000:]}{done.stderr[-2000:]}"
        )
        self._printed, self._log = done.stdout, done.stderr

    def _run_code(self, block: Block) -> None:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block.text, block.place, "exec"), self.names)
        self._printed = printed.getvalue()


def read_config_block(text: str) -> None:
    """Read lines of a network; if they contain an output-node, build the network."""
    if "output-node" in text and "input-node" in text:
        Nnet.from_config(parse_config_lines(text))
        return
    for line in parse_config_lines(text):
        if line.first_token == "component":
            make_component(line)


def counts() -> dict[str, int]:
    """Numbers of commands, pieces of code and outputs of all pages, and of those not run."""
    blocks = [block for page in PAGES for block in blocks_of(page)]
    scripts = [block for block in blocks if block.language == "sh" and block.is_run]
    return {
        "commands": sum(len(block.commands) for block in scripts),
        "of these only parsed": sum(
            len(block.commands) if len(block.words) == 1 else len(block.words) - 1
            for block in scripts
            if block.words[:1] == ("parse",)
        ),
        "of these only with --slow": sum(
            len(block.commands) for block in scripts if "slow" in block.words
        ),
        "pieces of Python": sum(b.language == "python" and b.is_run for b in blocks),
        "outputs": sum(block.is_output for block in blocks),
        "blocks that other tests read": sum(block.words[:1] == ("in",) for block in blocks),
    }


if __name__ == "__main__":  # python -m support.pages, in tests/
    print("\n".join(f"{number:4} {what}" for what, number in counts().items()))

"""Kaldi's command-line conventions, for every program.

A program module is

    @program("nnet3-copy", USAGE, Options, num_args=2)
    def main(options: Options, args: list[str]) -> None: ...

where `Options` is a frozen dataclass (see option_specs). The decorated `main(argv=None)` parses,
runs, reports errors in one line, and returns the exit status. As in Kaldi, options are
`--name=value` (or `--flag`) before the arguments, `_` may stand for `-`, `--` ends the options,
`--config=file` reads options from a file, and `--help` lists all options.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from nnet3tools import __version__
from nnet3tools.cli.option_specs import OptionSpec, build, specs_of
from nnet3tools.cli.running import Usage, Version, run_program
from nnet3tools.errors import DataError, OptionError, naming, quoted
from nnet3tools.io import log
from nnet3tools.options import NO_COMMANDS, OptionGroup, option, option_group

O = TypeVar("O")  # noqa: E741

WordsBefore: TypeAlias = "Callable[[Sequence[str]], Sequence[str]]"
"""Option words that precede those of a command line, by the arguments of the command line."""

_PLAIN = "[]~#^_-+=:.,/"


class NoOptions(OptionGroup):
    """Options of a program that has only the standard options (--help, --config, ...)."""


class _StandardOptions(OptionGroup):
    config: str = option("", "Configuration file to read (this option may be repeated)")
    print_args: bool = option(True, "Print the command line arguments (to stderr)")
    help: bool = option(False, "Print out usage message")
    verbose: int = option(0, "Verbose level (higher->more logging)")
    version: bool = option(False, "Print the version of nnet3tools")
    no_commands: bool = option(False, "Refuse files that are shell commands ('command |')")


class Main(Protocol):
    """A program: a function from command-line words (default: the process's) to an exit status."""

    def __call__(self, argv: Sequence[str] | None = None) -> int:
        """Run the program on `argv`, or on the process's words; returns the exit status."""


class CommandLine(Generic[O]):
    """Parses the command line of a program, given its options and number of arguments.

    As a decorator it makes a program of a function main(options, args), which returns the status.
    `usage` is Kaldi's usage message with its `e.g.:` lines. `num_args` is the number of arguments,
    or (least, most), with None for no limit. With `values_apart` an option's value may also be the
    next word, as in Kaldi's Python scripts. `words_before(args)` returns further option words,
    which those of the command line override.
    """

    def __init__(
        self,
        name: str,
        usage: str,
        options: type[O],
        num_args: int | tuple[int, int | None],
        values_apart: bool = False,
        words_before: WordsBefore | None = None,
    ) -> None:
        self.name, self.usage, self._values_apart = name, usage, values_apart
        self._words_before = words_before
        self._options = options
        self._num_args = (num_args, num_args) if isinstance(num_args, int) else num_args

    def __call__(self, function: Callable[[O, list[str]], int | None]) -> Main:
        @functools.wraps(function)
        def main(argv: Sequence[str] | None = None) -> int:
            return run_program(self.name, argv, lambda words: function(*self.parse(words)))

        main.command_line = self  # type: ignore[attr-defined]
        return main

    @functools.cached_property
    def specs(self) -> dict[str, list[OptionSpec]]:
        """The program's own options by name: a list each, as two groups may have one option."""
        specs: dict[str, list[OptionSpec]] = {}
        for spec in specs_of(self._options):
            specs.setdefault(spec.name.lower(), []).append(spec)
        return specs

    @functools.cached_property
    def standard(self) -> dict[str, list[OptionSpec]]:
        """The options that every program has, by name."""
        return {spec.name: [spec] for spec in specs_of(_StandardOptions)}

    def help(self) -> str:
        """The text of --help."""
        lines = ["", self.usage, *self._option_lines("Options:", self.specs)]
        return "\n".join([*lines, *self._option_lines("Standard options:", self.standard)])

    def _option_lines(self, title: str, specs: dict[str, list[OptionSpec]]) -> list[str]:
        listed = [specs[name][0].help_line() for name in sorted(specs)]
        return [title, *listed, ""] if listed else []

    def parse(self, words: Sequence[str]) -> tuple[O, list[str]]:
        """Parse the words into options and arguments; Usage or OptionError if they are wrong."""
        shown = " ".join(map(quote, [self.name, *words]))
        options, arguments = _split(self._joined(words) if self._values_apart else words)
        for word in [*options, *arguments]:
            if word == "--":
                break
            if word.startswith("--") and _normal(word).split("=")[0] == "--help":
                raise Usage(self.help(), 0)
        if any(_normal(word) in ("--version", "--version=true") for word in options):
            raise Version(f"{self.name} (nnet3tools {__version__})")
        if any(_normal(word) in ("--no-commands", "--no-commands=true") for word in options):
            os.environ[NO_COMMANDS] = "1"  # before any file is read
        before = list(self._words_before(arguments)) if self._words_before else []
        self._convert(before)  # an error in a file is shown without the help
        try:
            values = self._convert([*before, *options])
        except OptionError as error:
            if self.usage:
                log.write(f"{self.help()}\nCommand line was: {shown}")
            raise error from None
        standard = build(_StandardOptions, values.pop(True))
        if standard.print_args:
            log.write(shown + " ")
        log.set_verbose(standard.verbose)
        least, most = self._num_args
        if len(arguments) < least or (most is not None and len(arguments) > most):
            problem = f"expected {self._expected()}, found {len(arguments)}"
            usage = f"\n{self.usage}\nAll options: {self.name} --help\n" if words else self.help()
            raise Usage(f"{usage}\n{self.name}: {problem}", 1)
        return build(self._options, values.pop(False)), arguments

    def _expected(self) -> str:
        """The number of arguments that the program takes, as a text for messages."""
        least, most = self._num_args
        number = f"at least {least}" if most is None else f"{least} to {most}"
        number = f"{least}" if least == most else number
        return f"{number} argument{'s' if most != 1 and number != 'at least 1' else ''}"

    def _joined(self, words: Sequence[str]) -> list[str]:
        """Join `--name value` to `--name=value`; a boolean option joins only true and false."""
        joined: list[str] = []
        left = list(reversed(words))
        while left:
            word = left.pop()
            kind = self._kind(_normal(word)[2:])
            apart = word.startswith("--") and kind != "" and bool(left)
            if apart and kind == "bool":
                apart = left[-1] in ("true", "false")
            joined.append(f"{word}={left.pop()}" if apart else word)
        return joined

    def _convert(self, options: list[str]) -> dict[bool, dict[tuple[str, ...], Any]]:
        """Parse option words: {is standard option: {path of dataclass fields: value}}."""
        words = [word for item in options for word in self._from_config(item)]
        words += [self._completed(word) for word in options]
        values: dict[bool, dict[tuple[str, ...], Any]] = {True: {}, False: {}}
        if not words:
            return values
        from nnet3tools.cli.option_values import values_of

        known = {**self.standard, **self.specs}
        kinds = {name: specs[0].kind for name, specs in known.items()}
        for name, value in values_of(kinds, words).items():
            for spec in known[name]:
                values[name in self.standard][spec.path] = value
        return values

    def _completed(self, word: str) -> str:
        """An option word in the form "--name=value"; a flag without a value gets "=true"."""
        word = _normal(word)
        name, equals, value = word.partition("=")
        if name == "--":
            raise OptionError(f"Invalid option (no key): {word}")
        if (spec := self._spec(name[2:])) is None:
            import difflib

            near = difflib.get_close_matches(name[2:], [*self.specs, *self.standard], n=1)
            hint = f" (did you mean --{near[0]}?)" if near else ""
            raise OptionError(f"Invalid option {word}: no option {name}{hint}")
        if not equals and (bare := "true" if spec.kind == "bool" else spec.bare):
            return f"{name}={bare}"
        if not equals or (spec.kind == "bool" and not value):
            raise OptionError(f"Invalid option {word} (option format is --x=y)")
        return word

    def _from_config(self, word: str) -> list[str]:
        """The options in the file of --config=file; [] if the word is another option."""
        name, _, path = self._completed(word).partition("=")
        if name != "--config" or not path:
            return []
        from nnet3tools.cli.option_values import values_of
        from nnet3tools.io.files import MAX_CONFIG, read_text_lines

        words = []
        for number, line in enumerate(read_text_lines(path, MAX_CONFIG), start=1):
            if not (text := line.partition("#")[0].strip()):
                continue
            with naming(f"{path}: line {number}"):
                if not text.startswith("--"):
                    raise DataError(f"expected --option=value, found {quoted(text, 60)}")
                words.append(self._completed(text))
                name = words[-1][2:].partition("=")[0]
                values_of({name: self._kind(name)}, words[-1:])
        return words

    def _kind(self, name: str) -> str:
        """The type of the value of --name, such as "int"; "" if there is no such option."""
        spec = self._spec(name)
        return spec.kind if spec else ""

    def _spec(self, name: str) -> OptionSpec | None:
        """The option --name; None if there is no such option."""
        specs = self.specs.get(name) or self.standard.get(name)
        return specs[0] if specs else None


program = CommandLine


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The option words and the argument words; the first word without -- ends the options."""
    count = next(
        (i for i, word in enumerate(words) if word[:2] != "--" or word == "--"), len(words)
    )
    arguments = list(words[count:])
    if "--" in arguments:
        arguments.remove("--")
    return list(words[:count]), arguments


def _normal(word: str) -> str:
    """The word `--Some_Name= value` in the form `--some-name=value`."""
    name, equals, value = word.partition("=")
    return name.replace("_", "-").lower() + equals + value.strip()


def quote(word: str) -> str:
    """The word quoted for bash as Kaldi does."""
    if word and all(char.isalnum() or char in _PLAIN for char in word):
        return word
    if "'" in word and not any(char in '"`$\\' for char in word):
        return f'"{word}"'
    return "'" + word.replace("'", "'\\''") + "'"

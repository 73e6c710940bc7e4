"""Options of recognizers from command lines and from the files of model directories."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from nnet3tools.cli.options import CommandLine
from nnet3tools.errors import OptionError, quoted
from nnet3tools.io import log

T = TypeVar("T")


def read_options(words: Sequence[str], name: str, kind: type[T]) -> T:
    """An instance of the dataclass `kind` with the options in `words`, such as --config=mfcc.conf.

    OptionError for other options; `name` is the name of the words in errors.
    """
    for word in words:
        if not word.startswith("--") or word.partition("=")[0] in ("--", "--help", "--version"):
            raise OptionError(f"expected options such as --norm-means=true, found {quoted(word)}")
    quiet = ["--print-args=false", f"--verbose={log.get_verbose()}"]
    return CommandLine(name, "", kind, 0).parse([*words, *quiet])[0]


def directory_words(arguments: Sequence[str]) -> list[str]:
    """Option words that read the option files of the model directory `arguments[0]`.

    They stand before the words of the user, which override them.
    """
    from nnet3tools.recognizer.parts import option_files

    return [f"--config={path}" for path in option_files(arguments[0])] if arguments else []


def options_of_directory(folder: str, kind: type[T], words: Sequence[str] = ()) -> T:
    """The options (dataclass `kind`) in the files of a model directory; `words` override them."""
    return read_options([*directory_words([folder]), *words], folder, kind)


def is_graph(argument: str) -> bool:
    """Whether a command-line argument is a decoding graph, not sound.

    Graphs are folders, files whose names end in .fst, and files that begin as OpenFst's.
    """
    path = Path(argument)
    if path.is_dir() or path.suffix == ".fst":
        return True
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\xd6\xfd\xb2\x7e"

"""The network a user wrote: from config lines, and in files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from nnet3tools.errors import DataError, UserError, quoted
from nnet3tools.io.stream import Reader, Writer
from nnet3tools.nnet.components.registry import read_component
from nnet3tools.nnet.config import ConfigLine, is_valid_name, parse_config_lines
from nnet3tools.nnet.config_reader import read_config
from nnet3tools.nnet.network import Network

__all__ = ["Nnet"]


class Nnet(Network):
    """A network that can be read and written."""

    @classmethod
    def from_config(cls, lines: Sequence[ConfigLine]) -> Self:
        """A network from config lines alone."""
        nnet = cls()
        nnet.read_config(lines)
        return nnet

    def read_config(self, lines: Sequence[ConfigLine]) -> None:
        """Add the nodes and components of config lines; namesakes are replaced.

        Raises ConfigError with file and line, and then leaves the network as it was.
        """
        read_config(self, lines)

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read `<Nnet3>` to `</Nnet3>`; DataError if it is no network."""
        reader.expect_token("<Nnet3>")
        if (rest := reader.read_line().strip("\r")) != "":
            raise DataError(
                f"{reader.name}: expected a new line after <Nnet3>, found {quoted(rest)}"
            )
        lines = []
        while (line := reader.read_line().rstrip("\r")) != "":
            lines.append(line)
        reader.expect_token("<NumComponents>")
        num_components = reader.read_int32()
        if not 0 <= num_components < 100000:
            raise DataError(f"{reader.name}: impossible number of components {num_components}")
        nnet = cls()
        for _ in range(num_components):
            reader.expect_token("<ComponentName>")
            nnet.component_names.append(_read_name(reader))
            nnet.components.append(read_component(reader))
        reader.expect_token("</Nnet3>")
        try:
            header = parse_config_lines("\n".join(lines))
            if any(line.first_token == "component" for line in header):
                # its matrix= or vector= could open any file, or run a command
                raise DataError("the header of a model may hold nodes only, found a component")
            nnet.read_config(header)
        except UserError as error:
            raise DataError(f"{reader.name}: {error}") from None
        return nnet

    def write(self, writer: Writer) -> None:
        """Write in Kaldi's form, text or binary."""
        writer.write_token("<Nnet3>")
        writer.write_text("".join(f"{line}\n" for line in ["", *self.config_lines(), ""]))
        writer.write_token("<NumComponents>")
        writer.write_int32(len(self.components))
        writer.write_newline()
        for name, component in zip(self.component_names, self.components, strict=True):
            writer.write_token("<ComponentName>")
            writer.write_token(name)
            component.write(writer)
            writer.write_newline()
        writer.write_token("</Nnet3>")


def _read_name(reader: Reader) -> str:
    """A component's name; programs print names, so that control bytes must not be in them."""
    start = reader.offset
    if not is_valid_name(name := reader.read_token()):
        raise reader.error(f"'{name[:40]}' cannot be the name of a component", start)
    return name

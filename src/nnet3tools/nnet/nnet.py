"""Nnet: a network that is made from config lines and stored in files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from nnet3tools.errors import DataError, UserError, quoted
from nnet3tools.io.stream import Reader, Writer
from nnet3tools.nnet.components.registry import read_component
from nnet3tools.nnet.config import ConfigLine, is_valid_name, parse_config_lines
from nnet3tools.nnet.config_reader import read_config
from nnet3tools.nnet.network import Network
from nnet3tools.tensor.settings import new_objects


class Nnet(Network):
    """A neural network that can be made from config lines, read and written."""

    @classmethod
    @new_objects()
    def from_config(cls, lines: Sequence[ConfigLine]) -> Self:
        """Make a network from config lines."""
        nnet = cls()
        nnet.read_config(lines)
        return nnet

    def read_config(self, lines: Sequence[ConfigLine]) -> None:
        """Add the nodes and components of config lines, replacing those with the same names.

        On ConfigError, which gives file and line, the network stays unchanged.
        """
        read_config(self, lines)

    @classmethod
    @new_objects()
    def read(cls, reader: Reader) -> Self:
        """Read a network from `<Nnet3>` to `</Nnet3>`; DataError for other data."""
        reader.expect_token("<Nnet3>")
        if (rest := reader.read_line().strip("\r")) != "":
            raise DataError(
                f"{reader.name}: expected a new line after <Nnet3>, found {quoted(rest)}"
            )
        lines = []
        while (line := reader.read_line().rstrip("\r")) != "":
            lines.append(line)
        num_components = reader.expect_token("<NumComponents>").read_int32()
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
                # matrix= or vector= of a component could open any file or run a command
                raise DataError("the header of a model may hold nodes only, found a component")
            nnet.read_config(header)
        except UserError as error:
            raise DataError(f"{reader.name}: {error}") from None
        return nnet

    def write(self, writer: Writer) -> None:
        """Write the network in Kaldi's format, in text or binary."""
        writer.write_token("<Nnet3>")
        writer.write_text("".join(f"{line}\n" for line in ["", *self.config_lines(), ""]))
        writer.write_token("<NumComponents>").write_int32(len(self.components))
        writer.write_newline()
        for name, component in zip(self.component_names, self.components, strict=True):
            writer.write_token("<ComponentName>")
            writer.write_token(name)
            component.write(writer)
            writer.write_newline()
        writer.write_token("</Nnet3>")


def _read_name(reader: Reader) -> str:
    """Read a component's name, which must not contain control bytes because programs print it."""
    start = reader.offset
    if not is_valid_name(name := reader.read_token()):
        raise reader.error(f"'{name[:40]}' cannot be the name of a component", start)
    return name

"""The seal at the end of a file of compiled programs: what made the file, and for which network.

Kaldi's readers stop before the seal, so they read sealed files. Kaldi's own files have no seal.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from nnet3tools import __version__
from nnet3tools.digests import sha256
from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io.stream import Reader, Writer
from nnet3tools.nnet.components.base import Component, Properties
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.number_text import parse_counts


def structure_digest(nnet: Nnet) -> str:
    """Hash (64 hex digits); networks with equal hashes compile to equal programs."""
    lines = nnet.config_lines()
    for name, component in zip(nnet.component_names, nnet.components, strict=True):
        lines.append(f"component {name}: {_component_text(component)}")

    return sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def _component_text(component: Component) -> str:
    """Type, dimensions and properties of a component; if it is not simple, also its settings."""
    properties = component.properties
    text = f"{component.type_name} {component.input_dim} {component.output_dim} {int(properties):x}"
    return text if properties & Properties.SIMPLE else f"{text} {component.structure()}"


NETWORK, _CONTENT, _SIZES = "<NetworkStructure>", "<Content>", "<Sizes>"
_MAKERS = {"<Version>": f"nnet3tools-{__version__}", "<Processor>": os.uname().machine}
"""Facts that should be the same where the file is read: another version may compile requests
differently, and results on processors of other kinds are not the same bit for bit."""


@dataclass(frozen=True)
class Seal:
    """The facts in the seal (trailer) of a file of programs: sizes of its parts, and who made it.

    `sizes` are bytes, empty if unknown. `foreign` is "", or says that another version or kind of
    processor made the file.
    """

    sizes: Sequence[int]
    foreign: str


def write_seal(writer: Writer, nnet: Nnet, content: bytes, sizes: Sequence[int] = ()) -> None:
    """Write a seal: what made `content`, the network, a digest, its parts' `sizes` in bytes."""
    fields = {NETWORK: structure_digest(nnet), **_MAKERS, _CONTENT: _digest(content)}
    if sizes:
        fields[_SIZES] = ":".join(map(str, sizes))
    for token, value in fields.items():
        writer.write_token(token)
        writer.write_token(value)
    writer.write_newline()


def read_seal(reader: Reader, nnet: Nnet, content: bytes) -> Seal:
    """Read and check the Seal (trailer of the file) that follows the bytes `content` in a stream.

    DataError if the seal is of another network than `nnet`, or the file was changed.
    """
    fields: dict[str, str] = {}
    try:
        while (token := reader.peek_token()) in (NETWORK, *_MAKERS, _CONTENT, _SIZES):
            reader.read_token()
            fields[token] = reader.read_token()
    except DataError:
        raise DataError("its end was damaged since it was written") from None
    if fields.get(NETWORK) != structure_digest(nnet):
        raise DataError("it was made for a network of another structure")
    if fields.get(_CONTENT) != _digest(content):
        raise DataError("its content was damaged since it was written")
    sizes = parse_counts(fields[_SIZES].split(":")) if _SIZES in fields else []
    if sizes is None or (sizes and sum(sizes) != len(content)):
        raise DataError("the sizes of its programs were damaged since it was written")
    # Seals of version 0.1.0 did not have these tokens at first.
    foreign = [
        f"{token.strip('<>').lower()} {fields[token]}, expected {expected}"
        for token, expected in _MAKERS.items()
        if fields.get(token, expected) != expected
    ]
    return Seal(sizes, f"it was made by {'; '.join(foreign)}" if foreign else "")


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()

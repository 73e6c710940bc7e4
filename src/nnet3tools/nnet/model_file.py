"""Reading and writing files with a network: "raw" networks and acoustic models."""

from __future__ import annotations

from nnet3tools.errors import ConfigError, DataError, quoted
from nnet3tools.io.files import MAX_CONFIG, open_input, open_output, read_text
from nnet3tools.io.stream import Reader
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.nnet import Nnet


def read_nnet(rxfilename: str) -> Nnet:
    """Read a network from a file, pipe or "-"; DataError if it has none."""
    with open_input(rxfilename) as reader:
        return load_nnet(reader)


def load_nnet(reader: Reader) -> Nnet:
    """Read a network, skipping a transition model before it."""
    token = reader.peek_token()
    if token == "<TransitionModel>":
        from nnet3tools.nnet.hmm.transition_model import TransitionModel

        TransitionModel.read(reader)
    elif token != "<Nnet3>":
        found = quoted(token, 40) if token else "the end of the file"
        raise DataError(f"{reader.name}: expected a network (<Nnet3>), found {found}")
    return Nnet.read(reader)


def write_nnet(nnet: Nnet, wxfilename: str, binary: bool = True) -> None:
    """Write a network to a file, pipe or "-"."""
    with open_output(wxfilename, binary) as writer:
        nnet.write(writer)


def apply_config_file(nnet: Nnet, rxfilename: str) -> None:
    """Add the nodes and components of a config file, pipe or "-"; ConfigError names the file."""
    lines = parse_config_lines(read_text(rxfilename, MAX_CONFIG), rxfilename)
    try:
        nnet.read_config(lines)
    except ConfigError as error:
        if error.file:
            raise
        raise ConfigError(error.message, rxfilename, text=error.text) from None

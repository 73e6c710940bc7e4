"""The config directory of an xconfig file: configs, expanded xconfigs, trial networks, context."""

import contextlib
import os
from collections.abc import Mapping, Sequence

from nnet3tools import tensor
from nnet3tools.errors import ConfigError, UserError, failures_named
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.graph.context import compute_simple_nnet_context
from nnet3tools.io import log
from nnet3tools.io.files import write_text
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.model_file import write_nnet
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.xconfig.layer import CONFIGS, ExistingNode, Layer
from nnet3tools.xconfig.registry import make_layers

_ABOUT = {
    "init": "It contains the input of the network, for the statistics of an LDA-like transform.",
    "ref": "It contains the network with random numbers where matrices come from files;\n"
    "the context of the network is computed from it.",
    "final": "It contains the network.",
}


@dataclass(frozen=True)
class Conversion:
    """What an xconfig run converts: the xconfig `text` of `file`, and a network to add layers to.

    `command` is the command line, for comments in the output. `edits` (of nnet3-copy) give the
    network an output named "output"; only the search for its context needs them.
    """

    text: str
    file: str
    command: str
    existing: Nnet | None = None
    edits: str = ""


def existing_nodes(nnet: Nnet) -> list[ExistingNode]:
    """The nodes of an existing network that new layers can take as input."""
    return [
        ExistingNode(name, nnet.dim(node))
        for node, name in enumerate(nnet.node_names)
        if not nnet.is_component_input(node)
    ]


def config_lines(layers: Sequence[Layer], file: str) -> dict[str, list[str]]:
    """By config, all layers' lines. Without an output, "init" is left out; others: ConfigError."""
    configs: dict[str, list[str]] = {config: [] for config in CONFIGS}
    for layer in layers:
        for config, lines in layer.configs().items():
            configs[config] += lines
    for config in CONFIGS:
        if not any(line.startswith("output-node ") for line in configs[config]):
            if config != "init":
                raise ConfigError("no line is an output or output-layer", file)
            del configs[config]
    return configs


def write_config_dir(conversion: Conversion, folder: str) -> None:
    """Write all files of a config directory, after all checks.

    Only matrices of idct-layers are written earlier, because the trial networks read them.
    """
    existing = existing_nodes(conversion.existing) if conversion.existing else ()
    layers = make_layers(conversion.text, conversion.file, existing)
    configs = config_lines(layers, conversion.file)
    matrices = {name: text for layer in layers for name, text in layer.files().items()}
    if matrices:
        _make_folder(folder)
    for name, text in matrices.items():
        write_text(name, text)
    trials = {
        config: _trial(conversion, layers, config, configs[config])
        for config in CONFIGS[:2]
        if config in configs
    }
    variables = _variables(conversion, trials)
    _make_folder(folder)
    _write_files(conversion, folder, layers, configs)
    for config, nnet in trials.items():
        write_nnet(nnet, os.path.join(folder, f"{config}.raw"))
    if variables:
        write_text(os.path.join(folder, "vars"), variables)
    _remove_stale(folder, {"init.config": "init" in configs, "vars": bool(variables)})


def _remove_stale(folder: str, written: Mapping[str, bool]) -> None:
    """Remove files of an earlier run that this run did not write, because scripts test for them.

    `written` maps each possible file name to whether this run wrote it.
    """
    for name in written:
        if not written[name]:
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(folder, name))


def _make_folder(folder: str) -> None:
    with failures_named(folder, "make folder"):
        os.makedirs(folder, exist_ok=True)


def _trial(conversion: Conversion, layers: list[Layer], config: str, lines: list[str]) -> Nnet:
    """The network that the lines of the config file named `config` make, for a check.

    `lines` are added to the existing network, if there is one. An error names the line of the
    xconfig file whose layer wrote the wrong config line.
    """
    tensor.random.seed(0)
    nnet = conversion.existing.copy() if conversion.existing else Nnet()
    try:
        nnet.read_config(parse_config_lines("\n".join(lines)))
    except ConfigError as error:
        for layer in layers:
            if error.text and error.text in layer.configs()[config]:
                raise layer.line.error(f"{error.message}, in config line '{error.text}'") from None
        raise ConfigError(error.message, conversion.file, text=error.text) from None
    return nnet


def _variables(conversion: Conversion, trials: Mapping[str, Nnet]) -> str:
    """The text of the file `vars` (left and right context); "", with a warning, if it is unknown.

    `trials` has the network of each config. As in Kaldi, the configs are written in any case.
    """
    asked = {**trials, "ref": _edited(trials["ref"], conversion.edits)}
    try:
        contexts = {config: compute_simple_nnet_context(nnet) for config, nnet in asked.items()}
    except UserError as error:
        log.warning(f"{conversion.file}: no context, and no file vars: {error}")
        return ""
    ref = contexts["ref"]
    init = contexts.get("init", ref)
    if init.left > ref.left or init.right > ref.right:
        log.warning(
            f"{conversion.file}: the input of the LDA-like transform needs more context "
            f"({init.left} frames before, {init.right} after) than the network ({ref.left}, "
            f"{ref.right}): where outputs have an output-delay, give the fixed-affine-layer the "
            "same delay"
        )
    return f"model_left_context={ref.left}\nmodel_right_context={ref.right}\n"


def _edited(nnet: Nnet, edits: str) -> Nnet:
    if not edits:
        return nnet
    from nnet3tools.nnet.edits import edit_network

    nnet = nnet.copy()
    edit_network(nnet, edits.replace(";", "\n"))
    return nnet


def _write_files(
    conversion: Conversion, folder: str, layers: list[Layer], configs: dict[str, list[str]]
) -> None:
    """Write to `folder`: xconfig, xconfig.expanded.1 and .2, and NAME.config for all `configs`."""
    made = f"This file was created by the command:\n{conversion.command}\n"
    copied = f"{made}It is a copy of the source of the config files in this directory.\n"
    original = "\n".join(line.strip() for line in conversion.text.split("\n"))
    files = {"xconfig": _comment(copied) + original}
    for number, normalized in ((1, False), (2, True)):
        about = "The xconfig with all options" + (", layers named." if normalized else ".")
        lines = [layer.expanded(normalized) for layer in layers]
        files[f"xconfig.expanded.{number}"] = _comment(made + about) + "\n".join([*lines, ""])
    for config, lines in configs.items():
        files[f"{config}.config"] = _comment(made + _ABOUT[config]) + "\n".join([*lines, ""])
    for name, text in files.items():
        write_text(os.path.join(folder, name), text)


def _comment(text: str) -> str:
    return "".join(f"# {line}\n" for line in text.splitlines()) + "\n"

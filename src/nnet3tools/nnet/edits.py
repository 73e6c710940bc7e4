"""Commands of --edits and --edits-config, which change a network (Kaldi's ReadEditConfig).

Each command is a function registered under its name. Components are chosen by a pattern of names in
which only `*` is special.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from nnet3tools import tensor
from nnet3tools.errors import ConfigError, TextError, UserError
from nnet3tools.io import log
from nnet3tools.nnet.components.affine import AffineComponent
from nnet3tools.nnet.components.base import Component, DropoutBase
from nnet3tools.nnet.components.block_affine import BlockAffineComponent, RepeatedAffineComponent
from nnet3tools.nnet.components.composite import CompositeComponent
from nnet3tools.nnet.components.fixed import FixedAffineComponent
from nnet3tools.nnet.components.updatable import UpdatableComponent
from nnet3tools.nnet.config import ConfigLine, is_valid_name, name_matches_pattern, nearest_hint
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.nnet.svd import apply_svd, reduce_rank
from nnet3tools.nnet.topology import remove_nodes, remove_orphan_components, remove_orphan_nodes

Command = Callable[[Nnet, ConfigLine], None]
C = TypeVar("C", bound=Component)

_commands: dict[str, Command] = {}


def edit_network(nnet: Nnet, text: str, file: str = "") -> None:
    """Apply edit commands, one in each line of `text`, in order; ConfigError for a wrong line."""
    from nnet3tools.grammars.lines import read_edit

    for number, line_text in enumerate(text.split("\n"), start=1):
        try:
            found = read_edit(line_text)
        except TextError as error:
            raise ConfigError(str(error), file, number) from None
        if found is not None:
            line = ConfigLine.of(*found, line_text.strip(), file, number)
            _obey(nnet, line)


def _obey(nnet: Nnet, line: ConfigLine) -> None:
    if (command := _commands.get(line.first_token)) is None:
        hint = nearest_hint(line.first_token, _commands)
        raise line.error(f"unknown edit command '{line.first_token}'{hint}")
    try:
        command(nnet, line)
    except ConfigError as error:
        raise error if error.text else line.error(str(error)) from None
    except UserError as error:
        raise line.error(str(error)) from None


def _command(name: str) -> Callable[[Command], Command]:
    """Decorator: register an edit command's function; keys that it does not read are errors."""

    def decorate(function: Command) -> Command:
        def checked(nnet: Nnet, line: ConfigLine) -> None:
            function(nnet, line)
            line.check_all_used()

        _commands[name] = checked
        return function

    return decorate


def _matching(nnet: Nnet, line: ConfigLine, kind: type[C]) -> list[C]:
    """Components of type `kind` whose names match the line's name=<pattern> (default: all)."""
    pattern = line.get_string("name", "*")
    return [
        component
        for name, component in zip(nnet.component_names, nnet.components, strict=True)
        if name_matches_pattern(name, pattern) and isinstance(component, kind)
    ]


@_command("convert-to-fixed-affine")
def _convert_to_fixed_affine(nnet: Nnet, line: ConfigLine) -> None:
    """Make affine components constant. Keys: [name=<pattern>]."""
    affine = _matching(nnet, line, AffineComponent)
    for component in affine:
        nnet.components[nnet.components.index(component)] = FixedAffineComponent(
            linear_params=component.linear_params, bias_params=component.bias_params
        )
    log.log(f"Converted {len(affine)} components to FixedAffineComponent.")


@_command("remove-orphan-nodes")
def _remove_orphan_nodes(nnet: Nnet, line: ConfigLine) -> None:
    """Remove unused nodes. Keys: [remove-orphan-inputs=<bool>]."""
    remove_orphan_nodes(nnet, line.get_bool("remove-orphan-inputs", False))


@_command("remove-orphan-components")
def _remove_orphan_components(nnet: Nnet, line: ConfigLine) -> None:
    remove_orphan_components(nnet)


@_command("remove-orphans")
def _remove_orphans(nnet: Nnet, line: ConfigLine) -> None:
    """Remove unused nodes and components. Keys: [remove-orphan-inputs=<bool>]."""
    remove_orphan_nodes(nnet, line.get_bool("remove-orphan-inputs", False))
    remove_orphan_components(nnet)


@_command("set-learning-rate")
def _set_learning_rate(nnet: Nnet, line: ConfigLine) -> None:
    """Set learning rates. Keys: [name=<pattern>] learning-rate=<rate before factors>."""
    components = _matching(nnet, line, UpdatableComponent)
    rate = line.get_float("learning-rate")
    for component in components:
        component.set_underlying_learning_rate(rate)
    log.log(f"Set learning rates for {len(components)} components.")


@_command("set-learning-rate-factor")
def _set_learning_rate_factor(nnet: Nnet, line: ConfigLine) -> None:
    """Set learning-rate factors. Keys: [name=<pattern>] learning-rate-factor=<factor>."""
    components = _matching(nnet, line, UpdatableComponent)
    factor = line.get_float("learning-rate-factor")
    for component in components:
        component.learning_rate_factor = factor
    log.log(f"Set learning rate factors for {len(components)} components.")


@_command("rename-node")
def _rename_node(nnet: Nnet, line: ConfigLine) -> None:
    """Rename a node and all uses of it. Keys: old-name=<name> new-name=<name>."""
    old, new = line.get_string("old-name"), line.get_string("new-name")
    node = nnet.node_index(old)
    if node < 0 or nnet.is_component_input(node):
        raise line.error(f"no node named '{old}'{nearest_hint(old, nnet.node_names)}")
    if not is_valid_name(new):
        raise line.error(f"'{new}' is not allowed as a name")
    if nnet.node_index(new) >= 0 and new != old:
        raise line.error(f"there is a node named '{new}' already")
    nnet.node_names[node] = new
    if nnet.is_component(node):
        nnet.node_names[node - 1] = f"{new}_input"


@_command("remove-output-nodes")
def _remove_output_nodes(nnet: Nnet, line: ConfigLine) -> None:
    """Remove matching output nodes; one must remain. Keys: name=<pattern>."""
    pattern = line.get_string("name")
    outputs = nnet.output_nodes()
    removed = [n for n in outputs if name_matches_pattern(nnet.node_names[n], pattern)]
    if len(removed) == len(outputs):
        raise line.error("all output nodes would be removed")
    log.log(f"Removing {len(removed)} output nodes.")
    remove_nodes(nnet, removed)


@_command("set-dropout-proportion")
def _set_dropout_proportion(nnet: Nnet, line: ConfigLine) -> None:
    """Set the dropout proportion of components. Keys: [name=<pattern>] proportion=<p>."""
    components = _matching(nnet, line, DropoutBase)
    proportion = line.get_float("proportion")
    if not 0.0 <= proportion <= 1.0:
        raise line.error(f"expected a proportion between 0 and 1, found {proportion:g}")
    for component in components:
        component.dropout_proportion = proportion
    log.log(f"Set dropout proportions for {len(components)} components.")


@_command("apply-svd")
def _apply_svd(nnet: Nnet, line: ConfigLine) -> None:
    """Split affine components in two, of lower rank, by SVD.

    Keys: name=<pattern> bottleneck-dim= energy-threshold= shrinkage-threshold=
    """
    pattern = line.get_string("name")
    bottleneck_dim = line.get_int("bottleneck-dim", -1)
    energy_threshold = line.get_float("energy-threshold", -1.0)
    shrinkage_threshold = line.get_float("shrinkage-threshold", 1.0)
    if bottleneck_dim <= 0 and energy_threshold <= 0.0:
        raise line.error("expected bottleneck-dim or energy-threshold above 0")
    if energy_threshold >= 1.0 or shrinkage_threshold > 1.0:
        raise line.error("energy-threshold and shrinkage-threshold must be below 1")
    apply_svd(nnet, pattern, bottleneck_dim, energy_threshold, shrinkage_threshold)


@_command("reduce-rank")
def _reduce_rank(nnet: Nnet, line: ConfigLine) -> None:
    """Reduce the rank of affine components. Keys: name=<pattern> rank=<rank>."""
    pattern, rank = line.get_string("name"), line.get_int("rank")
    if rank <= 0:
        raise line.error("rank must be positive")
    reduce_rank(nnet, pattern, rank)


def convert_repeated_to_block_affine(nnet: Nnet) -> None:
    """Replace RepeatedAffineComponents, also in composites, by BlockAffineComponents."""
    nnet.components = [_converted(component) for component in nnet.components]


def _converted(component: Component) -> Component:
    if isinstance(component, CompositeComponent):
        component.components = [_converted(part) for part in component.components]
    return _block_affine(component) if isinstance(component, RepeatedAffineComponent) else component


def _block_affine(repeated: RepeatedAffineComponent) -> BlockAffineComponent:
    """A block affine component with `num_blocks` copies of the repeated block."""
    block, bias, count = repeated.linear_params, repeated.bias_params, repeated.num_blocks
    rows, columns = block.shape
    linear = tensor.empty((count * rows, columns), like=block)
    tensor.copy(linear.reshape(count, rows * columns), block.reshape(1, rows * columns))
    biases = tensor.empty((count * rows,), like=bias)
    tensor.copy(biases.reshape(count, rows), bias.reshape(1, rows))
    result = BlockAffineComponent(linear_params=linear, bias_params=biases, num_blocks=count)
    result.copy_options(repeated)
    return result

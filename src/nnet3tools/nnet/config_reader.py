"""Building nodes and components from config lines, perhaps on top of an existing network.

Kaldi's rules (Nnet::ReadConfig): existing nodes become config lines before the new lines, and the
last line of a node counts. A first pass makes components and numbers nodes, a second pass parses
descriptors, so that lines may refer to later lines.
"""

from __future__ import annotations

from collections.abc import Sequence

from nnet3tools.errors import ConfigError, TextError, UserError
from nnet3tools.nnet.components.base import Component
from nnet3tools.nnet.components.registry import component_class
from nnet3tools.nnet.config import ConfigLine, is_valid_name, nearest_hint
from nnet3tools.nnet.descriptor import Descriptor
from nnet3tools.nnet.network import Network
from nnet3tools.nnet.nodes import (
    ComponentInputNode,
    ComponentNode,
    DimRangeNode,
    InputNode,
    Node,
    OutputNode,
)
from nnet3tools.nnet.topology import find_cycle_without_delay, warn_of_orphans

LINE_KINDS = ("component", "component-node", "input-node", "output-node", "dim-range-node")


def read_config(nnet: Network, lines: Sequence[ConfigLine]) -> None:
    """Add config lines to a network; ConfigError, without any change, for a wrong line."""
    existing = [ConfigLine(text) for text in nnet.config_lines()]
    result = Network()
    result.components, result.component_names = list(nnet.components), list(nnet.component_names)
    line_of_node = _collect_lines(existing, lines)
    component_numbers = {name: i for i, name in enumerate(result.component_names)}
    for line in lines:
        if line.first_token == "component":
            _add_component(result, line, component_numbers)
    _number_nodes(result, line_of_node)
    _build_nodes(result, line_of_node)
    _check_network(result, line_of_node)
    nnet.nodes, nnet.node_names = result.nodes, result.node_names
    nnet.components, nnet.component_names = result.components, result.component_names
    warn_of_orphans(nnet)


def _name(line: ConfigLine) -> str:
    name = line.get_string("name")
    if not is_valid_name(name):
        raise line.error(f"'{name}' is not allowed as a name")
    return name


def _collect_lines(
    existing: Sequence[ConfigLine], lines: Sequence[ConfigLine]
) -> dict[str, ConfigLine]:
    """The last line of each node name in the order of node numbers, with `existing` lines first."""
    line_of_node = {_name(line): line for line in existing}
    seen: dict[tuple[bool, str], ConfigLine] = {}
    for line in lines:
        if line.first_token not in LINE_KINDS:
            raise line.error(
                f"'{line.first_token}' does not start a line of a network config"
                f"{nearest_hint(line.first_token, LINE_KINDS)}"
            )
        name, is_component = _name(line), line.first_token == "component"
        if (is_component, name) in seen:
            what = "component" if is_component else "node"
            raise line.error(f"{what} name '{name}' appears twice in the same config")
        seen[is_component, name] = line
        if not is_component:
            line_of_node.pop(name, None)
            line_of_node[name] = line
    return line_of_node


def _add_component(nnet: Network, line: ConfigLine, numbers: dict[str, int]) -> None:
    """Make the component that a config line describes and add it to the network.

    `numbers` (component name -> number) is extended. A component of the same name is replaced.
    """
    name = line.get_string("name")
    component = make_component(line)
    line.check_all_used()
    if name in numbers:
        nnet.components[numbers[name]] = component
    else:
        numbers[name] = len(nnet.components)
        nnet.components.append(component)
        nnet.component_names.append(name)


def make_component(line: ConfigLine) -> Component:
    """Make the component that a config line describes (type=... and other keys)."""
    try:
        return component_class(line.get_string("type")).from_config(line)
    except ConfigError:
        raise
    except UserError as error:
        raise line.error(str(error)) from None


def _number_nodes(nnet: Network, line_of_node: dict[str, ConfigLine]) -> None:
    """First pass: add to `nnet` the nodes of the lines, so that descriptors can refer to them."""
    taken = set(nnet.node_names)
    for name, line in line_of_node.items():
        nodes: list[tuple[str, Node]]
        if line.first_token == "component-node":
            empty = Descriptor(())
            nodes = [(f"{name}_input", ComponentInputNode(empty)), (name, ComponentNode(-1))]
        elif line.first_token == "input-node":
            dim = line.get_int("dim")
            line.check_all_used()
            if dim <= 0:
                raise line.error(f"expected a positive dimension, found dim={dim}")
            nodes = [(name, InputNode(dim))]
        elif line.first_token == "output-node":
            nodes = [(name, OutputNode(Descriptor(())))]
        else:
            nodes = [(name, DimRangeNode(-1, 0, 0))]
        for node_name, node in nodes:
            if node_name in taken:
                raise line.error(f"node name '{node_name}' is taken already")
            taken.add(node_name)
            nnet.node_names.append(node_name)
            nnet.nodes.append(node)


def _build_nodes(nnet: Network, line_of_node: dict[str, ConfigLine]) -> None:
    """Second pass over config lines: fill in nodes' descriptors, components and sources."""
    numbers = {
        name: n
        for n, (name, node) in enumerate(zip(nnet.node_names, nnet.nodes, strict=True))
        if isinstance(node, InputNode | ComponentNode | DimRangeNode)
    }
    components = {name: c for c, name in enumerate(nnet.component_names)}
    for n, name in enumerate(nnet.node_names):
        match nnet.nodes[n]:
            case ComponentNode():
                line = line_of_node[name]
                nnet.nodes[n] = ComponentNode(_look_up(line, "component", components))
                nnet.nodes[n - 1] = ComponentInputNode(_parse_descriptor(line, numbers))
                line.check_all_used()
            case OutputNode():
                line = line_of_node[name]
                nnet.nodes[n] = OutputNode(_parse_descriptor(line, numbers), *_objective(line))
                line.check_all_used()
            case DimRangeNode():
                line = line_of_node[name]
                source = _look_up(line, "input-node", numbers)
                if nnet.is_dim_range(source):
                    raise line.error("the input-node must be an input or component node")
                nnet.nodes[n] = DimRangeNode(
                    source, line.get_int("dim-offset"), line.get_int("dim")
                )
                line.check_all_used()


def _look_up(line: ConfigLine, key: str, numbers: dict[str, int]) -> int:
    name = line.get_string(key)
    if name not in numbers:
        what = "component" if key == "component" else "input or component node"
        raise line.error(f"no {what} named '{name}'{nearest_hint(name, numbers)}")
    return numbers[name]


def _parse_descriptor(line: ConfigLine, numbers: dict[str, int]) -> Descriptor:
    try:
        return Descriptor.parse(line.get_string("input"), numbers)
    except TextError as error:
        raise line.error(str(error)) from None


def _objective(line: ConfigLine) -> tuple[str, str]:
    """The value of objective=..., and the formula for objective=expression (else "")."""
    objective = line.get_string("objective", "linear")
    if objective == "expression":
        return objective, " ".join(line.get_string("expression").split())
    if objective not in ("linear", "quadratic"):
        raise line.error(f"expected objective=linear, quadratic or expression, found '{objective}'")
    return objective, ""


def _check_network(nnet: Network, lines: dict[str, ConfigLine]) -> None:
    """Raise ConfigError for wrong dimensions or structure; `lines`: config lines by node name."""

    def error(name: str, message: str) -> ConfigError:
        return lines[name].error(f"node '{name}': {message}")

    if not nnet.input_nodes() or not nnet.output_nodes():
        missing = "output" if nnet.input_nodes() else "input"
        file = next((line.file for line in lines.values() if line.file), "")
        raise ConfigError(f"the network has no {missing}-node", file)
    for n, name in enumerate(nnet.node_names):
        if not nnet.is_component_input(n):
            try:
                _check_node(nnet, n)
            except ConfigError as problem:
                raise error(name, problem.message) from None
    if cycle := find_cycle_without_delay(nnet):
        names = [nnet.node_names[n] for n in cycle if not nnet.is_component_input(n)]
        path = " -> ".join(reversed([*names, names[0]]))
        raise error(names[0], f"cycle without a delay: {path}; put an Offset() in it")


def _check_node(nnet: Network, n: int) -> None:
    """Raise ConfigError, without the node's name, if the dimensions of node n are wrong."""
    match nnet.nodes[n]:
        case ComponentNode(component_index):
            found, expected = nnet.dim(n - 1), nnet.components[component_index].input_dim
            if found != expected:
                raise ConfigError(
                    f"dimension mismatch: its input has dimension {found}, component "
                    f"'{nnet.component_names[component_index]}' expects {expected}"
                )
        case OutputNode(descriptor, _, expression):
            dim = descriptor.dim(nnet)
            if expression:
                _check_expression(expression, dim)
        case DimRangeNode(source, dim_offset, dim):
            input_dim = nnet.dim(source)
            if dim <= 0 or dim_offset < 0 or dim_offset + dim > input_dim:
                raise ConfigError(
                    f"the range dim-offset={dim_offset}, dim={dim} does not fit into the "
                    f"{input_dim} columns of '{nnet.node_names[source]}'"
                )


def _check_expression(expression: str, dim: int) -> None:
    """Raise ConfigError if a formula is not a valid objective for `dim` output columns."""
    from nnet3tools.expression.objective import check_objective  # rarely needed and slow to import

    try:
        check_objective(expression, dim)
    except UserError as error:
        raise ConfigError(str(error)) from None

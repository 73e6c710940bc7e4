"""Programs and networks as graphs for Graphviz's `dot`."""

from nnet3tools.nnet.nnet import Nnet
from nnet3tools.nnet.nodes import ComponentNode
from nnet3tools.program.component_facts import ComponentTable
from nnet3tools.program.computation import Computation
from nnet3tools.program.lifetimes import matrix_subject
from nnet3tools.program.operands import AccessType
from nnet3tools.program.printing import command_texts

_VALUE, _DERIV, _COMMAND = "#dbe9fb", "#fde3cf", "#f4f4f2"
_HEAD = '  graph [rankdir=TB, ranksep=0.25, nodesep=0.2];\n  node [fontname="Helvetica", ' + (
    'fontsize=10, style=filled, color="#8a8a86"];\n  edge [color="#5f5f5c", arrowsize=0.6];\n'
)


def program_dot(computation: Computation, nnet: Nnet) -> str:
    """A Graphviz text: matrices (boxes) and commands (ellipses), except those for memory only."""
    lines, used = [], set()
    components = ComponentTable(nnet)
    texts = command_texts(computation, nnet)
    for c, command in enumerate(computation.commands):
        accesses = command.accesses(computation, components)
        if not accesses:
            continue
        lines.append(f'  c{c} [label="{_escaped(texts[c])}", fillcolor="{_COMMAND}"];')
        reads, writes = set(), set()
        for access in accesses:
            matrix = computation.matrix_of(access.submatrix)
            used.add(matrix)
            if access.type & AccessType.READ:
                reads.add(matrix)
            if access.type & AccessType.WRITE:
                writes.add(matrix)
        lines += [f"  m{m} -> c{c};" for m in sorted(reads - writes)]
        lines += [f"  c{c} -> m{m};" for m in sorted(writes - reads)]
        lines += [f"  c{c} -> m{m} [dir=both];" for m in sorted(reads & writes)]
    boxes = [_matrix_box(computation, nnet, m) for m in sorted(used)]
    return "digraph program {\n" + _HEAD + "".join(f"{x}\n" for x in boxes + lines) + "}\n"


def network_dot(nnet: Nnet) -> str:
    """A Graphviz text: the network's nodes, with arrows to nodes whose descriptors name them."""
    lines = []
    for node, name in enumerate(nnet.node_names):
        if nnet.is_component_input(node):
            continue
        label, shape, color = name, "ellipse", "#e6f3e6"
        inputs = nnet.node_inputs(node)
        if isinstance(nnet.nodes[node], ComponentNode):
            component = nnet.component_of_node(node)
            size = f"{component.input_dim} -> {component.output_dim}"
            label = f"{name}\n{component.type_name} {size}"
            shape, color = "box", _VALUE
            inputs = nnet.node_inputs(node - 1)
        elif nnet.is_dim_range(node):
            shape, color = "box", _COMMAND
        lines.append(
            f'  n{node} [label="{_escaped(label)}", shape={shape}, fillcolor="{color}", '
            f'tooltip="{_escaped(nnet.config_line(node))}"];'
        )
        lines += [f"  n{source} -> n{node};" for source in sorted(set(inputs))]
    return "digraph network {\n" + _HEAD + "".join(f"{line}\n" for line in lines) + "}\n"


def _matrix_box(computation: Computation, nnet: Nnet, matrix: int) -> str:
    rows, cols, _ = computation.matrices[matrix]
    debug = computation.matrix_debug_info
    color = _DERIV if debug and debug[matrix].is_deriv else _VALUE
    label = f"m{matrix}  {rows} x {cols}\n{matrix_subject(computation, nnet, matrix)}"
    return f'  m{matrix} [shape=box, label="{_escaped(label)}", fillcolor="{color}"];'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

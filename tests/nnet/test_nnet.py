"""Networks: reading configs in Kaldi's two passes, errors in configs, model files."""

import os
from pathlib import Path

import numpy as np
import pytest

from nnet3tools.errors import ConfigError, DataError
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.model_file import load_nnet, read_nnet, write_nnet
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.nnet.nodes import ComponentNode, DimRangeNode, InputNode, OutputNode
from support.streams import bytes_reader, to_bytes

CONFIG = """
# not in order, because nodes may be used before the line that defines them
output-node name=output input=Append(relu, Offset(range, -1))
input-node name=input dim=3
component name=affine type=AffineComponent input-dim=6 output-dim=4
component name=relu type=RectifiedLinearComponent dim=4
component-node name=affine component=affine input=Append(input, Offset(input, 1))
component-node name=relu component=relu input=Sum(affine, IfDefined(Offset(relu, -3)))
dim-range-node name=range input-node=relu dim-offset=1 dim=2
"""


def make(text: str = CONFIG) -> Nnet:
    return Nnet.from_config(parse_config_lines(text, "net.config"))


def test_nodes_are_numbered_in_the_order_of_their_lines() -> None:
    nnet = make()
    assert nnet.node_names == [
        "output",
        "input",
        "affine_input",
        "affine",
        "relu_input",
        "relu",
        "range",
    ]
    assert isinstance(nnet.nodes[0], OutputNode)
    assert nnet.nodes[1] == InputNode(3)
    assert nnet.nodes[3] == ComponentNode(0)
    assert nnet.nodes[6] == DimRangeNode(5, 1, 2)
    assert [nnet.dim(n) for n in range(7)] == [6, 3, 6, 4, 4, 4, 2]
    assert nnet.node_inputs(4) == [3, 5]
    assert nnet.node_index("nothing") == -1
    assert nnet.input_dim("input") == 3
    assert nnet.output_dim("output") == 6
    assert nnet.output_dim("input") == -1


def test_config_lines_with_dimensions() -> None:
    nnet = make()
    assert nnet.config_lines(include_dim=True)[2] == (
        "component-node name=affine component=affine input=Append(input, Offset(input, 1)) "
        "input-dim=6 output-dim=4"
    )
    assert nnet.config_lines()[0] == (
        "output-node name=output input=Append(relu, Offset(range, -1)) objective=linear"
    )


def test_later_config_replaces_nodes_and_components_and_moves_nodes_to_the_end() -> None:
    nnet = make()
    old = nnet.components[0]
    nnet.read_config(
        parse_config_lines(
            "component name=relu type=TanhComponent dim=4\n"
            "component name=affine2 type=AffineComponent input-dim=4 output-dim=4\n"
            "component-node name=affine2 component=affine2 input=affine\n"
            "component-node name=relu component=relu input=affine2\n"
        )
    )
    assert nnet.component_names == ["affine", "relu", "affine2"]
    assert nnet.components[0] is old
    assert nnet.components[1].type_name == "TanhComponent"
    assert nnet.node_names[-4:] == ["affine2_input", "affine2", "relu_input", "relu"]
    assert nnet.descriptor(nnet.node_index("relu_input")).text(nnet.node_names) == "affine2"
    assert nnet.nodes[nnet.node_index("range")] == DimRangeNode(nnet.node_index("relu"), 1, 2)


def test_failed_config_leaves_the_network_as_it_was() -> None:
    nnet = make()
    before = nnet.config_lines(), list(nnet.components)
    with pytest.raises(ConfigError):
        nnet.read_config(
            parse_config_lines(
                "component name=relu type=TanhComponent dim=5\n"
                "component name=new type=TanhComponent dim=5\n"
            )
        )
    assert (nnet.config_lines(), nnet.components) == before


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("componentnode name=a", "componentnode.*did you mean 'component-node'"),
        ("component name=a type=AfineComponent", "AfineComponent.*AffineComponent"),
        ("component name=a type=TanhComponent", "'dim'"),
        ("component name=a type=TanhComponent dim=4 foo=1", "foo=1"),
        ("component name=affine type=TanhComponent dim=4", "twice"),
        ("component type=TanhComponent dim=4", "'name'"),
        ("input-node name=a", "'dim'"),
        ("input-node name=a dim=0", "positive"),
        ("input-node name=a dim=3 colour=red", "colour=red"),
        ("input-node name=a/b dim=3", "a/b"),
        ("input-node name=input dim=3", "twice"),
        ("input-node name=relu_input dim=3", "relu_input"),
        ("component-node name=a component=afine input=input", "no component.*'affine'"),
        ("component-node name=a component=relu input=affin", "'affine'.*column 1 of"),
        ("component-node name=a component=relu input=Sum(affine, relu_input)", "column 13"),
        ("component-node name=a component=relu input=input", "dimension 3.*expects 4"),
        ("component-node name=a component=relu input=Sum(affine, input)", "4 and 3"),
        ("component-node name=a component=relu", "'input'"),
        ("component-node name=a component=relu input=affine dim=4", "dim=4"),
        ("component-node name=a component=relu input=a", "cycle without a delay: a -> a"),
        ("output-node name=a input=Append(affine", "column 14"),
        ("output-node name=a input=affine objective=cubic", "cubic"),
        ("dim-range-node name=a input-node=affine dim-offset=3 dim=2", "4 columns of 'affine'"),
        ("dim-range-node name=a input-node=range dim-offset=0 dim=1", "input-node"),
        ("dim-range-node name=a input-node=output dim-offset=0 dim=1", "no input or component"),
    ],
)
def test_wrong_line_is_named_with_what_is_wrong(line: str, what: str) -> None:
    with pytest.raises(ConfigError, match=rf"^net\.config:11: .*{what}") as caught:
        make(CONFIG + "\n" + line)
    assert "\n" not in str(caught.value)


def test_longer_cycle_without_delay_is_found_and_delayed_ones_are_allowed() -> None:
    nodes = (
        "component-node name=a component=relu input=Sum(affine, {})\n"
        "component-node name=b component=relu input=Failover(Offset(a, 2), affine)\n"
        "component-node name=c component=relu input=Sum(b, {})\n"
    )
    make(CONFIG + nodes.format("Offset(c, -1)", "b"))
    make(CONFIG + nodes.format("c", "b"))  # Failover and Offset break it
    with pytest.raises(ConfigError, match="cycle without a delay"):
        make(CONFIG + nodes.format("c", "a"))


@pytest.mark.parametrize("kind", ["input", "output"])
def test_network_needs_inputs_and_outputs(kind: str) -> None:
    text = (
        "input-node name=input dim=1"
        if kind == "output"
        else "output-node name=o input=Const(1, 2)"
    )
    with pytest.raises(ConfigError, match=f"net.config: the network has no {kind}-node"):
        make(text)


def test_orphans_are_warned_of(capfd: pytest.CaptureFixture[str]) -> None:
    make(
        CONFIG
        + "component name=spare type=TanhComponent dim=4\n"
        + "component-node name=lonely component=relu input=affine\n"
    )
    err = capfd.readouterr().err
    assert "Component spare is never used" in err
    assert "Node lonely is never used" in err
    assert "lonely_input" not in err


@pytest.mark.parametrize("binary", [True, False])
def test_model_round_trip_is_exact(binary: bool) -> None:
    data = to_bytes(make(), binary)
    nnet = load_nnet(bytes_reader(data))
    assert to_bytes(nnet, binary) == data
    assert nnet.config_lines() == make().config_lines()


def test_text_layout() -> None:
    lines = to_bytes(make(), False).split(b"\n")
    assert lines[0] == b"<Nnet3> "
    assert lines[6] == b""
    assert lines[7] == b"<NumComponents> 2 "
    assert lines[8].startswith(b"<ComponentName> affine <AffineComponent> ")
    assert lines[-1] == b"</Nnet3> "


@pytest.mark.parametrize("binary", [True, False])
def test_truncated_model_is_a_data_error_wherever_it_ends(binary: bool) -> None:
    data = to_bytes(make(), binary)
    for size in range(3, len(data) - 2):
        with pytest.raises(DataError):
            load_nnet(bytes_reader(data[:size]))


def test_garbled_model_is_a_data_error() -> None:
    data = to_bytes(make(), True)
    rng = np.random.default_rng(1)
    for _ in range(300):
        garbled = bytearray(data)
        at = int(rng.integers(2, len(data)))
        garbled[at] ^= int(rng.integers(1, 256))
        try:
            load_nnet(bytes_reader(bytes(garbled)))
        except DataError:
            pass  # no other error is permitted; bytes in a matrix only change numbers


@pytest.mark.parametrize(
    "data", [b"", b"garbage\n", b"\0Bgarbage ", b"<Nnet3> x\n", b"\0B\xff\xfe "]
)
def test_file_that_is_no_model_is_named(tmp_path: pytest.TempPathFactory, data: bytes) -> None:
    path = f"{tmp_path}/no.raw"
    with open(path, "wb") as file:
        file.write(data)
    with pytest.raises(DataError, match=r"no\.raw"):
        read_nnet(path)


def test_wrong_config_inside_a_model_is_a_data_error_naming_the_file(
    tmp_path: pytest.TempPathFactory,
) -> None:
    path = f"{tmp_path}/bad.raw"
    write_nnet(make(), path, binary=False)
    with open(path) as file:
        text = file.read()
    with open(path, "w") as file:
        file.write(text.replace("Offset(range, -1)", "Offset(rang, -1)"))
    with pytest.raises(DataError, match=r"bad\.raw.*'rang'.*did you mean 'range'"):
        read_nnet(path)


def test_component_line_in_a_model_s_header_does_not_run_commands(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    data = (
        b"<Nnet3> \ninput-node name=input dim=4\n"
        b"component name=evil type=FixedAffineComponent matrix='touch "
        + os.fsencode(trace)
        + b" |'\n\n<NumComponents> 0 </Nnet3> "
    )
    with pytest.raises(DataError, match="header of a model may hold nodes only") as caught:
        Nnet.read(bytes_reader(data))
    assert not trace.exists()
    assert "touch" not in str(caught.value)


def test_errors_do_not_quote_the_file_that_a_config_line_names(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mellon:x:0:0\n")
    for what in ("FixedAffineComponent matrix", "FixedScaleComponent scales"):
        (line,) = parse_config_lines(f"component name=a type={what}={secret}")
        with pytest.raises(ConfigError, match="no values in Kaldi's format") as caught:
            Nnet().read_config([line])
        assert "mellon" not in str(caught.value)


def test_component_names_with_control_bytes_are_refused() -> None:
    data = b"<Nnet3> \ninput-node name=input dim=4\n\n<NumComponents> 1 <ComponentName> a\x1b[2J "
    with pytest.raises(DataError, match=r"a\\x1b\[2J' cannot be the name of a component"):
        Nnet.read(bytes_reader(data))


def test_copy_is_independent() -> None:
    nnet = make()
    copied = nnet.copy()
    copied.components[0].scale(0.0)
    assert np.abs(nnet.components[0].vectorize()).max() > 0.0  # type: ignore[attr-defined]

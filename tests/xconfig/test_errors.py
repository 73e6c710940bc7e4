"""Errors of xconfig files: one line with the place, what was found and what was expected."""

import pytest

from nnet3tools.errors import ConfigError
from nnet3tools.xconfig.configs import config_lines
from nnet3tools.xconfig.registry import make_layers

START = "input name=input dim=20\n"

# the second line of a file, the message without the line
BAD = [
    ("relu-layr name=a dim=3", "unknown layer type 'relu-layr' (did you mean 'relu-layer'?)"),
    ("relu-layer dim=3", "relu-layer needs a name: name=..."),
    ("relu-layer name=3 dim=3", "option 'name': expected a name such as tdnn1, found '3'"),
    ("relu-layer name=input", "option 'name': another layer is called 'input' already"),
    ("relu-layer name=a dim=x", "option 'dim': expected an integer, found 'x'"),
    ("relu-layer name=a max-change=x", "option 'max-change': expected a number, found 'x'"),
    ("relu-layer name=a max-change=nan", "option 'max-change': expected a number, found 'nan'"),
    (
        "relu-layer name=a add-log-stddev=1",
        "option 'add-log-stddev': expected true or false, found '1'",
    ),
    ("relu-layer name=a l2-regularize=x", "option 'l2-regularize': expected a number, found 'x'"),
    (
        "relu-layer name=a self-repair-scale=2",
        "option 'self-repair-scale': expected a number from 0 to 1, found '2.0'",
    ),
    (
        "linear-component name=a dimm=3",
        "linear-component has no option 'dimm' (did you mean 'dim'?); its options are name, dim, "
        "input, l2-regularize, learning-rate-factor, max-change, orthonormal-constraint, "
        "param-stddev",
    ),
    (
        "relu-layer name=a input=inptu",
        "option 'input': no layer or input before this line is called 'inptu' "
        "(did you mean 'input'?)",
    ),
    (
        "relu-layer name=a input=Append(-1,0",
        "option 'input': expected ')', found the end at column 12 of descriptor: Append(-1,0 >>> ",
    ),
    (
        "relu-layer name=a input=Sum(input, Append(input, input))",
        "option 'input': the arguments of Sum(input, Append(input, input)) have dimensions 20, 40",
    ),
    (
        "relu-layer name=a input=input.c_t",
        "option 'input': layer 'input' has no output 'c_t'; it has input",
    ),
    (
        "relu-layer name=a input=[-2]",
        "option 'input': expected one of the 1 earlier layers, found [-2] at column 1 of "
        "descriptor:  >>> [-2]",
    ),
    ("tdnnf-layer name=a dim=20", "option 'bottleneck-dim' is missing: expected a number above 0"),
    (
        "tdnnf-layer name=a dim=24 bottleneck-dim=3",
        "option 'bypass-scale': expected 0, because dim=24 is not the input's dimension 20; "
        "found 0.66",
    ),
    (
        "tdnnf-layer name=a dim=20 bottleneck-dim=3 context=right",
        "option 'context': expected default or left-only or shift-left or none, found 'right'",
    ),
    (
        "conv-layer name=a height-in=7",
        "option 'height-in': expected a divisor of the input's dimension 20, found 7",
    ),
    (
        "conv-layer name=a height-in=10 height-out=10 num-filters-out=3 height-offsets=1,0",
        "option 'height-offsets': expected rising integers such as -1,0,1, found '1,0'",
    ),
    (
        "lstmp-layer name=a cell-dim=8 recurrent-projection-dim=6",
        "expected recurrent-projection-dim and non-recurrent-projection-dim that make at most "
        "cell-dim=8, found 12",
    ),
    ("lstm-layer name=a delay=0", "option 'delay': expected a number other than 0, found '0'"),
    (
        "fast-lstm-layer name=a decay-time=1",
        "option 'decay-time': expected more than the delay 1 or none (less than 0), found 1.0",
    ),
    (
        "stats-layer name=a config=mean(3:1:3:6)",
        "option 'config': expected contexts that are multiples of stats-period, which is a "
        "multiple of input-period, found 'mean(3:1:3:6)'",
    ),
    (
        "stats-layer name=a",
        "option 'config' is missing: expected "
        "mean[+stddev][+count](<-left-context>:<input-period>:<stats-period>:<right-context>)",
    ),
    (
        "idct-layer name=a cepstral-lifter=2 affine-transform-file=idct.mat",
        "option 'cepstral-lifter': 2.0 makes coefficients zero",
    ),
    (
        "dim-range-component name=a input=Append(-1,0)",
        "option 'input': expected one layer, found 'Append(Offset(input, -1), input)'",
    ),
]


@pytest.mark.parametrize(("line", "message"), BAD, ids=[line for line, _ in BAD])
def test_bad_lines(line: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_layers(f"{START}{line}  # with a comment\n", "net.xconfig")
    assert caught.value.message == message
    assert str(caught.value) == f"net.xconfig:2: {message} in line '{line}'"


# the second line of a file with >>> where it is wrong, and the message
SYNTAX = [
    ("relu-layer name=a dim=3  >>> dim=4", "'dim' is given twice"),
    (
        "relu-layer name=a  >>> 'x'",
        'expected letters, digits or -.()[]@=,/+:, found "\'"; values that contain = stand in '
        '"..."',
    ),
    ('relu-layer name=a ng-affine-options="a=1 >>> ', "expected '\"', found the end"),
    ("relu-layer name= >>> $a", "expected letters, digits or -.()[]@=,/+:, found '$'"),
    ("relu-layer  >>> a name=a", "expected key=value, found 'a'"),
    ('relu-layer  >>> a "x=1" name=a', "expected key=value, found 'a'"),
    (" >>> relu_layer name=a", "expected a layer type such as relu-layer, found 'relu_layer'"),
    ("relu-layer name=a  >>> =3", "expected key=value, found '='"),
]


@pytest.mark.parametrize(("line", "message"), SYNTAX, ids=[line for line, _ in SYNTAX])
def test_syntax_errors_mark_the_column(line: str, message: str) -> None:
    column = line.index(" >>> ") + 1
    with pytest.raises(ConfigError) as caught:
        make_layers(f"{START}{line.replace(' >>> ', '')}", "net.xconfig")
    assert str(caught.value) == f"net.xconfig:2: {message} at column {column} of line: {line}"


@pytest.mark.parametrize(
    "descriptor", ["{}", "input@{}", "[-{}]", "Scale({}, -1)", "Round(-1, {})"]
)
def test_numbers_of_thousands_of_digits_are_refused(descriptor: str) -> None:
    line = f"relu-layer name=a input={descriptor.format('0' * 5000 + '9' * 5000)}"
    with pytest.raises(ConfigError, match=r"^net.xconfig:2: option 'input': expected .* at column"):
        make_layers(f"{START}{line}", "net.xconfig")


@pytest.mark.parametrize(
    "line",
    [
        "idct-layer name=a dim=2000000000 affine-transform-file=idct.mat",
        "combine-feature-maps-layer name=a num-filters1=1 num-filters2=1 height=1000000000",
    ],
)
def test_absurd_sizes(line: str) -> None:
    with pytest.raises(ConfigError, match=r"^net.xconfig:2: \d+ numbers would be written"):
        make_layers(f"input name=input dim=2000000000\n{line}\n", "net.xconfig")


def test_bytes_are_not_quoted() -> None:
    with pytest.raises(ConfigError) as caught:
        make_layers("relu-layer name=a \x01\x02é", "net.xconfig")
    assert str(caught.value).startswith("net.xconfig:1: expected letters")
    assert str(caught.value).endswith(r"found '\x01' at column 19 of line: binary bytes")


def test_outputs_of_the_network_are_not_used_by_layers() -> None:
    text = START + "output name=output\nrelu-layer name=a dim=3\n"
    with pytest.raises(ConfigError) as caught:
        make_layers(text, "net.xconfig")
    assert caught.value.message == (
        "option 'input': layer 'output' has no output that other layers may use"
    )
    text = text.replace("output name", "output-layer name")
    with pytest.raises(ConfigError, match=r"may use; it has output.affine and output.log-softmax"):
        make_layers(text, "net.xconfig")


@pytest.mark.parametrize("text", ["", "\n  # nothing\n"])
def test_an_empty_file(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^net.xconfig: no layers: the xconfig file is empty$"):
        make_layers(text, "net.xconfig")


def test_a_network_needs_an_output() -> None:
    with pytest.raises(ConfigError, match=r"^net.xconfig: no line is an output or output-layer$"):
        config_lines(make_layers(START, "net.xconfig"), "net.xconfig")

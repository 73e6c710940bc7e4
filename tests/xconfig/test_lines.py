"""Lines and descriptors: quotes, comments, offsets, earlier layers."""

import pytest

from nnet3tools.grammars.descriptor import read_descriptor
from nnet3tools.xconfig.layer import descriptor_text, dimension
from nnet3tools.xconfig.options import read_lines

DIMS = {"a": 3, "b": 3, "lstm.c": 7}


def test_values_run_to_the_next_key() -> None:
    text = '  relu-layer name=a input=Append(a, b)  opts="x=1 y=2" dim=3 # c\n\n#\ninput name=i\n'
    first, second = read_lines(text, "f")
    assert (first.layer_type, first.number) == ("relu-layer", 1)
    assert first.values == {"name": "a", "input": "Append(a, b)", "opts": "x=1 y=2", "dim": "3"}
    assert (second.layer_type, second.number, second.values) == ("input", 4, {"name": "i"})


@pytest.mark.parametrize(
    ("text", "printed", "dim"),
    [
        ("a", "a", 3),
        ("lstm.c", "lstm.c", 7),
        ("a@-3", "Offset(a, -3)", 3),
        ("a @ 3", "Offset(a, 3)", 3),
        ("a@0", "a", 3),
        ("-2", "Offset(b, -2)", 3),
        ("0", "b", 3),
        ("[-2]", "a", 3),
        ("[ -1 ]@2", "Offset(b, 2)", 3),
        ("Append(-1,0,1,lstm.c)", "Append(Offset(b, -1), b, Offset(b, 1), lstm.c)", 16),
        ("Offset(a, -1, 2)", "Offset(a, -1, 2)", 3),
        ("Sum(a,Scale(0.1,b))", "Sum(a, Scale(0.1, b))", 3),
        ("Scale(2,a)", "Scale(2.0, a)", 3),
        ("Const(1.0, 5)", "Const(1.0, 5)", 5),
        ("IfDefined(Round(a, 3))", "IfDefined(Round(a, 3))", 3),
        ("Failover(a, Switch(a, b))", "Failover(a, Switch(a, b))", 3),
        ("ReplaceIndex(a,t,0)", "ReplaceIndex(a, t, 0)", 3),
    ],
)
def test_descriptors(text: str, printed: str, dim: int) -> None:
    expression = read_descriptor(text, ["a", "b"])
    assert descriptor_text(expression, str) == printed
    assert descriptor_text(read_descriptor(printed, []), str) == printed
    assert dimension(expression, DIMS.__getitem__) == dim

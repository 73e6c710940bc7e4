"""Users' errors in formulas give one line with file and line number, without a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from nnet3tools.cli.nnet3_compute import nnet3_compute
from nnet3tools.cli.nnet3_init import main as nnet3_init

CONFIG = """# formulas stand in line 4 or line 6

input-node name=input dim=4
component name=f type=ExpressionComponent dim=4 params=a:4:init=1,b:3 expression="{formula}"
component-node name=f component=f input=input
output-node name=output input=f objective={objective}
"""

BAD = {
    "syntax error": (
        "x * (2 + ] x)",
        "expected operand, found ']' at column 10 of formula: x * (2 +  >>> ] x)",
    ),
    "integer of 20 digits": (
        "x * " + "9" * 20,
        "expected a number, found an integer of 20 digits at column 5 of formula",
    ),
    "integer of 5000 digits": (
        "x * " + "9" * 5000,
        "expected a number, found an integer of 5000 digits at column 5 of formula",
    ),
    "nothing": ("", "expected operand, found the end at column 1"),
    "unknown name": (
        "x * aa",
        "unknown name 'aa' (nearest known: a) at column 5 of formula: x *  >>> aa",
    ),
    "unknown function": (
        "x * sigmoyd(a)",
        "unknown function 'sigmoyd' (nearest known: sigmoid) at column 5",
    ),
    "no broadcast": (
        "2 * (x + b)",
        "the operands of add do not broadcast: x input float32 (7 x 4), b param float32 (3) "
        "at column 6",
    ),
    "no product": (
        "dot(x, b)",
        "dot: the operands do not fit together: x input float32 (7 x 4), b param float32 (3)",
    ),
    "cycle": ("u = v + x; v = w * a; w = tanh(u); u", "cycle: u -> v -> w -> u at column 32"),
    "no gradient": (
        "floor(x) > a",
        "no gradient: gt bool (7 x 4), on the way to gt bool (7 x 4), has none",
    ),
    "gradient stopped": ("stop_gradient(x * a)", "no gradient: stop_gradient float32 (7 x 4)"),
    "no gradient of indexes": ("float32(argmax(x)) + 0 * x", None),
    "only indexes": ("sort(float32(argmax(x)), axis=0)", "no gradient: sort_indexes int32 (7 x 1)"),
    "shape": ("sum(x * a)", "has shape (1), expected (rows x dim)"),
    "one number of rows": ("reshape(x, [7, 4])", "cannot reshape x input float32 (11 x 4)"),
    "rows into columns": ("reshape(x, [-1, 7])", "has shape (4 x rows), expected (rows x dim)"),
    "type": ("float64(x)", "the value is cast float64 (7 x 4), expected float32"),
    "operands": ("clip(x, a, b, 1)", "clip: too many positional arguments at column 1"),
    "keyword": ("mean(x, axes=0)", "mean: got an unexpected keyword argument 'axes' at column 1"),
}


def init(folder: Path, formula: str, objective: str = "linear") -> int:
    text = CONFIG.format(formula=formula, objective=objective)
    (folder / "net.config").write_text(text)
    return nnet3_init([str(folder / "net.config"), str(folder / "0.raw")])


def error_of(captured: pytest.CaptureResult[str]) -> str:
    """The program's only ERROR line; fails unless it is the last line."""
    lines = captured.err.strip().splitlines()
    assert "Traceback" not in captured.err
    assert sum(line.startswith("ERROR") for line in lines) == 1
    assert lines[-1].startswith("ERROR (nnet3-")
    return lines[-1]


@pytest.mark.parametrize("name", [name for name, (_, message) in BAD.items() if message])
def test_a_component_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    formula, message = BAD[name]
    assert init(tmp_path, formula) == 255
    line = error_of(capsys.readouterr())
    assert f"{tmp_path / 'net.config'}:4: " in line
    assert message is not None
    assert message in line
    assert "in line 'component name=f type=ExpressionComponent dim=4" in line
    assert not (tmp_path / "0.raw").exists()


def test_part_of_a_formula_may_be_without_gradient(tmp_path: Path) -> None:
    assert init(tmp_path, BAD["no gradient of indexes"][0]) == 0


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("sqr(target - outptu)", "unknown name 'outptu' (nearest known: output) at column 14"),
        ("sqr(target -)", "found ')' at column 13"),
        ("sqr(target)", "no gradient"),
        ("output * (target > [1])", "gt of list: not an expression at column 11"),
        ("a = b; b = a; a * output", "cycle: a -> b -> a at column 12"),
    ],
)
def test_an_output_line(
    formula: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(tmp_path, "x", f'expression expression="{formula}"') == 255
    line = error_of(capsys.readouterr())
    assert f"{tmp_path / 'net.config'}:6: " in line
    assert message in line


def test_a_formula_that_some_numbers_of_rows_do_not_suit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(tmp_path, "x + mean(topk(x, 3, axis=0), axis=0)") == 0
    (tmp_path / "feats").write_text("utt1 [ 1 2 3 4\n 5 6 7 8 ]\n")
    arguments = ["--use-gpu=no", str(tmp_path / "0.raw"), f"ark:{tmp_path / 'feats'}"]
    assert nnet3_compute([*arguments, f"ark,t:{tmp_path / 'out'}"]) == 255
    line = error_of(capsys.readouterr())
    assert "utterance utt1: a minibatch of 2 rows: topk: no 3 elements along axis 0 of x " in line


def test_a_mean_over_rows_does_not_mix_utterances(tmp_path: Path) -> None:
    assert init(tmp_path, "x + mean(x, axis=0)") == 0
    texts = {"a": "[ 1 2 3 4\n 5 6 7 8 ]", "b": "[ 9 9 9 9\n 1 1 1 1 ]", "c": "[ 0 0 0 0 ]"}

    def outputs(keys: str) -> str:
        feats, out = tmp_path / "feats", tmp_path / "out"
        feats.write_text("".join(f"{key} {texts[key]}\n" for key in keys))
        arguments = ["--use-gpu=no", str(tmp_path / "0.raw"), f"ark:{feats}", f"ark,t:{out}"]
        assert nnet3_compute(arguments) == 0
        return out.read_text()

    assert outputs("abc") == outputs("a") + outputs("b") + outputs("c")

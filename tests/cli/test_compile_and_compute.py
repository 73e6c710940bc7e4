"""nnet3-compile and nnet3-compute --computation: results, and one line for each error."""

import json

import numpy as np
import pytest

from nnet3tools.cli.nnet3_compile import main as compile_main
from nnet3tools.cli.nnet3_compute import nnet3_compute as compute_main
from nnet3tools.graph.request import ComputationRequest, IoSpecification
from nnet3tools.io.files import open_output
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.indexes import make_indexes
from nnet3tools.nnet.model_file import read_nnet, write_nnet
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.program.files import load_computation
from support.configs import in_a_row
from support.programs import read_table, write_table

CONFIG = in_a_row("""input dim=3
affine AffineComponent input-dim=9 output-dim=4 \
input=Append(Offset(input, -1), input, Offset(input, 1))
tanh TanhComponent dim=4
last AffineComponent input-dim=4 output-dim=2""")
FRAMES = 6
X = np.random.default_rng(5).normal(size=(FRAMES + 2, 3)).astype(np.float32)
DERIV = np.random.default_rng(6).normal(size=(FRAMES, 2)).astype(np.float32)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current directory, with a model, requests, tables of inputs and derivatives."""
    monkeypatch.chdir(tmp_path)
    write_nnet(Nnet.from_config(parse_config_lines(CONFIG, "config")), "final.raw")
    for name, backward in (("forward", False), ("backward", True)):
        request = ComputationRequest(
            [IoSpecification("input", make_indexes(0, np.arange(-1, FRAMES + 1)), backward)],
            [IoSpecification("output", make_indexes(0, np.arange(FRAMES)), backward)],
            need_model_derivative=backward,
        )
        with open_output(f"{name}.request", binary=backward) as writer:
            request.write(writer)
    write_table("ark:inputs.ark", {"input": X})
    write_table("ark:derivs.ark", {"output": DERIV})
    return tmp_path


def compute(*options, inputs="ark:inputs.ark", model="final.raw"):
    return compute_main(["--use-gpu=no", *options, model, inputs, "ark:out.ark"])


def by_hand():
    """Output, input derivative and gradients, computed with NumPy alone."""
    nnet = read_nnet("final.raw")
    affine, last = nnet.component(0), nnet.component(2)
    w1, b1 = affine.parameters().values()
    w2, b2 = last.parameters().values()
    spliced = np.hstack([X[i : i + FRAMES] for i in range(3)])
    hidden = np.tanh(spliced @ w1.T + b1)
    dh = (DERIV @ w2) * (1 - hidden**2)
    ds = dh @ w1
    dx = np.zeros_like(X)
    for i in range(3):
        dx[i : i + FRAMES] += ds[:, 3 * i : 3 * i + 3]
    gradients = {"affine": dh.T @ spliced, "last": DERIV.T @ hidden}
    return hidden @ w2.T + b2, dx, gradients


@pytest.mark.parametrize("optimize", ["true", "false"])
@pytest.mark.parametrize("binary", ["true", "false"])
def test_forward_and_backward(folder, optimize, binary):
    options = [f"--optimization.optimize={optimize}", f"--binary={binary}"]
    assert compile_main([*options, "final.raw", "backward.request", "p"]) == 0
    status = compute(
        "--computation=p",
        "--output-derivs=ark:derivs.ark",
        "--input-derivs=ark:dx.ark",
        "--model-derivative=gradient.raw",
    )
    assert status == 0
    output, dx, gradients = by_hand()
    np.testing.assert_allclose(read_table("ark:out.ark")["output"], output, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(read_table("ark:dx.ark")["input"], dx, rtol=1e-4, atol=1e-5)
    gradient = read_nnet("gradient.raw")
    for name, expected in gradients.items():
        component = gradient.component(gradient.component_index(name))
        linear = next(iter(component.parameters().values()))
        np.testing.assert_allclose(linear, expected, rtol=1e-4, atol=1e-4)


def test_forward_part_alone_needs_no_derivatives(folder):
    assert compile_main(["final.raw", "backward.request", "p"]) == 0
    assert compute("--computation=p") == 0
    np.testing.assert_allclose(
        read_table("ark:out.ark")["output"], by_hand()[0], rtol=1e-4, atol=1e-5
    )


def test_program_is_printed(folder, capsys):
    assert compile_main(["--print=true", "final.raw", "forward.request", "p"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("matrix m1(8, 3), ")
    assert "# begin forward commands\nc0: " in text
    assert text.count("\nc") == len(load_computation("p", read_nnet("final.raw")).commands)


def test_debug_and_profile(folder, capsys):
    compile_main(["final.raw", "forward.request", "p"])
    assert compute("--computation=p", "--computation.debug=true") == 0
    assert "secs" in capsys.readouterr().err
    assert compute("--computation=p", "--computation.profile=true") == 0
    assert "time of commands" in capsys.readouterr().err


def one_error(capsys, status, *words, path="out.ark"):
    """Fail unless the program failed with one ERROR line with these words and without output."""
    lines = capsys.readouterr().err.splitlines()
    errors = [line for line in lines if line.startswith("ERROR")]
    assert status not in (0, None)
    assert len(errors) == 1, lines
    assert not any("Traceback" in line for line in lines)
    for word in words:
        assert word in errors[0]
    from pathlib import Path

    assert not Path(path).exists()


def test_compile_errors(folder, capsys):
    one_error(capsys, compile_main(["no.raw", "forward.request", "p"]), "no.raw", path="p")
    one_error(capsys, compile_main(["final.raw", "inputs.ark", "p"]), "inputs.ark", path="p")
    text = (folder / "forward.request").read_text()
    (folder / "other").write_text(text.replace("\ninput ", "\ninptu "))
    one_error(capsys, compile_main(["final.raw", "other", "p"]), "inptu", path="p")
    (folder / "cut").write_text(text[: len(text) // 2])
    one_error(capsys, compile_main(["final.raw", "cut", "p"]), "cut", path="p")


def test_output_that_cannot_be_computed(folder, capsys):
    request = ComputationRequest(
        [IoSpecification("input", make_indexes(0, np.arange(0, 3)))],
        [IoSpecification("output", make_indexes(0, np.arange(0, 3)))],
    )
    with open_output("short") as writer:
        request.write(writer)
    one_error(capsys, compile_main(["final.raw", "short", "p"]), "output", path="p")


def test_compute_errors(folder, capsys):
    compile_main(["final.raw", "forward.request", "forward"])
    compile_main(["final.raw", "backward.request", "backward"])
    capsys.readouterr()
    data = (folder / "backward").read_bytes()
    (folder / "cut").write_bytes(data[: len(data) // 2])
    (folder / "noise").write_bytes(bytes(range(256)))
    bad = {"nan": X * np.nan, "rows": X[:-1], "wide": np.hstack([X, X])}
    for name, matrix in bad.items():
        write_table(f"ark:{name}.ark", {"input": matrix})
    write_table("ark:node.ark", {"inptu": X})
    write_table("ark:empty.ark", {})

    def fails(*words, options=("--computation=backward",), **kwargs):
        one_error(capsys, compute(*options, **kwargs), *words)

    fails("cut", options=["--computation=cut"])
    fails("noise", options=["--computation=noise"])
    fails("gone", options=["--computation=gone"])
    fails("input", "not a finite number", inputs="ark:nan.ark")
    fails("input", "8 x 3", "7 x 3", inputs="ark:rows.ark")
    fails("input", "8 x 3", "8 x 6", inputs="ark:wide.ark")
    fails("inptu", inputs="ark:node.ark")
    fails("no matrices", inputs="ark:empty.ark")
    fails("gone.ark", inputs="ark:gone.ark")
    fails("no backward part", options=["--computation=forward", "--output-derivs=ark:derivs.ark"])
    fails(
        "no model derivative",
        options=[
            "--computation=forward",
            "--output-derivs=ark:derivs.ark",
            "--model-derivative=gradient.raw",
        ],
    )


def test_program_of_another_network(folder, capsys):
    compile_main(["final.raw", "forward.request", "p"])
    capsys.readouterr()
    other = CONFIG.replace("input dim=3", "input dim=2").replace("input-dim=9", "input-dim=6")
    write_nnet(Nnet.from_config(parse_config_lines(other, "config")), "other.raw")
    status = compute("--computation=p", model="other.raw")
    one_error(capsys, status, "p: it was made for a network of another structure")
    data = (folder / "p").read_bytes()
    (folder / "kaldi").write_bytes(data[: data.index(b"<NetworkStructure>")])
    status = compute("--computation=kaldi", model="other.raw")
    one_error(capsys, status, "kaldi: does not fit the network")


def test_options_that_need_others(folder, capsys):
    compile_main(["final.raw", "backward.request", "p"])
    for options in (
        ["--computation=p", "--input-derivs=ark:x"],
        ["--computation=p", "--model-derivative=x"],
        ["--output-derivs=ark:derivs.ark"],
    ):
        assert compute(*options) not in (0, None)
        assert "needs --" in capsys.readouterr().err


def test_explain_prints_listings_and_needs_no_place_for_a_program(folder, capsys):
    assert compile_main(["--explain=steps,deriv", "final.raw", "backward.request"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("# steps\nstep 0: input[(0,-1:6)], given, value m1, derivative m2\n")
    assert "\n# deriv\nstep 0: input: yes, because the request wants the derivative" in out
    flags = ["--explain=accesses", "--explain-format=json"]
    assert compile_main([*flags, "final.raw", "backward.request", "p"]) == 0
    listing = json.loads(capsys.readouterr().out)
    commands = [e["text"] for e in listing["entries"] if "command" in e]
    assert len(commands) == len(load_computation("p", read_nnet("final.raw")).commands)


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--explain=stebs"], "accesses; found 'stebs' (did you mean 'steps'?)"),
        (["--explain=steps,"], "accesses; found nothing"),
        (["--explain=steps", "--passes=renumber"], "--explain does not go with --passes"),
        (["--print-passes", "--egs=ark:1.egs"], "--print-passes does not go with --egs"),
        (["--explain=steps", "--explain-format=xml"], "expected text, json; found 'xml'"),
    ],
)
def test_unknown_listings_are_refused_with_the_known_ones(folder, capsys, flags, problem):
    assert compile_main([*flags, "final.raw", "backward.request", "out"]) == 255
    one_error(capsys, 1, problem, path="out")


def test_an_impossible_request_is_explained_before_it_is_refused(folder, capsys):
    request = ComputationRequest(
        [IoSpecification("input", make_indexes(0, np.arange(FRAMES)))],
        [IoSpecification("output", make_indexes(0, np.arange(FRAMES)))],
    )
    with open_output("short.request") as writer:
        request.write(writer)
    assert compile_main(["--explain=computable", "final.raw", "short.request", "p"]) == 255
    captured = capsys.readouterr()
    assert "output[(0,1:4)] computable" in captured.out
    assert "short.request: cannot compile: output 'output' is not computable" in captured.err


def test_passes_by_name_give_the_program_of_the_optimizer(folder, capsys):
    from nnet3tools.optimizer.options import OptimizeOptions
    from nnet3tools.optimizer.pass_context import PassContext
    from nnet3tools.optimizer.pipeline import PASSES

    context = PassContext(read_nnet("final.raw"), OptimizeOptions())
    names = ",".join(step.name for step in PASSES if step.wanted(context))
    compile_main(["--optimization.optimize=false", "final.raw", "backward.request", "plain"])
    compile_main(["--print-passes", "final.raw", "backward.request", "p"])
    printed = capsys.readouterr().out
    assert compile_main([f"--passes={names}", "--print-passes", "final.raw", "plain", "q"]) == 0
    assert capsys.readouterr().out == printed
    assert (folder / "p").read_bytes() == (folder / "q").read_bytes()
    assert [line.split(":")[0] for line in printed.splitlines() if line[0] == "#"] == [
        f"# {name}" for name in names.split(",")
    ]


def test_print_passes_prints_the_named_passes_only(folder, capsys):
    flag = "--print-passes=convert-addition"
    assert compile_main([flag, "final.raw", "backward.request", "p"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("# convert-addition: commands ")
    assert {line[:2] for line in lines[1:]} == {"- ", "+ "}


@pytest.mark.parametrize(
    ("flag", "program", "problem"),
    [
        ("--passes=merge-variable", "p", "(did you mean 'merge-variables'?)"),
        ("--print-passes=renumbr", "p", "(did you mean 'renumber'?)"),
        ("--passes=looped-computation", "p", "the pass looped-computation does not fit"),
        ("--passes=renumber", "forward.request", "forward.request"),
    ],
)
def test_wrong_passes_are_refused_in_one_line(folder, capsys, flag, program, problem):
    compile_main(["final.raw", "forward.request", "p"])
    capsys.readouterr()
    one_error(capsys, compile_main([flag, "final.raw", program, "out"]), problem, path="out")

"""nnet3-computation-info: text, pictures, and errors in one line."""

import numpy as np
import pytest

from nnet3tools.cli.nnet3_compile import main as compile_main
from nnet3tools.cli.nnet3_computation_info import main
from nnet3tools.executor.computer import ComputeOptions, NnetComputer
from nnet3tools.graph.request import ComputationRequest, IoSpecification
from nnet3tools.io.files import open_output
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.indexes import make_indexes
from nnet3tools.nnet.model_file import read_nnet, write_nnet
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.program.files import load_computation

CONFIG = """
input-node name=input dim=3
component name=affine type=AffineComponent input-dim=9 output-dim={dim}
component name=relu type=RectifiedLinearComponent dim={dim}
component-node name=affine component=affine input=Append(Offset(input, -1), input, Offset(input, 1))
component-node name=relu component=relu input=affine
output-node name=output input=relu
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, dim in (("final.raw", 4), ("other.raw", 5)):
        write_nnet(Nnet.from_config(parse_config_lines(CONFIG.format(dim=dim), "config")), name)
    request = ComputationRequest(
        [IoSpecification("input", make_indexes(0, np.arange(-1, 7)), True)],
        [IoSpecification("output", make_indexes(0, np.arange(6)), True)],
        need_model_derivative=True,
    )
    with open_output("request") as writer:
        request.write(writer)
    assert compile_main(["final.raw", "request", "program"]) == 0
    return tmp_path


def test_prints_program_kinds_and_memory(capsys):
    assert main(["final.raw", "program"]) == 0
    out = capsys.readouterr().out
    assert "# begin forward commands\nc0: m1 = user input" in out
    assert "affine.Propagate(" in out
    assert "peak-bytes: " in out
    assert "held by " in out


def test_arena_is_what_the_executor_takes(capsys):
    main(["--print=false", "final.raw", "program"])
    out = capsys.readouterr().out
    assert "begin forward" not in out
    nnet = read_nnet("final.raw")
    computer = NnetComputer(ComputeOptions(), load_computation("program"), nnet, nnet)
    assert f"arena-bytes-cpu: {computer.program.plan.num_bytes} " in out


def test_writes_pictures(folder, capsys):
    options = ["--html=page.html", "--dot=program.dot", "--network-dot=network.dot"]
    assert main(["--print=false", *options, "final.raw", "program"]) == 0
    assert "<title>program for final.raw</title>" in (folder / "page.html").read_text()
    assert (folder / "program.dot").read_text().startswith("digraph program {")
    assert (folder / "network.dot").read_text().startswith("digraph network {")


def test_errors_are_one_line(folder, capsys):
    (folder / "cut").write_bytes((folder / "program").read_bytes()[:300])
    for arguments in (["final.raw", "cut"], ["final.raw", "none"], ["other.raw", "program"]):
        assert main(["--html=page.html", *arguments]) == 255
        err = capsys.readouterr().err
        assert err.count("\nERROR ") == 1
        assert "Traceback" not in err
    assert not (folder / "page.html").exists()

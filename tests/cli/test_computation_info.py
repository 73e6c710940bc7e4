"""nnet3-computation-info: text, pictures, and errors in one line."""

import asyncio
import json
import re

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
from support.chromium import CHROMIUM, browsing
from support.configs import in_a_row

CONFIG = in_a_row("""input dim=3
affine AffineComponent input-dim=9 output-dim={dim} \
input=Append(Offset(input, -1), input, Offset(input, 1))
relu RectifiedLinearComponent dim={dim}""")


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
    computer = NnetComputer(ComputeOptions(), load_computation("program", nnet), nnet, nnet)
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


def page_data_of(folder):
    text = re.search(r'id="program">(.*?)</script>', (folder / "page.html").read_text(), re.S)[1]
    return json.loads(text)


def test_the_page_has_the_graph_of_a_request_and_the_program_after_each_pass(folder):
    options = ["--html=page.html", "--request=request", "--print=false"]
    assert main([*options, "final.raw", "program"]) == 0
    data = page_data_of(folder)
    names = [program["title"] for program in data["programs"]]
    assert names[0] == "before the passes"
    assert names[-1] == "after memory-compression"
    last, shown = data["programs"][-1], data
    assert [last[key] for key in ("commands", "matrices", "memory")] == [
        shown[key] for key in ("commands", "matrices", "memory")
    ]
    graph = data["graph"]
    assert graph["nodes"] == read_nnet("final.raw").node_names
    in_steps = sum(len(step["indexes"]) for step in graph["steps"])
    assert in_steps == sum(len(node["indexes"]) for node in graph["graph"])
    assert {entry["state"] for entry in graph["computable"]} == {"computable"}


def test_options_of_the_page_that_do_not_fit_are_one_line(folder, capsys):
    data = (folder / "request").read_bytes()
    (folder / "other").write_bytes(data.replace(b"Derivative> T", b"Derivative> F"))
    for options, problem in (
        (["--html=page.html", "--request=other"], "other: it is not the request of the program: "),
        (["--request=request"], "--request needs --html"),
        (["--max-matrices=-2"], "--max-matrices=-2: expected at least 0"),
    ):
        assert main([*options, "final.raw", "program"]) == 255
        assert capsys.readouterr().err.count(problem) == 1
    assert not (folder / "page.html").exists()


def test_without_a_request_the_page_has_no_graph(folder):
    assert main(["--html=page.html", "--print=false", "final.raw", "program"]) == 0
    assert not {"graph", "programs"} & page_data_of(folder).keys()


def test_a_graph_that_is_too_large_is_left_out_with_a_warning(folder, capsys, monkeypatch):
    monkeypatch.setattr("nnet3tools.cli.nnet3_computation_info._MOST_CINDEXES", 3)
    options = ["--html=page.html", "--request=request", "--print=false"]
    assert main([*options, "final.raw", "program"]) == 0
    assert "cindexes are too many to be shown as a graph" in capsys.readouterr().err
    assert "graph" not in page_data_of(folder)
    assert page_data_of(folder)["programs"]


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("width", [1200, 390])
def test_the_page_draws_the_graph_and_the_slider_changes_the_program(folder, width):
    options = ["--html=page.html", "--request=request", "--print=false"]
    assert main([*options, "final.raw", "program"]) == 0
    number = len(page_data_of(folder)["programs"])
    address = f"file://{folder}/page.html#view=graph"

    pytest.importorskip("websockets")

    async def look() -> None:
        async with browsing(address, folder / "profile", folder / "none.wav") as page:
            await page.call(
                "Emulation.setDeviceMetricsOverride",
                width=width,
                height=800,
                deviceScaleFactor=1,
                mobile=False,
            )
            cells = "document.querySelectorAll('#graph rect').length"
            assert await page.wait_for(cells) == 8 + 5 * 6
            click = "document.querySelector('#graph rect[data-cell=\"{}\"]').dispatchEvent("
            click += "new Event('click', {{bubbles: true}}))"
            await page.value(click.format(8))
            text = await page.value("document.querySelector('#graph .cell').textContent")
            assert text.startswith("affine_input(n=0, t=0, x=0): computable, usable count 1, ")
            assert "depends on input(n=0, t=-1, x=0), input(n=0, t=0, x=0)" in text
            assert await page.value("document.querySelectorAll('#graph line').length") == 3
            slide = "const s = document.getElementById('pass'); s.value = 0;"
            await page.value(f"(() => {{ {slide} s.dispatchEvent(new Event('input')); }})()")
            name = await page.value("document.getElementById('pass-name').textContent")
            assert name == "before the passes"
            assert await page.value("document.getElementById('pass').max") == str(number)
            wide = await page.value("document.documentElement.scrollWidth")
            assert wide <= width

    asyncio.run(look())

"""Every pass can be switched from the command line, by Kaldi's name, and then does not run."""

import dataclasses
import io

import pytest
from test_memory_compression import DEEP, deep_case

from nnet3tools.cli.programs import main_of
from nnet3tools.io.files import open_output
from nnet3tools.io.stream import Reader, Writer
from nnet3tools.nnet.model_file import write_nnet
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer import pipeline
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.optimizer.pass_context import PassContext
from support.random_networks import parse

SWITCHES = {
    "consolidate-model-update": "consolidate-model-update",
    "convert-addition": "convert-addition",
    "snip-row-ops": "snip-row-ops",
    "split-row-ops": "split-row-ops",
    "optimize-row-ops": "optimize-row-ops",
    "extend-matrices": "extend-matrices",
    "initialize-undefined": "initialize-undefined",
    "move-sizing-commands": "move-sizing-commands",
    "allocate-from-other": "allocate-from-other",
}
"""Option -> pass, where one option is all that a pass hangs on."""


def passes_run(options: OptimizeOptions, looped: bool = False) -> set[str]:
    context = PassContext(Nnet(), options, looped=looped)
    return {step.name for step in pipeline.PASSES if step.wanted(context)}


@pytest.mark.parametrize("option", SWITCHES)
def test_a_switch_turns_off_its_pass_only(option: str) -> None:
    off = dataclasses.replace(OptimizeOptions(), **{option.replace("-", "_"): False})
    assert passes_run(OptimizeOptions()) - passes_run(off) == {SWITCHES[option]}


def test_the_rest_of_the_switches() -> None:
    everything = passes_run(OptimizeOptions())
    assert passes_run(OptimizeOptions(optimize=False)) == {"consolidate-io", "memory-compression"}
    assert "memory-compression" not in passes_run(OptimizeOptions(memory_compression_level=0))
    merging = ("remove_assignments", "propagate_in_place", "backprop_in_place")
    off = dataclasses.replace(OptimizeOptions(), **dict.fromkeys(merging, False))
    assert everything - passes_run(off) == {"merge-variables"}
    limited = dataclasses.replace(OptimizeOptions(), optimize=False, max_deriv_time=5)
    assert "limit-derivative-times" in passes_run(limited) - passes_run(OptimizeOptions())
    assert "extend-matrices" not in passes_run(OptimizeOptions(), looped=True)
    assert "looped-computation" in passes_run(OptimizeOptions(), looped=True)


@pytest.mark.parametrize("program", ["nnet3-compile", "nnet3-train", "nnet3-compute"])
def test_every_option_is_in_the_help(program: str, capsys) -> None:
    with pytest.raises(SystemExit):
        raise SystemExit(main_of(program)(["--help"]))
    captured = capsys.readouterr()
    text = captured.out + captured.err
    for option in dataclasses.fields(OptimizeOptions()):
        assert f"--optimization.{option.name.replace('_', '-')}" in text, option.name
    # As in Kaldi, "all optimizations" are not all.
    assert "memory compression (off with" in " ".join(text.split())


def test_from_the_command_line_to_the_program(tmp_path, monkeypatch, capsys) -> None:
    """--optimization.optimize=false and single switches change what nnet3-compile prints."""
    monkeypatch.chdir(tmp_path)
    write_nnet(parse(DEEP), "raw", True)
    with open_output("request", binary=False) as writer:
        deep_case().request.write(writer)
    main = main_of("nnet3-compile")

    def text(*options: str) -> str:
        assert main(["--print=true", *options, "raw", "request", "out.comp"]) == 0
        return capsys.readouterr().out

    usual = text()
    assert "CompressMatrix" in usual
    assert "CompressMatrix" not in text("--optimization.memory-compression-level=0")
    assert ".swap(" in usual
    assert ".swap(" not in text("--optimization.allocate-from-other=false")
    assert len(text("--optimization.optimize=false").splitlines()) > len(usual.splitlines())


def test_options_as_kaldi_writes_them_come_back() -> None:
    options = OptimizeOptions(snip_row_ops=False, min_deriv_time=-3, memory_compression_level=2)
    for binary in (False, True):
        buffer = io.BytesIO()
        options.write(Writer(buffer, binary))
        buffer.seek(0)
        reader = Reader(buffer, "options")
        reader.binary = binary
        assert OptimizeOptions.read(reader) == options

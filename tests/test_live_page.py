"""docs/live.md: its commands run as written, its table of rules is that of the options."""

import math
import os
import re
import subprocess
from pathlib import Path

import pytest

from nnet3tools.decoding.endpoint import EndpointOptions, EndpointRule
from support.tiny_recognizer import write_recognizer, write_wave

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/live.md").read_text()
COMMANDS = re.findall(r"```sh\n(.*?)```", PAGE, re.S)[0].strip().splitlines()


def test_the_commands_run_as_written(tmp_path: Path) -> None:
    pytest.importorskip("kaldi_native_fbank")
    write_recognizer(tmp_path / "exp/chain")
    write_wave(tmp_path / "one.wav", 0.7)
    path = {**os.environ, "PATH": f"{ROOT}/bin:{os.environ['PATH']}"}
    outputs = []
    for command in COMMANDS:
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=path, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        outputs.append(done.stdout)
    partial, *_, result = outputs[0].splitlines()
    assert partial.startswith('{"utterance": "stdin-1", "partial": "')
    assert result.startswith('{"utterance": "stdin-1", "text": "')
    assert outputs[1].startswith("stdin-1 ")
    assert outputs[2].splitlines()[-1].startswith('{"alternatives": [{"confidence": ')
    assert outputs[3].startswith("one 1 0.00 ")


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_the_table_of_rules_has_the_defaults(number: int) -> None:
    row = re.search(rf"\| `rule{number}` \| (.*) \|\n", PAGE)
    assert row
    nonsilence, *numbers = (cell.strip() for cell in row[1].split("|"))
    silence, cost, length = (float(cell) if cell else None for cell in numbers)
    rule: EndpointRule = getattr(EndpointOptions(), f"rule{number}")
    assert rule.must_contain_nonsilence == (nonsilence == "yes")
    assert rule.min_trailing_silence == silence
    assert rule.max_relative_cost == (math.inf if cost is None else cost)
    assert rule.min_utterance_length == (length or 0.0)

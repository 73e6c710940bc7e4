"""Training by several threads."""

from pathlib import Path

import pytest

from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.model_file import write_nnet
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.tensor.cpu import choice
from nnet3tools.tensor.plain import threads
from nnet3tools.training.example import EXAMPLE
from support.configs import in_a_row
from support.native_kernels import needs_compiler
from support.shell import Shell
from support.training_helpers import example

WIDE = in_a_row("""input dim=60
t TdnnComponent input-dim=60 output-dim=400 time-offsets=-1,0,1
r RectifiedLinearComponent dim=400
b BatchNormComponent dim=400
d DropoutComponent dim=400 dropout-proportion=0.1
l LinearComponent input-dim=400 output-dim=80
a NaturalGradientAffineComponent input-dim=80 output-dim=500
s LogSoftmaxComponent dim=500""")


@pytest.mark.parametrize("kernels", ["numpy", pytest.param("native", marks=needs_compiler)])
def test_any_number_of_threads_trains_the_same_bytes(
    shell: Shell, tmp_path: Path, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.write("egs", EXAMPLE, {f"m{i}": example(1600, 60, 500, 1, i) for i in range(5)})
    write_nnet(Nnet.from_config(parse_config_lines(WIDE)), "0.raw")
    monkeypatch.setattr(choice, "_chosen", None)  # and restored, after the programs set it
    models = set()
    for count in (1, 2, 3, 8):
        monkeypatch.setattr(threads, "_num_threads", count)
        shell("nnet3-train", f"--cpu-kernels={kernels}", "0.raw", "ark:egs", "1.raw")
        models.add((tmp_path / "1.raw").read_bytes())
    assert len(models) == 1

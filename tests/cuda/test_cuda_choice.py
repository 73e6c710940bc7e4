"""--use-gpu, --gpu-math and lack of memory, with made-up GPUs."""

import importlib.util
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

from nnet3tools.cli import gpu, gpu_locks, nnet3_train
from nnet3tools.errors import OptionError, UserError, install_command
from support.configs import in_a_row
from support.emulated_cuda import limits_memory, needs_compiler, to_device
from support.fake_gpus import EXCLUSIVE, FakeGpus, insufficient_driver
from support.training_helpers import minibatch, network

COMMAND = re.escape(install_command("cuda12"))


@pytest.fixture
def install(monkeypatch, tmp_path):
    """Puts GPUs in; all pauses are over at once, and are listed in `install.pauses`."""

    def put(gpus: FakeGpus, with_nvml: bool = True) -> FakeGpus:
        return gpus.install(monkeypatch, with_nvml)

    put.pauses = []
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(gpu.time, "sleep", put.pauses.append)
    monkeypatch.setattr(gpu, "_load_libraries", lambda: None)
    monkeypatch.setattr(gpu_locks, "_FOLDER", f"{tmp_path}/locks-{{user}}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return put


# -- which one


def test_the_device_with_most_free_memory_is_taken_and_no_other_gets_a_context(install):
    gpus = install(FakeGpus([0.2, 0.9, 0.5]))
    assert gpu.choose_device("yes") == "on device 1"
    assert gpus.contexts == {1}


def test_the_log_names_the_gpu_and_its_memory_as_kaldi_does(install, capsys):
    install(FakeGpus([0.25, 0.75]))
    gpu.choose_device("yes")
    err = capsys.readouterr().err
    assert "Selecting from 2 GPUs" in err
    assert "GPU(0): Fake 0\tfree:20480M, used:61440M, total:81920M, free/total:0.25\n" in err
    assert err.endswith(
        "The active GPU is [1]: Fake 1\t"
        "free:61440M, used:20480M, total:81920M, free/total:0.75 version 9.0\n"
    )


def test_a_taken_device_is_passed_over(install):
    gpus = install(FakeGpus([0.9, 0.5], taken={0: 1}))
    assert gpu.choose_device("yes") == "on device 1"
    assert gpus.contexts == {1}


def test_in_exclusive_mode_nobody_looks_at_memory_and_the_first_free_device_is_taken(
    install, capsys
):
    gpus = install(FakeGpus([0.1, 0.2, 0.9], taken={0: 1}, mode=EXCLUSIVE))
    assert gpu.choose_device("yes") == "on device 1"
    assert gpus.contexts == {1}
    err = capsys.readouterr().err
    assert "Compute Exclusive Mode" in err
    assert "Selecting" not in err


def test_without_nvml_the_first_device_is_taken_with_a_warning(install, capsys):
    gpus = install(FakeGpus([0.2, 0.9]), with_nvml=False)
    assert gpu.choose_device("yes") == "on device 0"
    assert gpus.contexts == {0}
    assert "nvidia-ml-py is not installed" in capsys.readouterr().err


def test_one_device_needs_no_nvml(install, capsys):
    install(FakeGpus([0.2]), with_nvml=False)
    gpu.choose_device("yes")
    assert "WARNING" not in capsys.readouterr().err


def test_a_device_without_memory_is_passed_over_and_its_context_given_back(install, monkeypatch):
    gpus = install(FakeGpus([0.001, 0.0005, 0.001], mode=EXCLUSIVE))
    monkeypatch.setattr(gpu, "release_context", gpus.contexts.remove)
    gpus.free[2] = 0.5
    assert gpu.choose_device("yes") == "on device 2"
    assert gpus.contexts == {2}


# -- spreading over devices

_HOLD = """
import sys, time
from nnet3tools.cli import gpu_locks
gpu_locks._FOLDER = sys.argv[1]
print(next(gpu_locks.claims(sys.argv[2:]))[0], flush=True)
time.sleep(60)
"""


@pytest.fixture
def job(tmp_path):
    """Starts jobs that choose between these GPUs and stay; gives what they chose."""
    jobs = []

    def start(*keys: str) -> tuple[int, subprocess.Popen]:
        words = [sys.executable, "-c", _HOLD, f"{tmp_path}/locks-{{user}}", *keys]
        jobs.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
        return int(jobs[-1].stdout.readline()), jobs[-1]

    yield start
    for process in jobs:
        process.kill()
        process.communicate()


def test_jobs_started_together_spread_and_a_dead_one_leaves_its_place(install, job):
    """All see the same free memory, as none has taken any yet."""
    keys = ("GPU-0", "GPU-1")
    chosen = [job(*keys) for _ in range(3)]
    assert [index for index, _ in chosen] == [0, 1, 0]
    install(FakeGpus([0.9, 0.9]))
    assert gpu.choose_device("yes") == "on device 1"  # where one job is, as two are on the other
    first = chosen[0][1]
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert job(*keys)[0] == 0


def test_a_full_device_is_not_taken_because_no_job_of_ours_is_there(install, job):
    job("GPU-0")
    install(FakeGpus([0.9, 0.1]))
    assert gpu.choose_device("yes") == "on device 0"


def test_a_place_is_left_where_the_device_cannot_be_used(install, job):
    install(FakeGpus([0.9, 0.8], taken={0: 1}))
    assert gpu.choose_device("yes") == "on device 1"
    assert job("GPU-0", "GPU-1")[0] == 0


@pytest.mark.parametrize("what", ["others may write", "a link", "a file"])
def test_a_folder_that_is_not_the_users_own_is_not_used(install, tmp_path, capsys, what):
    folder = tmp_path / f"locks-{os.geteuid()}"
    if what == "a link":
        (tmp_path / "elsewhere").mkdir()
        folder.symlink_to("elsewhere")
    elif what == "a file":
        folder.touch()
    else:
        folder.mkdir()
        folder.chmod(0o777)
    install(FakeGpus([0.2, 0.9]))
    assert gpu.choose_device("yes") == "on device 1"
    assert "not this user's own" in capsys.readouterr().err
    assert len(list(tmp_path.rglob("*"))) == 1 + (what == "a link")


# -- patience


def test_yes_tries_again_after_twenty_seconds_as_kaldi_does(install, capsys):
    install(FakeGpus([0.9], taken={0: 1}))
    assert gpu.choose_device("yes") == "on device 0"
    assert install.pauses == [20]
    err = capsys.readouterr().err
    assert "Will try again after 20 seconds to get a GPU." in err
    assert "Waited 20 seconds before creating CUDA context" in err


def test_yes_gives_up_then_and_optional_after_two_seconds(install):
    install(FakeGpus([0.9], taken={0: 100}))
    with pytest.raises(UserError, match=r"busy.*--use-gpu=wait waits"):
        gpu.choose_device("yes")
    assert install.pauses == [20]
    assert gpu.choose_device("optional").size == 0
    assert install.pauses == [20, 2]


def test_wait_waits_as_long_as_it_takes_and_says_so_once(install, capsys):
    install(FakeGpus([0.9], taken={0: 30}))
    assert gpu.choose_device("wait") == "on device 0"
    assert install.pauses == [5] * 30
    err = capsys.readouterr().err
    assert err.count("Will try again indefinitely every 5 seconds") == 1
    assert "Waited 150 seconds" in err


# -- bad input: one line that says what to do


def error_of(use_gpu: str = "yes") -> str:
    with pytest.raises(UserError) as caught:
        gpu.choose_device(use_gpu)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 345  # or the line is cut
    return text


@pytest.mark.parametrize("use_gpu", ["yes", "wait"])
def test_without_a_driver(install, use_gpu):
    gpus = install(FakeGpus([], driver=0))
    gpus.runtime.getDeviceCount = insufficient_driver
    assert re.search(r"no NVIDIA driver; install it.*--use-gpu=no", error_of(use_gpu))
    assert install.pauses == []
    assert gpu.choose_device("optional").size == 0


def test_with_a_driver_and_no_device(install, monkeypatch):
    gpus = install(FakeGpus([]))
    assert re.search(r"sees no device;.*nvidia-smi -L.*--use-gpu=no", error_of())

    def none() -> None:
        raise RuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")

    gpus.runtime.getDeviceCount = none
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    assert re.search(r"no device \(CUDA_VISIBLE_DEVICES='7'\); set it", error_of("wait"))
    assert install.pauses == []


def test_with_a_cupy_of_another_cuda(install):
    gpus = install(FakeGpus([0.9], driver=12040, made_for=13000))
    gpus.runtime.getDeviceCount = insufficient_driver
    text = error_of()
    assert "made for CUDA 13 and the driver for CUDA 12.4" in text
    assert "update the driver" in text
    assert install_command("cuda12") in text


def test_a_newer_driver_runs_an_older_cupy(install):
    install(FakeGpus([0.9], driver=13000, made_for=12090))
    assert gpu.choose_device("yes") == "on device 0"


@pytest.mark.parametrize("error", [ImportError, OSError])
def test_a_missing_library_is_one_line_and_no_traceback(install, monkeypatch, capsys, error):
    install(FakeGpus([0.9]))

    def missing() -> None:
        raise error("libcublas.so.12: cannot open shared object file\nno such file")

    monkeypatch.setattr(gpu, "_load_libraries", missing)
    assert re.search(f"no usable GPU \\(libcublas.* {COMMAND} or cuda13", error_of())
    assert gpu.choose_device("optional").size == 0
    assert "libcublas" in capsys.readouterr().err


def test_without_cupy(install, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert re.search(f"CuPy is not installed; {COMMAND}", error_of())


def test_a_memory_limit_that_is_too_small_for_the_libraries_is_no_reason_to_wait(
    install, monkeypatch
):
    install(FakeGpus([0.9]))

    def limited() -> None:
        raise MemoryError(
            "Out of memory allocating 33,554,432 bytes (allocated so far: 0 bytes, "
            "limit set to: 1,000 bytes)."
        )

    monkeypatch.setattr(gpu, "_load_libraries", limited)
    assert re.search(r"limit set to: 1,000 bytes\); raise.*CUPY_GPU_MEMORY_LIMIT", error_of("wait"))
    assert install.pauses == []


def test_gpu_math_is_checked_without_a_gpu():
    with pytest.raises(OptionError, match="gpu-math"):
        gpu.choose_device("no", "fp8")


def test_an_unknown_gpu_math_is_one_line_of_the_program(tmp_path, capsys):
    words = ["--gpu-math=xyz", "0.raw", "ark:egs", str(tmp_path / "1.raw")]
    assert nnet3_train.main(["--print-args=false", *words]) == 255
    line = capsys.readouterr().err
    assert re.fullmatch(r"ERROR .* --gpu-math=xyz: expected fp32\|tf32\|fp16\|bf16\n", line)


def test_lack_of_memory_names_the_plan_and_what_helps(monkeypatch):
    from nnet3tools.executor import binding as program
    from nnet3tools.training.trainer import NnetTrainer, NnetTrainerOptions

    take = program.Arena.take

    def full(self, num_bytes):
        if num_bytes:
            raise MemoryError
        return take(self, num_bytes)

    monkeypatch.setattr(program.Arena, "take", full)
    with pytest.raises(UserError, match=r"MB at their peak.*m\d+ \(.*memory-compression-level"):
        NnetTrainer(NnetTrainerOptions(), network()).train(minibatch())


@needs_compiler
@limits_memory
@pytest.mark.parametrize("where", ["arena", "later"])
def test_lack_of_a_gpus_memory_names_all_that_takes_it(device, monkeypatch, where):
    from nnet3tools.executor import binding as program
    from nnet3tools.training import trainer

    def full(*_: object) -> None:
        raise MemoryError("cudaErrorMemoryAllocation: out of memory")

    take = program.Arena.take
    if where == "arena":
        monkeypatch.setattr(program.Arena, "take", lambda a, n: full() if n else take(a, n))
    else:
        monkeypatch.setattr(trainer.L2Regularization, "apply", full)
    made = trainer.NnetTrainer(
        trainer.NnetTrainerOptions(), network(), to_device(np.zeros(0, np.float32))
    )
    with pytest.raises(UserError) as caught:
        made.train(minibatch())
    text = str(caught.value)
    assert "out of memory on the GPU" in text
    assert "1024.0 MB 1.0 are free" in text
    for part in ("arena", "model", "parameter change", "example buffers", "compression-level"):
        assert part in text


@needs_compiler
def test_a_model_larger_than_the_memory_is_one_line(device, monkeypatch):
    from nnet3tools.training.trainer import NnetTrainer, NnetTrainerOptions

    like = to_device(np.zeros(0, np.float32))

    def limited(*_: object, **__: object) -> None:
        raise MemoryError("Out of memory allocating 512 bytes (limit set to: 1,000 bytes).")

    monkeypatch.setattr(sys.modules["cupy"], "asarray", limited)
    with pytest.raises(UserError) as caught:
        NnetTrainer(NnetTrainerOptions(), network(), like).train(minibatch())
    text = str(caught.value)
    assert re.search(r"the model takes \d\.\d MB \(.*1,000 bytes\)\); a larger CUPY_GPU_", text)
    assert "\n" not in text
    assert len(text) < 345


@needs_compiler
@limits_memory
def test_lack_of_memory_names_the_limit_where_there_is_one(device, monkeypatch):
    from nnet3tools.executor import binding as program
    from nnet3tools.training import trainer

    take = program.Arena.take

    def full(arena, size):
        if size:
            raise MemoryError
        return take(arena, size)

    monkeypatch.setattr(program.Arena, "take", full)
    monkeypatch.setenv("CUPY_GPU_MEMORY_LIMIT", "1073741824")
    made = trainer.NnetTrainer(
        trainer.NnetTrainerOptions(), network(), to_device(np.zeros(0, np.float32))
    )
    with pytest.raises(UserError, match=r"CUPY_GPU_MEMORY_LIMIT=1073741824, which is 1024\.0 MB"):
        made.train(minibatch())


def test_memory_that_is_told_beforehand_is_what_training_takes():
    """Model, change, arena and natural gradient against a trainer's own; buffers by formula."""
    from nnet3tools.executor.memory_need import memory_need
    from nnet3tools.nnet.config import parse_config_lines
    from nnet3tools.nnet.nnet import Nnet
    from nnet3tools.training.trainer import NnetTrainer, NnetTrainerOptions

    config = in_a_row("""input dim=3
a NaturalGradientAffineComponent input-dim=9 output-dim=50 rank-in=3 rank-out=7 \
input=Append(Offset(input, -1), input, Offset(input, 1))
t TdnnComponent input-dim=50 output-dim=5 time-offsets=0
ls LogSoftmaxComponent dim=5""")
    nnet = Nnet.from_config(parse_config_lines(config))
    trainer = NnetTrainer(NnetTrainerOptions(store_component_stats=False), nnet)
    example = minibatch(size=30)
    trainer.train(example)
    (computer,) = trainer._runner._computers.values()
    need = memory_need(computer.computation, nnet, computer.program.plan)
    parameters = [p for _, c in nnet.updatable_components() for p in c.parameters().values()]
    statistics = need["model"] - sum(p.nbytes for p in parameters)
    assert need["parameter change"] == need["model"]
    assert 0 <= statistics <= 5 * 8  # the sums of LogSoftmax
    assert need["arena of the matrices"] == computer.program.plan.num_bytes
    estimates = [e for c in trainer._delta.components for e, _ in c.preconditioners()]
    assert need["natural gradient"] == sum(e.w.nbytes for e in estimates)
    features, targets = example.io
    assert need["example buffers"] == 2 * (features.features.nbytes + 12 * len(targets.indexes))

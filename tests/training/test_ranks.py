"""Trainings by several processes: averages, uneven shares, killed processes, bad options."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnet3tools.cli.ranks import _codes_of
from nnet3tools.nnet.arithmetic import unvectorize, vectorize
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.model_file import read_nnet, write_nnet
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.training.averaging import average_models, equal_weights, weighted_average
from nnet3tools.training.example import EXAMPLE, NnetExample
from nnet3tools.training.trainer import NnetTrainer, NnetTrainerOptions
from support.configs import in_a_row
from support.shell import Shell
from support.training_helpers import minibatch, network

CONFIG = in_a_row("""input dim=3
a {affine} input-dim=9 output-dim=7 learning-rate=0.02 max-change=0.5 \
input=Append(Offset(input, -1), input, Offset(input, 1))
r RectifiedLinearComponent dim=7 {relu}
b BatchNormComponent dim=7
d DropoutComponent dim=7 dropout-proportion={dropout}
o LinearComponent input-dim=7 output-dim=5 learning-rate=0.03
s LogSoftmaxComponent dim=5""")
COUNT = 22
"""Minibatches: four ranks get 6, 6, 5 and 5."""
NATURAL, PLAIN = "NaturalGradientAffineComponent", "AffineComponent"


def model(affine: str = NATURAL, relu: str = "", dropout: float = 0.2) -> Nnet:
    """A network with random decisions, if `dropout` is not 0 and `relu` does not forbid them."""
    text = CONFIG.format(affine=affine, relu=relu, dropout=dropout)
    return Nnet.from_config(parse_config_lines(text))


def without_chance(affine: str) -> Nnet:
    return model(affine, "self-repair-scale=0", 0.0)


@pytest.fixture
def data(shell: Shell) -> Shell:
    """A shell in a folder with a model, 0.raw, and minibatches, egs."""
    shell.write("egs", EXAMPLE, {f"m{i}": minibatch(seed=i) for i in range(COUNT)})
    write_nnet(model(), "0.raw")
    return shell


def shares(size: int) -> list[list[NnetExample]]:
    return [[minibatch(seed=i) for i in range(rank, COUNT, size)] for rank in range(size)]


def start(*words: object, **named: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "nnet3tools", "nnet3-train", *map(str, words)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **named)


def train(*words: object) -> str:
    """The log of a training in processes of its own, which succeeds."""
    process = start(*words)
    _, log = process.communicate(timeout=300)
    assert process.returncode == 0, log
    return log


def error_of(process: subprocess.Popen[str]) -> str:
    """The one line of a training that fails, which has no output and leaves no process."""
    _, log = process.communicate(timeout=60)
    assert process.returncode == 255
    lines = [line for line in log.splitlines() if line.startswith("ERROR")]
    assert len(lines) == 1, log
    assert lines[0].startswith("ERROR (nnet3-train[")
    assert "Traceback" not in log
    assert not Path("out").exists()
    return lines[0]


class EndsWhenAsked:
    """A process that ends after its exit code was read once."""

    def __init__(self) -> None:
        self.sentinel, end = os.pipe()
        self._codes = iter([None, 0, 0])
        os.close(end)

    @property
    def exitcode(self) -> int | None:
        return next(self._codes)


def test_processes_that_end_between_two_looks_are_not_waited_for_forever() -> None:
    found: list[list[int | None]] = []
    processes: Any = [EndsWhenAsked(), EndsWhenAsked()]
    waiting = threading.Thread(target=lambda: found.append(_codes_of(processes)), daemon=True)
    waiting.start()
    waiting.join(30)
    assert found == [[0, 0]]


# -- the averages


@pytest.mark.parametrize("size", [pytest.param(3, marks=pytest.mark.slow), 4])
def test_with_one_average_at_the_end_it_is_separate_trainings_and_nnet3_average(
    data: Shell, size: int
) -> None:
    """All statistics, batch normalisation's included; 3 has weights that are rounded."""
    options = ("--momentum=0.5", "--srand=5")
    train(f"--num-workers={size}", "--average-interval=0", *options, "0.raw", "ark:egs", "out")
    for rank, share in enumerate(shares(size)):
        data.write("part", EXAMPLE, {f"m{i}": one for i, one in enumerate(share)})
        words = ("--use-gpu=no", "--momentum=0.5", f"--srand={5 + rank}", "0.raw", "ark:part")
        train(*words, f"{rank}.out")
    data("nnet3-average", *(f"{rank}.out" for rank in range(size)), "average")
    assert Path("out").read_bytes() == Path("average").read_bytes()


def test_an_average_after_each_minibatch_is_that_of_numpy(data: Shell) -> None:
    """Four ranks, the last two without a sixth minibatch: they have no weight in that average."""
    nnet = without_chance(PLAIN)
    write_nnet(nnet, "0.raw")
    train("--num-workers=4", "--cpu-kernels=numpy", "0.raw", "ark:egs", "out")
    trainers = [NnetTrainer(NnetTrainerOptions(), nnet.copy()) for _ in range(4)]
    parameters = vectorize(nnet)
    for step in range(6):
        found = []
        for trainer, share in zip(trainers, shares(4), strict=True):
            if step < len(share):
                unvectorize(trainer.nnet, parameters)
                trainer.train(share[step])
                found.append(vectorize(trainer.nnet))
        parameters = sum(each / np.float32(len(found)) for each in found)
    np.testing.assert_array_equal(vectorize(read_nnet("out")), parameters)
    assert len(found) == 2


@pytest.mark.slow
def test_natural_gradient_and_momentum_stay_those_of_a_rank(data: Shell) -> None:
    """Three trainers in turns, whose parameters are averaged after two minibatches of each."""
    nnet = without_chance(NATURAL)
    write_nnet(nnet, "0.raw")
    words = ("--cpu-kernels=numpy", "--num-workers=3", "--average-interval=2", "--momentum=0.5")
    train(*words, "0.raw", "ark:egs", "out")
    options = NnetTrainerOptions(momentum=0.5)
    trainers = [NnetTrainer(options, nnet.copy()) for _ in range(3)]
    for step in range(0, 8, 2):
        rows, has_new = [], []
        for trainer, share in zip(trainers, shares(3), strict=True):
            for one in share[step : step + 2]:
                trainer.train(one)
            has_new.append(len(share) > step)
            rows.append(vectorize(trainer.nnet))
        average = weighted_average(np.array(rows), equal_weights(has_new))
        for trainer in trainers:
            unvectorize(trainer.nnet, average)
    np.testing.assert_array_equal(vectorize(read_nnet("out")), average)


def test_two_runs_give_the_same_bytes(data: Shell) -> None:
    for out in ("one", "two"):
        train("--num-workers=4", "--average-interval=2", "--srand=3", "0.raw", "ark:egs", out)
    assert Path("one").read_bytes() == Path("two").read_bytes()


@pytest.mark.slow
def test_ranks_without_examples_have_no_weight(data: Shell) -> None:
    data.write("part", EXAMPLE, {"m": minibatch()})
    train("--num-workers=3", "0.raw", "ark:part", "out")
    train("--use-gpu=no", "0.raw", "ark:part", "alone")
    data("nnet3-average", "alone", "average")
    assert Path("out").read_bytes() == Path("average").read_bytes()


@pytest.mark.parametrize("count", [1, 3, 6, 11, 12])
def test_vectors_are_averaged_with_the_rounding_of_models(tmp_path: Path, count: int) -> None:
    """From 6 models on, nnet3-average adds in another order."""
    nnets = [network(seed=i) for i in range(count)]
    names = [f"{tmp_path}/{i}" for i in range(count)]
    for name, nnet in zip(names, nnets, strict=True):
        write_nnet(nnet, name)
    weights = equal_weights([True] * count)
    rows = np.array([vectorize(nnet) for nnet in nnets])
    expected = vectorize(average_models(names, weights))
    np.testing.assert_array_equal(weighted_average(rows, weights), expected)


# -- ranks that are started apart


def test_ranks_started_apart_meet_at_a_file(data: Shell) -> None:
    """One was killed before the others came, and another takes its place."""
    words = ("--num-workers=2", "--rendezvous=meet", "--average-interval=0")
    early = start(*words, "--rank=1", "0.raw", "ark:egs", "out")
    time.sleep(0.5)
    early.kill()
    early.communicate()
    ranks = [start(*words, f"--rank={r}", "0.raw", "ark:egs", "out") for r in (1, 0)]
    for process in ranks:
        _, log = process.communicate()
        assert process.returncode == 0, log
    train("--use-gpu=no", "0.raw", "ark:egs", "alone")
    data("nnet3-average", "alone", "alone", "average")
    assert Path("out").read_bytes() == Path("average").read_bytes()
    assert not Path("meet").exists()


def test_a_rank_that_waits_for_gpus_ends_with_the_others() -> None:
    """A sum over GPUs never ends if another process has: a thread watches the others."""
    code = """
import sys, threading, time
from multiprocessing.connection import Connection
from nnet3tools.training.ranks import Ranks
ranks = Ranks(1, [Connection(int(sys.argv[1]))], 2)
threading.Thread(target=ranks.end_with_others, daemon=True).start()
time.sleep(60)
"""
    mine, theirs = socket.socketpair()
    words = [sys.executable, "-c", code, str(theirs.fileno())]
    process = subprocess.Popen(words, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE, text=True)
    theirs.close()
    time.sleep(0.5)
    assert process.poll() is None
    mine.close()
    _, log = process.communicate(timeout=30)
    assert process.returncode == 255
    assert "another process of this training has ended early" in log


# -- what goes wrong


def waiting(*words: object) -> tuple[subprocess.Popen[str], list[int]]:
    """A training by four processes that waits for more examples, and the ids of the processes."""
    process = start("--num-workers=4", *words, "0.raw", "ark:cat egs; sleep 20 |", "out")
    until = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until:
        ranks = children(process.pid)
        if len(ranks) == 4 and all(children(pid) for pid in ranks):
            time.sleep(1.0)  # now they train, or wait
            return process, ranks
        time.sleep(0.05)
    process.kill()
    raise AssertionError(f"the processes did not start: {process.communicate()[1]}")


def children(pid: int) -> list[int]:
    return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def descendants(pid: int) -> list[int]:
    found = children(pid)
    return found + [each for child in found for each in descendants(child)]


def have_ended(pids: list[int]) -> bool:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        if not any(map(is_alive, pids)):
            return True
        time.sleep(0.05)
    return False


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("rank", [0, 2])
def test_a_killed_rank_ends_all_in_one_line(data: Shell, rank: int) -> None:
    process, ranks = waiting()
    started = descendants(process.pid)
    os.kill(ranks[rank], signal.SIGKILL)
    assert f"process {rank} of 4 was killed by signal 9" in error_of(process)
    assert have_ended(started)


def test_ranks_end_with_a_parent_that_is_killed(data: Shell) -> None:
    process, ranks = waiting()
    process.kill()
    process.wait()
    assert have_ended(ranks)
    assert not Path("out").exists()


def test_interrupted_it_leaves_nothing(data: Shell) -> None:
    process, _ = waiting()
    started = descendants(process.pid)
    process.terminate()
    process.communicate(timeout=30)
    assert have_ended(started)
    assert not Path("out").exists()


def test_lack_of_shared_memory_is_one_line(data: Shell) -> None:
    """The limit is for files, among which Linux counts shared memory without a name."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))

    line = error_of(start("--num-workers=4", "0.raw", "ark:egs", "out", preexec_fn=limit))
    assert "4 processes need 0.0 MB of shared memory: File too large" in line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--num-workers=0",), "--average-interval=1: expected 1 to 256, 0 to 256, and 0 or more"),
        (
            ("--num-workers=1000000",),
            "--num-workers=1000000 --num-gpus=0 --average-interval=1: exp",
        ),
        (("--average-interval=-1",), "--average-interval=-1: expected 1 to 256"),
        (("--num-workers=2", "--num-gpus=2"), "--num-gpus=2 and --use-gpu= contradict"),
        (("--num-workers=2", "--use-gpu=yes"), "--use-gpu=yes contradict"),
        (("--num-gpus=2", "--use-gpu=no"), "--use-gpu=no contradict"),
        (("--num-workers=2", "--rank=2", "--rendezvous=x"), "a rank below 2"),
        (("--num-workers=2", "--rank=1"), "--rank=1 --rendezvous=: expected both or none"),
        (("--rendezvous=x",), "--rank=-1 --rendezvous=x: expected both or none"),
    ],
)
def test_options_that_do_not_fit_are_one_line(
    data: Shell, words: tuple[str, ...], message: str
) -> None:
    assert message in data.error("nnet3-train", *words, "0.raw", "ark:egs", "out")


def test_standard_input_cannot_be_shared(data: Shell) -> None:
    line = data.error("nnet3-train", "--num-workers=2", "0.raw", "ark:-", "out")
    assert "ark:-: 2 processes cannot share standard input" in line


def test_an_error_of_ranks_is_one_line(data: Shell) -> None:
    assert "none" in error_of(start("--num-workers=4", "0.raw", "ark:none", "out"))
    data.write("part", EXAMPLE, {})
    process = start("--num-workers=2", "0.raw", "ark:part", "out")
    _, log = process.communicate()
    assert process.returncode == 1
    assert log.count("ERROR") == 1
    assert "no examples to train on" in log

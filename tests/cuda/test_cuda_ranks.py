"""Trainings by processes with a GPU each: the model's NCCL sums in memory that they share."""

import ctypes
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nnet3tools.cli.ranks import check_gpus, run_ranks
from nnet3tools.errors import UserError
from nnet3tools.nnet.arithmetic import vectorize
from nnet3tools.nnet.device import move_nnet
from nnet3tools.tensor.cuda.nccl import new_id
from nnet3tools.training.averaging import JointTraining
from nnet3tools.training.ranks import Ranks
from nnet3tools.training.trainer import NnetTrainer, NnetTrainerOptions
from support.emulated_cuda import REAL, needs_compiler, to_device
from support.model_streams import get_machine
from support.training_helpers import minibatch, network

GROUP = bytes(range(128))
COUNT = 10
"""Minibatches: the last of four ranks has one less than the first two."""


def model_nccl(ranks: Ranks) -> Any:
    """The functions and constants of cupy.cuda.nccl, for arrays of the model."""

    class NcclCommunicator:
        def __init__(self, size: int, group: bytes, rank: int) -> None:
            assert (size, group, rank) == (ranks.size, GROUP, ranks.rank)

        def allReduce(self, source: int, dest: int, count: int, *rest: int) -> None:
            get_machine().current_stream().synchronize()
            assert rest[:2] == (7, 0)
            rows = ranks.shared(count)
            array = np.ctypeslib.as_array((ctypes.c_float * count).from_address(source))
            rows[ranks.rank] = array
            ranks.gather()
            array[:] = rows.sum(axis=0)
            assert dest == source

    return SimpleNamespace(
        available=True,
        NcclCommunicator=NcclCommunicator,
        get_unique_id=lambda: GROUP,
        NCCL_FLOAT32=7,
        NCCL_SUM=0,
    )


def trained(ranks: Ranks, like: Any) -> np.ndarray:
    """The parameters after a training on the device of `like`, averaged after 2 minibatches."""
    nnet = network()
    trainer = NnetTrainer(NnetTrainerOptions(), nnet, like)
    joint = JointTraining(ranks, trainer, 2, like)
    for i in range(ranks.rank, COUNT, ranks.size):
        trainer.train(minibatch(seed=i))
        joint.step()
    joint.finish()
    move_nnet(nnet)
    return vectorize(joint.merged(nnet))


@needs_compiler
@pytest.mark.skipif(REAL, reason="there may be one GPU only, and this process uses it")
def test_four_ranks_give_the_average_of_the_cpu(device, tmp_path: Path, monkeypatch) -> None:
    def on_host(ranks: Ranks) -> int:
        np.save(tmp_path / f"host{ranks.rank}", trained(ranks, None))
        return 0

    def on_device(ranks: Ranks) -> int:
        monkeypatch.setitem(sys.modules, "cupy.cuda.nccl", model_nccl(ranks))
        np.save(tmp_path / f"gpu{ranks.rank}", trained(ranks, to_device(np.zeros(0, np.float32))))
        return 0

    assert run_ranks(4, on_host) == 0
    assert run_ranks(4, on_device) == 0
    expected = np.load(tmp_path / "host0.npy")
    for rank in range(4):
        found = np.load(tmp_path / f"gpu{rank}.npy")
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
        np.testing.assert_array_equal(found, np.load(tmp_path / "gpu0.npy"))


def test_without_nccl_it_is_told_what_to_install(monkeypatch) -> None:
    for nccl in (None, SimpleNamespace(available=False)):
        monkeypatch.setitem(sys.modules, "cupy.cuda.nccl", nccl)
        with pytest.raises(UserError, match=r"CuPy finds no NCCL, which several GPUs need: pip"):
            new_id()


@pytest.mark.parametrize(
    ("names", "buses", "message"),
    [
        (["A", "A", "A"], [1, 2, 2], "--num-gpus=3: only 2 GPUs of this machine can be used"),
        (["B", "A", "A"], [1, 2, 3], r"--num-gpus=3: the GPUs are of different kinds \(A, B\)"),
    ],
)
def test_too_few_and_unlike_gpus_are_refused_in_one_line(
    names: list[str], buses: list[int], message: str
) -> None:
    def work(ranks: Ranks) -> int:
        runtime = SimpleNamespace(
            getDevice=lambda: 0,
            getDeviceProperties=lambda number: {"name": names[ranks.rank].encode()},
            deviceGetPCIBusId=lambda number: f"0000:{buses[ranks.rank]:02X}:00.0",
        )
        check_gpus(ranks, runtime)
        return 0

    with pytest.raises(UserError, match=message):
        run_ranks(3, work)

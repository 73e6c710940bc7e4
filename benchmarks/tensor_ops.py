"""Tensor operators against NumPy with preallocated outputs, numexpr and PyTorch, side by side.

    python benchmarks/tensor_ops.py [--threads 1 2] [--rounds 15] [--wait 0]

"ours" is what recordings replay with --cpu-kernels=native, "blocks" with numpy. Contestants that
cannot be imported are left out. Each round runs every contestant once, in turn,
so that a slow moment of the machine hits all of them; the best round counts. On one thread the
thread's CPU time is taken, which other programs' work lengthens least. On more it is elapsed time,
of use only on an idle machine: with `--wait S` every run waits, S seconds at most, until nothing
else is running (Linux). Results are compared, too.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Contestants = dict[str, Callable[[], np.ndarray]]


def _optional(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError:
        return None


def _both(operator: Any, *operands: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    """An operator bound to arrays as a compiled kernel and as NumPy in blocks."""
    from nnet3tools.tensor.call import Call, in_turn
    from nnet3tools.tensor.cpu.calls import compiled_steps

    steps = compiled_steps([(0, Call.of(operator, *operands))])
    return in_turn(work for _, work in steps), operator.bind(*operands)


def chain() -> Contestants:
    """Six elementwise operations on 4096 x 1024 float32."""
    from nnet3tools import tensor

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 4096, 1024)).astype(np.float32)
    out, mine, t = np.empty_like(x), np.empty_like(x), np.empty_like(x)
    op = tensor.element("_1 = max(_2 * _3 + 0.5, 0) * exp(-abs(_3))")
    run, blocks = _both(op, mine, x, y)

    def ours() -> np.ndarray:
        run()
        return mine

    def by_blocks() -> np.ndarray:
        blocks()
        return mine

    def plain() -> np.ndarray:
        np.multiply(x, y, out=out)
        np.add(out, np.float32(0.5), out=out)
        np.maximum(out, np.float32(0), out=out)
        np.abs(y, out=t)
        np.negative(t, out=t)
        np.exp(t, out=t)
        np.multiply(out, t, out=out)
        return out

    contestants = {"ours": ours, "blocks": by_blocks, "numpy": plain}
    if (numexpr := _optional("numexpr")) is not None:
        ne_out, zero, half = np.empty_like(x), np.float32(0), np.float32(0.5)
        formula = "where(x * y + half > zero, x * y + half, zero) * exp(-abs(y))"
        contestants["numexpr"] = lambda: numexpr.evaluate(
            formula, {"x": x, "y": y, "zero": zero, "half": half}, out=ne_out
        )
    if (torch := _optional("torch")) is not None:
        tx, ty = torch.from_numpy(x), torch.from_numpy(y)
        ta, tb = torch.empty_like(tx), torch.empty_like(tx)

        def pytorch() -> np.ndarray:
            torch.mul(tx, ty, out=ta)
            ta.add_(0.5).relu_()
            torch.abs(ty, out=tb)
            tb.neg_().exp_()
            return ta.mul_(tb).numpy()

        contestants["torch"] = pytorch
    return contestants


def log_softmax() -> Contestants:
    """Log-softmax of 2048 x 6000."""
    from nnet3tools import tensor

    x = np.random.default_rng(0).normal(size=(2048, 6000)).astype(np.float32)
    out, mine, t = np.empty_like(x), np.empty_like(x), np.empty_like(x)
    run, blocks = _both(tensor.log_softmax, mine, x)

    def ours() -> np.ndarray:
        run()
        return mine

    def by_blocks() -> np.ndarray:
        blocks()
        return mine

    def plain() -> np.ndarray:
        np.subtract(x, x.max(axis=1, keepdims=True), out=out)
        np.exp(out, out=t)
        return np.subtract(out, np.log(t.sum(axis=1, keepdims=True)), out=out)

    contestants = {"ours": ours, "blocks": by_blocks, "numpy": plain}
    if (torch := _optional("torch")) is not None:
        tx, ty = torch.from_numpy(x), torch.empty(x.shape)
        contestants["torch"] = lambda: torch.log_softmax(tx, 1, out=ty).numpy()
    return contestants


def batch_norm() -> Contestants:
    """Batch normalisation, in training, of 8192 x 512."""
    from nnet3tools import tensor

    x = np.random.default_rng(0).normal(size=(8192, 512)).astype(np.float32)
    out, mine, t = np.empty_like(x), np.empty_like(x), np.empty_like(x)
    run, blocks = _both(tensor.batch_norm, mine, np.empty((3, 512), np.float32), x, 0.001, 1.0)

    def ours() -> np.ndarray:
        run()
        return mine

    def by_blocks() -> np.ndarray:
        blocks()
        return mine

    def plain() -> np.ndarray:
        centre = x.mean(axis=0)
        np.subtract(x, centre, out=out)
        np.multiply(out, out, out=t)
        return np.multiply(out, 1 / np.sqrt(t.mean(axis=0) + np.float32(0.001)), out=out)

    contestants = {"ours": ours, "blocks": by_blocks, "numpy": plain}
    if (torch := _optional("torch")) is not None:
        tx = torch.from_numpy(x)
        contestants["torch"] = lambda: torch.nn.functional.batch_norm(
            tx, None, None, training=True, eps=0.001
        ).numpy()
    return contestants


def _sigmoid(x: np.ndarray, out: np.ndarray) -> None:
    np.negative(x, out=out)
    np.exp(out, out=out)
    np.add(out, np.float32(1), out=out)
    np.reciprocal(out, out=out)


def lstm() -> Contestants:
    """The LSTM non-linearity (with peepholes) of 960 rows and 1024 cells."""
    from nnet3tools import tensor

    rng = np.random.default_rng(0)
    dim = 1024
    x = rng.normal(size=(960, 5 * dim)).astype(np.float32)
    params = rng.normal(size=(3, dim)).astype(np.float32)
    mine, out = np.empty((2, 960, 2 * dim), np.float32)
    i, f, t = np.empty((3, 960, dim), np.float32)
    parts = [x[:, k * dim : (k + 1) * dim] for k in range(5)]
    run, blocks = _both(tensor.lstm_nonlinearity, mine, x, params)

    def ours() -> np.ndarray:
        run()
        return mine

    def by_blocks() -> np.ndarray:
        blocks()
        return mine

    def plain() -> np.ndarray:
        xi, xf, xc, xo, previous = parts
        c, m = out[:, :dim], out[:, dim:]
        for gate, part, weight in ((i, xi, params[0]), (f, xf, params[1])):
            np.multiply(previous, weight, out=gate)
            np.add(gate, part, out=gate)
            _sigmoid(gate, gate)
        np.tanh(xc, out=t)
        np.multiply(t, i, out=t)
        np.multiply(f, previous, out=c)
        np.add(c, t, out=c)
        np.multiply(c, params[2], out=i)
        np.add(i, xo, out=i)
        _sigmoid(i, i)
        np.tanh(c, out=t)
        np.multiply(i, t, out=m)
        return out

    contestants = {"ours": ours, "blocks": by_blocks, "numpy": plain}
    if (torch := _optional("torch")) is not None:
        tx, tp = torch.from_numpy(x), torch.from_numpy(params)

        def pytorch() -> np.ndarray:
            with torch.no_grad():
                xi, xf, xc, xo, previous = tx.split(dim, 1)
                gate = torch.sigmoid(torch.addcmul(xi, previous, tp[0]))
                forget = torch.sigmoid(torch.addcmul(xf, previous, tp[1]))
                c = forget.mul_(previous).addcmul_(gate, torch.tanh(xc))
                o = torch.sigmoid(torch.addcmul(xo, c, tp[2]))
                return torch.cat([c, o.mul_(torch.tanh(c))], 1).numpy()

        contestants["torch"] = pytorch
    return contestants


BENCHMARKS = (chain, log_softmax, batch_norm, lstm)


def wait_until_idle(seconds: float) -> bool:
    """Wait until no other process is running or ready to; False if that takes too long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with open("/proc/loadavg") as file:
            if file.read().split()[3].startswith("1/"):
                return True
        time.sleep(0.003)
    return False


def measure(
    contestants: Contestants, rounds: int, clock: Callable[[], float], wait: float
) -> tuple[dict[str, float], float]:
    """Best time of each contestant in ms, and how many of the runs began on an idle machine.

    The contestants' results must agree.
    """
    expected = contestants["numpy"]().astype(float)
    for name, run in contestants.items():
        np.testing.assert_allclose(run(), expected, rtol=1e-3, atol=1e-4, err_msg=name)
    best, idle = dict.fromkeys(contestants, float("inf")), 0
    for _ in range(rounds):
        for name, run in contestants.items():
            idle += wait > 0 and wait_until_idle(wait)
            start = clock()
            run()
            best[name] = min(best[name], 1e3 * (clock() - start))
    return best, idle / (rounds * len(contestants))


def run_here(threads: int, rounds: int, wait: float) -> None:
    """All benchmarks with this number of threads, one line each."""
    if (torch := _optional("torch")) is not None:
        torch.set_num_threads(threads)
    if (numexpr := _optional("numexpr")) is not None:
        numexpr.set_num_threads(threads)
    for benchmark in BENCHMARKS:
        clock = time.perf_counter if threads > 1 else time.thread_time
        times, idle = measure(benchmark(), rounds, clock, wait)
        ratio = times["ours"] / min(
            t for name, t in times.items() if name not in ("ours", "blocks")
        )
        figures = "  ".join(f"{name} {t:7.2f}" for name, t in times.items())
        label = f"{benchmark.__name__} ({threads} thread{'s' * (threads > 1)})"
        note = f"  (idle: {idle:.0%} of the runs)" if wait else ""
        print(f"{label:24s} ms: {figures}   ours / best other {ratio:.2f}{note}", flush=True)


def main() -> int:
    """Measure each number of threads in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--wait", type=float, default=0.0)
    parser.add_argument("--here", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        run_here(options.here, options.rounds, options.wait)
        return 0
    for threads in options.threads:
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), NNET3_NUM_THREADS=str(threads))
        command = [sys.executable, __file__, "--here", str(threads)]
        command += ["--rounds", str(options.rounds), "--wait", str(options.wait)]
        subprocess.run(command, env=environment, check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

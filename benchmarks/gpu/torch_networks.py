"""The same layers in PyTorch: eager, as a CUDA graph, and with torch.compile (plain SGD)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from networks import BenchNetwork


class _Splice(nn.Module):
    """A layer: convolution over time, ReLU, batch normalization."""

    def __init__(self, inputs: int, outputs: int, width: int, dilation: int) -> None:
        super().__init__()
        self.linear = nn.Conv1d(inputs, outputs, width, dilation=dilation)
        self.norm = nn.BatchNorm1d(outputs, affine=False)

    def forward(self, x: Any) -> Any:
        return self.norm(torch.relu(self.linear(x)))


class _Factored(nn.Module):
    """A factored layer with its skip connection; it computes every `every`-th frame."""

    def __init__(self, width: int, bottleneck: int, stride: int, every: int) -> None:
        super().__init__()
        size, self.stride = (2, stride) if stride else (1, 0)
        self.every, dilation = every, max(stride, 1)
        self.down = nn.Conv1d(width, bottleneck, size, dilation=dilation, bias=False)
        self.up = nn.Conv1d(bottleneck, width, size, stride=every, dilation=dilation)
        self.norm = nn.BatchNorm1d(width, affine=False)

    def forward(self, x: Any) -> Any:
        y = self.norm(torch.relu(self.up(self.down(x))))
        return y + 0.66 * x[..., self.stride : x.shape[-1] - self.stride : self.every]


class _Net(nn.Module):
    def __init__(self, network: BenchNetwork) -> None:
        super().__init__()
        self.network, width = network, network.width
        layers: list[nn.Module] = []
        if network.kind == "lstm":
            self.lstm = nn.LSTM(
                network.dim, width, network.layers[0], batch_first=True,
                proj_size=network.bottleneck,
            )  # fmt: skip
            last = network.bottleneck
        elif network.kind == "tdnn":
            dims = (network.dim, *(width,) * 5)
            shapes = ((5, 1), (3, 1), (3, 1), (3, 3), (3, 3))
            for i, (size, dilation) in enumerate(shapes):
                layers.append(_Splice(dims[i], width, size, dilation))
            last = width
        else:
            layers.append(_Splice(network.dim, width, 3, 1))
            layers += [_Factored(width, network.bottleneck, *s) for s in network.factored_layers()]
            last = 256 if network.classes > 1000 else 192
            layers.append(nn.Conv1d(width, last, 1, bias=False))
        self.layers = nn.Sequential(*layers)
        self.output = nn.Linear(last, network.classes)

    def forward(self, x: Any) -> Any:
        network = self.network
        y = self.lstm(x)[0] if network.kind == "lstm" else self.layers(x.mT).mT
        if network.kind == "tdnnf":  # computes the frames of the targets only
            return self.output(y)
        start = (y.shape[1] - network.frames) // (1 if network.kind == "lstm" else 2)
        return self.output(y[:, start : start + network.frames : network.subsampling])


class _Trainer:
    """A network, its data and one step of SGD."""

    def __init__(
        self, network: BenchNetwork, device: str, compiled: bool, half: torch.dtype | None
    ) -> None:
        self.device, self.half = device, half
        # a fixed scale for fp16: GradScaler looks at the device, which no CUDA graph can
        self.scale = 1024.0 if half == torch.float16 else 1.0
        torch.manual_seed(0)
        rows = network.left + network.frames + network.right
        self.x = torch.randn(network.minibatch, rows, network.dim, device=device)
        count = len(range(0, network.frames, network.subsampling))
        self.y = torch.randint(network.classes, (network.minibatch * count,), device=device)
        self.net = _Net(network).to(device)
        self.run = torch.compile(self.net) if compiled else self.net
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1.0e-4 / self.scale)

    def step(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device, self.half, enabled=self.half is not None):
            scores = self.run(self.x)
            loss = nn.functional.cross_entropy(scores.flatten(0, 1).float(), self.y)
        (loss * self.scale).backward()
        self.optimizer.step()

    def graph(self) -> Callable[[], None]:
        """The step as a CUDA graph."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            self.step()

        def replay() -> None:
            captured.replay()
            self  # noqa: B018 (the graph knows its tensors by address only)

        return replay


def _repeated(step: Callable[[], None]) -> Callable[[int], None]:
    def run(count: int) -> None:
        for _ in range(count):
            step()

    return run


def step(network: BenchNetwork, device: str, compiled: bool) -> Callable[[], None]:
    """One minibatch of training, fp32, on "cuda" or "cpu": eager, or by torch.compile."""
    return _Trainer(network, device, compiled, None).step


def variants(
    network: BenchNetwork, device: str, math: str = "fp32", compiled: bool = True
) -> dict[str, tuple[Callable[[int], None], Callable[[], None]]]:
    """Name -> (function that runs a number of steps, function that waits for the device).

    `math` is how products are done: fp32, tf32, or fp16 or bf16 by autocast.
    """
    where = "cuda" if device == "gpu" else "cpu"
    wait = torch.cuda.synchronize if where == "cuda" else (lambda: None)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = math == "tf32"
    half = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(math) if where == "cuda" else None
    eager = _Trainer(network, where, False, half).step
    found = {"torch eager": eager}
    if where == "cuda":
        found["torch graph"] = _Trainer(network, where, False, half).graph()
    if compiled:
        found["torch.compile"] = _Trainer(network, where, True, half).step
    for name, step in [*found.items()]:
        try:
            for _ in range(3):
                step()
        except Exception as error:  # torch.compile needs compilers, which machines may lack
            if name != "torch.compile":
                raise
            print(f"{network.name}, {name}: {error}", file=sys.stderr)
            del found[name]
    return {name: (_repeated(step), wait) for name, step in found.items()}

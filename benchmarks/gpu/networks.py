"""The networks that benchmarks/gpu trains, and the shapes of their minibatches."""

from __future__ import annotations

from dataclasses import dataclass

import train


@dataclass(frozen=True)
class BenchNetwork:
    """A config, the shape of its chunks, and the sizes of the same layers for PyTorch."""

    name: str
    config: str
    left: int
    right: int
    frames: int
    minibatch: int
    subsampling: int = 1
    classes: int = 200
    dim: int = 40
    kind: str = ""
    layers: tuple[int, ...] = ()
    """Of a tdnn: nothing; a tdnnf: strides; an lstm: how many layers, cells, projection."""
    width: int = 0
    bottleneck: int = 0

    def factored_layers(self) -> list[tuple[int, int]]:
        """(stride, every) of each factored layer; it computes every `every`-th frame of its input.

        Strides count the frames that a layer has. Frames are dropped, as our compiler drops them,
        in the last layer before those whose strides are multiples of the subsampling factor.
        """
        found, step = list[tuple[int, int]](), 1
        for i, stride in enumerate(self.layers):
            drops = step == 1 and all(s % self.subsampling == 0 for s in self.layers[i + 1 :])
            found.append((stride // step, self.subsampling if drops else 1))
            step *= found[-1][1]
        return found


def _classes(config: str, classes: int) -> str:
    """The output layer for another number of classes."""
    return config.replace("output-dim=200 ", f"output-dim={classes} ").replace(
        "LogSoftmaxComponent dim=200", f"LogSoftmaxComponent dim={classes}"
    )


def tdnn() -> BenchNetwork:
    """The network of ../shared/bench/tdnn."""
    return BenchNetwork("tdnn", train.tdnn_config(), 11, 11, 8, 64, kind="tdnn", width=512)


def tdnnf() -> BenchNetwork:
    """The network of ../shared/bench/tdnnf."""
    strides = (1, 1, 0, 3, 3, 3, 3)
    return BenchNetwork(
        "tdnnf", train.tdnnf_config(), 15, 15, 50, 32,
        kind="tdnnf", layers=strides, width=768, bottleneck=96,
    )  # fmt: skip


def lstm() -> BenchNetwork:
    """The network of ../shared/bench/lstm."""
    return BenchNetwork(
        "lstm", train.lstm_config(), 10, 0, 20, 32,
        kind="lstm", layers=(2,), width=256, bottleneck=128,
    )  # fmt: skip


def large_tdnnf() -> BenchNetwork:
    """16 layers of 1536 with bottlenecks of 160, chunks of 150, subsampling 3, 6,000 outputs."""
    strides = (1, 1, 1, 0, *(3,) * 11)
    context = 1 + sum(strides)
    config = _classes(train.tdnnf(1536, 160, strides, 256), 6000)
    return BenchNetwork(
        "large-tdnnf", config, context, context, 150, 64,
        subsampling=3, classes=6000, kind="tdnnf", layers=strides, width=1536, bottleneck=160,
    )  # fmt: skip


def large_lstm() -> BenchNetwork:
    """Three fast LSTMP layers of 1024 cells, projections 256 (128 recurrent)."""
    config, node, dim = train._Config(), "input", 40
    for i in (1, 2, 3):
        name = f"lstm{i}"
        source = f"Append({node}, IfDefined(Offset({name}.r_trunc, -3)))"
        gates = config.affine(f"{name}.W_all", dim + 128, 4096, source)
        source = f"Append({gates}, IfDefined(Offset({name}.c_trunc, -3)))"
        options = "cell-dim=1024 use-dropout=false max-change=0.75"
        cell = config.add(f"{name}.cell", "LstmNonlinearityComponent", options, source)
        train._add_range(config, f"{name}.c", cell, 0, 1024)
        train._add_range(config, f"{name}.m", cell, 1024, 1024)
        node, dim = config.affine(f"{name}.rp", 1024, 256, f"{name}.m"), 256
        train._add_range(config, f"{name}.r", node, 0, 128)
        truncated = config.add(
            f"{name}.cr_trunc",
            "BackpropTruncationComponent",
            "dim=1152 clipping-threshold=30 zeroing-threshold=15 zeroing-interval=20 "
            "recurrence-interval=3 scale=0.85",
            f"Append({name}.c, {name}.r)",
        )
        train._add_range(config, f"{name}.c_trunc", truncated, 0, 1024)
        train._add_range(config, f"{name}.r_trunc", truncated, 1024, 128)
    return BenchNetwork(
        "large-lstm", config.text(256, node), 40, 0, 20, 64,
        kind="lstm", layers=(3,), width=1024, bottleneck=256,
    )  # fmt: skip


NETWORKS = {
    "tdnn": tdnn, "tdnnf": tdnnf, "lstm": lstm, "large-tdnnf": large_tdnnf,
    "large-lstm": large_lstm,
}  # fmt: skip

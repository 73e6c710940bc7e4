"""Formulas as components beside the built-in ones: CPU time of propagate and backprop.

usage: benchmarks/formulas.py [--rows N] [--dim D] [--rounds R]

All run in turns in one process; the best of the rounds counts, in ms of CPU time of one thread
(OMP_NUM_THREADS=1 unless set).
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np  # (after the number of threads is set)

from nnet3tools.nnet.components.base import BackpropArgs, Component, Properties
from nnet3tools.nnet.components.registry import component_class
from nnet3tools.nnet.components.updatable import UpdatableComponent
from nnet3tools.nnet.config import ConfigLine

PAIRS = {
    "relu": ("RectifiedLinearComponent dim={d}", "relu(x)"),
    "sigmoid": ("SigmoidComponent dim={d}", "sigmoid(x)"),
    "log-softmax": ("LogSoftmaxComponent dim={d}", "log_softmax(x)"),
    "batch norm, spelt out": (
        "BatchNormComponent dim={d}",
        "(x - mean(x, axis=0)) / sqrt(var(x, axis=0) + 0.001)",
    ),
    "batch norm": ("BatchNormComponent dim={d}", "batch_norm(x)"),
    "rms norm": ("NormalizeComponent dim={d}", "rms_norm(x)"),
}
LSTM = (
    "input-parts=xi:{d},xf:{d},xc:{d},xo:{d},c:{d} params=wi:{d},wf:{d},wo:{d} "
    'expression="i = sigmoid(xi + wi * c); f = sigmoid(xf + wf * c); n = f * c + i * tanh(xc); '
    'o = sigmoid(xo + wo * n); concatenate(n, o * tanh(n))"'
)


def make(config: str) -> Component:
    """The component of a config line."""
    line = ConfigLine(f"component name=c type={config}")
    return component_class(line.get_string("type")).from_config(line)


class Case:
    """A component with something to do."""

    def __init__(self, config: str, rows: int) -> None:
        self.component = component = make(config)
        rng, p = np.random.default_rng(0), component.properties
        self.x = rng.normal(size=(rows, component.input_dim)).astype(np.float32)
        self.y = np.empty((rows, component.output_dim), np.float32)
        self.dy = rng.normal(size=(rows, component.output_dim)).astype(np.float32)
        self.dx = np.empty_like(self.x)
        self.given = (
            self.x if p & Properties.BACKPROP_NEEDS_INPUT else None,
            self.y if p & Properties.BACKPROP_NEEDS_OUTPUT else None,
        )
        self.to_update: Any = component.copy() if p & Properties.UPDATABLE else None
        if isinstance(self.to_update, UpdatableComponent):
            self.to_update.set_as_gradient()
        self.best = [float("inf")] * 2

    def round(self) -> None:
        """Forward and backward once."""
        began = time.process_time()
        memo = self.component.propagate(None, self.x, self.y)
        between = time.process_time()
        args = BackpropArgs("", None, *self.given, self.dy, memo, self.to_update, self.dx)
        self.component.backprop(args)
        ended = time.process_time()
        spent = (between - began, ended - between)
        self.best = [min(a, b) for a, b in zip(self.best, spent, strict=True)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    cases = {}
    for name, (built_in, formula) in PAIRS.items():
        mine = f'ExpressionComponent dim={{d}} expression="{formula}"'
        cases[name] = [Case(text.format(d=options.dim), options.rows) for text in (built_in, mine)]
    lstm = ("LstmNonlinearityComponent cell-dim={d}", f"ExpressionComponent {LSTM}")
    cases["LSTM"] = [Case(text.format(d=options.dim // 4), options.rows) for text in lstm]
    for _ in range(options.rounds):
        for pair in cases.values():
            for case in pair:
                case.round()
    print("| | built-in, forward | backward | formula, forward | backward |")
    print("|---|---|---|---|---|")
    for name, pair in cases.items():
        cells = " | ".join(f"{1000 * t:.2f}" for case in pair for t in case.best)
        print(f"| {name} | {cells} |")


if __name__ == "__main__":
    main()

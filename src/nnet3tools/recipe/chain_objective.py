"""LF-MMI as an objective of the driver: the programs of chain/train.py and their options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nnet3tools.recipe.chain_egs import CHAIN_NAMES
from nnet3tools.recipe.objective import (
    ExampleNames,
    ExampleOrder,
    merged_diagnostics,
    merged_examples,
)

__all__ = ["ChainObjective"]


@dataclass(frozen=True)
class ChainObjective:
    """LF-MMI with the denominator graph `den_fst`; `extra` are options of its programs."""

    den_fst: Path
    l2_regularize: float
    leaky_hmm_coefficient: float
    xent_regularize: float
    apply_deriv_weights: bool
    extra: tuple[str, ...] = ()
    names: ExampleNames = CHAIN_NAMES

    def training_examples(self, egs: Path, order: ExampleOrder, is_multitask: bool) -> str:
        """The rspecifier of shifted, shuffled and merged examples."""
        return merged_examples(self.names, egs, order, "--frame-shift", is_multitask)

    def diagnostic_examples(self, egs: Path, name: str, sizes: str, is_multitask: bool) -> str:
        """The rspecifier of copied and merged examples."""
        return merged_diagnostics(self.names, egs, name, sizes, is_multitask)

    def _words(self) -> tuple[str, ...]:
        return (
            f"--l2-regularize={self.l2_regularize}",
            f"--leaky-hmm-coefficient={self.leaky_hmm_coefficient}",
        )

    def train(
        self, options: tuple[str, ...], model: str, examples: str, out: str
    ) -> tuple[str, ...]:
        """The words of nnet3-chain-train."""
        own = (
            f"--apply-deriv-weights={str(self.apply_deriv_weights).lower()}",
            *self._words(),
            f"--xent-regularize={self.xent_regularize}",
        )
        given = (*own, *options, *self.extra)
        return ("nnet3-chain-train", *given, model, str(self.den_fst), examples, out)

    def compute_prob(self, options: tuple[str, ...], model: str, examples: str) -> tuple[str, ...]:
        """The words of nnet3-chain-compute-prob."""
        own = (*self._words(), f"--xent-regularize={self.xent_regularize}", *self.extra)
        return ("nnet3-chain-compute-prob", *own, *options, model, str(self.den_fst), examples)

    def combine(
        self, options: tuple[str, ...], models: tuple[str, ...], examples: str, out: str
    ) -> tuple[str, ...]:
        """The words of nnet3-chain-combine."""
        given = (*self._words(), *options)
        return ("nnet3-chain-combine", *given, str(self.den_fst), *models, examples, out)

"""LF-MMI as an objective of the driver: the programs of chain/train.py and their options."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from nnet3tools.recipe.chain_egs import CHAIN_NAMES
from nnet3tools.recipe.objective import ExampleNames, Objective


@dataclass(frozen=True)
class ChainObjective(Objective):
    """Builds commands for LF-MMI; `den_fst` is the denominator graph, `extra` more options."""

    names: ExampleNames = CHAIN_NAMES
    shift_option: ClassVar[str] = "--frame-shift"
    den_fst: Path = field(kw_only=True)
    l2_regularize: float = field(kw_only=True)
    leaky_hmm_coefficient: float = field(kw_only=True)
    xent_regularize: float = field(kw_only=True)
    apply_deriv_weights: bool = field(kw_only=True)
    extra: tuple[str, ...] = ()

    def _words(self) -> tuple[str, ...]:
        return (
            f"--l2-regularize={self.l2_regularize}",
            f"--leaky-hmm-coefficient={self.leaky_hmm_coefficient}",
        )

    def train(
        self, options: tuple[str, ...], model: str, examples: str, out: str
    ) -> tuple[str, ...]:
        """The words of the nnet3-chain-train command that writes the model `out`."""
        own = (
            f"--apply-deriv-weights={str(self.apply_deriv_weights).lower()}",
            *self._words(),
            f"--xent-regularize={self.xent_regularize}",
        )
        given = (*own, *options, *self.extra)
        return ("nnet3-chain-train", *given, model, str(self.den_fst), examples, out)

    def compute_prob(self, options: tuple[str, ...], model: str, examples: str) -> tuple[str, ...]:
        """The words of the nnet3-chain-compute-prob command for a model and examples."""
        own = (*self._words(), f"--xent-regularize={self.xent_regularize}", *self.extra)
        return ("nnet3-chain-compute-prob", *own, *options, model, str(self.den_fst), examples)

    def combine(
        self, options: tuple[str, ...], models: tuple[str, ...], examples: str, out: str
    ) -> tuple[str, ...]:
        """The words of the nnet3-chain-combine command that writes the model `out`."""
        given = (*self._words(), *options)
        return ("nnet3-chain-combine", *given, str(self.den_fst), *models, examples, out)

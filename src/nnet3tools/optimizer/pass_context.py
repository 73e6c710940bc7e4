"""The context of a pass: network, options, facts of the request."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from nnet3tools.fast_dataclasses import dataclass, field, replace
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.optimizer.origins import Origins
from nnet3tools.program.analysis import Analyst
from nnet3tools.program.computation import Computation


@dataclass(frozen=True)
class PassContext:
    """The context in which passes rewrite a program.

    `max_output_time` is the largest t of the request's outputs, None without outputs. `looped`
    says that the program is to become a loop. `origins`, if given, records what passes merge
    and renumber.
    """

    nnet: Nnet
    options: OptimizeOptions = field(default_factory=OptimizeOptions)
    max_output_time: int | None = None
    looped: bool = False
    origins: Origins | None = None

    @cached_property
    def analyst(self) -> Analyst:
        """The Analyst that all passes share."""
        return Analyst(self.nnet)

    def with_origins(self, origins: Origins) -> PassContext:
        """A copy of the context, with the same Analyst, that records changes in `origins`."""
        context = replace(self, origins=origins)
        vars(context)["analyst"] = self.analyst  # where cached_property looks
        return context


Transform = Callable[[Computation, PassContext], Computation]
"""A pass: maps a valid program to a valid program with the same results."""

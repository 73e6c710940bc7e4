"""Endpoint detection: ends of utterances in a stream by Kaldi's five rules (online-endpoint).

An utterance ends if any rule holds. Only declarations and arithmetic: programs parse options before
they load NumPy.
"""

from __future__ import annotations

import math
from typing import Any

from nnet3tools.errors import OptionError
from nnet3tools.fast_dataclasses import field
from nnet3tools.number_text import parse_counts
from nnet3tools.options import OptionGroup, option, option_fields, option_group

_NEVER = math.inf


class EndpointRule(OptionGroup):
    """An endpoint rule: conditions on an utterance that must all hold; lengths are in seconds."""

    must_contain_nonsilence: bool = option(
        True,
        "If true, for this endpointing rule to apply there must be nonsilence in the best-path "
        "traceback.",
    )
    min_trailing_silence: float = option(
        1.0,
        "This endpointing rule requires duration of trailing silence (in seconds) to be >= this "
        "value.",
    )
    max_relative_cost: float = option(
        _NEVER,
        "This endpointing rule requires relative-cost of final-states to be <= this value "
        "(describes how good the probability of final-states is).",
        infinite=True,
    )
    min_utterance_length: float = option(
        0.0, "This endpointing rule requires utterance-length (in seconds) to be >= this value."
    )

    def holds(self, trailing_silence: float, relative_cost: float, length: float) -> bool:
        """Whether an utterance of `length` seconds meets all conditions (RuleActivated).

        `trailing_silence` is in seconds. `relative_cost` is the cost of the best path to a final
        state minus that of the best path.
        """
        return (
            (length > trailing_silence or not self.must_contain_nonsilence)
            and trailing_silence >= self.min_trailing_silence
            and relative_cost <= self.max_relative_cost
            and length >= self.min_utterance_length
        )


def _rule(nonsilence: bool, silence: float, cost: float, length: float) -> type[EndpointRule]:
    """A subclass of EndpointRule whose four options have the arguments as defaults, in order."""
    defaults = (nonsilence, silence, cost, length)
    body: dict[str, Any] = {"__annotations__": {}}
    for item, value in zip(option_fields(EndpointRule), defaults, strict=True):
        body["__annotations__"][item.name] = type(value)
        body[item.name] = field(default=value, metadata=item.metadata)
    return type("Rule", (EndpointRule,), body)


class EndpointOptions(OptionGroup):
    """The five rules, and the phones that count as silence (Kaldi's OnlineEndpointConfig)."""

    silence_phones: str = option(
        "", "List of phones that are considered to be silence phones by the endpointing code."
    )
    rule1: EndpointRule = option_group("rule1", _rule(False, 5.0, _NEVER, 0.0))
    """Silence, even if nothing was said."""
    rule2: EndpointRule = option_group("rule2", _rule(True, 0.5, 2.0, 0.0))
    """A short silence after a final state was reached with good probability."""
    rule3: EndpointRule = option_group("rule3", _rule(True, 1.0, 8.0, 0.0))
    """A silence after a final state was reached with fair probability."""
    rule4: EndpointRule = option_group("rule4", _rule(True, 2.0, _NEVER, 0.0))
    """A long silence after words, whether or not a final state was reached."""
    rule5: EndpointRule = option_group("rule5", _rule(False, 0.0, _NEVER, 20.0))
    """A long utterance."""

    def check(self) -> None:
        """Raise OptionError unless the silence phones are a list of numbers, as 1:2:3."""
        self.phones()

    def phones(self) -> frozenset[int]:
        """The silence phones; OptionError if the list is malformed or has duplicates."""
        fields = self.silence_phones.split(":") if self.silence_phones else []
        phones = frozenset(parse_counts(fields) or ())
        if len(phones) != len(fields):
            raise OptionError(
                "--endpoint.silence-phones: expected numbers of phones, each once, as 1:2:3, found "
                f"'{self.silence_phones}'"
            )
        return phones

    def is_end(self, length: float, trailing_silence: float, relative_cost: float) -> bool:
        """Whether an utterance ends here (EndpointDetected).

        `length` and `trailing_silence`, which is a part of it, are in seconds. The relative cost is
        that of the best path to a final state minus that of the best path.
        """
        rules = (self.rule1, self.rule2, self.rule3, self.rule4, self.rule5)
        return any(rule.holds(trailing_silence, relative_cost, length) for rule in rules)

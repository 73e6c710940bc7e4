"""The choice of held-out speakers."""

from __future__ import annotations

from collections.abc import Sequence

from nnet3tools.recipe.data_dir import perl_shuffled
from nnet3tools.recipe.own_data.checks import CheckedData
from nnet3tools.recipe.own_data.utterances import Utterance


def split_held_out(
    data: CheckedData, share: float = 0.1, max_seconds: float = 7200.0
) -> tuple[list[Utterance], list[Utterance]]:
    """Split utterances into those for training and held-out ones.

    Held out are speakers with about `share` of the sound, at least one, and at most about
    `max_seconds`. If there is only one speaker, or none is named, utterances are held out instead.
    The choice depends on ids, speakers and durations only.
    """
    groups: dict[str, list[Utterance]] = {}
    for utterance in data.utterances:
        groups.setdefault(utterance.speaker, []).append(utterance)
    if len(groups) == 1:
        groups = {utterance.name: [utterance] for utterance in data.utterances}
    sizes = {name: sum(data.facts[u.name].seconds for u in us) for name, us in groups.items()}
    held = _held(sizes, min(share * sum(sizes.values()), max_seconds))
    train = [u for name in groups if name not in held for u in groups[name]]
    return _sorted(train), _sorted([u for name in groups if name in held for u in groups[name]])


def _held(sizes: dict[str, float], wanted: float) -> set[str]:
    """Names whose sizes sum to about `wanted`: at least one name, and not all of them."""
    held: set[str] = set()
    total = 0.0
    for name in perl_shuffled(sorted(sizes)):
        # Half of the last one may be over, so that sums are right on average.
        if total + sizes[name] / 2.0 <= wanted and len(held) + 1 < len(sizes):
            held.add(name)
            total += sizes[name]
    smallest = min(sizes, key=lambda name: (sizes[name], name), default="")
    return held or ({smallest} if len(sizes) > 1 else set())


def _sorted(utterances: Sequence[Utterance]) -> list[Utterance]:
    return sorted(utterances, key=lambda utterance: utterance.name)

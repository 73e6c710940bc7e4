"""docs/live.md: its table of rules is that of the options."""

import math
import re
from pathlib import Path

import pytest

from nnet3tools.decoding.endpoint import EndpointOptions, EndpointRule

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/live.md").read_text()


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_the_table_of_rules_has_the_defaults(number: int) -> None:
    row = re.search(rf"\| `rule{number}` \| (.*) \|\n", PAGE)
    assert row
    nonsilence, *numbers = (cell.strip() for cell in row[1].split("|"))
    silence, cost, length = (float(cell) if cell else None for cell in numbers)
    rule: EndpointRule = getattr(EndpointOptions(), f"rule{number}")
    assert rule.must_contain_nonsilence == (nonsilence == "yes")
    assert rule.min_trailing_silence == silence
    assert rule.max_relative_cost == (math.inf if cost is None else cost)
    assert rule.min_utterance_length == (length or 0.0)

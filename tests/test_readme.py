"""Tables of the README, docs/kaldi.md and docs/live.md say what there is; links lead to files."""

import math
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from nnet3tools.cli.programs import PROGRAMS
from nnet3tools.decoding.endpoint import EndpointOptions, EndpointRule
from nnet3tools.io import log_places

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_table_has_every_program() -> None:
    table = README[README.index("| programs | for |") : README.index("Every program prints")]
    patterns = re.findall(r"`([^`]+)`", table)
    assert len(patterns) >= 10
    for program in PROGRAMS:
        assert any(fnmatch(program, pattern) for pattern in patterns), program
    for pattern in patterns:
        assert any(fnmatch(program, pattern) for program in PROGRAMS), pattern


def test_nothing_points_to_folders_that_a_clone_lacks() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")]
    pages += ROOT.glob("egs/*/*.md")
    assert len(pages) >= 8
    for page in pages:
        text = page.read_text()
        assert "../shared" not in text, page
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (page.parent / target).exists(), f"{page}: {target}"


PAGE = (Path(__file__).parents[1] / "docs" / "kaldi.md").read_text()
ROWS = re.findall(r"^\| `([\w-]+)` \| (yes|no|not yet) \|(.*)\|$", PAGE, re.M)


def test_the_table_lists_every_program_of_nnet3bin_and_chainbin() -> None:
    # As of Kaldi f4007661.
    names = [name for name, _, _ in ROWS]
    assert len(names) == len(set(names)) == 65
    assert sum("chain-" in name for name in names) == 19


def test_what_is_here_is_here_and_what_is_not_has_a_reason() -> None:
    for name, here, remark in ROWS:
        if here != "not yet":
            assert (name in PROGRAMS) == (here == "yes"), name
        assert here != "no" or remark.strip(), name


def test_every_program_of_ours_like_kaldis_is_listed() -> None:
    only_here = set(re.findall(r"`([\w-]+)`", PAGE[PAGE.index("Only here:") :].split(". ")[0]))
    assert only_here <= set(PROGRAMS)
    assert log_places._OWN_PROGRAMS <= only_here
    listed = {name for name, _, _ in ROWS} | only_here
    ours = {name for name in PROGRAMS if name.startswith(("nnet3-", "chain-"))}
    assert ours <= listed, ours - listed


def test_the_page_names_files_that_are_there() -> None:
    root = Path(__file__).parents[1]
    for path in re.findall(r"\]\((\w+\.md)\)", PAGE):
        assert (root / "docs" / path).exists(), path
    assert (root / "tests/kaldi_scripts/run.sh").exists()


LIVE = (ROOT / "docs/live.md").read_text()


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_the_table_of_rules_has_the_defaults(number: int) -> None:
    row = re.search(rf"\| `rule{number}` \| (.*) \|\n", LIVE)
    assert row
    nonsilence, *numbers = (cell.strip() for cell in row[1].split("|"))
    silence, cost, length = (float(cell) if cell else None for cell in numbers)
    rule: EndpointRule = getattr(EndpointOptions(), f"rule{number}")
    assert rule.must_contain_nonsilence == (nonsilence == "yes")
    assert rule.min_trailing_silence == silence
    assert rule.max_relative_cost == (math.inf if cost is None else cost)
    assert rule.min_utterance_length == (length or 0.0)

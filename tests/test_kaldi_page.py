"""docs/kaldi.md: its table says which of Kaldi's programs there are, and says so truly."""

import re
from pathlib import Path

from nnet3tools.cli.programs import PROGRAMS
from nnet3tools.io import log_places

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

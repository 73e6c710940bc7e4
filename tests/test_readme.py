"""The table of the README has every program, and links of all pages lead to files."""

import re
from fnmatch import fnmatch
from pathlib import Path

from nnet3tools.cli.programs import PROGRAMS

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

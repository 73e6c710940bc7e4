"""The programs as entry points, the README without relative links, and the project's addresses.

The rest is in pyproject.toml. NNET3TOOLS_URL, the address of the repository, is set by whoever
publishes the package: a page of a package index cannot show relative links and pictures.
"""

import os
import re
import runpy
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
FOUND = runpy.run_path(str(ROOT / "src/nnet3tools/cli/programs.py"))
URL = os.environ.get("NNET3TOOLS_URL", "").rstrip("/")
PAGES = {"Source": "", "Changelog": "/blob/main/CHANGELOG.md", "Documentation": "/tree/main/docs"}


def index_page(readme: str, url: str) -> str:
    """The README with absolute links; without `url`, with their texts and without pictures."""

    def replaced(found: re.Match[str]) -> str:
        mark, text, target = found.groups()
        if not url:
            return "" if mark else text
        return f"{mark}[{text}]({url}/{'raw' if mark else 'blob'}/main/{target})"

    return re.sub(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)", replaced, readme)


if __name__ == "__main__":
    setup(
        entry_points={
            "console_scripts": [
                f"{p} = {':'.join(FOUND['entry_point_of'](p))}" for p in FOUND["PROGRAMS"]
            ]
        },
        long_description=index_page((ROOT / "README.md").read_text("utf-8"), URL),
        long_description_content_type="text/markdown",
        project_urls={name: URL + path for name, path in PAGES.items()} if URL else {},
    )

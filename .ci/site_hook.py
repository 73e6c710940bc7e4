"""What mkdocs needs besides the pages of docs/: README.md as the first page, links out of docs/.

Links to files outside of docs/ (recipes, benchmarks) become plain text: the site has no such pages.
tests/test_readme.py checks that the files exist.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

_LINK_OUT = re.compile(r"\[([^\]]*)\]\((?:\.\./|(?!docs/|https?:|#))[^)]*\)")


def on_files(files: Files, config: Any) -> Files:
    """Add README.md as index.md, with links relative to docs/."""
    text = Path(config.config_file_path).with_name("README.md").read_text()
    text = _LINK_OUT.sub(r"\1", text).replace("](docs/", "](")
    files.append(File.generated(config, "index.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Replace links to files outside of docs/ by their text."""
    return re.sub(r"\[([^\]]*)\]\(\.\./[^)]*\)", r"\1", markdown)

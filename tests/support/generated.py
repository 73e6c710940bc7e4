"""Parts of pages that are generated: from `<!-- generated: NAME -->` to `<!-- end -->`.

`python -m support.generated`, in tests/, writes them anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from nnet3tools.nnet.components.reference import components_reference
from support.command_table import command_table
from support.descriptor_picture import descriptor_picture
from support.descriptor_rows import descriptor_table
from support.format_tables import component_field_table, format_table, value_table
from support.layer_table import layer_table
from support.pages import PAGES, ROOT
from support.seed_statements import count_table

PICTURES: dict[str, Callable[[], str]] = {"docs/pictures/descriptors.svg": descriptor_picture}
"""The text of each generated picture."""

PARTS: dict[str, Callable[[], str]] = {
    "commands": command_table,
    "components": lambda: components_reference("all"),
    "descriptors": descriptor_table,
    "statements": count_table,
    "values": value_table,
    "layers": layer_table,
    "model": lambda: format_table("model"),
    "acoustic model": lambda: format_table("acoustic model", ("Nnet3",)),
    "component fields": component_field_table,
    "example": lambda: format_table("example"),
    "chain example": lambda: format_table("chain example", ("NnetIo",)),
    "request": lambda: format_table("request"),
    "computation": lambda: format_table("computation"),
    "cache": lambda: format_table("cache", ("ComputationRequest", "NnetComputation")),
}
"""The text of each generated part."""

_PART = re.compile(r"(<!-- generated: ([\w -]+) -->\n)\n(.*?)\n?(<!-- end -->)", re.S)


def parts_of(page: Path) -> dict[str, str]:
    """The generated parts of a page as it is, by name."""
    return {found[2]: found[3] for found in _PART.finditer(page.read_text())}


def write_parts(page: Path) -> None:
    """Write the generated parts of a page anew."""
    text = page.read_text()
    new = _PART.sub(lambda found: f"{found[1]}\n{PARTS[found[2]]()}\n{found[4]}", text)
    if new != text:
        page.write_text(new)
        print(page)


if __name__ == "__main__":
    for each in PAGES:
        write_parts(each)
    for name, text in PICTURES.items():
        (ROOT / name).write_text(text())

"""docs/xconfig.md has a row for each kind of layer, equal to its declaration."""

from pathlib import Path

from nnet3tools.xconfig.layer import Layer
from nnet3tools.xconfig.options import Option
from nnet3tools.xconfig.registry import layer_classes

PAGE = Path(__file__).parents[2] / "docs" / "xconfig.md"


def shown(key: str, option: Option) -> str:
    default = str(option.default)
    if isinstance(option.default, bool):
        default = default.lower()
    text = f'"{default}"' if "=" in default else default
    has_default = default != "" and option.check.allows(option.default)
    return f"{key}={text}" if has_default else key


def row(cls: type[Layer]) -> str:
    """The types, the purpose, and all options except `input`."""
    types = ", ".join(f"`{kind}`" for kind in cls.TYPES)
    purpose = (cls.__doc__ or "").split("\n")[0]
    options = [shown(key, option) for key, option in sorted(cls.OPTIONS.items()) if key != "input"]
    listed = ", ".join(f"`{option}`" for option in options)
    return f"| {types} | {purpose} | {listed} |"


def test_the_table_is_what_is_declared() -> None:
    rows = [row(cls) for cls in dict.fromkeys(layer_classes().values())]
    table = PAGE.read_text().partition("\n## Layers\n")[2]
    found = [line for line in table.splitlines() if line.startswith("| `")]
    assert sorted(found) == sorted(rows)

"""The table of docs/xconfig.md: all kinds of layers, from their declarations."""

from nnet3tools.xconfig.layer import Layer
from nnet3tools.xconfig.options import Option
from nnet3tools.xconfig.registry import layer_classes


def _shown(key: str, option: Option) -> str:
    default = str(option.default)
    if isinstance(option.default, bool):
        default = default.lower()
    text = f'"{default}"' if "=" in default else default
    has_default = default != "" and option.check.allows(option.default)
    return f"`{key}={text}`" if has_default else f"`{key}`"


def _row(cls: type[Layer]) -> str:
    """The types, the purpose, and all options except `input`."""
    types = ", ".join(f"`{kind}`" for kind in cls.TYPES)
    purpose = (cls.__doc__ or "").split("\n")[0]
    options = [_shown(key, option) for key, option in sorted(cls.OPTIONS.items()) if key != "input"]
    return f"| {types} | {purpose} | {', '.join(options)} |"


def layer_table() -> str:
    """The table in Markdown: inputs and outputs first, then family by family."""
    classes = dict.fromkeys(layer_classes().values())
    ordered = sorted(
        classes, key=lambda cls: not {"input", "output", "output-layer"} & {*cls.TYPES}
    )
    rows = map(_row, ordered)
    return "\n".join(["| type | what | options |", "|---|---|---|", *rows]) + "\n"

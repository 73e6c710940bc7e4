"""`DIR/report.html`: the report of a training directory as one self-contained page."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from nnet3tools.errors import DataError
from nnet3tools.io.files import write_text
from nnet3tools.recipe.report.charts import text_of
from nnet3tools.recipe.report.history import read_history
from nnet3tools.recipe.report.sections import sections


def write_report(folder: Path) -> None:
    """Write `report.html` of a training directory from its log files.

    The directory may come from the training driver or from Kaldi's scripts, finished or not. Facts
    that the logs lack are left out. DataError if there are no logs.
    """
    write_text(folder / "report.html", report_page(folder))


def report_page(folder: Path) -> str:
    """The HTML text of the report about a training directory."""
    history = read_history(folder)
    if not history.logs:
        raise DataError(
            f"{folder}: no training directory: there are no log files in {folder / 'log'}"
        )
    name = text_of("/".join(folder.resolve().parts[-3:]).lstrip("/"))
    return html_page(f"{name}: training report", name, "\n".join(sections(history)))


def html_page(title: str, heading: str, body: str, more_style: str = "", media: str = "") -> str:
    """The HTML text of a page in the style of reports; `heading` and `body` are HTML.

    `more_style` is CSS. The Content-Security-Policy allows sound from `media` ("data:"; "": none).
    """
    colors = resources.files("nnet3tools.program") / "page" / "colors.css"
    own = resources.files("nnet3tools.recipe.report") / "page" / "style.css"
    style = colors.read_text("utf-8") + own.read_text("utf-8") + more_style
    allowed = f"; media-src {media}" if media else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" '
        f"content=\"default-src 'none'; style-src 'unsafe-inline'{allowed}\">\n"
        f"<title>{title}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f"<header><h1>{heading}</h1></header>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )

"""`DIR/report.html`: a training directory as one page that needs nothing else."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from nnet3tools.errors import DataError
from nnet3tools.io.whole_file import whole_file
from nnet3tools.recipe.report.charts import text_of
from nnet3tools.recipe.report.history import read_history
from nnet3tools.recipe.report.sections import sections

__all__ = ["report_page", "write_report"]


def write_report(folder: Path) -> None:
    """Write `report.html` of a training directory from its log files.

    The directory is one that the training driver or Kaldi's own scripts left, finished or not; what
    its logs do not tell is left out of the page. DataError if it has no logs.
    """
    page = report_page(folder)
    with whole_file(str(folder / "report.html")) as file:
        file.write(page.encode("utf-8"))


def report_page(folder: Path) -> str:
    """The page as text."""
    history = read_history(folder)
    if not history.logs:
        raise DataError(
            f"{folder}: no training directory: there are no log files in {folder / 'log'}"
        )
    name = text_of(folder.resolve().name)
    files = resources.files("nnet3tools.recipe.report") / "page"
    colors = resources.files("nnet3tools.program") / "page" / "colors.css"
    body = "\n".join(sections(history))
    style = colors.read_text("utf-8") + (files / "style.css").read_text("utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{name}: training report</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f"<header><h1>{name}</h1></header>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )

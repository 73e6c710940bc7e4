"""A program as one self-contained web page: matrices as bars over command time.

The page consists of the files of `page/` and the program as JSON.
"""

import html
import json
from importlib import resources
from typing import Any

import numpy as np

from nnet3tools.program.commands import AcceptInput, ProvideOutput
from nnet3tools.program.component_facts import ComponentTable
from nnet3tools.program.lifetimes import matrix_subject
from nnet3tools.program.operands import AccessType
from nnet3tools.program.printing import ProgramNames, command_texts
from nnet3tools.program.report import ProgramReport

_STYLES = ("colors.css", "style.css")
_SCRIPTS = ("model.js", "view.js", "scene.js", "panel.js", "graph.js", "main.js")


def html_page(
    report: ProgramReport,
    title: str,
    places: list[list[int]] | None = None,
    arena_bytes: int = 0,
    views: dict[str, Any] | None = None,
) -> str:
    """The HTML page about a program, as text.

    `places`, if known, are lists [matrix, first command, last command, offset, bytes] of where the
    executor keeps matrices in its arena of `arena_bytes`. `views`, if the program's request is
    known, has data about the request by name (the result of `request_views`).
    """
    folder = resources.files("nnet3tools.program") / "page"
    data = page_data(report, title, places, arena_bytes) | (views or {})
    # "</script" would end the element that the JSON stands in, "<!--<script>" hide its end.
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    parts = {
        "TITLE": html.escape(title),
        "STYLE": "".join((folder / name).read_text("utf-8") for name in _STYLES),
        "DATA": text,
        "SCRIPT": "\n".join((folder / name).read_text("utf-8") for name in _SCRIPTS),
    }
    page = (folder / "page.html").read_text("utf-8")
    before, _, rest = page.partition("{{TITLE}}")
    out = [before, parts["TITLE"]]
    for name in ("STYLE", "DATA", "SCRIPT"):  # one pass: no part is searched for another's mark
        before, _, rest = rest.partition(f"{{{{{name}}}}}")
        out += [before, parts[name]]
    return "".join([*out, rest])


def page_data(
    report: ProgramReport, title: str, places: list[list[int]] | None = None, arena_bytes: int = 0
) -> dict[str, Any]:
    """The data that the HTML page of a program shows, of types that JSON can hold.

    `places`, if known, are where the executor keeps matrices in its `arena_bytes` of memory: lists
    [matrix, first command, last command, offset, bytes].
    """
    computation = report.computation
    return {
        "title": title,
        "matrices": _matrices(report),
        "lives": [list(life) for life in report.lives],
        "commands": _commands(report),
        "memory": report.memory.tolist(),
        "segments": report.segment_ends,
        "places": places or [],
        "arena": arena_bytes,
        "modelDerivative": computation.need_model_derivative,
    }


def _matrices(report: ProgramReport) -> list[dict[str, Any]]:
    computation, nnet = report.computation, report.nnet
    roles: dict[int, str] = {}
    for command in computation.commands:
        if isinstance(command, AcceptInput | ProvideOutput):
            role = "given by the user" if isinstance(command, AcceptInput) else "given to the user"
            node = nnet.node_names[command.node]
            roles.setdefault(computation.matrix_of(command.submatrix), f"{role}: {node}")
    out: list[dict[str, Any]] = []
    for m, info in enumerate(computation.matrices):
        debug = computation.matrix_debug_info
        entry = {
            "rows": info.num_rows,
            "cols": info.num_cols,
            "what": matrix_subject(computation, nnet, m) if m else "",
            "node": _main_node(report, m),
            "deriv": bool(debug and debug[m].is_deriv),
        }
        if m in roles:
            entry["role"] = roles[m]
        out.append(entry)
    return out


def _main_node(report: ProgramReport, matrix: int) -> str:
    """The name of the node to which most rows of a matrix belong; "" if it is unknown."""
    debug = report.computation.matrix_debug_info
    if not debug or not len(debug[matrix].nodes):
        return ""
    return report.nnet.node_names[int(np.bincount(debug[matrix].nodes).argmax())]


def _commands(report: ProgramReport) -> list[list[Any]]:
    """[kind, text, flops, [[matrix, submatrix text, access], ...]] for each command.

    Access is 1 for read, 2 for write, 3 for both, 4 for allocation, 8 for deallocation.
    """
    computation, nnet = report.computation, report.nnet
    names, components = ProgramNames(computation, nnet), ComponentTable(nnet)
    texts = command_texts(computation, nnet)
    out = []
    for c, command in enumerate(computation.commands):
        touched: list[list[Any]] = [
            [computation.matrix_of(s), names.submatrix(s), int(kind & AccessType.READ_WRITE)]
            for s, kind in command.accesses(computation, components)
        ]
        for field, mark in ((command.ALLOCATES, 4), (command.FREES, 8)):
            if field is not None:
                submatrix = getattr(command, field)
                matrix = computation.matrix_of(submatrix)
                touched.append([matrix, names.submatrix(submatrix), mark])
        text = texts[c].partition(": ")[2]
        out.append([command.NAME.removeprefix("k"), text, int(report.flops[c]), touched])
    return out

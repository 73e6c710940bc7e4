"""summarize.py WORK: what Kaldi's scripts made of our programs' logs; status 1 if something lacks.

Prints accuracies, sizes of the tables behind Kaldi's plots, the slowest command, and warnings.
"""

import re
import sys
from collections import Counter
from pathlib import Path

WARNING = re.compile(r"^(?:WARNING|ERROR) \(([\w-]+)\[[^]]*\](?::(.*?):\d+)?\) (.*)$")


def main(work: Path) -> int:
    """Print all, and return the exit status."""
    problems = [*accuracies(work), *tables(work), *timing(work), *warnings(work)]
    for problem in problems:
        print(f"LACKING: {problem}")
    return 1 if problems else 0


def accuracies(work: Path) -> list[str]:
    """The last line of each accuracy report."""
    problems = []
    # Of exp/multi Kaldi's script makes one for 'output', which no example has.
    reports = sorted(work.glob("exp/*/accuracy*.report"))
    if len(reports) < 4:
        problems.append(f"accuracy reports: found {len(reports)}")
    for report in reports:
        rows = [line.split() for line in report.read_text().splitlines() if line[:1].isdigit()]
        if not rows:
            problems.append(f"{report} is empty")
            continue
        last = rows[-1]
        name = report.relative_to(work / "exp")
        print(f"{name}: {len(rows)} iterations, train {last[2]}, valid {last[3]}")
    return problems


def tables(work: Path) -> list[str]:
    """The tables that generate_plots.py draws: rows of each, and those that are empty."""
    problems = []
    for folder in sorted(work.glob("exp/*/report")):
        rows = {
            file.name: len(file.read_text().splitlines()) - 1
            for file in sorted(folder.iterdir())
            if file.suffix in (".log", ".diff")
        }
        print(f"{folder.parent.name}: " + ", ".join(f"{k} {v}" for k, v in rows.items()))
        wanted = ("accuracy.log", "loglikelihood.log", "parameter.diff", "relative_parameter.diff")
        problems += [f"{folder} has no {name}" for name in wanted if rows.get(name, 0) < 1]
        if not any(name.startswith("nonlinstats_") and rows[name] > 0 for name in rows):
            problems.append(f"{folder} has no statistics of nonlinearities")
    return problems


def timing(work: Path) -> list[str]:
    """What summarize_compute_debug_timing.py found."""
    lines = (work / "exp" / "timing").read_text().splitlines()
    print(f"timing: {len(lines)} kinds of commands, first: {lines[0] if lines else ''}")
    return [] if len(lines) > 5 else ["exp/timing has too few commands"]


def warnings(work: Path) -> list[str]:
    """Warnings and errors in all logs, by kind; those that only our programs give are problems."""
    kinds: Counter[tuple[str, str, str]] = Counter()
    for log in [*work.glob("exp/**/*.log"), *work.glob("data/**/*.log")]:
        for line in log.read_text(errors="replace").splitlines():
            if found := WARNING.match(line):
                text = re.sub(r"[-\d.]+", "N", found[3])[:100]
                kinds[found[1], found[2] or "", text] += 1
    for (program, place, text), count in sorted(kinds.items()):
        print(f"{count} times: {program} {place}: {text}")
    return [
        f"a line of {program} that Kaldi's does not have: {text}"
        for program, place, text in kinds
        if not place.endswith(".cc")
    ]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

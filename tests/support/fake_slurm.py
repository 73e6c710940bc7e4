"""Programs named sbatch, squeue and scancel, which run jobs as processes of this machine."""

import os
import sys
from pathlib import Path

_BIN = Path(__file__).parents[2] / "bin"
_SBATCH = """#!/usr/bin/env bash
number=$(mktemp -p {folder} XXXXXXXX)
cat >"$number"
SLURM_JOB_ID=${{number##*/}} setsid bash "$number" </dev/null >/dev/null 2>&1 &
echo $! >"$number.pid"
echo "${{number##*/}}"
"""
_SQUEUE = """#!/usr/bin/env bash
for word in "$@"; do [[ $word == --jobs=* ]] && jobs=${{word#--jobs=}}; done
for number in ${{jobs//,/ }}; do
  kill -0 "$(<{folder}/$number.pid)" 2>/dev/null && echo "$number RUNNING"
done
exit 0
"""
_SCANCEL = """#!/usr/bin/env bash
for number in "$@"; do kill -- "-$(<{folder}/$number.pid)"; done
"""


def install(folder: Path) -> dict[str, str]:
    """Write the programs into a new folder; the environment in which they are found."""
    folder.mkdir(parents=True)
    for name, text in (("sbatch", _SBATCH), ("squeue", _SQUEUE), ("scancel", _SCANCEL)):
        (folder / name).write_text(text.format(folder=folder))
        (folder / name).chmod(0o755)
    path = f"{folder}:{_BIN}:{os.environ['PATH']}"
    return {"PATH": path, "NNET3TOOLS_PYTHON": sys.executable}

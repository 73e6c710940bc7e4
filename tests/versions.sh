#!/usr/bin/env bash
# Both commands of the README, on every Python from 3.11 on that is there, with the newest packages and
# with the oldest that pyproject.toml names.
#
# usage: tests/versions.sh [--only NAME] [--sample N] [pytest arguments]
#   NAME is e.g. 3.12-newest; with pytest arguments these tests run instead of both commands:
#   tests/versions.sh --only 3.13-oldest tests/components -k gru
#   --sample 8: the first command, ruff, mypy, import-linter, and every eighth of the test modules only
#
# Each runs as a stranger's would, in a clone of HEAD of its own (below $TMPDIR, removed when it passed),
# for some 8 minutes on two cores. Interpreters are pyenv's and python3.N on PATH.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
only='' sample=''
while [[ ${1:-} = --only || ${1:-} = --sample ]]; do
  declare "${1#--}=$2"
  shift 2
done
work=$(mktemp -d "${TMPDIR:-/tmp}/versions.XXXX")

interpreter() {  # 3.12 -> its path, or nothing
  local found
  for found in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python "$(command -v "python$1" || true)"; do
    [ -x "$found" ] && "$found" -c pass 2>/dev/null && echo "$found" && return
  done
}

oldest_packages() {  # of what running needs, as package==version
  "$1" - <<'PYTHON'
import re, tomllib
from pip._vendor.packaging.requirements import Requirement

with open("pyproject.toml", "rb") as file:
    for text in tomllib.load(file)["project"]["dependencies"]:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate():
            print(requirement.name + re.sub(".*>=([0-9.]+).*", r"==\1", str(requirement.specifier)))
PYTHON
}

checks_and_sample() {  # of the checkout in the current folder
  local tools=$PWD/.venv/bin
  "$tools/ruff" check .
  "$tools/ruff" format --check .
  "$tools/mypy"
  "$tools/lint-imports" --no-cache
  find tests -name 'test_*.py' | sort | awk -v n="$sample" 'NR % n == 1 || n == 1' |
    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NNET3TOOLS_POISON=1 xargs "$tools/python" -m pytest -q -n 2
}

both_commands() {  # in the clone $1, with the interpreter $2
  cd "$1"
  PYTHON=$2 bin/setup-env test
  if [[ $1 = *-oldest ]]; then
    # shellcheck disable=SC2046
    .venv/bin/python -m pip install -q --disable-pip-version-check $(oldest_packages .venv/bin/python)
  fi
  .venv/bin/python -c 'import sys, numpy; print(sys.version.split()[0], "NumPy", numpy.__version__)'
  shift 2
  if [ $# -gt 0 ]; then
    tests/run.sh "$@"
  else
    egs/japanese_vowels/run.sh
    if [ -n "$sample" ]; then checks_and_sample; else tests/run.sh; fi
  fi
}

try() {  # 3.12 newest, with the interpreter's path
  local name=$1-$2 log=$work/$1-$2.log status
  shift 2
  git clone -q "$root" "$work/$name"
  set +e # in a condition the commands would go on after an error
  (set -e; both_commands "$work/$name" "$@") >"$log" 2>&1 </dev/null
  status=$?
  set -e
  if [ $status != 0 ]; then
    echo "$name FAILED, see $log:"
    tail -n 5 "$log"
    failed=1
    return
  fi
  echo "$name passed: $(grep -m 1 NumPy "$log"), $(grep -E '^RESULT|passed' "$log" | tail -n 2 | tr '\n' ' ')"
  rm -rf "${work:?}/$name"
}

failed=0
for version in 3.11 3.12 3.13 3.14; do
  python=$(interpreter $version || true)
  [ -n "$python" ] || { echo "$version is not here"; continue; }
  for packages in newest oldest; do
    [ -z "$only" ] || [ "$only" = "$version-$packages" ] || continue
    try $version $packages "$python" "$@"
  done
done
exit $failed

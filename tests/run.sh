#!/usr/bin/env bash
# Lint, types, layering, tests, and Kaldi's reference cases where they stand beside the checkout.
#
# usage: tests/run.sh [pytest arguments]     with arguments only pytest runs, e.g. tests/run.sh --slow tests/graph
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin/setup-env test
export PATH="$PWD/.venv/bin:$PATH"
cores=$(env -u OMP_NUM_THREADS nproc)  # nproc obeys that variable
# Small matrices on few cores: BLAS threads only get in each other's way, and results stay the same.
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

if [ $# -gt 0 ]; then
  exec python -m pytest "$@"
fi

step() { echo "== $*"; "$@"; }
step ruff check .
step ruff format --check .
step mypy
step lint-imports --no-cache
# The pages as a site: warnings, such as a link to nowhere, are errors.
if bin/setup-env docs 2>/dev/null; then
  NO_MKDOCS_2_WARNING=1 step python -m mkdocs build --strict --quiet
else
  echo "== mkdocs-material cannot be installed: the site is not built"
fi
# Undefined memory is NaN in the tests, so that reading it shows.
NNET3TOOLS_POISON=1 step python -m pytest -q -n "$cores"
# A GPU's threads, warps and blocks may run in any order, on any number of processors (tests/support/
# emulated_cuda.py): a sample backwards on 132; `NN_ORDER=1 NN_PROCS=132 tests/run.sh --slow tests/cuda` is all.
NNET3TOOLS_POISON=1 NN_ORDER=1 NN_PROCS=132 step python -m pytest -q -n "$cores" \
  tests/cuda/test_cuda_{fused_levels,fisher,chain,chain_graphs}.py

goldens=../shared/goldens
check_cases() {
  echo "== reference cases made by Kaldi: $*"
  PATH="$PWD/bin:$PATH" ../shared/tools/check_cases.py "$goldens/$1" "${@:2}"
}
if [ -x ../shared/tools/check_cases.py ]; then
  for folder in cases networks networks-extra random train-recipes general xconfigs chain decode \
    discriminative; do
    check_cases "$folder"
  done
else
  echo "== reference cases made by Kaldi are not beside this checkout: not run"
fi
echo "== all passed"

#!/usr/bin/env bash
# All measurements on a GPU in three runs of less than ten minutes each, for GPUs that are rented.
#
#   benchmarks/gpu/measure.sh [--cache FILE] 1|2|3 DIR
#
#   1  Kaldi's reference cases and tests/cuda, at the same time; what changes cost; kernels
#   2  five networks beside PyTorch (eager, CUDA graph), in fp32 and in TF32
#   3  memcheck; memory while three networks train for long; each improvement switched off in turn
#
# Each table is a file in DIR, written as soon as it exists, beside log.txt with the seconds and exit
# status of each step. A step that takes too long is ended. --cache reads compiled kernels from FILE
# (tar, xz) if it exists, and writes it at the end, so that no run compiles them again.
set -u

usage() { sed -n '4s/^# */usage: /p' "$0" >&2; exit 1; }
cache=
if [ "${1:-}" = --cache ]; then
  [ $# -ge 2 ] || usage
  cache=$2
  shift 2
fi
[[ $# = 2 && $1 = [123] ]] || usage
run=$1
mkdir -p "$2" || exit 1
out=$(cd "$2" && pwd)
[[ -z $cache || $cache = /* ]] || cache=$PWD/$cache

cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
python=${PYTHON:-$PWD/.venv/bin/python}
[ -x "$(command -v "$python")" ] || python=$(command -v python3) || exit 1
python=$(command -v "$python")
export NNET3TOOLS_PYTHON=$python PYTHONPATH=$PWD/src${PYTHONPATH:+:$PYTHONPATH} PATH=$PWD/bin:$PATH
export PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
kernels=${CUPY_CACHE_DIR:-$HOME/.cupy/kernel_cache}
export CUPY_CACHE_DIR=$kernels
mkdir -p "$kernels"
if [ -n "$cache" ] && [ -f "$cache" ]; then tar -C "$kernels" -xJf "$cache"; fi

failed=0
# step NAME LIMIT COMMAND...: its output goes to DIR/NAME.txt; at most LIMIT seconds
step() {
  local name=$1 limit=$2 began status
  shift 2
  began=$(date +%s)
  timeout --kill-after=10 "$limit" "$@" > "$out/$name.txt" 2>&1 < /dev/null
  status=$?
  echo "$name: status $status, $(($(date +%s) - began)) s: $(tail -n 1 "$out/$name.txt")" |
    tee -a "$out/log.txt"
  [ $status -eq 0 ] || { failed=1; return 1; }
}
machine() {
  date; git describe --always --dirty 2> /dev/null; nvidia-smi; nproc; "$python" --version
  "$python" -m pip list 2> /dev/null | grep -iE "^(cupy|nvidia|numpy|torch) "
  return 0
}
# The cases that use a GPU, in a folder of their own.
cases() {
  local folder=$1 script
  grep -rl --include=cmd.sh -e --use-gpu=no ../shared/goldens | while read -r script; do
    mkdir -p "$folder/$(basename "$(dirname "$(dirname "$script")")")"
    cp -r "$(dirname "$script")" "$folder/$(basename "$(dirname "$(dirname "$script")")")/"
  done
}

step machine 60 bash -c "$(declare -f machine); python=$python; machine"
step device 120 "$python" benchmarks/gpu --check-device
if [ $failed = 0 ]; then
  case $run in
    1)
      folder=$(mktemp -d)
      if [ -d ../shared/goldens ]; then
        cases "$folder"
        step cases 330 ../shared/tools/check_cases.py --gpu --jobs 10 --verbose "$folder" &
        pid=$!
      fi
      step tests 330 env NNET3TOOLS_GPU_TESTS=1 "$python" -m pytest -q -n 6 -p no:cacheprovider \
        tests/cuda
      if [ -n "${pid:-}" ]; then wait $pid || failed=1; fi
      rm -rf "$folder"
      step changes 120 "$python" benchmarks/gpu/changes.py
      step kernels 90 "$python" benchmarks/gpu/kernel_times.py --networks tdnn tdnnf lstm
      ;;
    2)
      three=(--networks tdnn tdnnf lstm --no-compile)
      large=(--networks large-tdnnf large-lstm --no-compile --minibatches 20 --rounds 2)
      step speed-fp32 150 "$python" benchmarks/gpu "${three[@]}"
      step speed-large-fp32 150 "$python" benchmarks/gpu "${large[@]}"
      step speed-tf32 120 "$python" benchmarks/gpu --gpu-math=tf32 "${three[@]}"
      step speed-large-tf32 120 "$python" benchmarks/gpu --gpu-math=tf32 "${large[@]}"
      ;;
    3)
      if command -v compute-sanitizer > /dev/null; then
        step memcheck 300 env NNET3TOOLS_GPU_TESTS=1 compute-sanitizer --tool memcheck \
          --error-exitcode 1 "$python" -m pytest -q -p no:cacheprovider \
          tests/cuda/test_cuda_operators.py tests/cuda/test_cuda_formulas.py
      fi
      step memory 170 "$python" benchmarks/gpu --memory-check 20000 --networks tdnn tdnnf lstm
      step without 110 "$python" benchmarks/gpu/without.py
      ;;
  esac
fi
if [ -n "$cache" ]; then tar -C "$kernels" -cJf "$cache" .; fi
exit $failed

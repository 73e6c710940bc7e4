#!/usr/bin/env bash
# All measurements on a GPU in three runs of less than ten minutes each, for GPUs that are rented.
#
#   benchmarks/gpu/measure.sh [--cache FILE] [--try-out] 1|2|3 DIR
#
#   1  ceilings; Kaldi's reference cases and tests/cuda, at the same time; products by shape;
#      kernels and gaps between graphs; what changes cost
#   2  five networks beside PyTorch (eager, CUDA graph), in fp32 and in TF32; whether two trainings
#      give equal bytes; PyTorch compiled
#   3  NCCL with one rank; each improvement switched off in turn; decoding beside the CPU; memory
#      while three networks train for long; memcheck
#
# Each table is a file in DIR, written as soon as it exists, beside log.txt with the seconds and exit
# status of each step. A step that takes too long is ended, and none begins after 590 s. --cache
# reads compiled kernels, PyTorch's included, from FILE (tar, xz) if it exists, and writes it at the
# end, so that no run compiles them again. --try-out does little of everything, without a GPU.
set -u

usage() { sed -n '4s/^# */usage: /p' "$0" >&2; exit 1; }
cache=
if [ "${1:-}" = --cache ]; then
  [ $# -ge 2 ] || usage
  cache=$2
  shift 2
fi
try_out=false
if [ "${1:-}" = --try-out ]; then try_out=true; shift; fi
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
export TORCHINDUCTOR_CACHE_DIR=$kernels/torch TRITON_CACHE_DIR=$kernels/triton
mkdir -p "$kernels"
if [ -n "$cache" ] && [ -f "$cache" ]; then tar -C "$kernels" -xJf "$cache"; fi

failed=0
# step NAME LIMIT COMMAND...: its output goes to DIR/NAME.txt; at most LIMIT seconds
step() {
  local name=$1 limit=$2 began status left=$((590 - SECONDS))
  shift 2
  if ! $try_out && [ "$limit" -gt "$left" ]; then limit=$left; fi
  if [ "$limit" -lt 1 ]; then
    echo "$name: left out, no time" | tee -a "$out/log.txt"
    failed=1
    return 1
  fi
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

# Runs a command twice; whether it printed the same.
twice() {
  local first second
  first=$("$@") && second=$("$@") && echo "$first" || return 1
  [ "$first" = "$second" ] && echo "two trainings: equal bytes" || { echo "$second"; return 1; }
}

bench=benchmarks/gpu
few=(tdnn tdnnf lstm)
large=(large-tdnnf large-lstm --minibatches 20 --rounds 2)
paper=() tiny=() decoding=() case=() minibatches=20000 digest=60
tests=(NNET3TOOLS_GPU_TESTS=1 "$python" -m pytest -q -p no:cacheprovider) room=(-n 6 tests/cuda)
if $try_out; then
  few=(lstm) large=(lstm) paper=(--on-paper) minibatches=20 digest=3
  tiny=(--device cpu --scale 16 --minibatches 1 --rounds 1) decoding=(--try-out)
  case=(--case nothing) room=(tests/cuda/test_cuda_options.py) tests[0]=NNET3TOOLS_GPU_TESTS=0
fi

step machine 60 bash -c "$(declare -f machine); python=$python; machine"
$try_out || step device 120 "$python" $bench --check-device
if [ $failed = 0 ]; then
  case $run in
    1)
      step ceilings 40 "$python" $bench/ceilings.py --only copies products "${paper[@]}"
      folder=$(mktemp -d)
      if [ -d ../shared/goldens ] && ! $try_out; then
        cases "$folder"
        step cases 330 ../shared/tools/check_cases.py --gpu --jobs 10 --verbose "$folder" &
        pid=$!
      fi
      step tests 330 env "${tests[@]}" "${room[@]}"
      if [ -n "${pid:-}" ]; then wait $pid || failed=1; fi
      rm -rf "$folder"
      if $try_out; then products=("${few[@]}"); else products=("${few[@]}" "${large[@]:0:2}"); fi
      step products 140 "$python" $bench/products.py "${paper[@]}" --networks "${products[@]}"
      $try_out || step kernels 70 "$python" $bench/kernel_times.py --networks "${few[@]}"
      step products-apart 60 "$python" $bench/products.py --apart "${paper[@]}" --networks \
        "${few[@]}"
      step changes 120 "$python" $bench/changes.py "${paper[@]}" --networks "${few[@]}"
      ;;
    2)
      for math in fp32 tf32; do
        speed=("$python" $bench --no-compile --gpu-math=$math)
        step speed-$math 110 "${speed[@]}" "${tiny[@]}" --networks "${few[@]}"
        step speed-large-$math 110 "${speed[@]}" "${tiny[@]}" --networks "${large[@]}"
      done
      step equal-bytes 120 bash -c "$(declare -f twice); twice \"\$@\"" twice "$python" $bench \
        --digest "$digest" "${tiny[@]}" --networks "${few[@]}" "${large[@]:0:2}"
      step speed-compiled 300 "$python" $bench --no-ours "${tiny[@]}" --networks "${few[@]}" \
        "${large[@]}"
      ;;
    3)
      $try_out || step nccl 60 "$python" $bench/ceilings.py --only nccl
      step without 140 "$python" $bench/without.py "${paper[@]}" "${case[@]}" --networks "${few[@]}"
      step decoding 150 "$python" $bench/utterances.py "${decoding[@]}" --networks "${few[@]}"
      step memory 170 "$python" $bench --memory-check $minibatches "${tiny[@]}" --networks \
        "${few[@]}"
      if command -v compute-sanitizer > /dev/null && ! $try_out; then
        step memcheck 300 compute-sanitizer --tool memcheck \
          --error-exitcode 1 env "${tests[@]}" tests/cuda/test_cuda_operators.py \
          tests/cuda/test_cuda_formulas.py
      fi
      ;;
  esac
fi
if [ -n "$cache" ]; then tar -C "$kernels" -cJf "$cache" .; fi
exit $failed

#!/usr/bin/env bash
# What to run first on a new machine with a GPU: all checks and measurements, into one report.
#
#   benchmarks/gpu/first_run.sh [--try-out] [REPORT]       (gpu-report-HOST-DATE.md)
#
# The report is one Markdown file to send in: what the machine is, the tests of tests/cuda on the
# device, memcheck (compute-sanitizer, where it is installed), Kaldi's reference cases (where they
# are), the table of speeds, the kernels of a minibatch, whether memory grows in 20,000 minibatches,
# and the cost model to compare with. Each step has a limit of time; what an interrupt cuts off is
# missing, the rest is written.
#
# Without a usable GPU it does what can be done without and says what could not. --try-out does as
# little as possible of everything, in a minute, to try the script out. Exit status: 0 if all was
# done, 1 if something failed, 2 if nothing failed but something could not be done.
set -u

try_out=false
report=
for word in "$@"; do
  case $word in
    --try-out) try_out=true ;;
    -*) echo "usage: $0 [--try-out] [REPORT]" >&2; exit 1 ;;
    *) report=$word ;;
  esac
done
report=${report:-gpu-report-$(uname -n)-$(date +%Y%m%d-%H%M).md}
[[ $report = /* ]] || report=$PWD/$report
: > "$report" || { echo "$0: cannot write $report" >&2; exit 1; }

cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
python=${PYTHON:-$PWD/.venv/bin/python}
[ -x "$(command -v "$python")" ] || python=$(command -v python3) || {
  echo "$0: no python3; bin/setup-env makes .venv, or set PYTHON" >&2; exit 1; }
export PATH=$PWD/bin:$PATH PYTHONUNBUFFERED=1

work=$(mktemp -d)
: > "$work/summary"
: > "$work/sections"

write_report() {
  {
    echo "# nnet3tools on a GPU: first run of $(date '+%Y-%m-%d %H:%M') on $(uname -n)"
    echo
    echo "| step | result | seconds |"
    echo "|---|---|---|"
    cat "$work/summary"
    cat "$work/sections"
  } > "$report"
}
finish() {
  write_report
  rm -rf "$work"
}
trap finish EXIT
child=
stop() {
  [ -z "$child" ] || kill "$child" 2> /dev/null
  echo "| (interrupted here) | | |" >> "$work/summary"
  exit 1
}
trap stop INT TERM HUP

# step NAME LIMIT COMMAND...: runs it, at most LIMIT seconds, and puts its output into the report
step() {
  local name=$1 limit=$2 began status result
  shift 2
  echo "== $name: $*" >&2
  began=$(date +%s)
  # in the background, so that an interrupt is heeded at once
  timeout --kill-after=30 "$limit" "$@" > "$work/output" 2>&1 < /dev/null &
  child=$!
  wait "$child"
  status=$?
  child=
  result=done
  [ $status -eq 0 ] || { result="FAILED (status $status)"; failed=true; }
  [ $status -ne 124 ] || result="FAILED (took more than $limit s)"
  note "$name" "$result" $(($(date +%s) - began))
  section "$name" "$*"
}
section() {
  { echo; echo "## $1"; echo; echo "    \$ $2"; echo
    tail -n 400 "$work/output" | sed 's/^/    /'; } >> "$work/sections"
}
note() {
  echo "| $1 | $2 | ${3:-} |" >> "$work/summary"
  echo "   $2" >&2
}
cannot() {
  echo "== $1" >&2
  note "$1" "could not be done: $2"
  missing=true
}
failed=false
missing=false

machine() {
  date; uname -srm; git describe --always --dirty --long 2>/dev/null; git log -1 --format=%cd 2>/dev/null
  grep -m1 "model name" /proc/cpuinfo; nproc; grep MemTotal /proc/meminfo
  env | grep -E "^(CUDA|CUPY|NVIDIA|NNET3TOOLS|OMP|OPENBLAS)" | sort
  "$python" --version
  "$python" -m pip list 2>/dev/null | grep -iE "^(cupy|nvidia|cuda|numpy|torch|nnet3tools)"
  if command -v nvidia-smi > /dev/null; then nvidia-smi; nvidia-smi -L; else echo "no nvidia-smi"; fi
  return 0
}
export -f machine
export python
step "the machine" 60 bash -c machine

echo "== a GPU" >&2
if "$python" benchmarks/gpu --check-device > "$work/output" 2>&1; then
  gpu=true
  note "a GPU" "$(sed -n 's/.*The active GPU is/found:/p' "$work/output" | tr '\t' ' ')"
else
  gpu=false
  missing=true
  note "a GPU" "none: $(tail -n 1 "$work/output" | sed 's/^ERROR ([^)]*) //')"
fi
section "a GPU" "$python benchmarks/gpu --check-device"

tests=(tests/cuda)
if $try_out; then tests=(tests/cuda/test_cuda_options.py); fi
if $gpu; then
  step "tests on the device" 7200 env NNET3TOOLS_GPU_TESTS=1 "$python" -m pytest -q "${tests[@]}"
else
  step "tests on the emulated device" 7200 "$python" -m pytest -q "${tests[@]}"
  cannot "tests on the device" "there is no usable GPU"
fi

checked=(tests/cuda/test_cuda_operators.py tests/cuda/test_cuda_formulas.py)
if ! $gpu; then
  cannot "memcheck" "there is no usable GPU"
elif ! command -v compute-sanitizer > /dev/null; then
  cannot "memcheck" "compute-sanitizer is not on PATH (it comes with the CUDA toolkit)"
else
  for tool in memcheck racecheck; do
    step "$tool" 7200 env NNET3TOOLS_GPU_TESTS=1 compute-sanitizer --tool $tool \
      --error-exitcode 1 "$python" -m pytest -q -p no:cacheprovider "${checked[@]}"
  done
fi

if ! [ -x ../shared/tools/check_cases.py ]; then
  cannot "Kaldi's reference cases" "../shared/goldens is not there"
elif ! $gpu; then
  cannot "Kaldi's reference cases on the device" "there is no usable GPU"
else
  step "Kaldi's reference cases on the device" 7200 ../shared/tools/check_cases.py --gpu \
    ../shared/goldens
fi

small=(--device cpu --scale 16 --networks lstm)
if $gpu && ! $try_out; then
  step "speed" 7200 "$python" benchmarks/gpu
  step "speed, TF32" 7200 "$python" benchmarks/gpu --gpu-math=tf32
  step "speed, half precision" 7200 "$python" benchmarks/gpu --gpu-math=fp16
  step "memory in 20,000 minibatches" 14400 "$python" benchmarks/gpu --memory-check 20000 \
    --networks tdnn tdnnf lstm
elif $gpu; then
  step "speed" 600 "$python" benchmarks/gpu --networks lstm --minibatches 5 --rounds 1 --no-torch
  step "memory" 600 "$python" benchmarks/gpu --networks lstm --memory-check 50
else
  step "speed on the CPU (which tries the program out)" 1800 "$python" benchmarks/gpu \
    "${small[@]}" --minibatches 1 --rounds 1 --no-torch
  step "memory on the CPU" 1800 "$python" benchmarks/gpu "${small[@]}" --memory-check 50
  cannot "speed and memory on the device" "there is no usable GPU"
fi

few=()
if $try_out; then few=(--networks lstm --minibatches 8); fi
if $gpu && "$python" -c "import torch" 2> /dev/null; then
  step "kernels of a minibatch" 1800 "$python" benchmarks/gpu/kernel_times.py "${few[@]}"
else
  cannot "kernels of a minibatch" "there is no usable GPU, or no PyTorch, whose profiler sees them"
fi
step "the cost model" 1800 "$python" benchmarks/gpu/cost_model.py "${few[@]}"

$failed && result=1 || { $missing && result=2 || result=0; }
echo "The report is in $report; please send it in (an issue of the project with the file)." >&2
exit $result

#!/usr/bin/env bash
# usage: local/run_job.sh LOG COMMAND [ARG...]   Runs a job with its output in LOG; shows the log's end if it fails.
log=$1; shift
mkdir -p "$(dirname "$log")"
status=0
"$@" > "$log" 2>&1 || status=$?
if [ $status -ne 0 ]; then
  echo "$0: '$1' failed with status $status; the end of $log:" >&2
  tail -n 5 "$log" >&2
  exit $status
fi

#!/usr/bin/env bash
# usage: utils/egs_info.sh DIR KEY=VALUE...
# Writes the properties of a directory of examples as the training programs want them: one archive, one
# frame of output an example.
set -euo pipefail
dir=$1
shift
mkdir -p "$dir/info"
for pair in num_archives=1 frames_per_eg=1 ivector_dim=0 "$@"; do
  printf '%s\n' "${pair#*=}" >"$dir/info/${pair%%=*}"
done

#!/usr/bin/env bash
# usage: local/get_data.sh DIR   Clones the public repository of the AN4 corpus (92 MB) into DIR, if it is not there.
set -euo pipefail
dir=$1 source=https://github.com/cmusphinx/an4
[ ! -s "$dir/etc/an4.dic" ] || exit 0
rm -rf "$dir"
if ! git clone --quiet --depth 1 "$source" "$dir"; then
  echo "$0: cannot clone $source. On a machine with a network: 'git clone $source an4' (92 MB); copy the" \
    "folder an4 here, and call run.sh --data FOLDER" >&2
  exit 1
fi

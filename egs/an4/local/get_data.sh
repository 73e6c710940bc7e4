#!/usr/bin/env bash
# usage: local/get_data.sh DIR   Clones the public repository of the AN4 corpus (92 MB) into DIR, if it is not there.
set -euo pipefail
dir=$1
if [ ! -s "$dir/etc/an4.dic" ]; then
  rm -rf "$dir"
  git clone --quiet --depth 1 https://github.com/cmusphinx/an4 "$dir"
fi

#!/usr/bin/env bash
# usage: local/get_data.sh DIR [REPOSITORY [COMMIT]]
# Puts the Free Spoken Digit Dataset's repository into DIR (its sound is in DIR/recordings), as it was at
# the commit that the numbers in RESULTS come from.
set -euo pipefail
dir=$1
url=${2:-https://github.com/Jakobovski/free-spoken-digit-dataset}
commit=${3:-26eb9aaf76e81b692f806f9140c2d2777410d7a1}
[ ! -e "$dir/.complete" ] || exit 0
command -v git >/dev/null || { echo "$0: no git on PATH; or give a copy of the recordings with --data" >&2; exit 1; }
rm -rf "$dir"
git init -q "$dir"
git -C "$dir" fetch -q --depth 1 "$url" "$commit" ||
  { echo "$0: cannot fetch $url; give a copy of the recordings with --data" >&2; exit 1; }
git -C "$dir" checkout -q FETCH_HEAD
touch "$dir/.complete"

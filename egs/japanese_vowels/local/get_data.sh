#!/usr/bin/env bash
# usage: local/get_data.sh DIR   Puts JapaneseVowels_{TRAIN,TEST}.ts below DIR: fetches the aeon wheel without its dependencies.
set -euo pipefail
dir=$1
if [ -s "$dir/JapaneseVowels_TRAIN.ts" ] && [ -s "$dir/JapaneseVowels_TEST.ts" ]; then
  exit 0
fi
mkdir -p "$dir"
python -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest "$dir" aeon==1.6.0
python - "$dir" <<'PYTHON'
import sys, zipfile
from pathlib import Path

folder = Path(sys.argv[1])
(wheel,) = folder.glob("aeon-1.6.0-*.whl")
with zipfile.ZipFile(wheel) as archive:
    for part in ("TRAIN", "TEST"):
        name = f"JapaneseVowels_{part}.ts"
        (folder / name).write_bytes(archive.read(f"aeon/datasets/data/JapaneseVowels/{name}"))
wheel.unlink()
PYTHON

"""The recipe egs/an4 from start to end with little data."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT.parent / "shared" / "data" / "an4"


@pytest.mark.slow
@pytest.mark.skipif(not CORPUS.exists(), reason="no AN4 corpus")
def test_a_recogniser_comes_of_sound_and_transcripts(tmp_path: Path) -> None:
    run = [ROOT / "egs" / "an4" / "run.sh", "--quick", "--data", CORPUS, "--dir", tmp_path]
    output = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    result = re.fullmatch(r"RESULT an4 (\S+) (\d+) 773", output.splitlines()[-1])
    assert result is not None, output
    assert float(result[1]) < 45.0  # 30 when all goes well; 100 where one word is always heard
    page = (tmp_path / "report.html").read_text()
    assert "Said &rarr; heard" in page

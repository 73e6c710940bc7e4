"""Random networks, the zoo of components and the component harness serve here too."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / name) for name in ("optimizer", "components", "fuzz")]

"""nnet3-train-recognizer with tiny networks: `python -m support.small_recognizer`."""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from nnet3tools.recipe.programs.nnet3_train_recognizer import main
from nnet3tools.recipe.speech import sizes

OPTIONS = ("--use-gpu=no", "--num-jobs=1", "--lm-order=1")


@contextlib.contextmanager
def small_networks() -> Iterator[None]:
    """Scope in which the size "tiny" has even smaller networks, and one pass."""
    with pytest.MonkeyPatch.context() as patch:
        tiny = replace(
            sizes.SIZES[0], dim=16, bottleneck_dim=4, strides=(1, 3), num_copies=2, passes=(1, 1)
        )
        patch.setattr(sizes, "SIZES", (tiny, *sizes.SIZES[1:]))
        patch.setattr(sizes, "_MOST_PASSES", (2, 2))
        yield


if __name__ == "__main__":
    with small_networks():
        sys.exit(main([*OPTIONS, *sys.argv[1:]]))

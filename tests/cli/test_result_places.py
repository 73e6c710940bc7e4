"""Programs check that the output can be written before they start long work."""

import os

import pytest

from support.shell import Shell

READ = "touch started; false |"
"""Somebody's hours of data."""

COMMANDS = (
    ("nnet3-acc-lda-stats", READ, f"ark:{READ}", "no/out"),
    ("nnet3-am-train-transitions", READ, f"ark:{READ}", "no/out"),
    ("nnet3-average", READ, READ, "no/out"),
    ("nnet3-combine", READ, READ, f"ark:{READ}", "no/out"),
    ("nnet3-compute", "--use-gpu=no", "--write-cache=no/out", READ, f"ark:{READ}", "ark:x"),
    ("nnet3-copy-egs", f"ark:{READ}", "ark:no/out"),
    ("nnet3-get-egs", "--num-pdfs=2", f"ark:{READ}", f"ark:{READ}", "ark:no/out"),
    ("nnet3-merge-egs", f"ark:{READ}", "ark:no/out"),
    ("nnet3-shuffle-egs", f"ark:{READ}", "ark,scp:out,no/out"),
    ("nnet3-subset-egs", f"ark:{READ}", "ark:no/out"),
    ("nnet3-train", "--use-gpu=no", READ, f"ark:{READ}", "no/out"),
    ("nnet3-train", "--use-gpu=no", "--write-cache=no/out", READ, f"ark:{READ}", "x"),
    ("compute-cmvn-stats", f"ark:{READ}", "no/out"),
    ("ivector-mean", f"ark:{READ}", "no/out"),
    ("matrix-sum", f"ark:{READ}", "no/out"),
    ("post-to-tacc", READ, f"ark:{READ}", "no/out"),
    ("vector-sum", f"ark:{READ}", "no/out"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_place_that_cannot_be_written(shell: Shell, command: tuple[str, ...]) -> None:
    assert "'no/out'" in shell.error(*command)
    assert os.listdir() == []

"""Parts a table of examples: every 24th utterance, all copies of it, is kept out of training.

usage: hold_out.py EXAMPLES.scp DIR
writes DIR/{valid,train,traindiag}.scp; the last is 1/16 of train.
"""

import re
import sys
from pathlib import Path


def main():
    lines = Path(sys.argv[1]).read_text().splitlines()
    numbers = {}
    valid, train = [], []
    for line in lines:
        # pv1-SPEAKER-NAME-SPEAKER-b, with -FRAME after it if the utterance is in several pieces
        utterance = re.sub(r"-\d+$", "", line.split()[0])[len("pv1-") :]
        number = numbers.setdefault(utterance, len(numbers))
        (valid if number % 24 == 0 else train).append(line)
    for name, part in (("valid", valid), ("train", train), ("traindiag", train[::16])):
        Path(sys.argv[2], f"{name}.scp").write_text("".join(f"{line}\n" for line in part))


if __name__ == "__main__":
    main()

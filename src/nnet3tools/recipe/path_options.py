"""The check of path options before a training starts: names that command lines cannot carry."""

import re

from nnet3tools.errors import OptionError
from nnet3tools.io.files import classify_input
from nnet3tools.recipe.jobs import split_words
from nnet3tools.recipe.record import option_values

_PATHS = {
    *("dir", "egs.dir", "feat-dir", "ali-dir", "tree-dir", "lat-dir", "lang", "targets-scp"),
    *("feat.online-ivector-dir", "trainer.input-model"),
}
_WORDS = {"feat.cmvn-opts", "chain.lm-opts", "image.augmentation-opts"}
"""Options that hold options of other programs."""
_UNFIT = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
"""Control characters, and the surrogates that stand for bytes that are not UTF-8."""


def check_paths(options: object) -> None:
    """Raise OptionError if an option holds a control character, or a path that jobs cannot use.

    Jobs name files as Kaldi does: in specifiers (ark,scp:ARCHIVE,SCRIPT), whose pipes end in "|".
    All other characters of paths are quoted where a shell reads them.
    """
    for name, value in option_values(options, ()).items():
        if not isinstance(value, str):
            continue
        if _UNFIT.search(value):
            raise OptionError(f"--{name}={value!r}: expected UTF-8 without control characters")
        if name in _WORDS:
            split_words(name, value)
        if name in _PATHS and value:
            _check_path(name, value)


def _check_path(name: str, path: str) -> None:
    try:
        classify_input(f"{path}/x")
    except OptionError as error:
        raise OptionError(f"--{name}={path}: {error}") from None
    if path.startswith("-"):
        raise OptionError(f"--{name}={path}: programs take this for an option; write ./{path}")
    if name == "dir" and "," in path:
        raise OptionError(f"--{name}={path}: a comma does not fit in 'ark,scp:ARCHIVE,SCRIPT'")

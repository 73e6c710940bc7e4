"""The folder of a decoding graph: the files of the lang folder that decoding needs (mkgraph.sh)."""

from __future__ import annotations

import shutil
from pathlib import Path

from nnet3tools.errors import DataError

_NEEDED = ("words.txt", "phones/silence.csl")
_OPTIONAL = (
    "phones.txt",
    *(
        f"phones/{name}.{kind}"
        for name in ("word_boundary", "align_lexicon", "optional_silence", "disambig")
        for kind in ("txt", "int")
    ),
)


def copy_lang_files(lang: str, graph_dir: str, num_pdfs: int) -> None:
    """Copy symbol tables and phone lists to `graph_dir`; write num_pdfs.

    DataError for lacking files.
    """
    source, target = Path(lang), Path(graph_dir)
    for name in _NEEDED:
        if not (source / name).exists():
            raise DataError(f"expected {source / name} to exist")
    (target / "phones").mkdir(parents=True, exist_ok=True)
    for name in (*_NEEDED, *_OPTIONAL):
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)
    (target / "num_pdfs").write_text(f"{num_pdfs}\n")

"""Text files that users write, read line by line; damaged lines become faults."""

from __future__ import annotations

import codecs
from pathlib import Path

from nnet3tools.errors import DataError, quoted
from nnet3tools.recipe.own_data.faults import Fault, FaultList


def read_text(path: str, faults: FaultList) -> list[str]:
    """The lines of a UTF-8 file, without a byte order mark and without carriage returns.

    Lines that are not UTF-8, or have zero bytes, are added to `faults` and are blank in the result.
    DataError if the file cannot be read, or is UTF-16.
    """
    try:
        data = Path(path).read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise DataError(f"cannot read '{path}': {error.strerror}") from None
    if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) or b"\0" in data[:4]:
        raise DataError(f"'{path}' is UTF-16 or binary: expected UTF-8 (convert it with iconv)")
    lines = []
    for number, line in enumerate(data.split(b"\n"), start=1):
        text = line.decode("utf-8", "replace").rstrip("\r")
        if "\0" in text:
            faults.add(Fault.MALFORMED, f"{path}:{number}", "a zero byte")
        elif "\ufffd" in text and text.encode() not in (line, line.rstrip(b"\r")):
            faults.add(Fault.NOT_UTF8, f"{path}:{number}", quoted(text))
        else:
            lines.append(text)
            continue
        lines.append("")
    return lines

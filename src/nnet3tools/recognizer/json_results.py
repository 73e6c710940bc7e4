"""Results as text: lines of words, CTM, JSON in this package's form, and JSON as Vosk writes it."""

from __future__ import annotations

import json
from typing import Any

from nnet3tools.recognizer.results import Alternative, Partial, Result, Word


def result_text(key: str, result: Result, form: str, real_time_factor: float | None = None) -> str:
    """A result as complete lines of text; `form` is "text", "ctm", "json" or "vosk"."""
    if form == "text":
        return " ".join([key, *(word.text for word in result.words)]) + "\n"
    if form == "ctm":
        return "".join(
            f"{key} 1 {word.start:.2f} {word.end - word.start:.2f} {word.text} "
            f"{word.confidence:.2f}\n"
            for word in result.words
        )
    if form == "vosk":
        return json_line(vosk_result(result, with_words=True))
    line: dict[str, Any] = {
        "utterance": key,
        "text": result.text,
        "words": [_own_word(word) for word in result.words],
    }
    if result.alternatives:
        line["alternatives"] = [
            {
                "text": other.text,
                "log_likelihood": round(other.loglike, 3),
                "words": [_own_word(word) for word in other.words],
            }
            for other in result.alternatives
        ]
    if real_time_factor is not None:
        line["real_time_factor"] = round(real_time_factor, 4)
    return json_line(line)


def partial_text(key: str, partial: Partial, form: str) -> str:
    """A partial result as a line of JSON; an empty string if `form` is "text" or "ctm"."""
    if form == "vosk":
        return json_line({"partial": partial.text})
    return json_line({"utterance": key, "partial": partial.text}) if form == "json" else ""


def json_line(value: dict[str, Any]) -> str:
    """The value as one line of JSON in UTF-8; bytes of words that are no UTF-8 become U+FFFD."""
    text = json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace") + "\n"


def _own_word(word: Word) -> dict[str, Any]:
    return {
        "word": word.text,
        "begin": round(word.start, 3),
        "length": round(word.end - word.start, 3),
        "confidence": round(word.confidence, 3),
    }


# -- Vosk's (vosk-api, src/recognizer.cc)


def vosk_result(result: Result, with_words: bool) -> dict[str, Any]:
    """The JSON object of Vosk's Result and FinalResult; `with_words` as in Vosk's SetWords.

    A result with alternatives has only these, as after SetMaxAlternatives. Their "confidence" is
    the log-likelihood of the path.
    """
    if result.alternatives:
        return {"alternatives": [_vosk_alternative(a, with_words) for a in result.alternatives]}
    line: dict[str, Any] = {}
    if with_words and result.words:
        line["result"] = [_vosk_word(word) for word in result.words]
    return {**line, "text": result.text}


def _vosk_alternative(alternative: Alternative, with_words: bool) -> dict[str, Any]:
    line: dict[str, Any] = {"confidence": round(alternative.loglike, 6)}
    if with_words and alternative.words:
        timed = [_vosk_word(word) for word in alternative.words]
        line["result"] = [{k: v for k, v in word.items() if k != "conf"} for word in timed]
    return {**line, "text": alternative.text}


def _vosk_word(word: Word) -> dict[str, Any]:
    return {
        "conf": round(word.confidence, 6),
        "end": round(word.end, 6),
        "start": round(word.start, 6),
        "word": word.text,
    }

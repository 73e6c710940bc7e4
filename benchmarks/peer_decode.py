"""Decodes 16 kHz recordings with another recognizer: `peer_decode.py SYSTEM WAV.SCP OUT [FOLDER]`.

SYSTEM is vosk, with the model in FOLDER, or pocketsphinx with its own en-us model; a language model
an4.lm and a dictionary an4.dic may be in FOLDER. Writes "key words" to OUT. recognizers.py calls
it, with a Python that has the two packages. All sound is given in pieces of 0.25 s.
"""

import json
import sys
import wave
from collections.abc import Callable, Iterable

Words = Callable[[Iterable[bytes]], str]
"""Words of an utterance, given as pieces of sound."""

PIECE = 8000
"""Bytes of 0.25 s."""


def vosk_recognizer(folder: str) -> Words:
    import vosk

    vosk.SetLogLevel(-1)
    model = vosk.Model(folder)

    def words(pieces: Iterable[bytes]) -> str:
        recognizer, found = vosk.KaldiRecognizer(model, 16000), []
        for piece in pieces:
            if recognizer.AcceptWaveform(piece):
                found.append(recognizer.Result())
        return " ".join(json.loads(text)["text"] for text in [*found, recognizer.FinalResult()])

    return words


def pocketsphinx_recognizer(folder: str = "") -> Words:
    import pocketsphinx

    own = {"lm": f"{folder}/an4.lm", "dict": f"{folder}/an4.dic"} if folder else {}
    decoder = pocketsphinx.Decoder(samprate=16000, loglevel="FATAL", **own)

    def words(pieces: Iterable[bytes]) -> str:
        decoder.start_utt()
        for piece in pieces:
            decoder.process_raw(piece)
        decoder.end_utt()
        return decoder.hyp().hypstr if decoder.hyp() else ""

    return words


def main() -> None:
    system, scp, out, *folder = sys.argv[1:]
    words = {"vosk": vosk_recognizer, "pocketsphinx": pocketsphinx_recognizer}[system](*folder)
    with open(scp) as table, open(out, "w") as results:
        for line in table:
            key, path = line.split()
            with wave.open(path) as file:
                sound = file.readframes(file.getnframes())
            pieces = (sound[at : at + PIECE] for at in range(0, len(sound), PIECE))
            print(key, words(pieces).upper(), file=results)


if __name__ == "__main__":
    main()

"""Kaldi data folders and a dictionary of the AN4 corpus, with training copies at allowed lengths.

Every training utterance is resampled to the next smaller allowed number of frames, to the next
larger one, and once more to those beyond these two, so that a minibatch of end-to-end training has
utterances of one length, and the network has heard slower, deeper, quicker and higher voices.

With --held-out every eighth training speaker is kept out of training and stands in for the test
set, so that what is to be chosen can be chosen without it.  Their utterances are tested as they
are and resampled to the allowed lengths below and above: of three versions chance decides less.

usage: prepare_data.py CORPUS DATA [COPIES] [--held-out]   1 to 4 (the default) COPIES of each
"""

import re
import sys
import wave
from pathlib import Path

import numpy as np

FRAME_SHIFT, FRAME_LENGTH, SUBSAMPLING = 160, 400, 3  # samples at 16 kHz; frames an output frame
SHORTEST, LONGEST, STEP = 66, 660, 1.1  # frames; lengths between are about 10% apart
COPY_LENGTHS = (-1, 0, -2, 1)  # of each copy: which allowed length, 0 being the first longer one
HELD_OUT_EVERY = 8  # speakers


def num_frames(num_samples):
    return 1 + (num_samples - FRAME_LENGTH) // FRAME_SHIFT


def allowed_lengths():
    lengths = [SHORTEST]
    while lengths[-1] < LONGEST:
        longer = int(lengths[-1] * STEP) // SUBSAMPLING * SUBSAMPLING
        lengths.append(max(lengths[-1] + SUBSAMPLING, longer))
    return lengths


def read_wave(path):
    with wave.open(str(path)) as sound:
        rate, channels = sound.getframerate(), sound.getnchannels()
        if (rate, channels, sound.getsampwidth()) != (16000, 1, 2):
            sys.exit(f"{path}: expected 16 kHz mono 16 bit, found {rate} Hz, {channels} channels")
        return np.frombuffer(sound.readframes(sound.getnframes()), "<i2").astype(np.float64)


def write_wave(path, samples):
    with wave.open(str(path), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(16000)
        sound.writeframes(np.clip(np.rint(samples), -32768, 32767).astype("<i2").tobytes())


def resampled(samples, size):
    """The sound played in `size` samples: its spectrum cut off or padded with zeros."""
    spectrum = np.fft.rfft(samples)
    wanted = np.zeros(size // 2 + 1, complex)
    shared = min(len(spectrum), len(wanted))
    wanted[:shared] = spectrum[:shared]
    return np.fft.irfft(wanted, size) * (size / len(samples))


def utterances(corpus, part):
    """(utterance, speaker, words, wav file) of the train or test part."""
    ids = (corpus / "etc" / f"an4_{part}.fileids").read_text().split()
    lines = (corpus / "etc" / f"an4_{part}.transcription").read_text().splitlines()
    for name, line in zip(ids, lines, strict=True):
        text, end = re.fullmatch(r"(.*)\((\S+)\)\s*", line).groups()
        if not name.endswith("/" + end):
            sys.exit(f"transcription '{line}' is not that of {name}")
        words = " ".join(word for word in text.split() if word not in ("<s>", "</s>"))
        speaker = name.split("/")[1]
        yield f"{speaker}-{end}", speaker, words, corpus / "wav" / f"{name}.wav"


def write_lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines))


def write_data(folder, rows):
    folder.mkdir(parents=True, exist_ok=True)
    rows = sorted(rows)
    write_lines(folder / "text", (f"{key} {words}" for key, _, words, _ in rows))
    write_lines(folder / "utt2spk", (f"{key} {speaker}" for key, speaker, _, _ in rows))
    write_lines(folder / "wav.scp", (f"{key} {path}" for key, _, _, path in rows))
    speakers = {}
    for key, speaker, _, _ in rows:
        speakers.setdefault(speaker, []).append(key)
    lines = (f"{speaker} {' '.join(keys)}" for speaker, keys in sorted(speakers.items()))
    write_lines(folder / "spk2utt", lines)


def speed_perturbed(rows, folder, copies):
    """Copies of each utterance, at the allowed lengths below and above its own."""
    folder.mkdir(parents=True, exist_ok=True)
    lengths = np.array(allowed_lengths())
    for key, speaker, words, path in rows:
        samples = read_wave(path)
        after = np.searchsorted(lengths, num_frames(len(samples)), side="right")
        if after == len(lengths):
            sys.exit(f"{path}: {num_frames(len(samples))} frames are too many: at most {LONGEST}")
        numbers = np.clip(after + np.array(COPY_LENGTHS[:copies]), 0, len(lengths) - 1)
        for tag, number in zip(("pv1", "pv2", "pv3", "pv4"), numbers, strict=False):
            size = (int(lengths[number]) - 1) * FRAME_SHIFT + FRAME_LENGTH
            copy = folder / f"{tag}-{key}.wav"
            write_wave(copy, resampled(samples, size))
            yield f"{tag}-{key}", f"{tag}-{speaker}", words, copy


def without_held_out(rows):
    """What is trained on, and what every eighth speaker said."""
    held_out = set(sorted({speaker for _, speaker, _, _ in rows})[::HELD_OUT_EVERY])
    return (
        [row for row in rows if row[1] not in held_out],
        [row for row in rows if row[1] in held_out],
    )


def write_dictionary(corpus, folder):
    folder.mkdir(parents=True, exist_ok=True)
    lexicon = [("<UNK>", ["SPN"])]
    for line in (corpus / "etc" / "an4.dic").read_text().splitlines():
        if fields := line.split():
            lexicon.append((re.sub(r"\(\d+\)$", "", fields[0]), fields[1:]))
    phones = sorted({phone for _, pronunciation in lexicon[1:] for phone in pronunciation})
    write_lines(folder / "lexicon.txt", (f"{word} {' '.join(p)}" for word, p in lexicon))
    write_lines(folder / "nonsilence_phones.txt", phones)
    write_lines(folder / "silence_phones.txt", ["SIL", "SPN"])
    write_lines(folder / "optional_silence.txt", ["SIL"])


def main():
    held_out = "--held-out" in sys.argv
    corpus, data, *more = (word for word in sys.argv[1:] if word != "--held-out")
    corpus, data = Path(corpus).resolve(), Path(data).resolve()
    copies = int(more[0]) if more else len(COPY_LENGTHS)
    train, test = list(utterances(corpus, "train")), list(utterances(corpus, "test"))
    if held_out:
        train, test = without_held_out(train)
        test += list(speed_perturbed(test, data / "test" / "wav", 2))
    write_data(data / "test", test)
    write_data(data / "train", train)
    write_data(data / "train_sp", speed_perturbed(train, data / "train_sp" / "wav", copies))
    write_lines(data / "train_sp" / "allowed_lengths.txt", allowed_lengths())
    write_dictionary(corpus, data / "local" / "dict")
    print(
        f"{len(train)} training utterances, copies of each: {copies}; {len(test)} test utterances"
    )


if __name__ == "__main__":
    main()

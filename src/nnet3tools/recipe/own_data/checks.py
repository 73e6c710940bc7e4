"""Checks of sound and transcripts before training, and the choice of held-out speakers."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np

from nnet3tools.errors import UserError, quoted
from nnet3tools.fast_dataclasses import dataclass, replace
from nnet3tools.features.sound_files import OutsideError, Sound, import_soundfile
from nnet3tools.io.checked import exists
from nnet3tools.io.files import FileKind, classify_input
from nnet3tools.recipe.data_dir import perl_shuffled
from nnet3tools.recipe.options import CheckOptions
from nnet3tools.recipe.own_data.corpus import Corpus
from nnet3tools.recipe.own_data.faults import Fault, FaultList
from nnet3tools.recipe.own_data.pronunciations import RESERVED, WordList
from nnet3tools.recipe.own_data.recordings import Utterance, by_recording, in_threads, read_sounds

WIDE_BAND, NARROW_BAND = 16000, 8000
_FRAME_SECONDS = 0.03
"""Seconds of a frame of the network's output."""
_SILENT = 0.001
"""Half of the range of samples, relative to full scale: -60 dB."""
_CLIPPED = 0.001
"""Share of samples at full scale."""


@dataclass(frozen=True)
class SoundFacts:
    """Properties of a sound; `amplitude` 1 is full scale, `clipped` a share of the samples."""

    rate: int
    num_channels: int
    seconds: float
    amplitude: float
    clipped: float

    @classmethod
    def of(cls, sound: Sound) -> SoundFacts:
        """Measure the properties of a sound that is not empty."""
        amplitude = float(np.ptp(sound.samples)) / 2.0
        return cls(sound.rate, sound.num_channels, sound.seconds, amplitude, sound.clipped)


@dataclass(frozen=True)
class CheckedData:
    """Usable utterances with normalized words; `facts` by utterance; `rate` is in Hz."""

    utterances: tuple[Utterance, ...]
    facts: dict[str, SoundFacts]
    has_speakers: bool
    rate: int
    """Sampling rate for training: 16000 if half of the sound has it or more, else 8000."""

    @property
    def words(self) -> set[str]:
        """The set of all words in the utterances."""
        return {word for utterance in self.utterances for word in utterance.words}

    def __str__(self) -> str:
        seconds = sum(self.facts[utterance.name].seconds for utterance in self.utterances)
        speakers = len({utterance.speaker for utterance in self.utterances})
        shown = f"{speakers} speakers" if self.has_speakers else "speakers unknown"
        return (
            f"{len(self.utterances)} utterances, {shown}, {seconds / 60:.1f} minutes, "
            f"{len(self.words)} different words; {2 * self.rate * seconds / 1e6:.0f} MB as 16-bit "
            f"sound of {self.rate} Hz"
        )


def check_data(
    corpus: Corpus, words: WordList, faults: FaultList, options: CheckOptions
) -> CheckedData:
    """Check the sound and words of all utterances; add faults to `faults`.

    The result lacks utterances with errors and utterances that a fault excludes.
    """
    faults.most_shown = options.num_shown
    normalized = _normalized(corpus, words, faults)
    _check_unknown(corpus.name, normalized, words, faults, options)
    facts = _survey(normalized, faults, options)
    rate = _training_rate(facts.values(), corpus.name, faults)
    if num_stereo := sum(fact.num_channels > 1 for fact in facts.values()):
        faults.add(Fault.CHANNELS, corpus.name, f"{num_stereo} of {len(facts)} utterances")
    kept = tuple(
        utterance
        for utterance in normalized
        if utterance.words
        and (found := facts.get(utterance.name))
        and _is_usable(utterance, found, rate, words, faults, options)
    )
    if not kept:
        faults.add(Fault.NO_UTTERANCES, corpus.name, f"none of {len(normalized)} can be used")
    return CheckedData(kept, facts, corpus.has_speakers, rate)


def _training_rate(facts: Collection[SoundFacts], name: str, faults: FaultList) -> int:
    """The sampling rate for training: 16000 Hz if half of the sound or more has it, else 8000.

    If rates differ, a fault of the data called `name` is added to `faults`.
    """
    seconds: Counter[int] = Counter()
    for fact in facts:
        seconds[fact.rate] += round(1000 * fact.seconds)
    is_wide = 2 * sum(s for r, s in seconds.items() if r >= WIDE_BAND) >= seconds.total()
    rate = WIDE_BAND if is_wide else NARROW_BAND
    if len(seconds) > 1:
        parts = ", ".join(f"{s / 60_000:.2g} minutes of {r} Hz" for r, s in seconds.most_common(9))
        faults.add(Fault.RATES_DIFFER, name, f"{parts}; the training uses {rate} Hz")
    return rate


def _normalized(corpus: Corpus, words: WordList, faults: FaultList) -> list[Utterance]:
    """The utterances with normalized words; empty or malformed transcripts go to `faults`."""
    forms = {word: words.normalized(word) for u in corpus.utterances for word in u.words}
    removed: Counter[str] = Counter()
    found = []
    for utterance in corpus.utterances:
        removed.update(word for word in utterance.words if forms[word] != word)
        now = tuple(forms[word] for word in utterance.words if forms[word])
        if not now:
            faults.add(Fault.EMPTY_TRANSCRIPT, utterance.place, f"'{utterance.name}'")
        for word in now:
            if RESERVED.fullmatch(word):
                faults.add(Fault.MALFORMED, utterance.place, f"'{word}' as a word")
        found.append(replace(utterance, words=now))
    if removed:
        examples = ", ".join(f"{quoted(word)}" for word, _ in removed.most_common(5))
        found_text = f"from {removed.total()} words, such as {examples}"
        faults.add(Fault.PUNCTUATION, corpus.name, found_text)
    return found


def _check_unknown(
    name: str,
    utterances: Sequence[Utterance],
    words: WordList,
    faults: FaultList,
    options: CheckOptions,
) -> None:
    counts = Counter(word for utterance in utterances for word in utterance.words)
    unknown = [(word, n) for word, n in counts.most_common() if not words.num_phones(word)]
    for number, (word, count) in enumerate(unknown):
        hint = words.nearest(word) if number < faults.most_shown else ""
        found = f"{count} time{'s' if count > 1 else ''}{hint}"
        faults.add(Fault.UNKNOWN_WORD, f"word '{word}'", found)
    total, num_unknown = counts.total(), sum(count for _, count in unknown)
    if num_unknown > options.max_unknown * total:
        found = f"{num_unknown} of {total} running words are not in the lexicon"
        for case, form in (("upper", str.upper), ("lower", str.lower), ("title", str.capitalize)):
            known = sum(count for word, count in unknown if words.num_phones(form(word)))
            if 2 * known > num_unknown:
                found += f"; {known} of these are in {case} case"
        faults.add(Fault.MOSTLY_UNKNOWN, name, found)


def _survey(
    utterances: Sequence[Utterance], faults: FaultList, options: CheckOptions
) -> dict[str, SoundFacts]:
    """Read all sound; returns the properties by utterance, and adds unreadable ones to `faults`."""
    import_soundfile()  # if it is missing, that is no fault of each file
    failed: dict[str, Sound | UserError] = {}
    facts: dict[str, SoundFacts] = {}

    def survey(recording: Sequence[Utterance]) -> None:
        sounds = read_sounds(recording, options.max_seconds)
        for utterance, sound in zip(recording, sounds, strict=True):
            if isinstance(sound, Sound) and len(sound.samples):
                facts[utterance.name] = SoundFacts.of(sound)
            else:
                failed[utterance.name] = sound

    in_threads("recordings read", survey, by_recording(utterances))
    for utterance in utterances:
        if utterance.name in failed:
            fault, found = _sound_fault(utterance, failed[utterance.name])
            faults.add(fault, utterance.place, f"{quoted(utterance.sound.name, 100)}: {found}")
    return {u.name: facts[u.name] for u in utterances if u.name in facts}


def _sound_fault(utterance: Utterance, sound: Sound | UserError) -> tuple[Fault, str]:
    """(fault, description) for a sound that is empty, or for the error `sound` of reading it."""
    source = utterance.sound
    if isinstance(sound, Sound):
        is_part = source.start > 0.0 or source.end >= 0.0
        fault = Fault.BAD_SEGMENT if is_part else Fault.EMPTY_SOUND
        return fault, "no samples" + (f" after {source.start:g} s" if is_part else "")
    if isinstance(sound, OutsideError):
        return Fault.BAD_SEGMENT, str(sound)
    is_file = not source.from_wav_scp or classify_input(source.name) is FileKind.FILE
    if is_file and not exists(source.name):
        return Fault.MISSING_SOUND, "there is no such file"
    if is_file and not os.path.getsize(source.name):
        return Fault.EMPTY_SOUND, "a file of 0 bytes"
    return Fault.UNREADABLE_SOUND, str(sound)


def _is_usable(
    utterance: Utterance,
    fact: SoundFacts,
    rate: int,
    words: WordList,
    faults: FaultList,
    options: CheckOptions,
) -> bool:
    """Whether an utterance can be used for training at `rate` Hz; add its faults to `faults`."""
    where = f"{utterance.place} '{utterance.name}'"
    num_phones = sum(words.num_phones(word) or 1 for word in utterance.words)
    needed = num_phones * _FRAME_SECONDS
    if fact.rate < rate:
        faults.add(Fault.LOW_RATE, where, f"{fact.rate} Hz, below {rate} Hz")
    if fact.amplitude < _SILENT:
        faults.add(Fault.SILENT, where, f"amplitude {fact.amplitude:.5f} of full scale")
    elif fact.seconds > options.max_seconds:
        faults.add(Fault.TOO_LONG, where, f"more than {options.max_seconds:g} s")
    elif fact.seconds < needed:
        found = f"{fact.seconds:.2f} s for {num_phones} phones, which need {needed:.2f} s"
        faults.add(Fault.TOO_SHORT, where, found)
    else:
        if fact.clipped > _CLIPPED:
            found = f"{100 * fact.clipped:.1f} % of samples at full scale"
            faults.add(Fault.CLIPPED, where, found)
        return True
    return False


def split_held_out(
    data: CheckedData, share: float = 0.1, max_seconds: float = 7200.0
) -> tuple[list[Utterance], list[Utterance]]:
    """Split the data: a pair of lists, training utterances and held-out utterances.

    Held out are speakers with about `share` of the sound, at least one speaker, and at most about
    `max_seconds`. If there is only one speaker, or no speaker is named, utterances are held out
    instead. The choice depends on ids, speakers and durations only.
    """
    groups: dict[str, list[Utterance]] = {}
    for utterance in data.utterances:
        groups.setdefault(utterance.speaker, []).append(utterance)
    if len(groups) == 1:
        groups = {utterance.name: [utterance] for utterance in data.utterances}
    sizes = {name: sum(data.facts[u.name].seconds for u in us) for name, us in groups.items()}
    held = _chosen(sizes, min(share * sum(sizes.values()), max_seconds))
    parts: tuple[list[Utterance], list[Utterance]] = ([], [])
    for name in groups:
        parts[name in held].extend(groups[name])
    for part in parts:
        part.sort(key=lambda utterance: utterance.name)
    return parts


def _chosen(sizes: dict[str, float], wanted: float) -> set[str]:
    """Choose names whose sizes sum to about `wanted`: at least one name, and not all names."""
    held: set[str] = set()
    total = 0.0
    for name in perl_shuffled(sorted(sizes)):
        # Half of the last one may be over, so that sums are right on average.
        if total + sizes[name] / 2.0 <= wanted and len(held) + 1 < len(sizes):
            held.add(name)
            total += sizes[name]
    smallest = min(sizes, key=lambda name: (sizes[name], name), default="")
    return held or ({smallest} if len(sizes) > 1 else set())

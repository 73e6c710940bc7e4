"""Programs that compute features of sound, its durations, and copies at other speeds."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from nnet3tools.cli.options import OptionGroup, option, option_group, program
from nnet3tools.errors import DataError, OptionError, naming
from nnet3tools.features.sound_options import FbankOptions, MfccOptions
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

if TYPE_CHECKING:
    from nnet3tools.features.sound_features import SoundFeatures
    from nnet3tools.io.wave import Wave, WaveInfo

_HTK_MFCC, _HTK_FBANK = 6, 7  # HTK's codes of kinds of features
_ENERGY, _C0 = 0o100, 0o20000  # HTK's flags for features with energy or C0


class SoundOptions(OptionGroup):
    """Options of every program that computes features from sound."""

    output_format: str = option("kaldi", "Format of the output files [kaldi, htk]")
    subtract_mean: bool = option(
        False, "Subtract mean of each feature file [CMS]; not recommended to do it this way. "
    )
    vtln_warp: float = option(1.0, "Only 1 (no warping of the frequencies) is supported")
    vtln_map: str = option("", "Not supported")
    utt2spk: str = option("", "Only with --vtln-map, which is not supported")
    channel: int = option(-1, "Channel to extract (-1 -> expect mono, 0 -> left, 1 -> right)")
    min_duration: float = option(0.0, "Minimum duration of segments to process (in seconds).")
    write_utt2dur: str = option(
        "", "Wspecifier to write duration of each utterance in seconds, e.g. 'ark,t:utt2dur'."
    )

    def check(self) -> None:
        """OptionError if an option is not supported."""
        if self.vtln_map or self.vtln_warp != 1.0:
            raise OptionError(
                "--vtln-map and --vtln-warp are not supported: kaldi-native-fbank has no VTLN"
            )
        if self.utt2spk:
            raise OptionError(
                "The --utt2spk option is only needed if the --vtln-map option is used."
            )
        if self.output_format not in ("kaldi", "htk"):
            raise OptionError(f"Invalid output_format string {self.output_format}")


def compute_features(
    options: SoundOptions, of: FbankOptions | MfccOptions, htk_base: int, args: list[str]
) -> int:
    """Write the features of the sound table args[0] to args[1]; returns the exit status.

    `of` are the options of the kind of features. `htk_base` is HTK's code of this kind without
    energy or C0, for --output-format=htk.
    """
    from nnet3tools.cli.tables import OptionalTable
    from nnet3tools.features.sound_features import SoundFeatures
    from nnet3tools.io.foreign_features import HTK, HtkFeatures
    from nnet3tools.io.holders import DOUBLE, MATRIX, Holder
    from nnet3tools.io.table import SequentialTableReader, TableWriter
    from nnet3tools.io.wave import WAVE

    options.check()
    computer = SoundFeatures(of)
    htk_kind = htk_base | (_ENERGY if of.use_energy else _C0)
    is_htk = options.output_format == "htk"
    holder: Holder = HTK if is_htk else MATRIX
    num_read = num_done = 0
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(TableWriter(args[1], holder))
        durations = OptionalTable(options.write_utt2dur, DOUBLE, stack)
        for key, wave in stack.enter_context(SequentialTableReader(args[0], WAVE)):
            num_read += 1
            if (features := _features_of(key, wave, options, computer)) is None:
                continue
            writer.write(key, HtkFeatures(features, htk_kind) if is_htk else features)
            durations.write(key, wave.duration)
            if num_read % 10 == 0:
                log.log(f"Processed {num_read} utterances")
            log.vlog(2, f"Processed features for key {key}")
            num_done += 1
    log.log(f" Done {num_done} out of {num_read} utterances.")
    return 0 if num_done else 1


def _features_of(
    key: str, wave: Wave, options: SoundOptions, computer: SoundFeatures
) -> np.ndarray | None:
    """The features of a sound's chosen channel; None, after a warning, if there are none."""
    if wave.duration < options.min_duration:
        log.warning(f"File: {key} is too short ({wave.duration:g} sec): producing no output.")
        return None
    channel, num_channels = options.channel, len(wave.samples)
    if channel == -1:
        channel = 0
        if num_channels != 1:
            log.warning(
                f"Channel not specified but you have data with {num_channels}  channels; "
                "defaulting to zero"
            )
    elif not 0 <= channel < num_channels:
        log.warning(
            f"File with id {key} has {num_channels} channels but you specified channel {channel}, "
            "producing no output."
        )
        return None
    try:
        features = computer.compute(wave.samples[channel], wave.rate)
    except DataError as error:
        log.error_line(str(error))
        log.warning(f"Failed to compute features for utterance {key}")
        return None
    if options.subtract_mean and len(features):
        features = features - features.mean(axis=0)
    return features


COMPUTE_FBANK_FEATS_USAGE = """Create Mel-filter bank (FBANK) feature files.
Usage:  compute-fbank-feats [options...] <wav-rspecifier> <feats-wspecifier>
e.g.: compute-fbank-feats --config=conf/fbank.conf scp:wav.scp ark:-
"""


class ComputeFbankFeatsOptions(OptionGroup):
    features: FbankOptions = option_group("", FbankOptions)
    sound: SoundOptions = option_group("", SoundOptions)


@program("compute-fbank-feats", COMPUTE_FBANK_FEATS_USAGE, ComputeFbankFeatsOptions, num_args=2)
def compute_fbank_feats(options: ComputeFbankFeatsOptions, args: list[str]) -> int:
    return compute_features(options.sound, options.features, _HTK_FBANK, args)


COMPUTE_MFCC_FEATS_USAGE = """Create MFCC feature files.
Usage:  compute-mfcc-feats [options...] <wav-rspecifier> <feats-wspecifier>
e.g.: compute-mfcc-feats --config=conf/mfcc.conf scp:wav.scp ark:-
"""


class ComputeMfccFeatsOptions(OptionGroup):
    features: MfccOptions = option_group("", MfccOptions)
    sound: SoundOptions = option_group("", SoundOptions)


@program("compute-mfcc-feats", COMPUTE_MFCC_FEATS_USAGE, ComputeMfccFeatsOptions, num_args=2)
def compute_mfcc_feats(options: ComputeMfccFeatsOptions, args: list[str]) -> int:
    return compute_features(options.sound, options.features, _HTK_MFCC, args)


WAV_PERTURB_SPEED_USAGE = """\
Writes copies of mono sound at other speeds, which change tempo and pitch together.
<copies> is a text file. Each line has the key of a copy, the key of the sound that it is of, and
the number of samples to play that sound in. Lines are in the order of the sound table.

Usage: wav-perturb-speed [options] <copies> <wav-rspecifier> <wav-wspecifier>
e.g.: wav-perturb-speed copies.txt scp:wav.scp ark:- | compute-mfcc-feats ark:- ark:feats.ark
"""


class WavPerturbSpeedOptions(OptionGroup):
    channel: int = option(0, "The channel that is used of sound with several channels")


@program("wav-perturb-speed", WAV_PERTURB_SPEED_USAGE, WavPerturbSpeedOptions, num_args=3)
def wav_perturb_speed(options: WavPerturbSpeedOptions, args: list[str]) -> int:
    from nnet3tools.features.resample import at_size
    from nnet3tools.io.files import read_text_lines
    from nnet3tools.io.table import SequentialTableReader, TableWriter
    from nnet3tools.io.wave import WAVE, Wave
    from nnet3tools.number_text import parse_int

    copies: dict[str, list[tuple[str, int]]] = {}
    for number, line in enumerate(read_text_lines(args[0]), start=1):
        words = line.split()
        size = parse_int(words[2], 1) if len(words) == 3 else None
        if size is None:
            raise DataError(f"{args[0]}:{number}: expected a copy, its sound and a size")
        copies.setdefault(words[1], []).append((words[0], size))
    num_done = 0
    with TableWriter(args[2], WAVE) as writer, SequentialTableReader(args[1], WAVE) as reader:
        for key, wave in reader:
            if not 0 <= options.channel < len(wave.samples):
                raise DataError(f"{args[1]}: key '{key}': it has no channel {options.channel}")
            samples = wave.samples[options.channel]
            with naming(f"{args[1]}: key '{key}'"):
                if any(size > 16 * len(samples) for _, size in copies.get(key, ())):
                    raise DataError(f"a copy in {args[0]} is more than 16 times as long")
            for copy, size in copies.get(key, ()):
                writer.write(copy, Wave(wave.rate, at_size(samples, size)[None]))
                num_done += 1
    log.log(f"Wrote {num_done} copies")
    return 0 if num_done else 1


WAV_TO_DURATION_USAGE = """Read wav files and output an archive consisting of a single float:
the duration of each one in seconds.
Usage:  wav-to-duration [options...] <wav-rspecifier> <duration-wspecifier>
e.g.: wav-to-duration scp:wav.scp ark,t:-
See also: wav-copy extract-segments feat-to-len
"""


class WavToDurationOptions(OptionGroup):
    read_entire_file: bool = option(
        False, "If true, read the samples, too, to ensure the returned duration is correct."
    )


@program("wav-to-duration", WAV_TO_DURATION_USAGE, WavToDurationOptions, num_args=2)
def wav_to_duration(options: WavToDurationOptions, args: list[str]) -> int:
    from nnet3tools.cli.tables import convert_table
    from nnet3tools.io.holders import FLOAT, Holder
    from nnet3tools.io.specifiers import TableKind, parse_rspecifier
    from nnet3tools.io.wave import WAVE, WAVE_INFO

    # In an archive, the samples must be read to reach the next key.
    in_archive = parse_rspecifier(args[0]).kind is TableKind.ARCHIVE
    holder: Holder = WAVE if options.read_entire_file or in_archive else WAVE_INFO
    durations: list[float] = []

    def convert(key: str, wave: Wave | WaveInfo) -> float:
        if getattr(wave, "num_samples", 0) < 0:
            raise DataError(
                "no duration in header. Check the source, and/or try --read-entire-file."
            )
        durations.append(wave.duration)
        return wave.duration

    convert_table(args[0], args[1], (holder, FLOAT), convert)
    log.log(f"Printed duration for {len(durations)} audio files.")
    if not durations:
        return 1
    mean, least, most = sum(durations) / len(durations), min(durations), max(durations)
    log.log(f"Mean duration was {mean:g}, min and max durations were {least:g}, {most:g}")
    return 0

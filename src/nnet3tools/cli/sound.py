"""Common options and loop of the programs that compute features of sound."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from nnet3tools.errors import DataError, OptionError
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np
from nnet3tools.options import OptionGroup, option

if TYPE_CHECKING:
    from nnet3tools.features.sound_features import SoundFeatures
    from nnet3tools.features.sound_options import FbankOptions, MfccOptions
    from nnet3tools.io.wave import Wave

_ENERGY, _C0 = 0o100, 0o20000  # HTK's flags for features with energy or C0


class SoundOptions(OptionGroup):
    """Options of every program that computes features from sound."""

    output_format: str = option("kaldi", "Format of the output files [kaldi, htk]")
    subtract_mean: bool = option(
        False,
        "Subtract mean of each feature file [CMS]; not recommended to do it this way. ",
    )
    vtln_warp: float = option(1.0, "Only 1 (no warping of the frequencies) is supported")
    vtln_map: str = option("", "Not supported")
    utt2spk: str = option("", "Only with --vtln-map, which is not supported")
    channel: int = option(-1, "Channel to extract (-1 -> expect mono, 0 -> left, 1 -> right)")
    min_duration: float = option(0.0, "Minimum duration of segments to process (in seconds).")
    write_utt2dur: str = option(
        "",
        "Wspecifier to write duration of each utterance in seconds, e.g. 'ark,t:utt2dur'.",
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
    """Compute and write the features of a table of sound; returns the exit status.

    `htk_base` is HTK's code of features without energy or C0, for --output-format=htk.
    """
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
        durations = None
        if options.write_utt2dur:
            durations = stack.enter_context(TableWriter(options.write_utt2dur, DOUBLE))
        for key, wave in stack.enter_context(SequentialTableReader(args[0], WAVE)):
            num_read += 1
            features = _features_of(key, wave, options, computer)
            if features is None:
                continue
            writer.write(key, HtkFeatures(features, htk_kind) if is_htk else features)
            if durations is not None:
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

"""Cepstra (MFCC) and log filter-bank energies of sound, computed by kaldi-native-fbank.

That package contains Kaldi's feature code; the extra `recipe` installs it. Values for which it
would abort the process are refused here first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError, OptionError, install_command
from nnet3tools.features.resample import Resampler
from nnet3tools.features.sound_options import FbankOptions, MfccOptions

_FRAME_FIELDS = {
    "samp_freq": "sample_frequency",
    "frame_shift_ms": "frame_shift",
    "frame_length_ms": "frame_length",
    "preemph_coeff": "preemphasis_coefficient",
    "remove_dc_offset": "remove_dc_offset",
    "round_to_power_of_two": "round_to_power_of_two",
    "blackman_coeff": "blackman_coeff",
    "snip_edges": "snip_edges",
}
_MEL_FIELDS = {
    "num_bins": "num_mel_bins",
    **{name: name for name in ("low_freq", "high_freq", "debug_mel")},
}
_OWN_FIELDS = (
    "num_ceps", "use_energy", "energy_floor", "raw_energy", "cepstral_lifter", "htk_compat",
    "use_log_fbank", "use_power",
)  # fmt: skip

RATES = 1000, 400_000
"""The lowest and highest sampling rate that is resampled: others need filters of gigabytes."""


class SoundFeatures:
    """Computes MFCC (MfccOptions) or log filter-bank energies (FbankOptions) of sound."""

    def __init__(self, options: MfccOptions | FbankOptions) -> None:
        """Store valid options; OptionError for invalid ones.

        DataError if the package kaldi-native-fbank is not installed.
        """
        options.frame.check()
        options.mel.check(options.frame)
        num_bins = options.mel.num_mel_bins
        if isinstance(options, MfccOptions) and not 0 < options.num_ceps <= num_bins:
            raise OptionError(
                f"num-ceps cannot be larger than num-mel-bins. It should be smaller or equal. You "
                f"provided num-ceps: {options.num_ceps}  and num-mel-bins: {num_bins}"
            )
        self._frame = options.frame
        self.dither = options.frame.dither
        """The standard deviation of the noise that is added to samples."""
        try:
            import kaldi_native_fbank as engine
        except ImportError:
            raise DataError(
                "computing features of sound needs the package kaldi-native-fbank: "
                f"{install_command('recipe')}"
            ) from None
        is_mfcc = isinstance(options, MfccOptions)
        self._extractor = engine.OnlineMfcc if is_mfcc else engine.OnlineFbank
        self._settings = _engine_options(
            engine.MfccOptions() if is_mfcc else engine.FbankOptions(), options
        )
        self.dim: int = self.new_extractor().dim
        """Dimension of the features."""

    @property
    def sample_rate(self) -> float:
        """The sampling rate in Hz that the options expect."""
        return self._frame.sample_frequency

    def compute(self, samples: NDArray[np.int16], rate: int) -> NDArray[np.float32]:
        """The features, shape (frames, dim), of the samples of one channel, recorded at `rate` Hz.

        The shape is (0, 0) for sound shorter than a window. DataError if `rate` is not the rate of
        the options and they forbid resampling.
        """
        stream = self.stream(rate)
        frames = np.concatenate([stream.accept(samples), stream.finish()])
        return frames if len(frames) else np.zeros((0, 0), np.float32)

    def stream(self, rate: float) -> SoundStream:
        """Make a stream that computes features of sound with the sampling rate `rate` in Hz.

        DataError if `rate` is not the rate of the options and they forbid resampling.
        """
        self.check_rate(rate)
        return SoundStream(self, rate)

    def new_extractor(self) -> Any:
        """Make a new kaldi-native-fbank object that computes the features."""
        return self._extractor(self._settings)

    @property
    def frame_seconds(self) -> float:
        """The time in seconds from one frame to the next."""
        return self._frame.frame_shift / 1000.0

    def check_rate(self, rate: float) -> None:
        """DataError if `rate` in Hz differs from the options' rate and resampling is forbidden."""
        wanted = self._frame.sample_frequency
        if rate == wanted:
            return
        if not RATES[0] <= rate <= RATES[1]:
            raise DataError(
                f"cannot resample from {rate:g} Hz: expected from {RATES[0]} to {RATES[1]} Hz"
            )
        down = wanted < rate
        if self._frame.allow_downsample if down else self._frame.allow_upsample:
            return
        verb = "downsample" if down else "upsample"
        raise DataError(
            f"Waveform and config sample Frequency mismatch: {rate:g} .vs {wanted:g} (use "
            f"--allow-{verb}=true to allow {verb[:-1]}ing the waveform)."
        )


class SoundStream:
    """Computes features of sound that arrives in pieces of any size.

    The size of the pieces does not change the features. Dither is the same noise in every stream.
    Without it, digital silence has energies far below those of any recording, which normalization
    cannot undo.
    """

    def __init__(self, features: SoundFeatures, rate: float) -> None:
        """Start a stream of sound at `rate` Hz; `features` gives the options."""
        self._features, self._extractor = features, features.new_extractor()
        self._dither, self._noise = np.float32(features.dither), np.random.default_rng(0)
        self._done = 0
        wanted = features.sample_rate
        self._resampler = None if rate == wanted else Resampler(round(rate), round(wanted))

    def accept(self, samples: NDArray) -> NDArray[np.float32]:
        """Add samples of one channel; returns the frames (frames, dim) that can now be computed."""
        wave = np.ascontiguousarray(samples, np.float32)
        if self._resampler is not None:
            wave = self._resampler.accept(wave)
        self._extract(wave)
        return self._ready()

    def finish(self) -> NDArray[np.float32]:
        """End the stream; returns its last frames, shape (frames, dim)."""
        if self._resampler is not None:
            self._extract(self._resampler.finish())
        self._extractor.input_finished()
        return self._ready()

    def _extract(self, wave: NDArray[np.float32]) -> None:
        """Pass samples to the kaldi-native-fbank object, which takes Python numbers."""
        if self._dither:
            wave = wave + self._dither * self._noise.standard_normal(len(wave), np.float32)
        if len(wave):
            self._extractor.accept_waveform(self._features.sample_rate, wave.data)

    def _ready(self) -> NDArray[np.float32]:
        begin, end = self._done, self._extractor.num_frames_ready
        self._done = max(begin, end)
        frames = np.empty((self._done - begin, self._features.dim), np.float32)
        for row in range(len(frames)):  # copies, since the extractor reuses its memory
            frames[row] = self._extractor.get_frame(begin + row)
        self._extractor.pop(self._done - begin)  # else it keeps all frames
        return frames


def _engine_options(settings: Any, options: MfccOptions | FbankOptions) -> Any:
    """Copy the values of `options` to `settings`, an object of kaldi-native-fbank; returns it."""
    for theirs, ours in _FRAME_FIELDS.items():
        setattr(settings.frame_opts, theirs, getattr(options.frame, ours))
    settings.frame_opts.dither = 0.0  # SoundStream adds it
    settings.frame_opts.window_type = options.frame.window_type
    for theirs, ours in _MEL_FIELDS.items():
        setattr(settings.mel_opts, theirs, getattr(options.mel, ours))
    for name in _OWN_FIELDS:
        if hasattr(options, name):
            setattr(settings, name, getattr(options, name))
    return settings

"""Cepstra (MFCC) and log filter-bank energies of sound, computed by kaldi-native-fbank.

That package is Kaldi's feature code apart from the rest; it comes with the extra `recipe`. What it
would abort the process for is checked here first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError, OptionError
from nnet3tools.training.options import option
from nnet3tools.training.resample import resample

__all__ = ["FbankOptions", "FrameOptions", "MelOptions", "MfccOptions", "SoundFeatures"]

_WINDOWS = ("hamming", "hanning", "povey", "rectangular", "sine", "blackman")


@dataclass(frozen=True)
class FrameOptions:
    """Cutting sound into windows (Kaldi's FrameExtractionOptions)."""

    sample_frequency: float = option(
        16000.0,
        "Waveform data sample frequency (must match the waveform file, if specified there)",
    )
    frame_length: float = option(25.0, "Frame length in milliseconds")
    frame_shift: float = option(10.0, "Frame shift in milliseconds")
    preemphasis_coefficient: float = option(0.97, "Coefficient for use in signal preemphasis")
    remove_dc_offset: bool = option(True, "Subtract mean from waveform on each frame")
    dither: float = option(
        1.0,
        "Dithering constant (0.0 means no dither). If you turn this off, you should set the "
        "--energy-floor option, e.g. to 1.0 or 0.1",
    )
    window_type: str = option(
        "povey",
        'Type of window ("hamming"|"hanning"|"povey"|"rectangular"|"sine"|"blackman")',
    )
    blackman_coeff: float = option(0.42, "Constant coefficient for generalized Blackman window.")
    round_to_power_of_two: bool = option(
        True, "If true, round window size to power of two by zero-padding input to FFT."
    )
    snip_edges: bool = option(
        True,
        "If true, end effects will be handled by outputting only frames that completely fit in the "
        "file, and the number of frames depends on the frame-length.  If false, the number of "
        "frames depends only on the frame-shift, and we reflect the data at the ends.",
    )
    allow_downsample: bool = option(
        False,
        "If true, allow the input waveform to have a higher frequency than the specified "
        "--sample-frequency (and we'll downsample).",
    )
    allow_upsample: bool = option(
        False,
        "If true, allow the input waveform to have a lower frequency than the specified "
        "--sample-frequency (and we'll upsample).",
    )
    max_feature_vectors: int = option(-1, "Accepted for compatibility; has no effect")

    @property
    def window_size(self) -> int:
        """Samples in a window."""
        return int(self.sample_frequency * 0.001 * self.frame_length)

    @property
    def padded_size(self) -> int:
        """The same after rounding up for the Fourier transform."""
        size = self.window_size
        return 1 << (size - 1).bit_length() if self.round_to_power_of_two else size

    def check(self) -> None:
        """OptionError for values that no features can be computed with."""
        if self.window_type not in _WINDOWS:
            known = ", ".join(_WINDOWS)
            raise OptionError(f"--window-type={self.window_type}: expected one of {known}")
        if self.window_size < 2 or int(self.sample_frequency * 0.001 * self.frame_shift) < 1:
            raise OptionError(
                f"--frame-length={self.frame_length:g} and --frame-shift={self.frame_shift:g} ms "
                f"are too short at {self.sample_frequency:g} Hz"
            )
        if self.padded_size > 1 << 20:
            raise OptionError(f"--frame-length={self.frame_length:g} ms is too long")
        if not 0.0 <= self.preemphasis_coefficient <= 1.0:
            raise OptionError("--preemphasis-coefficient must be between 0 and 1")
        if self.padded_size % 2:
            raise OptionError("the window must have an even number of samples")


@dataclass(frozen=True)
class MelOptions:
    """The triangular filters on the mel scale (Kaldi's MelBanksOptions)."""

    num_mel_bins: int = option(23, "Number of triangular mel-frequency bins")
    low_freq: float = option(20.0, "Low cutoff frequency for mel bins")
    high_freq: float = option(
        0.0, "High cutoff frequency for mel bins (if <= 0, offset from Nyquist)"
    )
    vtln_low: float = option(100.0, "Accepted for compatibility; has no effect")
    vtln_high: float = option(-500.0, "Accepted for compatibility; has no effect")
    debug_mel: bool = option(False, "Print out debugging information for mel bin computation")

    def check(self, frame: FrameOptions) -> None:
        """OptionError for bins that do not fit between 0 and half the sampling rate."""
        nyquist = 0.5 * frame.sample_frequency
        low = self.low_freq
        high = self.high_freq if self.high_freq > 0.0 else nyquist + self.high_freq
        if not (0.0 <= low < nyquist and 0.0 < high <= nyquist and low < high):
            raise OptionError(
                f"Bad values in options: low-freq {low:g} and high-freq {high:g} vs. nyquist "
                f"{nyquist:g}"
            )
        if self.num_mel_bins < 3:
            raise OptionError(f"--num-mel-bins={self.num_mel_bins}: expected at least 3")
        if self.num_mel_bins > frame.padded_size or self._has_empty_bin(low, high, frame):
            raise OptionError(
                f"--num-mel-bins={self.num_mel_bins} is too large: a bin would have no frequency"
            )

    def _has_empty_bin(self, low: float, high: float, frame: FrameOptions) -> bool:
        """Whether one of the triangles has no frequency of the Fourier transform inside."""
        edges = np.linspace(_mel(low), _mel(high), self.num_mel_bins + 2)
        half = frame.padded_size // 2
        points = _mel(np.arange(half) * frame.sample_frequency / frame.padded_size)
        first = np.searchsorted(points, edges[:-2], side="right")
        return bool(
            (first >= half).any() or (points[np.minimum(first, half - 1)] >= edges[2:]).any()
        )


def _mel(frequency: Any) -> Any:
    return 1127.0 * np.log1p(np.asarray(frequency) / 700.0)


@dataclass(frozen=True)
class MfccOptions:
    """Options of compute-mfcc-feats (Kaldi's MfccOptions)."""

    frame: FrameOptions = field(default_factory=FrameOptions, metadata={"prefix": ""})
    mel: MelOptions = field(default_factory=MelOptions, metadata={"prefix": ""})
    num_ceps: int = option(13, "Number of cepstra in MFCC computation (including C0)")
    use_energy: bool = option(True, "Use energy (not C0) in MFCC computation")
    energy_floor: float = option(
        0.0,
        "Floor on energy (absolute, not relative) in MFCC computation. Only makes a difference if "
        "--use-energy=true; only necessary if --dither=0.0.  Suggested values: 0.1 or 1.0",
    )
    raw_energy: bool = option(True, "If true, compute energy before preemphasis and windowing")
    cepstral_lifter: float = option(22.0, "Constant that controls scaling of MFCCs")
    htk_compat: bool = option(
        False,
        "If true, put energy or C0 last and use a factor of sqrt(2) on C0.  Warning: not "
        "sufficient to get HTK compatible features (need to change other parameters).",
    )


@dataclass(frozen=True)
class FbankOptions:
    """Options of compute-fbank-feats (Kaldi's FbankOptions)."""

    frame: FrameOptions = field(default_factory=FrameOptions, metadata={"prefix": ""})
    mel: MelOptions = field(default_factory=MelOptions, metadata={"prefix": ""})
    use_energy: bool = option(False, "Add an extra dimension with energy to the FBANK output.")
    energy_floor: float = option(
        0.0,
        "Floor on energy (absolute, not relative) in FBANK computation. Only makes a difference if "
        "--use-energy=true; only necessary if --dither=0.0.  Suggested values: 0.1 or 1.0",
    )
    raw_energy: bool = option(True, "If true, compute energy before preemphasis and windowing")
    htk_compat: bool = option(
        False,
        "If true, put energy last.  Warning: not sufficient to get HTK compatible features (need "
        "to change other parameters).",
    )
    use_log_fbank: bool = option(True, "If true, produce log-filterbank, else produce linear.")
    use_power: bool = option(True, "If true, use power, else use magnitude.")


_FRAME_FIELDS = {
    "samp_freq": "sample_frequency",
    "frame_shift_ms": "frame_shift",
    "frame_length_ms": "frame_length",
    "preemph_coeff": "preemphasis_coefficient",
    **{
        name: name
        for name in (
            "dither", "remove_dc_offset", "round_to_power_of_two", "blackman_coeff", "snip_edges",
        )
    },
}  # fmt: skip
_MEL_FIELDS = {
    "num_bins": "num_mel_bins",
    **{name: name for name in ("low_freq", "high_freq", "debug_mel")},
}
_OWN_FIELDS = (
    "num_ceps", "use_energy", "energy_floor", "raw_energy", "cepstral_lifter", "htk_compat",
    "use_log_fbank", "use_power",
)  # fmt: skip


class SoundFeatures:
    """Computes one kind of features; the kind of options says which."""

    def __init__(self, options: MfccOptions | FbankOptions) -> None:
        """Check the options; DataError if kaldi-native-fbank is not installed."""
        options.frame.check()
        options.mel.check(options.frame)
        if (
            isinstance(options, MfccOptions)
            and not 0 < options.num_ceps <= options.mel.num_mel_bins
        ):
            raise OptionError(
                f"num-ceps cannot be larger than num-mel-bins. It should be smaller or equal. You "
                f"provided num-ceps: {options.num_ceps}  and num-mel-bins: "
                f"{options.mel.num_mel_bins}"
            )
        self._frame = options.frame
        try:
            import kaldi_native_fbank as engine
        except ImportError:
            raise DataError(
                "computing features of sound needs the package kaldi-native-fbank: "
                "pip install 'nnet3tools[recipe]'"
            ) from None
        is_mfcc = isinstance(options, MfccOptions)
        self._extractor = engine.OnlineMfcc if is_mfcc else engine.OnlineFbank
        self._settings = _engine_options(
            engine.MfccOptions() if is_mfcc else engine.FbankOptions(), options
        )
        self.dim: int = self._extractor(self._settings).dim
        """Columns of the features."""

    def compute(self, samples: NDArray[np.int16], rate: int) -> NDArray[np.float32]:
        """Features, shape (frames, dim), of one channel; (0, 0) if it is shorter than a window.

        DataError for another sampling rate than the options', unless they allow to change it.
        """
        wave = samples.astype(np.float32)
        wanted = self._frame.sample_frequency
        if rate != wanted:
            self._check_rates(rate, wanted)
            wave = resample(wave, rate, int(wanted))
        extractor = self._extractor(self._settings)
        extractor.accept_waveform(wanted, wave.tolist())
        extractor.input_finished()
        # The package gives its frames one by one.
        frames = [extractor.get_frame(i).copy() for i in range(extractor.num_frames_ready)]
        return np.stack(frames) if frames else np.zeros((0, 0), np.float32)

    def _check_rates(self, rate: int, wanted: float) -> None:
        down = wanted < rate
        if self._frame.allow_downsample if down else self._frame.allow_upsample:
            return
        verb = "downsample" if down else "upsample"
        raise DataError(
            f"Waveform and config sample Frequency mismatch: {rate} .vs {wanted:g} (use "
            f"--allow-{verb}=true to allow {verb[:-1]}ing the waveform)."
        )


def _engine_options(settings: Any, options: MfccOptions | FbankOptions) -> Any:
    """The package's options with the values of ours."""
    for theirs, ours in _FRAME_FIELDS.items():
        setattr(settings.frame_opts, theirs, getattr(options.frame, ours))
    settings.frame_opts.window_type = options.frame.window_type
    for theirs, ours in _MEL_FIELDS.items():
        setattr(settings.mel_opts, theirs, getattr(options.mel, ours))
    for name in _OWN_FIELDS:
        if hasattr(options, name):
            setattr(settings, name, getattr(options, name))
    return settings

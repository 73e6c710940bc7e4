"""Options of the programs that compute features of sound, with their checks."""

from __future__ import annotations

from typing import Any

from nnet3tools.errors import OptionError
from nnet3tools.fast_dataclasses import field
from nnet3tools.options import OptionGroup, option

_WINDOWS = ("hamming", "hanning", "povey", "rectangular", "sine", "blackman")


class FrameOptions(OptionGroup):
    """Options of cutting sound into windows (Kaldi's FrameExtractionOptions)."""

    sample_frequency: float = option(
        16000.0, "Waveform data sample frequency (must match the waveform file, if specified there)"
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
        "povey", 'Type of window ("hamming"|"hanning"|"povey"|"rectangular"|"sine"|"blackman")'
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
        """The number of samples in a window."""
        return int(self.sample_frequency * 0.001 * self.frame_length)

    @property
    def padded_size(self) -> int:
        """The number of samples in a window after padding for the Fourier transform."""
        size = self.window_size
        return 1 << (size - 1).bit_length() if self.round_to_power_of_two else size

    def check(self) -> None:
        """OptionError if the values of the options exclude each other or are out of range."""
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


class MelOptions(OptionGroup):
    """Options of the triangular mel filters, also called bins (Kaldi's MelBanksOptions)."""

    num_mel_bins: int = option(23, "Number of triangular mel-frequency bins")
    low_freq: float = option(20.0, "Low cutoff frequency for mel bins")
    high_freq: float = option(
        0.0, "High cutoff frequency for mel bins (if <= 0, offset from Nyquist)"
    )
    vtln_low: float = option(100.0, "Accepted for compatibility; has no effect")
    vtln_high: float = option(-500.0, "Accepted for compatibility; has no effect")
    debug_mel: bool = option(False, "Print out debugging information for mel bin computation")

    def check(self, frame: FrameOptions) -> None:
        """OptionError if the mel filters do not fit between 0 and half the sampling rate."""
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
        """Whether a mel filter between `low` and `high` Hz covers no frequency of the transform."""
        import numpy as np

        def mel(frequency: Any) -> Any:
            return 1127.0 * np.log1p(np.asarray(frequency) / 700.0)

        edges = np.linspace(mel(low), mel(high), self.num_mel_bins + 2)
        half = frame.padded_size // 2
        points = mel(np.arange(half) * frame.sample_frequency / frame.padded_size)
        first = np.searchsorted(points, edges[:-2], side="right")
        return bool(
            (first >= half).any() or (points[np.minimum(first, half - 1)] >= edges[2:]).any()
        )


class MfccOptions(OptionGroup):
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


class FbankOptions(OptionGroup):
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

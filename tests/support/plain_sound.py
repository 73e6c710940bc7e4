"""A stand-in for kaldi-native-fbank (the extra [recipe]): other numbers in the same shapes.

Programs that go from sound to words run over it where the package is missing, as in CI.
"""

import importlib.util
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest


def with_sound_features(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test compute features of sound: by the package, or else by the stand-in."""
    name = "kaldi_native_fbank"
    if importlib.util.find_spec(name) is None:
        module = ModuleType(name)
        vars(module).update(
            MfccOptions=_Options, FbankOptions=_Options, OnlineMfcc=_Mfcc, OnlineFbank=_Fbank
        )
        monkeypatch.setitem(sys.modules, name, module)


class _Options(SimpleNamespace):
    """All that is set."""

    def __init__(self) -> None:
        super().__init__(frame_opts=SimpleNamespace(), mel_opts=SimpleNamespace())


class _Mfcc:
    """The logarithm of the energy in each of `dim` pieces of a window."""

    def __init__(self, options: _Options) -> None:
        frame = options.frame_opts
        self._shift, self._size = (
            max(1, int(0.001 * frame.samp_freq * length))
            for length in (frame.frame_shift_ms, frame.frame_length_ms)
        )
        self._snip_edges = frame.snip_edges
        self.dim = self._dim(options)
        self._samples = np.empty(0, np.float32)
        self._is_whole = False

    @staticmethod
    def _dim(options: _Options) -> int:
        return options.num_ceps

    def accept_waveform(self, rate: float, samples: memoryview) -> None:
        self._samples = np.append(self._samples, np.array(samples, np.float32))

    def input_finished(self) -> None:
        self._is_whole = True

    @property
    def num_frames_ready(self) -> int:
        if self._is_whole and not self._snip_edges:
            return round(len(self._samples) / self._shift)
        return max(0, (len(self._samples) - self._size) // self._shift + 1)

    def get_frame(self, number: int) -> np.ndarray:
        window = self._samples[number * self._shift :][: self._size]
        pieces = np.array_split(window, self.dim)
        return np.log([1.0 + float(piece @ piece) for piece in pieces]).astype(np.float32)


class _Fbank(_Mfcc):
    @staticmethod
    def _dim(options: _Options) -> int:
        return options.mel_opts.num_bins + options.use_energy

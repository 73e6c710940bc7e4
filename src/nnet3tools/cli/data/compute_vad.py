"""compute-vad: decides by energy which frames are speech."""

from __future__ import annotations

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import OptionError
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

USAGE = """This program reads input features and writes out, for each utterance,
a vector of floats that are 1.0 if we judge the frame voiced and 0.0
otherwise.  The algorithm is very simple and is based on thresholding
the log mel energy (and taking the consensus of threshold decisions
within a window centered on the current frame).  See the options for
more details; this program is intended for use in speaker-ID.

Usage: compute-vad [options] <feats-rspecifier> <vad-wspecifier>
e.g.: compute-vad scp:feats.scp ark:vad.ark
"""


class Options(OptionGroup):
    omit_unvoiced_utts: bool = option(
        False,
        "If true, do not write out voicing information for utterances that were judged 100% "
        "unvoiced.",
    )
    vad_energy_threshold: float = option(
        5.0,
        "Constant term in energy threshold for MFCC0 for VAD (also see --vad-energy-mean-scale)",
    )
    vad_energy_mean_scale: float = option(
        0.5,
        "If this is set to s, to get the actual threshold we let m be the mean log-energy of the "
        "file, and use s*m + vad-energy-threshold",
    )
    vad_frames_context: int = option(
        0,
        "Number of frames of context on each side of central frame, in window for which energy is "
        "monitored",
    )
    vad_proportion_threshold: float = option(
        0.6,
        "Parameter controlling the proportion of frames within the window that need to have more "
        "energy than the threshold",
    )

    def check(self) -> None:
        """OptionError if an option's value is out of its range."""
        if self.vad_energy_mean_scale < 0.0 or self.vad_frames_context < 0:
            raise OptionError(
                "--vad-energy-mean-scale and --vad-frames-context must not be negative"
            )
        if not 0.0 < self.vad_proportion_threshold < 1.0:
            raise OptionError("--vad-proportion-threshold must be between 0 and 1")


@program("compute-vad", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> int:
    from nnet3tools.cli.tables import convert_table
    from nnet3tools.features.frames import voiced_frames
    from nnet3tools.io.holders import MATRIX, VECTOR

    options.check()
    num_empty = num_unvoiced = num_frames = num_voiced = num_read = 0

    def convert(key: str, features: np.ndarray) -> np.ndarray | None:
        nonlocal num_empty, num_unvoiced, num_frames, num_voiced, num_read
        num_read += 1
        if not features.size:
            log.warning(f"Empty feature matrix for utterance {key}")
            num_empty += 1
            return None
        voiced = voiced_frames(
            features[:, 0],
            options.vad_energy_threshold,
            options.vad_energy_mean_scale,
            options.vad_frames_context,
            options.vad_proportion_threshold,
        )
        num_frames += len(voiced)
        num_voiced += int(voiced.sum())
        if not voiced.any():
            log.warning(f"No frames were judged voiced for utterance {key}")
            num_unvoiced += 1
            return None if options.omit_unvoiced_utts else voiced
        return voiced

    convert_table(args[0], args[1], (MATRIX, VECTOR), convert)
    num_done = num_read - num_empty - num_unvoiced
    share = num_voiced / num_frames if num_frames else float("nan")
    log.log(
        f"Applied energy based voice activity detection; processed {num_done} utterances "
        f"successfully; {num_empty} had empty features, and {num_unvoiced} were completely "
        "unvoiced."
    )
    log.log(f"Proportion of voiced frames was {share:g} over {num_frames} frames.")
    return 0 if num_done else 1

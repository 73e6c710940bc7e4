"""Options of a recognizer. Only declarations: programs parse options before they load NumPy."""

from __future__ import annotations

from dataclasses import dataclass

from nnet3tools.decoding.options import LatticeDecoderOptions
from nnet3tools.errors import OptionError
from nnet3tools.options import option, option_group


@dataclass(frozen=True)
class _SearchOptions(LatticeDecoderOptions):
    """Search options for lattices that only give confidences: narrow beams, to save time."""

    beam: float = option(15.0, "Decoding beam.  Larger->slower, more accurate.")
    max_active: int = option(7000, "Decoder max active states.  Larger->slower; more accurate")
    lattice_beam: float = option(4.0, "Beam of the lattices that confidences come from")
    max_mem: int = option(
        10_000_000, "Approximate memory in determinization, beyond which lattices are cut"
    )


@dataclass(frozen=True)
class RecognizerOptions:
    """Options of a recognizer: features, network, search and form of results."""

    stream: bool = option(False, "If true, take the sound in pieces, as a stream")
    piece_seconds: float = option(0.25, "With --stream=true: the length of pieces of sound")
    cmvn: str = option(
        "auto",
        "Normalisation of the features: none, utterance (mean of the whole utterance taken out), "
        "online (as apply-cmvn-online), or auto: online if the directory has global_cmvn.stats",
    )
    model: str = option("final.mdl", "The model's name in the directory")
    acoustic_scale: float = option(1.0, "Scaling factor for acoustic log-likelihoods")
    frames_per_chunk: int = option(
        0, "Frames that the network computes at once; 0 is 150, and 21 with --stream=true"
    )
    decoder: _SearchOptions = option_group("", _SearchOptions)

    def check(self) -> None:
        """OptionError if a value is unknown or options contradict each other."""
        if self.cmvn not in ("auto", "none", "utterance", "online"):
            raise OptionError(f"--cmvn must be auto, none, utterance or online, found {self.cmvn}")
        if self.stream and self.cmvn == "utterance":
            raise OptionError("--cmvn=utterance needs the whole utterance: not with --stream=true")
        if self.piece_seconds <= 0.0 or self.frames_per_chunk < 0:
            raise OptionError("--piece-seconds and --frames-per-chunk must be greater than 0")
        if not self.decoder.determinize_lattice:
            raise OptionError("confidences need determinized lattices")
        self.decoder.check()

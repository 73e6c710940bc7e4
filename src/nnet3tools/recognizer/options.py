"""Options of a recognizer. Only declarations: programs parse options before they load NumPy."""

from __future__ import annotations

from nnet3tools.decoding.endpoint import EndpointOptions
from nnet3tools.decoding.options import LatticeDecoderOptions
from nnet3tools.errors import OptionError
from nnet3tools.options import OptionGroup, option, option_group


class _SearchOptions(LatticeDecoderOptions):
    """Search options for lattices that only serve to compute confidences: narrow, fast beams."""

    beam: float = option(15.0, "Decoding beam.  Larger->slower, more accurate.")
    max_active: int = option(7000, "Decoder max active states.  Larger->slower; more accurate")
    lattice_beam: float = option(4.0, "Beam of the lattices that confidences come from")
    max_mem: int = option(
        10_000_000, "Approximate memory in determinization, beyond which lattices are cut"
    )


class FeatureFiles(OptionGroup):
    """Options that replace files of the model directory by other files, as in Kaldi's online.conf.

    If an option is empty, the directory's file is used.
    """

    feature_type: str = option("", "mfcc or fbank; needed if the directory has files of both")
    mfcc_config: str = option("", "Options of MFCC features, in place of the directory's mfcc.conf")
    fbank_config: str = option(
        "", "Options of filter-bank features, in place of the directory's fbank.conf"
    )
    plp_config: str = option("", "Refused: PLP features are not supported")
    add_pitch: bool = option(False, "Refused if true: pitch features are not supported")
    online_pitch_config: str = option("", "Has no effect, since there are no pitch features")
    ivector_extraction_config: str = option("", "Refused: i-vectors are not extracted here")
    cmvn_config: str = option(
        "", "Options of apply-cmvn-online, in place of cmvn_opts; --cmvn=auto is then online"
    )
    global_cmvn_stats: str = option(
        "", "Statistics for online normalization, in place of the directory's global_cmvn.stats"
    )
    word_symbol_table: str = option("", "Words by number, in place of words.txt beside the graph")


class RecognizerOptions(OptionGroup):
    """Options of a recognizer: features, network, search and the form of results."""

    stream: bool = option(False, "If true, decode sound as it comes, as a stream")
    piece_seconds: float = option(0.25, "With --stream=true: the length of pieces of sound files")
    cmvn: str = option(
        "auto",
        "Normalization of the features: none, utterance (mean of the whole utterance taken out), "
        "online (as apply-cmvn-online), or auto: as cmvn_opts and online_cmvn of the directory say",
    )
    model: str = option("final.mdl", "The model's name in the directory")
    frame_subsampling_factor: int = option(
        0, "Frames of features for each output of the network; 0: as the directory says"
    )
    acoustic_scale: float | None = option(
        None,
        "Scaling factor for acoustic log-likelihoods; must be given for models that are not chain "
        "models, unless model.conf has it",
        shown=1.0,
    )
    lm_scale: float = option(1.0, "Scaling factor for the costs of the decoding graph")
    frames_per_chunk: int = option(
        0, "Frames that the network computes at once; 0 is 150, and 21 with --stream=true"
    )
    allow_downsample: bool = option(
        False, "If true, accept sound with a higher sampling rate than the features' (resample it)"
    )
    allow_upsample: bool = option(
        False, "If true, accept sound with a lower sampling rate than the features' (resample it)"
    )
    nbest: int = option(0, "Number of alternatives in results as JSON; 0 for none")
    sample_rate: float = option(
        0.0, "Sampling rate of raw samples on standard input; 0: the one of the features"
    )
    sample_format: str = option(
        "int16", "Format of raw samples on standard input, little-endian: int16, or float32 (-1..1)"
    )
    files: FeatureFiles = option_group("", FeatureFiles)
    decoder: _SearchOptions = option_group("", _SearchOptions)
    endpoint: EndpointOptions = option_group("endpoint", EndpointOptions)

    def check(self) -> None:
        """OptionError if a value is unknown or options contradict each other."""
        if self.cmvn not in ("auto", "none", "utterance", "online"):
            raise OptionError(f"--cmvn must be auto, none, utterance or online, found {self.cmvn}")
        if self.files.feature_type not in ("", "mfcc", "fbank", "plp"):
            raise OptionError(
                f"--feature-type must be mfcc or fbank, found {self.files.feature_type}"
            )
        if self.stream and self.cmvn == "utterance":
            raise OptionError("--cmvn=utterance needs the whole utterance: not with --stream=true")
        if self.piece_seconds <= 0.0 or self.frames_per_chunk < 0:
            raise OptionError("--piece-seconds and --frames-per-chunk must be greater than 0")
        if self.frame_subsampling_factor < 0:
            raise OptionError("--frame-subsampling-factor must be at least 1")
        if self.lm_scale <= 0.0 or not (self.acoustic_scale is None or self.acoustic_scale > 0.0):
            raise OptionError("--acoustic-scale and --lm-scale must be greater than 0")
        if not self.decoder.determinize_lattice:
            raise OptionError("confidences need determinized lattices")
        if self.nbest < 0 or self.sample_rate < 0.0:
            raise OptionError("--nbest and --sample-rate must be at least 0")
        if self.sample_format not in ("int16", "float32"):
            raise OptionError(f"--sample-format must be int16 or float32, not {self.sample_format}")
        self.decoder.check()
        self.endpoint.check()

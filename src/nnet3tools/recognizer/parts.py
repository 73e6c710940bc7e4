"""Description of the files of a model directory: places, purposes, how to make missing files."""

from __future__ import annotations

from pathlib import Path

from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io.checked import is_file


@dataclass(frozen=True)
class Part:
    """A file of a model directory: the paths where it may be, and texts for users.

    The texts say what the file is for, how to make it, and which option can replace it.
    """

    places: tuple[str, ...]
    """Paths below the directory, in the order in which they are tried."""
    purpose: str
    remedy: str
    """How to make the file; {folder} stands for the model directory."""
    option: str = ""
    """The option of nnet3-decode that can stand for the file."""

    @property
    def name(self) -> str:
        """The file's path relative to the model directory, where it is looked for first."""
        return self.places[0]

    def absent(self, path: Path, folder: Path) -> str:
        """The message that the file of this Part is missing at `path` in the directory `folder`."""
        hint = f", or give {self.option}" if self.option else ""
        return f"expected {path}: {self.remedy.format(folder=folder)}{hint}"


MODEL = Part(
    ("final.mdl", "am/final.mdl"),
    "transition model, network and priors",
    "a training program (nnet3-train-chain) or nnet3-am-init makes it",
    "--model=NAME",
)
SUBSAMPLING = Part(
    ("frame_subsampling_factor",),
    "frames of features for each output of the network",
    "write the training's --chain.frame-subsampling-factor, or 1 if it had none, to this file",
    "--frame-subsampling-factor=N",
)
MFCC = Part(
    ("mfcc.conf", "conf/mfcc.conf"),
    "options of compute-mfcc-feats, with the sampling rate (Kaldi's default: 16000)",
    "copy the --config file of the compute-mfcc-feats that made the training features",
    "--mfcc-config=FILE",
)
FBANK = Part(
    ("fbank.conf", "conf/fbank.conf"),
    "the same of compute-fbank-feats, in place of mfcc.conf",
    "copy the --config file of the compute-fbank-feats that made the training features",
    "--fbank-config=FILE",
)
CMVN_OPTS = Part(
    ("cmvn_opts",),
    "options of apply-cmvn, or of apply-cmvn-online if there is online_cmvn",
    "write the options with which the training features were normalized to this file, or "
    "'--norm-means=false --norm-vars=false' if they were not",
    "--cmvn=none, --cmvn=utterance or --cmvn=online",
)
ONLINE_CMVN = Part(
    ("online_cmvn",),
    "empty; its presence says that apply-cmvn-online normalized the training features",
    "make an empty file of this name if apply-cmvn-online normalized the training features, or "
    "remove {folder}/global_cmvn.stats if apply-cmvn did",
    "--cmvn=online",
)
GLOBAL_STATS = Part(
    ("global_cmvn.stats", "am/global_cmvn.stats"),
    "sums over the training features, with which online normalization begins",
    "make it by: matrix-sum --binary=false scp:TRAIN/cmvn.scp {folder}/global_cmvn.stats",
    "--global-cmvn-stats=FILE",
)
MODEL_CONF = Part(
    ("model.conf", "conf/model.conf"),
    "options of nnet3-decode for this model: scales, beams, end of utterance (--endpoint.*)",
    "write one option a line: --acoustic-scale (1.0 for chain models), --lm-scale",
    "--acoustic-scale=SCALE",
)
GRAPH = Part(
    ("graph/HCLG.fst",),
    "the decoding graph",
    "make it by: nnet3-make-graph LANG {folder}/tree {folder}/final.mdl {folder}/graph",
    "the folder of a graph after the model directory",
)
WORDS = Part(
    ("graph/words.txt",),
    "the words by number",
    "copy words.txt of the lang folder of which the graph was made (nnet3-make-graph does)",
    "--word-symbol-table=FILE",
)
LEXICON = Part(
    ("graph/phones/align_lexicon.int",),
    "pronunciations, for the times of words",
    "copy phones/align_lexicon.int of the lang folder (nnet3-make-graph does)",
)
SILENCE = Part(
    ("graph/phones/silence.csl",),
    "silence phones, for the times of words and the ends of utterances",
    "copy phones/silence.csl of the lang folder (nnet3-make-graph does)",
)
PARTS = (
    MODEL, SUBSAMPLING, MFCC, FBANK, CMVN_OPTS, ONLINE_CMVN, GLOBAL_STATS, MODEL_CONF,
    GRAPH, WORDS, LEXICON, SILENCE,
)  # fmt: skip
"""All files that decoding reads."""

ONLINE_CONF = "conf/online.conf"
"""Options of the features and of the ends of utterances: prepare_online_decoding.sh writes it."""


def option_files(folder: str) -> tuple[Path, ...]:
    """The files in `folder` with options of nnet3-decode; later files take precedence."""
    online, *model = (Path(folder) / x for x in (ONLINE_CONF, *MODEL_CONF.places))
    found = [path for path in model if is_file(path)][:1]
    return (online, *found) if is_file(online) else tuple(found)

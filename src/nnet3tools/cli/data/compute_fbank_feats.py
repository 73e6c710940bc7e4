"""compute-fbank-feats: log energies in mel-frequency bins of sound."""

from nnet3tools.cli.options import OptionGroup, option_group, program
from nnet3tools.cli.sound import SoundOptions, compute_features
from nnet3tools.features.sound_options import FbankOptions

USAGE = """Create Mel-filter bank (FBANK) feature files.
Usage:  compute-fbank-feats [options...] <wav-rspecifier> <feats-wspecifier>
e.g.: compute-fbank-feats --config=conf/fbank.conf scp:wav.scp ark:-
"""
_HTK_KIND = 7


class Options(OptionGroup):
    features: FbankOptions = option_group("", FbankOptions)
    sound: SoundOptions = option_group("", SoundOptions)


@program("compute-fbank-feats", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> int:
    return compute_features(options.sound, options.features, _HTK_KIND, args)

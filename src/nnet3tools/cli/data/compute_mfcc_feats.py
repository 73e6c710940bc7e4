"""compute-mfcc-feats: mel-frequency cepstra of sound."""

from nnet3tools.cli.options import OptionGroup, option_group, program
from nnet3tools.cli.sound import SoundOptions, compute_features
from nnet3tools.features.sound_options import MfccOptions

USAGE = """Create MFCC feature files.
Usage:  compute-mfcc-feats [options...] <wav-rspecifier> <feats-wspecifier>
e.g.: compute-mfcc-feats --config=conf/mfcc.conf scp:wav.scp ark:-
"""
_HTK_KIND = 6


class Options(OptionGroup):
    features: MfccOptions = option_group("", MfccOptions)
    sound: SoundOptions = option_group("", SoundOptions)


@program("compute-mfcc-feats", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> int:
    return compute_features(options.sound, options.features, _HTK_KIND, args)

"""nnet3-egs-augment-image: examples whose images are shifted, flipped and rotated at random."""

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import EmptyError, OptionError
from nnet3tools.io import log

USAGE = """Copy examples (single frames or fixed-size groups of frames) for neural
network training, doing image augmentation inline (copies after possibly
modifying of each image, randomly chosen according to configuration
parameters).

Usage:  nnet3-egs-augment-image [options] <egs-rspecifier> <egs-wspecifier>

e.g.:
  nnet3-egs-augment-image --horizontal-flip-prob=0.5 --horizontal-shift=0.1 \\
       --vertical-shift=0.1 --srand=103 --num-channels=3 --fill-mode=nearest ark:- ark:-

Requires that each example contain a NnetIo object 'input', with successive
't' values representing different x offsets , and the feature dimension
representing the y offset and the channel (color), with the channel
varying the fastest.
See also: nnet3-copy-egs
"""

_FILL_MODES = ("nearest", "reflect")


class Options(OptionGroup):
    srand: int = option(0, "Seed for the random number generator")
    num_channels: int = option(
        1,
        "Number of colors in the image.It is important to specify this (helps interpret the image "
        "correctly.",
    )
    horizontal_flip_prob: float = option(0.0, "Probability of doing horizontal flip")
    horizontal_shift: float = option(
        0.0,
        "Maximum allowed horizontal shift as proportion of image width.  Padding is with closest "
        "pixel.",
    )
    vertical_shift: float = option(
        0.0,
        "Maximum allowed vertical shift as proportion of image height.  Padding is with closest "
        "pixel.",
    )
    rotation_degree: float = option(0.0, "Maximum allowed degree to rotate the image")
    rotation_prob: float = option(0.0, "Probability of doing rotation")
    fill_mode: str = option(
        "nearest",
        "Mode for dealing with points outside the image boundary when applying transformation. "
        "Choices = {nearest, reflect}",
    )

    def check(self) -> None:
        """OptionError if an option's value is out of its range."""
        for name in ("horizontal_flip_prob", "horizontal_shift", "vertical_shift", "rotation_prob"):
            if not 0.0 <= (value := getattr(self, name)) <= 1.0:
                raise OptionError(f"--{name.replace('_', '-')}={value:g}: expected 0 to 1")
        if not 0.0 <= self.rotation_degree <= 180.0:
            raise OptionError(f"--rotation-degree={self.rotation_degree:g}: expected 0 to 180")
        if self.num_channels < 1:
            raise OptionError(f"--num-channels={self.num_channels}: expected at least 1")
        if self.fill_mode not in _FILL_MODES:
            raise OptionError(
                "Choices for --fill-mode are 'nearest' or 'reflect', got: " + self.fill_mode
            )


@program("nnet3-egs-augment-image", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> None:
    from nnet3tools import tensor
    from nnet3tools.io.table import TableWriter
    from nnet3tools.training.example import EXAMPLE, NnetExample, for_each_example
    from nnet3tools.training.image_augmentation import ImageAugmentation, augment_example

    options.check()
    tensor.random.seed(options.srand)
    augmentation = ImageAugmentation(
        options.num_channels,
        options.horizontal_flip_prob,
        options.horizontal_shift,
        options.vertical_shift,
        options.rotation_degree,
        options.rotation_prob,
        reflect=options.fill_mode == "reflect",
    )
    with TableWriter(args[1], EXAMPLE) as writer:

        def copy(key: str, example: NnetExample) -> None:
            writer.write(key, augment_example(example, augmentation))

        count = for_each_example(args[0], copy)
        log.log(f"Perturbed {count} neural-network training images.")
        if count == 0:
            raise EmptyError(f"{args[0]}: no examples")

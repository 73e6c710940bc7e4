"""Fixed affine transforms: a transform estimated later from LDA statistics, and the inverse DCT."""

import math

from nnet3tools.xconfig.layer import INPUT, ConfigLines, Layer
from nnet3tools.xconfig.options import ANY, POSITIVE, Check, Option, options
from nnet3tools.xconfig.registry import register

FIXED = "FixedAffineComponent"
_FILE = Check(lambda value: value != "", "a file name")


class _FromFile(Layer):
    """Base class of layers that are an affine transform from the file affine-transform-file."""

    def write(self, out: ConfigLines) -> str:
        """Add the transform's component and node; return the node's name."""
        return out.step("", FIXED, self.input.node, matrix=self["affine-transform-file"])


@register("fixed-affine-layer")
class FixedAffineLayer(_FromFile):
    """An affine transform, such as LDA, from a file that is estimated later.

    The network of init.config, which ends before this layer, computes the features for that.
    """

    OPTIONS = options(
        INPUT,
        dim=Option(-1, POSITIVE),
        affine_transform_file=Option("", _FILE),
        delay=Option(0, ANY),
        write_init_config=Option(True, ANY),
    )

    def configs(self) -> dict[str, list[str]]:
        """Lines by config: ref has a random transform, final the file's; init outputs the input."""
        source = self.input.node
        init, ref = ConfigLines(self.name), ConfigLines(self.name)
        if self["write-init-config"]:
            node = source
            if self["delay"] != 0:
                node = init.step(".delayed", "NoOpComponent", source, dim=self.input.dim)
                node = f"Offset({node}, {self['delay']})"
            init.add(f"output-node name=output input={node}")
        ref.step("", FIXED, source, input_dim=self.input.dim, output_dim=self["dim"])
        return super().configs() | {"init": init.lines, "ref": ref.lines}


@register("idct-layer")
class IdctLayer(_FromFile):
    """The inverse DCT without cepstral liftering; the layer writes the matrix to its file."""

    OPTIONS = options(
        INPUT,
        dim=Option(-1, POSITIVE),
        cepstral_lifter=Option(22.0, ANY),
        affine_transform_file=Option("", _FILE),
        include_in_init=Option(False, ANY),
    )

    def check(self) -> None:
        """Raise ConfigError if the matrix is too large or the lifter cannot be inverted."""
        self.require_size(self["dim"] * (self.input.dim + 1))
        self.require(
            all(lifter(self["cepstral-lifter"], self.input.dim)),
            f"option 'cepstral-lifter': {self['cepstral-lifter']} makes coefficients zero",
        )

    def files(self) -> dict[str, str]:
        """The matrix file: the inverse DCT and a column of zeros for the bias, as Kaldi text."""
        rows = idct_matrix(self.input.dim, self["dim"], self["cepstral-lifter"])
        text = "\n".join(" ".join(str(value) for value in [*row, 0]) for row in rows)
        return {self["affine-transform-file"]: f"[ {text} ]"}


def lifter(width: float, num_cepstra: int) -> list[float]:
    """HTK's liftering factors of cepstra, 1 + Q/2 sin(pi k / Q), Q = `width`; all 1 for Q = 0."""
    if width == 0:
        return [1.0] * num_cepstra
    return [1.0 + 0.5 * width * math.sin(math.pi * k / width) for k in range(num_cepstra)]


def idct_matrix(num_cepstra: int, num_bins: int, cepstral_lifter: float) -> list[list[float]]:
    """The inverse DCT without liftering: orthonormal DCT-III (bins, cepstra) / lifter's factors."""
    scales = [math.sqrt((1.0 if k == 0 else 2.0) / num_bins) for k in range(num_cepstra)]
    factors, angle = lifter(cepstral_lifter, num_cepstra), math.pi / num_bins
    return [
        [
            scale * math.cos(angle * (n + 0.5) * k) / factor
            for k, (scale, factor) in enumerate(zip(scales, factors, strict=True))
        ]
        for n in range(num_bins)
    ]

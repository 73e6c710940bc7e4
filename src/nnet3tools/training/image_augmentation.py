"""Random shifts, flips and rotations of images in examples (nnet3-egs-augment-image.cc).

An image is a matrix with a row for each x and a column for each y and channel, channels fastest.
"""

import numpy as np
from numpy.typing import NDArray

from nnet3tools import tensor
from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass, replace
from nnet3tools.io.general_matrix import to_dense
from nnet3tools.training.example import NnetExample

_F = np.float32
_SAME = 1.0e-5
"""A transform that differs less from the identity is skipped."""


@dataclass(frozen=True)
class ImageAugmentation:
    """The largest random shifts (parts of width and height) and rotation (degrees) of images.

    If `reflect`, images are mirrored beyond their edges; else the nearest pixel is repeated.
    """

    num_channels: int = 1
    horizontal_flip_prob: float = 0.0
    horizontal_shift: float = 0.0
    vertical_shift: float = 0.0
    rotation_degree: float = 0.0
    rotation_prob: float = 0.0
    reflect: bool = False

    def apply(self, image: NDArray[np.float32]) -> NDArray[np.float32]:
        """A randomly changed copy of an image; DataError if its columns are not whole pixels."""
        width, columns = image.shape
        if columns % self.num_channels:
            raise DataError(
                f"an image of {columns} columns does not consist of pixels of "
                f"{self.num_channels} channels"
            )
        height = columns // self.num_channels
        transform = self._draw(width, height)
        if np.abs(transform - np.eye(3, dtype=_F)).max() <= _SAME:
            return image
        centre = np.array([width / 2.0 - 0.5, height / 2.0 - 0.5], _F)
        to_centre, back = np.eye(3, dtype=_F), np.eye(3, dtype=_F)
        to_centre[:2, 2], back[:2, 2] = -centre, centre
        return self._sample(image, (back @ transform @ to_centre).astype(_F))

    def _draw(self, width: int, height: int) -> NDArray[np.float32]:
        """A random affine transform (3, 3) about the centre; draws are in Kaldi's order."""
        shift, rotation = np.eye(3, dtype=_F), np.eye(3, dtype=_F)
        for axis, (largest, size) in enumerate(
            ((self.horizontal_shift, width), (self.vertical_shift, height))
        ):
            offset = (2.0 * float(tensor.random.rand_uniform()) - 1.0) * float(_F(largest)) * size
            shift[axis, 2] = np.copysign(np.floor(np.abs(_F(offset)) + 0.5), offset)
        if tensor.random.with_prob(self.horizontal_flip_prob):
            shift[0, 0] = -1.0
        if tensor.random.rand_uniform() <= _F(self.rotation_prob):
            degree = _F(self.rotation_degree)
            angle = _F(2) * degree * tensor.random.rand_uniform() - degree
            theta = float(_F(float(angle) / 180.0 * np.pi))
            cos, sin = np.cos(theta), np.sin(theta)
            rotation[:2, :2] = [[cos, -sin], [sin, cos]]
        return rotation @ shift

    def _sample(
        self, image: NDArray[np.float32], transform: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """The image whose pixel (r, c) is `image` interpolated at the point transform * (r, c)."""
        width, height = len(image), image.shape[1] // self.num_channels
        pixels = image.reshape(width, height, self.num_channels)
        r, c = np.arange(width, dtype=_F)[:, None], np.arange(height, dtype=_F)
        r_old, c_old = (row[0] * r + row[1] * c + row[2] for row in transform[:2])
        r1, c1 = np.floor(r_old), np.floor(c_old)
        down, right = r_old - r1, c_old - c1
        up, left = (r1 + _F(1)) - r_old, (c1 + _F(1)) - c_old
        out = np.zeros_like(pixels)
        for at_r, weight_r in ((r1, up), (r1 + 1, down)):
            for at_c, weight_c in ((c1, left), (c1 + 1, right)):
                corner = pixels[self._inside(at_r, width), self._inside(at_c, height)]
                out += (weight_r * weight_c)[:, :, None] * corner
        return out.reshape(image.shape)

    def _inside(self, at: NDArray[np.float32], size: int) -> NDArray[np.intp]:
        """Row or column numbers `at` brought into 0 to `size` - 1, by mirroring or clipping."""
        index = at.astype(np.intp)
        if not self.reflect or size == 1:
            return index.clip(0, size - 1)
        folded = np.abs(index) % (2 * size - 2)
        return np.minimum(folded, 2 * size - 2 - folded)


def augment_example(example: NnetExample, augmentation: ImageAugmentation) -> NnetExample:
    """The example with each image of 'input' changed at random; DataError without 'input'."""
    if all(io.name != "input" for io in example.io):
        raise DataError("the example has no input named 'input'")
    return NnetExample(
        [
            replace(io, features=augmentation.apply(to_dense(io.features)))
            if io.name == "input"
            else io
            for io in example.io
        ]
    )

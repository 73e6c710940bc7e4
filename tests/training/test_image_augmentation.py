"""Images shifted, flipped and rotated, against array operations on whole pixels."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.errors import DataError
from nnet3tools.training.example import NnetExample, frames_io
from nnet3tools.training.image_augmentation import ImageAugmentation, augment_example

IMAGE = np.random.default_rng(0).normal(size=(7, 5, 3)).astype(np.float32)
"""Width, height, channels."""


def apply(image: np.ndarray = IMAGE, seed: int = 0, **options: float | bool) -> np.ndarray:
    tensor.random.seed(seed)
    augmentation = ImageAugmentation(image.shape[2], **options)
    return augmentation.apply(image.reshape(len(image), -1)).reshape(image.shape)


def test_nothing_to_do() -> None:
    np.testing.assert_array_equal(apply(), IMAGE)


def test_flip() -> None:
    np.testing.assert_allclose(apply(horizontal_flip_prob=1.0), IMAGE[::-1], atol=1e-6)


@pytest.mark.parametrize("reflect", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_shifts_are_whole_pixels(seed: int, reflect: bool) -> None:
    found = apply(seed=seed, horizontal_shift=0.6, vertical_shift=0.6, reflect=reflect)
    tensor.random.seed(seed)
    sizes = IMAGE.shape[:2]
    by = [round((2.0 * tensor.random.rand_uniform() - 1.0) * 0.6 * size) for size in sizes]
    pad = [(size, size) for size in sizes]
    mode = "reflect" if reflect else "edge"
    wide = np.pad(IMAGE, [*((a - 1, b - 1) for a, b in pad), (0, 0)], mode=mode)
    x, y = (size - 1 + shift for size, shift in zip(sizes, by, strict=True))
    np.testing.assert_allclose(found, wide[x : x + 7, y : y + 5], atol=1e-5)


def test_rotation_by_a_right_angle() -> None:
    """The largest angle is drawn at the end of the range: look for a draw that is near it."""
    image = IMAGE[:5]
    angles = []
    for seed in range(40):
        tensor.random.seed(seed)
        for _ in range(3):
            tensor.random.rand_uniform()
        angles.append(90.0 * (2.0 * float(tensor.random.rand_uniform()) - 1.0))
    seed = int(np.argmax(np.abs(angles)))
    found = apply(image, seed, rotation_degree=90.0, rotation_prob=1.0)
    assert abs(angles[seed]) > 80.0
    # Bilinear sampling at the rotated places, pixel by pixel.
    theta = np.deg2rad(angles[seed])
    for r in range(5):
        for c in range(5):
            x = np.cos(theta) * (r - 2) - np.sin(theta) * (c - 2) + 2
            y = np.sin(theta) * (r - 2) + np.cos(theta) * (c - 2) + 2
            expected = np.zeros(3)
            for i in (int(np.floor(x)), int(np.floor(x)) + 1):
                for j in (int(np.floor(y)), int(np.floor(y)) + 1):
                    weight = (1 - abs(x - i)) * (1 - abs(y - j))
                    expected += weight * image[min(max(i, 0), 4), min(max(j, 0), 4)]
            np.testing.assert_allclose(found[r, c], expected, atol=1e-4)


def test_a_flip_with_some_probability() -> None:
    flipped = [
        not np.array_equal(apply(seed=seed, horizontal_flip_prob=0.3), IMAGE) for seed in range(60)
    ]
    assert 5 < sum(flipped) < 35


def test_only_inputs_change() -> None:
    rows, label = IMAGE.reshape(7, 15), np.ones((1, 4), np.float32)
    example = NnetExample([frames_io("input", 0, rows), frames_io("output", 0, label)])
    found = augment_example(example, ImageAugmentation(3, horizontal_flip_prob=1.0))
    np.testing.assert_allclose(found.io[0].features, IMAGE[::-1].reshape(7, 15), atol=1e-6)
    assert found.io[1] is example.io[1]
    with pytest.raises(DataError, match="pixels of 4 channels"):
        augment_example(example, ImageAugmentation(4))
    with pytest.raises(DataError, match="no input named 'input'"):
        augment_example(NnetExample(example.io[1:]), ImageAugmentation(3))

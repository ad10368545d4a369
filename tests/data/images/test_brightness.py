"""What images look like as a whole: who is warned of, and who is not."""

import numpy as np
import pytest
import torch

from everynet.data.images import brightness as looks
from everynet.data.images.standardize import Standardize
from everynet.data.loading import load, samples
from tests.data.conftest import load_real


def some(count, seed=0):
    """Dark images with a bright spot in the middle."""
    x = torch.from_numpy(np.random.default_rng(seed).integers(0, 20, (count, 1, 9, 9)))
    x[:, :, 3:6, 3:6] += 200
    return x.to(torch.uint8)


def test_the_three_figures_by_hand():
    x = some(60)
    found = looks.learned(x, 255.0)
    pixels = x.numpy()[:, 0] / 255
    edge = np.ones((9, 9), bool)
    edge[1:-1, 1:-1] = False
    rim = np.concatenate([pixels[:, 0], pixels[:, -1], pixels[:, :, 0], pixels[:, :, -1]], 1)
    for name, values in (
        ("mean", pixels.mean((1, 2))),
        ("contrast", pixels.std((1, 2))),
        ("edges", rim.mean(1)),
    ):
        assert found[name] == pytest.approx(np.quantile(values, [0.001, 0.999]), abs=1e-6)
    assert looks.learned(x[: looks.LEAST - 1], 255.0) == {}


def spec_of(x, peak=255.0):
    spec = {"mean": [0.2], "std": [0.3], "peak": peak, "looks": looks.learned(x, peak)}
    return spec, Standardize.of(spec)


def test_what_is_far_and_in_which_words():
    x = some(60)
    spec, standardize = spec_of(x)
    assert looks.outliers(standardize.images(some(40, seed=1)), spec) == [""] * 40
    far = torch.cat([255 - x[:1], x[:1] // 255, x[:1] + 40])
    swapped, flat, near = looks.outliers(standardize.images(far), spec)
    assert swapped.startswith("its edge brightness (0.96")
    assert swapped.endswith("; light and dark seem to be swapped")
    assert flat.startswith("its contrast (0, black being 0 and white 1) is far from that of the i")
    assert "swapped" not in flat
    assert near == ""
    assert looks.outliers(standardize.images(far), spec | {"looks": {}}) == [""] * 3
    del spec["looks"]  # as an earlier version wrote it
    assert looks.outliers(standardize.images(far), spec) == [""] * 3


def test_levels_up_to_255_where_1_was_white():
    x = some(60).double() / 255
    spec, standardize = spec_of(x, 1.0)
    (said,) = looks.outliers(standardize.images(255 * x[:1]), spec)
    assert "is far from that of the images learned" in said
    assert "swapped" not in said


def told(data, x):
    """How many images are warned of."""
    return sum(map(bool, looks.outliers(Standardize.of(data.spec).images(x), data.spec)))


def test_digits_are_never_warned_of_and_swapped_ones_always():
    data, raw = load("digits", kind="image", batch_size=4), samples("digits", kind="image")
    x = raw.parts["test"][0]
    assert told(data, x) == 0
    assert told(data, 16 - x) == len(x) == 359


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "swapped"), [("mnist", 10_000), ("fashion-mnist", 10_000), ("cifar10-small", 0)]
)
def test_real_images_are_never_warned_of(name, swapped):
    """Photographs have bright and dark edges alike: of them nobody can tell."""
    load_real(name)
    data, raw = load(name, kind="image", batch_size=4), samples(name, kind="image")
    x = raw.parts["test"][0]
    assert told(data, x) == 0
    assert told(data, 255 - x) == swapped

"""What all recipes of images share: changes of training images, their loss, what is refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch.nn.functional import cross_entropy

import everynet
from everynet.data.dataset import Data
from everynet.data.images.augment import mixup
from everynet.recipes.catalog import find
from everynet.recipes.settings import override
from everynet.system.errors import UserError
from everynet.training.loop import begin, evaluate, train


def tiny(**fields):
    return replace(find("cnn-cifar").tiny(), widths=(4, 4), pixels=0.0, mirror=False, **fields)


@pytest.fixture(scope="module")
def begun():
    """A network, and a batch of training images as they are stored."""
    recipe = tiny()
    data = recipe.dataset()
    torch.manual_seed(0)
    return recipe.model(data).eval(), data.train(0)


def test_the_loss_without_changes_is_the_plain_one_to_the_bit(begun):
    model, (x, y) = begun
    state = torch.get_rng_state()
    assert torch.equal(tiny().objective(model, (x, y))["cross_entropy"], cross_entropy(model(x), y))
    assert torch.equal(torch.get_rng_state(), state), "nothing is drawn"
    assert tiny().augment() is None


def test_smoothing_and_mixing_change_the_loss_and_no_metric(begun):
    model, (x, y) = begun
    plain, smooth, mixes = tiny(), tiny(smoothing=0.1), tiny(mixup=0.4, smoothing=0.1)
    wanted = cross_entropy(model(x), y, label_smoothing=0.1)
    assert torch.equal(smooth.objective(model, (x, y))["cross_entropy"], wanted)
    torch.manual_seed(5)
    found = mixes.objective(model, (x, y))["cross_entropy"]
    torch.manual_seed(5)
    mixed, own = mixup(x, 0.4)
    parts = (
        cross_entropy(model(mixed), t, reduction="none", label_smoothing=0.1)
        for t in (y, y.flip(0))
    )
    first, second = parts
    torch.testing.assert_close(found, (own * first + (1 - own) * second).mean())
    for recipe in (smooth, mixes):
        for name, values in recipe.metrics(model, (x, y)).items():
            assert torch.equal(values, plain.metrics(model, (x, y))[name])


def test_colour_and_cutout_change_training_images_alone():
    plain, changed = tiny().dataset(), tiny(colour=0.3, cutout=3).dataset()
    (x, y), (seen, labels) = plain.train(0), changed.train(0)
    assert torch.equal(y, labels)
    assert not torch.equal(x, seen)
    assert ((seen == 0).sum((1, 2, 3)) >= 4).all(), "a corner of the square at least"
    for one, other in zip(plain.valid, changed.valid, strict=True):
        assert torch.equal(one[0], other[0])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"colour": 1.5}, r"colour \(1.5\) must be a number from 0 to 1"),
        ({"cutout": -1}, r"cutout \(-1\) must be at least 0"),
        ({"mixup": -0.1}, r"mixup \(-0.1\) must be a number from 0 up"),
        ({"mixup": float("inf")}, r"mixup \(inf\) must be a number from 0 up"),
        ({"smoothing": 1.0}, r"smoothing \(1.0\) must be at least 0 and below 1"),
        ({"cutout": 9}, r"cutout \(9\) must be at most 8, because the images are no larger"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        tiny(**fields).dataset()


def test_all_changes_together_learn():
    recipe = everynet.recipe("lenet", steps=60, colour=0.2, cutout=2, mixup=0.2, smoothing=0.05)
    data = recipe.dataset()
    state = begin(recipe, data)
    for _ in train(recipe, state, data):
        pass
    assert evaluate(recipe, state.model, data.valid)["accuracy"] > 0.7


# ----------------------------------------------------------------------------- weights of classes


@pytest.fixture
def uneven():
    """Twenty images, of which only two are of the first class."""
    y = torch.tensor([0, 0] + [1] * 6 + [2] * 12)
    spec = {"name": "uneven", "task": "classification", "classes": ["few", "some", "most"]}
    return Data({part: (torch.rand(20, 1, 8, 8), y) for part in ("train", "valid")}, spec, 4)


def test_balanced_weights_are_those_of_scikit_learn_and_weigh_the_loss_alone(uneven):
    recipe = find("lenet")
    balanced = override(recipe, {"class_weight": "balanced"})
    found = balanced.suited(uneven)
    y = uneven.splits["train"][1]
    theirs = compute_class_weight("balanced", classes=np.arange(3), y=y.numpy())
    assert found["class_weights"] == pytest.approx(theirs.tolist())
    weighted = override(balanced, found)
    assert "class_weights" not in weighted.suited(uneven)  # settled once
    assert "class_weights" not in recipe.suited(uneven)
    logits = torch.randn(20, 3, dtype=torch.float64)
    weights = torch.tensor(theirs)
    # Over all training images the weights sum to their number, so that both means are the same.
    torch.testing.assert_close(weighted.loss(logits, y), cross_entropy(logits, y, weight=weights))
    torch.testing.assert_close(recipe.loss(logits, y), cross_entropy(logits, y))
    model = torch.nn.Identity()
    figures = weighted.metrics(model, (logits, y))["cross_entropy"]
    torch.testing.assert_close(figures, cross_entropy(logits, y, reduction="none"))


def test_weights_that_cannot_be():
    recipe = find("lenet")
    with pytest.raises(UserError, match=r"class_weight \(even\) must be empty or balanced"):
        override(recipe, {"class_weight": "even"})
    with pytest.raises(UserError, match=r"mixup \(0.2\) must be 0 with weights of classes"):
        override(recipe, {"class_weight": "balanced", "mixup": 0.2})
    with pytest.raises(UserError, match=r"class_weights \(\(1.0, 0.0\)\) must be numbers above 0"):
        override(recipe, {"class_weights": (1.0, 0.0)})
    logits, y = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    with pytest.raises(UserError, match=r"class_weight \(balanced\) is known where a run begins"):
        override(recipe, {"class_weight": "balanced"}).loss(logits, y)
    with pytest.raises(UserError, match=r"class_weights \(2 numbers\) must be one for each of the"):
        override(recipe, {"class_weights": (1.0, 2.0)}).loss(logits, y)

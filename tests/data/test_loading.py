"""`load` as a whole: what is imported when, large sets, real sets, augmentation."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from everynet.data.images.augment import shift
from everynet.data.images.standardize import moments
from everynet.data.kinds import image_kind
from everynet.data.samples import Samples, split_published
from everynet.data.sets import Known
from everynet.system.errors import UserError
from everynet.system.seeds import generator

from .either import ADDED, load, real_set


def test_importing_the_package_imports_neither_torch_nor_scikit_learn():
    code = (
        "import sys, everynet.data as d; d.names(); "
        "print([m for m in ('torch', 'sklearn', 'PIL', 'numpy') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_an_unknown_attribute_is_an_attribute_error():
    import everynet.data

    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        _ = everynet.data.lod


def fake_images(count=400):
    random = generator(2)
    x = torch.randint(256, (count, 3, 6, 6), generator=random).to(torch.uint8)
    y = torch.arange(count) % 4
    return x, y


def known(test_x=None):
    x, y = fake_images()
    test = (x[:50] if test_x is None else test_x, y[:50])
    made = split_published(
        (x.numpy(), y.numpy()), tuple(part.numpy() for part in test), tuple("abcd")
    )
    made = replace(made, name="fake", digest="0" * 64)
    return Known("fake", "image", "a test", "none", make=lambda _count: made)


@pytest.fixture
def known_fake(monkeypatch):
    monkeypatch.setitem(ADDED, "fake", known())


@pytest.mark.usefixtures("known_fake")
def test_a_real_set_keeps_its_test_part_and_gives_a_tenth_to_valid():
    data = load("fake", batch_size=10)
    assert [data.rows(part) for part in ("train", "valid", "test")] == [360, 40, 50]
    assert data.spec["classes"] == list("abcd")
    assert "ships with it" in data.spec["split"]


@pytest.mark.usefixtures("known_fake")
def test_a_large_set_stays_uint8_and_its_batches_are_the_same(monkeypatch):
    small = load("fake", batch_size=10)
    monkeypatch.setattr(image_kind, "LARGE", 1000)
    large = load("fake", batch_size=10)
    assert large.splits["train"][0].dtype == torch.uint8
    assert small.prepare is None
    assert large.spec == small.spec
    for step in (0, 35, 36, 100):
        for a, b in zip(small.train(step), large.train(step), strict=True):
            assert torch.equal(a, b)
    assert torch.equal(next(small.test)[0], next(large.test)[0])
    assert torch.equal(small.whole[0], large.whole[0])


@pytest.mark.usefixtures("known_fake")
def test_mean_and_spread_come_from_training_alone(monkeypatch):
    """Poisoned test images change nothing that training sees."""
    clean = load("fake", batch_size=10)
    monkeypatch.setitem(ADDED, "fake", known(fake_images()[0][:50] * 0 + 255))
    poisoned = load("fake", batch_size=10)
    assert poisoned.spec == clean.spec
    for part in ("train", "valid"):
        assert torch.equal(poisoned.splits[part][0], clean.splits[part][0])


def test_augmentation_touches_training_batches_only():
    plain = load("digits", batch_size=16, seed=3)
    shifted = load("digits", batch_size=16, seed=3, augment=shift(2))
    assert not torch.equal(plain.train(0)[0], shifted.train(0)[0])
    assert torch.equal(plain.train(0)[1], shifted.train(0)[1])
    assert torch.equal(shifted.train(5)[0], shifted.train(5)[0]), "a pure function of the step"
    assert torch.equal(next(plain.valid)[0], next(shifted.valid)[0])
    blank = plain.splits["train"][0].min()
    assert shifted.train(0)[0].min() == blank, "what comes in is paper"


@pytest.mark.real_data
def test_mnist_has_the_published_mean_and_spread():
    """0.1307 and 0.3081 of the 60,000 training images, before a tenth is held out."""
    whole = real_set("mnist")
    mean, std = moments(whole.train_x, 255.0)
    assert mean[0] == pytest.approx(0.1307, abs=5e-5)
    assert std[0] == pytest.approx(0.3081, abs=5e-5)
    data = load("mnist", batch_size=128, size=32)
    assert [data.rows(part) for part in ("train", "valid", "test")] == [54_000, 6_000, 10_000]
    assert data.spec["shape"] == [1, 32, 32]


@pytest.mark.real_data
def test_the_small_cifar_is_balanced():
    data = load("cifar10-small", batch_size=128)
    assert torch.bincount(data.splits["test"][1]).tolist() == [200] * 10
    assert data.spec["shape"] == [3, 32, 32]


def raw(**changed):
    x, y = torch.zeros(4, 2, dtype=torch.float64), torch.tensor([0, 1, 0, 1])
    parts = {part: (x.clone(), y.clone()) for part in ("train", "valid", "test")}
    for part, pair in changed.pop("parts", {}).items():
        parts[part] = pair
    return Samples(
        **{"name": "a", "digest": "", "split": "", "classes": ("u", "v"), **changed}, parts=parts
    )


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([[0.0]], [-1], r"a: label -1 of y of valid must be from 0 to 1"),
        ([[0.0]], [2], r"a: label 2 of y of valid must be from 0 to 1"),
        ([[float("nan")]], [1], r"a: x of valid must be finite"),
        ([[float("-inf")]], [1], r"a: x of valid must be finite"),
        ([[0.0]], [float("nan")], r"a: y of valid must be finite"),
        ([], [], r"a: the valid part holds no sample; add some"),
    ],
)
def test_samples_that_make_no_sense_are_refused_whatever_their_source(x, y, message):
    with pytest.raises(UserError, match=message):
        raw(parts={"valid": (torch.tensor(x), torch.tensor(y))})


def test_classes_must_be_two_and_all_in_training():
    with pytest.raises(UserError, match=r"a: 1 class \(u\) is not enough"):
        raw(classes=("u",))
    with pytest.raises(UserError, match="a: class w has no training sample; add some"):
        raw(classes=("u", "v", "w"))

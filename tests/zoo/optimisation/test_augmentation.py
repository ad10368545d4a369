import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet.data.draws import Draw
from everynet.data.images.augment import Mirror, Window, crop, flip, rotate, shift
from everynet.recipes.experiment import Table
from everynet.runs.verbs import load, run
from everynet.system.errors import UserError
from everynet.zoo.optimisation.augmentation import (
    RECIPES,
    SHOWN,
    Augmentation,
    AugmentedImages,
    augmentations,
    crop_and_resize,
    network,
)
from tests.zoo.cells import cell


def images(batch=3, channels=2, side=6):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(batch, channels, side, side, generator=generator, dtype=torch.float64)


def moved(x, down, right):
    """Every image moved by the same whole pixels."""
    ones = torch.ones(len(x), dtype=torch.int64)
    return Window(-down * ones, -right * ones, (x.shape[2], x.shape[3]), x.shape[2]).image(x, 0.0)


# --------------------------------------------------------------------------------------- equations


def test_each_change_of_one_image_by_hand():
    x = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    assert moved(x, 1, 0).tolist() == [[[[0, 0], [1, 2]]]]
    assert moved(x, 0, -1).tolist() == [[[[2, 0], [4, 0]]]]
    assert Mirror(torch.tensor([True])).image(x).tolist() == [[[[2, 1], [4, 3]]]]
    first = Window(torch.tensor([1]), torch.tensor([1]), (1, 1), 0).image(x, 0.0)
    assert first.tolist() == [[[[4]]]]
    assert (
        crop_and_resize(1, 2)((x,), Draw(torch.Generator().manual_seed(0), len(x)))[0]
        .unique()
        .numel()
        == 1
    )


@pytest.mark.covers("O16")
@given(seed=st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_a_flip_undoes_itself(seed):
    x = images()
    always = flip(1.0)
    (once,) = always((x,), Draw(torch.Generator(), len(x)))
    assert torch.equal(once, x.flip(-1))
    assert torch.equal(always((once,), Draw(torch.Generator(), len(once)))[0], x)
    generator = torch.Generator()  # also where chance decides which, if it decides alike
    (some,) = flip()((x,), Draw(generator.manual_seed(seed), len(x)))
    assert torch.equal(flip()((some,), Draw(generator.manual_seed(seed), len(x)))[0], x)


@pytest.mark.covers("O16")
@given(down=st.integers(-5, 5), right=st.integers(-5, 5))
@settings(max_examples=25, deadline=None)
def test_a_shift_there_and_back_is_exact_inside_the_frame(down, right):
    x = images()
    back = moved(moved(x, down, right), -down, -right)
    rows = slice(max(0, -down), 6 - max(0, down))
    columns = slice(max(0, -right), 6 - max(0, right))
    assert torch.equal(back[..., rows, columns], x[..., rows, columns])
    back[..., rows, columns] = 0
    assert (back == 0).all()  # what left the frame is lost
    framed = torch.nn.functional.pad(x, (5, 5, 5, 5))  # nothing leaves a wide frame
    assert torch.equal(moved(moved(framed, down, right), -down, -right), framed)


@given(seed=st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_a_crop_of_the_bordered_image_is_a_shift(seed):
    x, generator = images(batch=1), torch.Generator()
    (cropped,) = crop(6, 2, 0.0)((x,), Draw(generator.manual_seed(seed), len(x)))
    shifts = [moved(x, down, right) for down in range(-2, 3) for right in range(-2, 3)]
    assert sum(torch.equal(cropped, one) for one in shifts) == 1
    (by_chance,) = shift(2, 0.0)((x,), Draw(generator.manual_seed(seed), len(x)))
    assert sum(torch.equal(by_chance, one) for one in shifts) == 1


def test_changes_of_nothing_and_the_flip_are_exact():
    x = images()
    assert torch.allclose(rotate(0.0)((x,), Draw(torch.Generator(), len(x)))[0], x, atol=1e-12)
    named = augmentations(6, [0.0])
    assert torch.equal(named["as it is"]((x,), Draw(torch.Generator(), len(x)))[0], x)
    assert torch.equal(named["flip"]((x,), Draw(torch.Generator(), len(x)))[0], x.flip(-1))


@pytest.mark.covers("O16")
def test_labels_and_shapes_stay_and_pixels_do_not():
    x, y = images(batch=20), torch.arange(20)
    for name, change in augmentations(6, [0.0]).items():
        made, label = change((x, y), Draw(torch.Generator().manual_seed(0), len(x)))
        assert torch.equal(label, y)
        assert made.shape == x.shape
        assert torch.allclose(made, x) == (name == "as it is"), name
    noisy, _ = augmentations(6, [0.0])["noise"](
        (x, y), Draw(torch.Generator().manual_seed(0), len(x))
    )
    assert (noisy - x).std().item() == pytest.approx(0.4, rel=0.1)


def test_the_rotation_is_by_up_to_20_degrees():
    """A spot to the right of the centre of 300 images: where it goes to, either way."""
    x = torch.zeros(300, 1, 41, 41, dtype=torch.float64)
    x[:, :, 18:23, 33:38] = 1
    (turned,) = augmentations(41, [0.0])["rotate"](
        (x,), Draw(torch.Generator().manual_seed(0), len(x))
    )
    place = torch.arange(41).double() - 20
    mass = turned.sum((1, 2, 3))
    right, down = ((turned.sum((1, axis)) @ place) / mass for axis in (2, 3))
    angle = torch.rad2deg(torch.atan2(down, right))
    assert 19 < angle.max() < 20.1
    assert -20.1 < angle.min() < -19


# ------------------------------------------------------------------------------------- the recipe


def test_only_the_kind_with_augmentation_is_changed_and_only_in_training():
    plain, augmented = (
        AugmentedImages(rows=64, batch_size=32, padding=1, augmented=kind).dataset()
        for kind in (False, True)
    )
    (x, y), (changed, same) = plain.train(3), augmented.train(3)
    assert torch.equal(y, same)  # the same images in the same order
    assert not torch.equal(x, changed)
    assert x.shape == changed.shape
    for split in ("train", "valid", "test"):
        for one, other in zip(plain.batches(split), augmented.batches(split), strict=True):
            assert torch.equal(one[0], other[0])


def test_each_setting_makes_its_change():
    """A window without a border is the image; then a mirror or noise is all there is."""
    given = {"rows": 64, "batch_size": 64, "padding": 0, "augmented": True}
    still, mirrored, noisy, moved = (
        AugmentedImages(**given | fields).dataset().train(0)[0]
        for fields in ({"mirror": False}, {}, {"mirror": False, "sigma": 0.3},
                       {"mirror": False, "padding": 1})
    )  # fmt: skip
    assert torch.equal(still, AugmentedImages(**given | {"augmented": False}).dataset().train(0)[0])
    turned = (mirrored == still.flip(-1)).flatten(1).all(1)
    assert 16 < turned.sum() < 48
    assert torch.equal(mirrored[~turned], still[~turned])
    assert (noisy - still).std().item() == pytest.approx(0.3, rel=0.1)
    assert (moved != still).any()


@pytest.mark.covers("O16")
def test_both_kinds_begin_alike_and_the_accuracy_on_training_images_is_of_them_as_they_are(
    tmp_path,
):
    recipe = RECIPES["augmentation"].tiny()
    folder = run(recipe, tmp_path).folder
    table = load(recipe, folder)
    plain, augmented = table.cells.values()
    assert list(table.cells) == ["plain-0", "augmented-0"]
    assert plain.steps.tolist() == [0, 2, 4]
    assert plain.valid["accuracy"][0] == augmented.valid["accuracy"][0]
    assert plain.measured["train_accuracy"][0] == augmented.measured["train_accuracy"][0]
    assert plain.valid["cross_entropy"][-1] != augmented.valid["cross_entropy"][-1]
    (x, y), net = augmented.recipe.dataset().whole, augmented.network()
    right = (net(x).argmax(1) == y).double().mean().item()
    assert augmented.measured["train_accuracy"][-1].item() == pytest.approx(right)
    shown = table.result["images"]
    assert shown.shape == (len(augmentations(8, [0.0])), SHOWN, 1, 8, 8)
    assert shown.min() >= 0
    assert shown.max() <= 1


def test_all_rows_are_taken_where_none_are_named():
    cells = Augmentation(data="digits", rows=0, epochs=2, every=1, batch_size=64).cells()
    assert cells["plain-0"].steps == 2 * (1294 // 64)
    assert cells["plain-0"].dataset().rows("train") == 1294


def test_metrics_by_hand():
    def ended(train, test):
        return cell(measured={"train_accuracy": [0.1, train]}, test={"accuracy": test})

    cells = {"plain-0": ended(0.9, 0.5), "augmented-0": ended(0.7, 0.6),
             "plain-1": ended(0.8, 0.4), "augmented-1": ended(0.6, 0.43)}  # fmt: skip
    recipe = Augmentation(repeats=2)
    assert recipe.metrics(Table(cells, {})) == pytest.approx(
        {"accuracy": 0.45, "accuracy_augmented": 0.515, "train_accuracy": 0.85,
         "train_accuracy_augmented": 0.65, "gain": 6.5, "least_gain": 3.0}
    )  # fmt: skip
    lost = cells | {"plain-1": cell(measured={"train_accuracy": [0.1]}, diverged=5)}
    assert math.isnan(recipe.metrics(Table(lost, {}))["gain"])


def test_the_network_takes_images_of_any_size():
    model = network(3, 10, (4, 8)).eval()
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert model(torch.zeros(2, 3, 12, 12)).shape == (2, 10)


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.covers("O16")
def test_augmentation_raises_the_accuracy_on_photographs(tmp_path):
    result = run(RECIPES["augmentation"], tmp_path, device="cpu")
    assert result.reached
    assert result.metrics["train_accuracy_augmented"] < result.metrics["train_accuracy"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rows": 10}, r"rows \(10\) must be 0 or batch_size up"),
        ({"padding": -1}, r"padding \(-1\) must be at least 0"),
        ({"sigma": -1.0}, r"sigma \(-1.0\) must be a number from 0 up"),
        ({"widths": ()}, r"widths \(\(\)\) must be one or more numbers from 1 up"),
        ({"epochs": 0}, r"epochs \(0\) must be at least 1"),
        ({"lr": 0.0}, r"lr \(0.0\) must be a positive number"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        Augmentation(**fields)


def test_data_without_pixels_is_refused():
    with pytest.raises(UserError, match=r"data \(iris\) must be images with a class each"):
        Augmentation(data="iris").cells()["plain-0"].dataset()

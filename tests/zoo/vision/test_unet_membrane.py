"""Membranes by a U-Net: the overlap loss, Otsu's threshold, the baselines and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from everynet.data.draws import Draw
from everynet.data.images.augment import compose
from everynet.data.images.deform import bend, symmetries
from everynet.metrics.segmentation import iou, pixel_confusion
from everynet.recipes.catalog import find
from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.system.seeds import generator
from everynet.zoo.vision.unet import UNet
from everynet.zoo.vision.unet_membrane import otsu, soft_iou

F64 = torch.float64


def noise(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def sure(t, classes=2):
    """Logits that leave no doubt."""
    return 100.0 * torch.stack([t == k for k in range(classes)], 1).double()


class Echo(UNet):
    """Gives logits of its own: those of lightness."""

    def forward(self, x):
        return torch.cat([-x[:, :1], x[:, :1]], 1)


# ---------------------------------------------------------------------------------------- equations


def test_sure_pixels_share_what_intersection_over_union_counts():
    """Equation (2) where probabilities are 0 and 1 is equation (4)."""
    t, said = noise(3, 6, 6).sign().gt(0).long(), noise(3, 6, 6, seed=2).gt(0.5).long()
    wanted = iou(pixel_confusion(said, t, 2).sum(0))
    torch.testing.assert_close(soft_iou(sure(said), t), wanted)
    torch.testing.assert_close(soft_iou(sure(t), t), torch.ones(2, dtype=F64))


def test_one_pixel_by_hand():
    """p = (3/4, 1/4) on a pixel of class 0: shares 3/4 and 0; one of class 1 beside it, p even."""
    logits = torch.tensor([[3.0, 1.0], [1.0, 1.0]], dtype=F64).log().T.reshape(1, 2, 1, 2)
    t = torch.tensor([[[0, 1]]])
    wanted = torch.tensor([0.75 / (1 + 0.5), 0.5 / (0.25 + 1)], dtype=F64)
    torch.testing.assert_close(soft_iou(logits, t), wanted)


def test_the_loss_counts_pixels_and_classes():
    """Equation (3), its two terms; a class with few pixels weighs as much in the second."""
    recipe, t = find("unet-membrane"), torch.zeros(1, 10, 10, dtype=torch.long)
    t[0, 0, 0] = 1
    x = noise(1, 1, 10, 10)
    terms = recipe.objective(Echo(1, 2, width=1, depth=1), (x, t))
    logits = torch.cat([-x, x], 1)
    torch.testing.assert_close(terms["cross_entropy"], cross_entropy(logits, t))
    torch.testing.assert_close(terms["overlap"], 1 - soft_iou(logits, t).mean())
    none = torch.zeros_like(t)
    assert 1 - soft_iou(sure(none), t).mean() > 0.5, "one pixel in a hundred missed is half"


def test_the_overlap_has_a_gradient():
    t = torch.randint(2, (2, 3, 3), generator=torch.Generator().manual_seed(0))
    y = noise(2, 2, 3, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda y: soft_iou(y, t), y)


def test_otsu_is_the_best_of_all_thresholds():
    """Equation (5) against a loop over every threshold, by the variance between the two sides."""
    x = torch.cat([noise(3, 400), 0.5 * noise(3, 200, seed=2) + 4], 1).reshape(3, 20, 30)
    for image, found in zip(x, otsu(x), strict=True):
        values = image.flatten().numpy()
        edges = np.linspace(values.min(), values.max(), 257)[1:-1]
        best = [
            (values < c).mean() * (values >= c).mean()
            * (values[values < c].mean() - values[values >= c].mean()) ** 2
            for c in edges
        ]  # fmt: skip
        mine = values < found.item()
        apart = mine.mean() * (~mine).mean() * (values[mine].mean() - values[~mine].mean()) ** 2
        assert apart == pytest.approx(max(best), rel=1e-3)
        assert 1 < found < 3.5, "between the two clouds"


def test_otsu_moves_with_the_image_and_parts_two_greys():
    x = noise(2, 9, 9)
    torch.testing.assert_close(otsu(3 * x - 5), 3 * otsu(x) - 5)
    two = torch.tensor([[[0.0, 0.0, 1.0, 1.0]]])
    assert 0 < otsu(two).item() < 1
    assert torch.isfinite(otsu(torch.ones(1, 4, 4))).all()


# ------------------------------------------------------------------------------------------ recipe


def joined(recipe, net, batches):
    outputs = [recipe.metrics(net, batch) for batch in batches]
    return {k: torch.cat([one[k].reshape(-1) for one in outputs]) for k in outputs[0]}


def test_figures_are_pooled_and_stand_beside_a_threshold_and_no_answer():
    recipe, net = find("unet-membrane"), Echo(1, 2, width=1, depth=1)
    t = noise(5, 8, 8).gt(-0.8).long()
    x = (t[:, None] - 0.5) + 0.6 * noise(5, 1, 8, 8, seed=3)
    got = recipe.summarise(joined(recipe, net, [(x[:2], t[:2]), (x[2:], t[2:])]))

    def mean(said):
        each = [((said == k) & (t == k)).sum() / ((said == k) | (t == k)).sum() for k in (0, 1)]
        return sum(each).item() / 2, min(each).item()

    assert (got["mean_iou"], got["least_iou"]) == pytest.approx(mean((x[:, 0] > 0).long()))
    by = (x[:, 0] > otsu(x[:, 0])[:, None, None]).long()
    assert got["mean_iou_otsu"] == pytest.approx(mean(by)[0])
    assert got["mean_iou_light"] == pytest.approx((t == 1).double().mean().item() / 2)
    assert got["accuracy"] == pytest.approx(((x[:, 0] > 0) == t).double().mean().item())


def test_of_more_classes_only_the_network_is_judged():
    recipe = find("unet-membrane").tiny()
    net = UNet(1, 4, width=2, depth=2).eval()
    batch = next(iter(recipe.dataset().valid))
    with torch.no_grad():
        got = recipe.summarise(joined(recipe, net, [batch]))
    assert set(got) == {"mean_iou", "least_iou", "accuracy", "cross_entropy"}


def test_training_sees_windows_and_evaluation_whole_images():
    recipe = find("unet-membrane").tiny()
    data = recipe.dataset()
    x, t = data.train(0)
    assert x.shape == (2, 1, 32, 32)
    assert t.shape == (2, 32, 32)
    assert next(iter(data.valid))[0].shape[-2:] == (64, 64)


def test_training_windows_are_turned_stretched_and_bent_by_the_settings():
    """Equation (1), as the settings ask for it, and no more than that."""
    given = {"window": 16, "degrees": 30.0, "stretch": 0.2, "pixels": 2.0, "chance": 0.5}
    recipe = replace(find("unet-membrane").tiny(), **given)
    x = noise(8, 1, 64, 64).float()
    batch = x, (x[:, 0] > 0).long()
    wanted = compose(bend(16, 30.0, 0.2, 2.0, 0.5), symmetries())
    found, masks = recipe.augment()(batch, Draw(generator(3), 8, parts=("image", "mask")))
    image, mask = wanted(batch, Draw(generator(3), 8, parts=("image", "mask")))
    assert torch.equal(found, image)
    assert torch.equal(masks, mask)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"window": 100}, r"window \(100\) must be divisible by 16, because depth halves it"),
        ({"window": 0}, r"window \(0\) must be divisible by 16"),
        ({"stretch": 1.0}, r"stretch \(1.0\) must be at least 0 and below 1"),
        ({"chance": 1.5}, r"chance \(1.5\) must be a number from 0 to 1"),
        ({"degrees": -1.0}, r"degrees \(-1.0\) must be a number from 0 up"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        replace(find("unet-membrane"), **fields)


def test_windows_larger_than_the_images_are_refused():
    recipe = replace(find("unet-membrane"), data="shapes:20")
    with pytest.raises(UserError, match=r"window \(256\) must be at most 64, because.*window=64"):
        recipe.dataset()


@pytest.mark.real_data
@pytest.mark.covers("C25")
def test_a_threshold_and_no_answer_on_the_membranes():
    """The baselines on all thirty images: 0.53 and 0.39; and the parts by number in the stack."""
    recipe = replace(find("unet-membrane"), width=1, depth=1)
    data = recipe.dataset()
    assert [data.rows(part) for part in ("train", "valid", "test")] == [20, 5, 5]
    batches = [batch for part in ("train", "valid", "test") for batch in data.batches(part)]
    with torch.no_grad():
        got = recipe.summarise(joined(recipe, Echo(1, 2, width=1, depth=1), batches))
    assert got["mean_iou_otsu"] == pytest.approx(0.53, abs=0.01)
    assert got["mean_iou_light"] == pytest.approx(0.39, abs=0.01)


# --------------------------------------------------------------------------------------- learning


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.covers("C25")
@pytest.mark.skipif(not torch.cuda.is_available(), reason="hours on a CPU")
def test_goal(tmp_path):
    """Held-out membranes: mean IoU of both classes, far above both baselines."""
    result = run(find("unet-membrane"), tmp_path)
    assert result.metrics["mean_iou"] >= 0.75
    assert result.metrics["mean_iou"] > result.metrics["mean_iou_otsu"] + 0.2

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet.recipes.experiment import Table
from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.feedforward.mlp import MLP
from everynet.zoo.optimisation.few_images import FewImages
from everynet.zoo.vision.image_statistics import elsewhere
from everynet.zoo.vision.pixel_order import (
    DISTANCES,
    RECIPES,
    ImagesInOrder,
    PixelOrder,
    hidden_units_for,
    renumber,
    reorder,
)
from tests.zoo.cells import cell

RECIPE = RECIPES["pixel-order"]


def random(*shape, seed=0):
    made = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=made, dtype=torch.float64)


# ------------------------------------------------------------------------------------- equations


def test_an_order_of_pixels_by_hand():
    x = torch.tensor([[[1, 2], [3, 4]], [[5, 6], [7, 8]]])
    order = torch.tensor([2, 0, 1, 3])
    assert reorder(x, order).tolist() == [[[3, 1], [2, 4]], [[7, 5], [6, 8]]]


@pytest.mark.covers("C10")
@given(channels=st.integers(1, 3), side=st.integers(2, 5), seed=st.integers(0, 99))
@settings(max_examples=20)
def test_to_a_perceptron_any_order_is_the_same(channels, side, seed):
    x = random(4, channels, side, side)
    order = torch.randperm(side**2, generator=torch.Generator().manual_seed(seed))
    net = MLP((channels * side**2, 5, 3)).double()
    expected = net(reorder(x, order))
    with torch.no_grad():
        net.layers[0].weight.copy_(renumber(net.layers[0].weight, order))
    torch.testing.assert_close(net(x), expected)


# ------------------------------------------------------------------------------------- the recipe


def test_the_networks_are_alike_in_size_and_see_the_same_images():
    cells = replace(RECIPE, data="digits", rows=100, widths=(8, 16)).cells()
    assert len(cells) == 12
    data = {name: cells[f"{name}-0"].dataset() for name in ("cnn-ordered", "cnn-shuffled")}
    nets = [cells[f"{name}-ordered-0"].model(data["cnn-ordered"]) for name in ("cnn", "mlp")]
    sizes = [sum(p.numel() for p in net.parameters()) for net in nets]
    assert sizes[1] / sizes[0] == pytest.approx(1, abs=0.05)
    assert hidden_units_for(64, 10, 64 * 20 + 20 + 20 * 10 + 10) == 20
    order = cells["cnn-shuffled-0"].order(data["cnn-ordered"])
    for split in ("train", "valid", "test"):
        (x, y), (mixed, same) = (data[name].splits[split] for name in data)
        assert torch.equal(y, same)
        assert torch.equal(mixed, reorder(x, order))
    assert not torch.equal(order, cells["cnn-shuffled-1"].order(data["cnn-ordered"]))


@pytest.mark.covers("C10")
def test_photos_are_local_and_stationary_and_shuffled_ones_are_not():
    recipe = replace(RECIPE, blocks=(1, 2), photos=("flower",))
    result = recipe.simulate(torch.Generator().manual_seed(0))
    near = result["correlation_ordered"][0]
    assert near[0] > 0.9
    assert (near.diff() < 0).all()
    assert len(near) == len(DISTANCES)
    assert result["correlation_shuffled"].abs().max() < 0.02
    assert elsewhere(result["explained_ordered"], result["power_ordered"]) > 0.9
    assert result["explained_shuffled"].abs().max() < 0.02


def test_metrics_by_hand():
    recipe = PixelOrder(repeats=2, photos=("china",))
    ends = {"cnn-ordered": (0.9, 1.0), "cnn-shuffled": (0.6, 0.8),
            "mlp-ordered": (0.7, 0.8), "mlp-shuffled": (0.7, 0.82)}  # fmt: skip
    cells = {
        f"{name}-{k}": cell(valid={"accuracy": [0.1, end]}, diverged=1 if "mlp" in name else None)
        for name, both in ends.items()
        for k, end in enumerate(both)
    }
    table = Table(cells, recipe.simulate(torch.Generator()))
    found = recipe.accuracy(table, "cnn", "ordered")
    assert found.tolist() == [[0.1, 0.9], [0.1, 1.0]]
    assert recipe.accuracy(table, "mlp", "ordered").isnan().all()
    metrics = recipe.metrics(table)
    assert metrics["cnn_lost"] == pytest.approx(0.25)
    assert torch.tensor([metrics[n] for n in ("mlp_lost", "size_ratio")]).isnan().all()


@pytest.mark.slow
@pytest.mark.covers("C10")
def test_the_recipe_reaches_its_goal(tmp_path):
    result = run(RECIPE, tmp_path, device="cpu")
    assert result.reached
    assert result.metrics["size_ratio"] == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"widths": ()}, r"widths \(\(\)\) must be one or more numbers from 1 up"),
        ({"steps": 0}, r"steps \(0\) must be at least 1"),
        ({"rows": 10}, r"rows \(10\) must be at least batch_size"),
        ({"lr": 0.0}, r"lr \(0.0\) must be a positive number"),
        ({"photos": ()}, r"photos \(\(\)\) must be one to four"),
        ({"blocks": (1, 1)}, r"blocks \(\(1, 1\)\) must be two numbers from 1 up, 2 to 64"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        PixelOrder(**fields)


def test_images_that_are_too_small_are_refused():
    recipe = ImagesInOrder(data="digits", widths=(2, 2, 2, 2, 2), batch_size=8)
    with pytest.raises(UserError, match=r"widths \(2,2,2,2,2\) must be fewer, because all layers"):
        recipe.model(recipe.dataset())


def test_images_in_a_file_are_refused(monkeypatch):
    recipe = ImagesInOrder(data="digits", batch_size=8)
    mapped = replace(recipe.dataset(), mapped=True)
    monkeypatch.setattr(FewImages, "dataset", lambda _self: mapped)
    with pytest.raises(UserError, match=r"data \(digits\) must fit in memory, because all its pix"):
        recipe.dataset()

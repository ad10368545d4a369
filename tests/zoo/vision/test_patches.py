"""Patches of photographs: the network by hand, and that each patch is what its class says."""

import pytest
import torch
from torch.nn.functional import avg_pool2d, conv2d

from everynet.training.loop import evaluate, trained
from everynet.zoo.vision.patches import SIZE, Patches, PatchNet, blocks, cut_patches


def test_the_network_is_its_equations():
    torch.manual_seed(0)
    net = PatchNet(3, 5, sizes=((2, 1), (3, 2))).double()
    x = torch.randn(2, 3, 8, 6, dtype=torch.float64)
    part = net.features
    assert part.conv1_1.bias.shape == (2,)
    h = conv2d(x, part.conv1_1.weight, part.conv1_1.bias, padding=1).clamp(min=0)
    h = avg_pool2d(h, 2)
    for conv in (part.conv2_1, part.conv2_2):
        h = conv2d(h, conv.weight, conv.bias, padding=1).clamp(min=0)
    v = h.sum((2, 3)) / (4 * 3)
    torch.testing.assert_close(net(x), v @ net.output.weight.T + net.output.bias)


def test_layers_are_named_as_in_the_literature():
    names = [name for name, _ in blocks(3, ((4, 2), (8, 1))).named_children()]
    assert names == ["conv1_1", "relu1_1", "conv1_2", "relu1_2", "pool1", "conv2_1", "relu2_1"]


def test_a_patch_is_of_the_photograph_and_the_quarter_that_its_class_says():
    """Photographs whose red is the column, by another offset each, and whose green is the row."""
    down, right = torch.meshgrid(torch.arange(60.0), torch.arange(70.0), indexing="ij")
    photos = [torch.stack([right + 1000 * n, down, torch.zeros_like(down)]) for n in range(2)]
    x, y = cut_patches(photos, 64, torch.Generator().manual_seed(0))
    assert x.shape == (64, 3, SIZE, SIZE)
    assert y.tolist() == [*range(8)] * 8
    for patch, label in zip(x, y.tolist(), strict=True):
        assert (patch[0].min() >= 1000).item() == (label >= 4)
        columns, rows = patch[0] - 1000 * (label >= 4), patch[1]
        assert columns.max() < 35 if label % 2 == 0 else columns.min() >= 35
        assert rows.max() < 30 if label % 4 < 2 else rows.min() >= 30
    assert len({patch[0, 0, 0].item() for patch in x[::8]}) > 1, "from other places each time"


def test_patches_are_drawn_anew_at_each_step_and_standardised():
    data = Patches(batch_size=64).dataset()
    x, y = data.train(0)
    assert torch.equal(x, data.train(0)[0])
    assert not torch.equal(x, data.train(1)[0])
    assert x.mean().abs() < 0.5
    assert 0.5 < x.std() < 1.5
    assert set(y.tolist()) == set(range(8))
    assert data.spec["classes"][5] == "flower, top right"


@pytest.mark.slow
def test_learns_far_more_than_chance():
    recipe = Patches()
    data = recipe.dataset()
    assert evaluate(recipe, trained(recipe, data), data.test)["accuracy"] > 0.5

"""Convolution on the group p4 against its sum, its law under quarter turns, and what it learns."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import conv2d

from everynet import runs
from everynet.data import load
from everynet.data.dataset import Data
from everynet.recipes.catalog import find
from everynet.system.errors import UserError
from everynet.system.seeds import generator
from everynet.zoo.vision.cnn import CNN
from everynet.zoo.vision.group_cnn import (
    TURNS,
    GroupCNN,
    GroupCNNImages,
    GroupConv,
    Lifting,
    PlainCNNImages,
    rotate,
    turn_maps,
)


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def awake(net, seed=0):
    """The network in float64 and eval mode, with weights and statistics of its own."""
    net, generator = net.double().eval(), torch.Generator().manual_seed(seed)
    for part in net.modules():
        if isinstance(part, nn.BatchNorm3d):
            for tensor in (part.weight.data, part.bias.data, part.running_mean, part.running_var):
                tensor.copy_(0.5 + torch.rand(tensor.shape, generator=generator))
    return net


def quarter(q, r):
    """R^r q, counterclockwise as rot90 turns; places are (down, right) from the centre."""
    for _ in range(r):
        q = (-q[1], q[0])
    return q


# ------------------------------------------------------------------------------------ equations


def at(kernel, place):
    """The weight of a 3 x 3 kernel at a place from its centre; 0 outside."""
    down, right = place
    return kernel[..., down + 1, right + 1]


@pytest.mark.parametrize("r", range(4))
def test_lifting_is_its_sum(r):
    """(1) at one pixel, place by place."""
    layer, x = Lifting(2, 3).double(), randn(1, 2, 5, 5)
    expected = torch.zeros(3, dtype=torch.float64)
    for down in (-1, 0, 1):
        for right in (-1, 0, 1):
            w = at(layer.weight, quarter((down, right), 4 - r))
            expected += w @ x[0, :, 2 + down, 1 + right]
    torch.testing.assert_close(layer(x)[0, :, r, 2, 1], expected)


@pytest.mark.parametrize("r", range(4))
def test_group_convolution_is_its_sum(r):
    """(2) at one pixel, over all directions s and places."""
    layer, y = GroupConv(2, 3).double(), randn(1, 2, 4, 5, 5)
    expected = torch.zeros(3, dtype=torch.float64)
    for s in range(4):
        for down in (-1, 0, 1):
            for right in (-1, 0, 1):
                w = at(layer.weight[:, :, (s - r) % 4], quarter((down, right), 4 - r))
                expected += w @ y[0, :, s, 2 + down, 1 + right]
    torch.testing.assert_close(layer(y)[0, :, r, 2, 1], expected)


def test_direction_0_of_lifting_is_a_plain_convolution():
    layer, x = Lifting(2, 3).double(), randn(2, 2, 6, 6)
    torch.testing.assert_close(layer(x)[:, :, 0], conv2d(x, layer.weight, padding=1))


def test_the_network_is_its_equations():
    net, x = awake(GroupCNN(2, 5, widths=(3, 4))), randn(2, 2, 6, 6)
    h = x
    for number, block in enumerate(net.blocks):
        z, norm = block.conv(h), block.norm
        if number == 0:
            z = z.unflatten(4, (3, 2)).unflatten(3, (3, 2)).amax((4, 6))  # (3)
        spread = (norm.running_var + norm.eps).sqrt()
        n = (z.movedim(1, -1) - norm.running_mean) / spread * norm.weight + norm.bias  # (4)
        h = n.movedim(-1, 1).clamp(min=0)  # (5)
    v = h.sum((2, 3, 4)) / (4 * 3 * 3)
    torch.testing.assert_close(net(x), v @ net.output.weight.T + net.output.bias)


# ----------------------------------------------------------------------------------- properties


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
def test_maps_are_turned_and_moved_and_logits_stay(dtype, tolerance):
    torch.manual_seed(0)
    net = awake(GroupCNN(1, 10, widths=(3, 4, 4))).to(dtype)
    net.requires_grad_(False)
    x = randn(4, 1, 12, 12).to(dtype)
    h, t = x, x.rot90(1, (2, 3))
    for block in net.blocks:
        h, t = block(h), block(t)
        assert float((t - turn_maps(h)).abs().max()) <= tolerance * float(h.max())
        assert float((t - h).abs().max()) > 1e-3  # they did change
    for k in range(1, 4):
        difference = net(x.rot90(k, (2, 3))) - net(x)
        assert float(difference.abs().max()) <= tolerance


def test_four_turns_are_none():
    h = randn(1, 2, 4, 3, 3)
    once = turn_maps(h)
    assert not torch.equal(once, h)
    assert torch.equal(turn_maps(turn_maps(turn_maps(once))), h)
    assert torch.equal(once[:, :, 1], h[:, :, 0].rot90(1, (2, 3)))


@settings(max_examples=10, deadline=None)
@given(down=st.integers(-2, 2), right=st.integers(-2, 2))
def test_a_shift_of_the_image_shifts_the_maps(down, right):
    net = nn.Sequential(Lifting(1, 2), GroupConv(2, 2)).double()
    x = torch.zeros(1, 1, 12, 12, dtype=torch.float64)
    x[..., 4:8, 4:8] = randn(1, 1, 4, 4)
    moved = net(x.roll((down, right), (2, 3)))
    torch.testing.assert_close(moved, net(x).roll((down, right), (3, 4)))


def test_gradients():
    net, x = awake(GroupCNN(1, 2, widths=(2, 2))), randn(1, 1, 4, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, *_: net(x), (x, *net.parameters()))


def test_images_are_turned_by_their_own_angle():
    x = randn(4, 2, 6, 6)
    found = rotate(x, torch.tensor([0.0, 90.0, 180.0, 270.0], dtype=torch.float64))
    for k in range(4):
        torch.testing.assert_close(found[k], x[k].rot90(k, (1, 2)), atol=1e-9, rtol=0)


def test_both_networks_have_as_many_weights_within_five_percent():
    for name, channels in (("group-cnn", 1), ("group-cnn-mnist", 1)):
        widths = find(name).widths
        group, plain = (
            sum(p.numel() for p in net.parameters())
            for net in (
                GroupCNN(channels, 10, widths=widths),
                CNN(channels, 10, widths=tuple(2 * w for w in widths)),
            )
        )
        assert abs(plain / group - 1) <= 0.05


# --------------------------------------------------------------------------------------- recipe


def test_test_images_are_turned_once_and_training_images_anew():
    plain = load("digits", kind="image", batch_size=8)
    data = PlainCNNImages(data="digits", batch_size=8).dataset()
    again = PlainCNNImages(data="digits", batch_size=8, seed=3).dataset()
    assert torch.equal(data.splits["train"][0], plain.splits["train"][0])
    for part in ("valid", "test"):
        assert not torch.equal(data.splits[part][0], plain.splits[part][0])
        assert torch.equal(data.splits[part][0], again.splits[part][0])
        assert torch.equal(data.splits[part][1], plain.splits[part][1])
    assert not torch.equal(data.train(0)[0], replace(data, augment=None).train(0)[0])
    for number, part in enumerate(("valid", "test")):
        x, found = plain.splits[part][0].float(), data.splits[part][0].float()
        angles = 360 * torch.rand(len(x), generator=generator(TURNS, number))
        assert angles.min() < 30, "a whole turn"
        assert angles.max() > 330
        torch.testing.assert_close(found, rotate(x, angles), rtol=0, atol=0.5001)  # whole levels


def test_a_tiny_run_measures_weights_turns_and_gain(tmp_path):
    result = runs.run(find("group-cnn").tiny(), tmp_path, device="cpu")
    found = result.metrics
    assert found["change"] <= 1e-6 < found["change_plain"]
    assert found["gain"] == pytest.approx(100 * (found["accuracy"] - found["accuracy_plain"]))
    group, plain = 2 * 9 + 2 * 2 * 4 * 9 + 8 + 30, 4 * 9 + 4 * 4 * 9 + 16 + 50
    assert found["weights_ratio"] == pytest.approx(plain / group)


def test_images_that_no_quarter_turn_takes_to_themselves_are_refused():
    with pytest.raises(ValueError, match=r"images of 6 x 4 must be square with a side divisible"):
        GroupCNN(1, 2, widths=(2, 2))(torch.zeros(1, 1, 6, 4))
    with pytest.raises(ValueError, match=r"images of 6 x 6 must be square .* divisible by 4"):
        GroupCNN(1, 2, widths=(2, 2, 2))(torch.zeros(1, 1, 6, 6))
    data = Data.described({"shape": [1, 30, 30], "classes": ["a", "b"]})
    with pytest.raises(UserError, match=r"size \(0: images of 30x30\) must give sq.* do size=32"):
        GroupCNNImages().model(data)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"widths": ()}, r"widths \(\(\)\) must be one or more numbers from 1 up"),
        ({"repeats": 0}, r"repeats \(0\) must be at least 1"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        replace(find("group-cnn"), **fields)


# ------------------------------------------------------------------------------------- learning


@pytest.mark.slow
@pytest.mark.covers("C9")
def test_it_beats_a_plain_network_of_the_same_size(tmp_path):
    assert runs.run(find("group-cnn"), tmp_path).reached

"""U-Net: its counts and sizes, each equation by hand, shifts, its figures and what it refuses."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d, max_pool2d, one_hot

from everynet.data.dataset import Data
from everynet.recipes.catalog import find
from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.vision.unet import (
    DoubleConv,
    OriginalUNet,
    PlainDoubleConv,
    UNet,
    UNetWithoutNorm,
    center_crop,
    init_weights,
)


def parameters(module):
    return sum(p.numel() for p in module.parameters())


def double(module, seed=0):
    """The module in float64 with weights, gains and biases of its own."""
    generator = torch.Generator().manual_seed(seed)
    for p in module.double().eval().parameters():
        spread = p[0].numel() ** 0.5
        p.data = torch.randn(p.shape, generator=generator, dtype=torch.float64) / spread
    return module


def noise(*shape, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


class Echo(UNet):
    """Gives back what it is given: logits by hand."""

    def forward(self, x):
        return x


# ------------------------------------------------------------------------------- counts and sizes


@pytest.mark.covers("C23")
def test_the_network_of_2015_has_its_parameters_and_sizes():
    """31,030,658 parameters, and the sides of figure 1 of the paper, level by level."""
    assert parameters(OriginalUNet()) == 31_030_658
    net, x = OriginalUNet(width=1), torch.zeros(1, 1, 572, 572)
    sides = {}
    for name, module in net.named_modules():
        module.register_forward_hook(
            lambda _m, _i, out, name=name: sides.update({name: tuple(out.shape[1:])})
        )
    assert net(x).shape == (1, 2, 388, 388)
    wanted = {
        **{"down.0": (1, 568), "down.1": (2, 280), "down.2": (4, 136), "down.3": (8, 64)},
        **{"bottom": (16, 28), "upsample.0": (8, 56), "up.0": (8, 52), "up.1": (4, 100)},
        **{"up.2": (2, 196), "up.3": (1, 388), "upsample.3": (1, 392), "output": (2, 388)},
    }
    assert {name: sides[name][:2] for name in wanted} == wanted


def test_parameters_in_closed_form():
    """Convolutions have 9 c w + w, up-convolutions 4 (2 w) w + w, the last k w + k."""
    channels, classes, width, depth = 3, 5, 6, 2
    total, before = 0, channels
    for level in range(depth + 1):
        maps = width * 2**level
        total += 9 * before * maps + maps + 9 * maps * maps + maps
        before = maps
    for level in range(depth):
        maps = width * 2**level
        total += 8 * maps * maps + maps  # up
        total += 18 * maps * maps + maps + 9 * maps * maps + maps
    total += classes * width + classes
    assert parameters(OriginalUNet(channels, classes, width=width, depth=depth)) == total


@pytest.mark.parametrize(("depth", "height"), [(1, 24), (2, 40), (3, 64)])
def test_padding_keeps_the_size(depth, height):
    net = UNet(2, 3, width=4, depth=depth)
    assert net(torch.randn(2, 2, height, height + 8)).shape == (2, 3, height, height + 8)


# ---------------------------------------------------------------------------------------- equations


def by_hand(net, x):
    """Equations (9) and (3) to (6), from torch's plain functions and loops."""

    def double_conv(block, x):
        for conv in block.convs:
            x = conv2d(x, conv.weight, conv.bias).clamp(min=0)  # (9)
        return x

    kept = []
    for block in net.down:
        x = double_conv(block, x)
        kept.append(x)
        x = max_pool2d(x, 2)  # (3)
    x = double_conv(net.bottom, x)
    for upsample, block in zip(net.upsample, net.up, strict=True):
        batch, _, height, width = x.shape
        u = torch.zeros(batch, upsample.out_channels, 2 * height, 2 * width, dtype=x.dtype)
        for r in range(2):
            for s in range(2):  # (4)
                w = upsample.weight[:, :, r, s]  # from to
                u[:, :, r::2, s::2] = torch.einsum("bchw,cd->bdhw", x, w)
        u = u + upsample.bias[:, None, None]
        a = kept.pop()
        edge = (a.shape[2] - u.shape[2]) // 2
        side = (a.shape[3] - u.shape[3]) // 2
        a = a[:, :, edge : a.shape[2] - edge, side : a.shape[3] - side]
        x = double_conv(block, torch.cat([a, u], 1))  # (5)
    w, b = net.output.weight[:, :, 0, 0], net.output.bias
    return torch.einsum("bchw,kc->bkhw", x, w) + b[:, None, None]  # (6)


@pytest.mark.parametrize(("height", "width"), [(44, 44), (52, 44)])
def test_the_network_is_its_equations(height, width):
    net = double(OriginalUNet(2, 3, width=4, depth=2))
    x = noise(2, 2, height, width)
    y = net(x)
    assert y.shape == (2, 3, height - 40, width - 40)
    torch.testing.assert_close(y, by_hand(net, x), atol=1e-10, rtol=0)


def test_a_block_of_the_same_size_is_zeros_around_then_normalised():
    """Equations (1) and (2), while training: mean and variance over batch and pixels."""
    block = double(DoubleConv(2, 3)).train()
    x = noise(2, 2, 6, 5)
    a = x
    for conv, norm in zip(block.convs, block.norms, strict=True):
        n = conv2d(nn.functional.pad(a, (1, 1, 1, 1)), conv.weight)  # (1)
        mean = n.mean((0, 2, 3), keepdim=True)
        std = (n.var((0, 2, 3), correction=0, keepdim=True) + norm.eps).sqrt()
        g, b = (p[:, None, None] for p in (norm.weight, norm.bias))
        a = (g * (n - mean) / std + b).clamp(min=0)  # (2)
    torch.testing.assert_close(block(x), a, atol=1e-10, rtol=0)


def test_a_block_without_norms_is_zeros_around_and_a_rectifier():
    """Equation (9): nothing but its own image goes into a map, in training too."""
    block = double(PlainDoubleConv(2, 3, padding=1)).train()
    x = noise(2, 2, 6, 5)
    a = x
    for conv in block.convs:
        a = conv2d(nn.functional.pad(a, (1, 1, 1, 1)), conv.weight, conv.bias).clamp(min=0)
    torch.testing.assert_close(block(x), a, atol=1e-10, rtol=0)
    torch.testing.assert_close(block(x[:1]), a[:1], atol=1e-10, rtol=0)
    assert UNetWithoutNorm(1, 1, width=2, depth=2)(torch.randn(1, 1, 8, 12)).shape == (1, 1, 8, 12)
    assert parameters(UNetWithoutNorm(1, 2, width=3, depth=2)) == parameters(
        OriginalUNet(1, 2, width=3, depth=2)
    )


def test_a_crop_is_the_middle():
    """Each pixel of a crop is the one at the same distance from the centre."""
    rows, columns = torch.meshgrid(torch.arange(12.0), torch.arange(9.0), indexing="ij")
    places = torch.stack([rows - 5.5, columns - 4.0])[None]
    middle = center_crop(places, torch.zeros(1, 1, 4, 3))
    assert middle[0, 0, :, 0].tolist() == [-1.5, -0.5, 0.5, 1.5]
    assert middle[0, 1, 0].tolist() == [-1.0, 0.0, 1.0]


@pytest.mark.covers("C23")
def test_skips_are_aligned_with_the_image():
    """With all but the uppermost skip off, an output pixel sees its own place and no other.

    Every kernel takes the middle pixel alone, so nothing but a wrong crop could move the image.
    """
    net = OriginalUNet(1, 1, width=1, depth=2).double()
    for p in net.parameters():
        p.data.zero_()
    for block in (net.down[0], net.up[-1]):
        for conv in block.convs:
            conv.weight.data[0, 0, 1, 1] = 1  # of the joined maps the first is the skip
    net.output.weight.data.fill_(1)
    x = noise(1, 1, 44, 44).abs()
    torch.testing.assert_close(net(x), x[..., 20:-20, 20:-20])


def test_initialisation_keeps_the_mean_square():
    """Equation (8): after a rectified layer half of the variance 2 is left, whatever the width."""
    torch.manual_seed(0)
    for module in (nn.Conv2d(64, 256, 3), nn.ConvTranspose2d(256, 128, 2, stride=2)):
        init_weights(module)
        assert not module.bias.any()
        x = torch.randn(2, module.in_channels, 12, 12)
        assert module(x).square().mean().item() == pytest.approx(2, rel=0.1)
    first = UNet(1, 2, width=32, depth=1).up[0].convs[0].weight
    assert first.std().item() == pytest.approx(math.sqrt(2 / (64 * 9)), rel=0.05)


def test_the_loss_is_the_mean_over_pixels():
    """Equation (7) with logits by hand; a certain and right network has none."""
    recipe = find("unet").tiny()
    t = torch.randint(4, (2, 8, 8))
    logits = noise(2, 4, 8, 8)
    wanted = -(logits.softmax(1).log() * one_hot(t, 4).permute(0, 3, 1, 2)).sum(1).mean()
    got = recipe.objective(Echo(1, 2, width=1, depth=1), (logits, t))["cross_entropy"]
    torch.testing.assert_close(got, wanted)
    sure = 50.0 * one_hot(t, 4).permute(0, 3, 1, 2).double()
    assert recipe.objective(Echo(1, 2, width=1, depth=1), (sure, t))["cross_entropy"] < 1e-12


# ------------------------------------------------------------------------------------- properties


@pytest.mark.parametrize("depth", [1, 2])
def test_a_shift_by_a_power_of_two_shifts_the_answer(depth):
    """Without a border nothing but the image matters: exact for 2^depth, false for one pixel."""
    net, by = double(OriginalUNet(1, 2, width=3, depth=depth)), 2**depth
    side = {1: 24, 2: 52}[depth]
    x = noise(1, 1, side + by, side + by)
    here, moved = net(x[..., :side, :side]), net(x[..., by:, by:])
    torch.testing.assert_close(here[..., by:, by:], moved[..., :-by, :-by], atol=1e-10, rtol=0)
    one = net(x[..., 1 : side + 1, :side])
    assert not torch.allclose(here[..., 1:, :], one[..., :-1, :])


def test_a_border_makes_the_edge_matter():
    """The variant of the same size is equivariant in the middle only."""
    net = double(UNet(1, 2, width=3, depth=1))
    x = noise(1, 1, 34, 34)
    here, moved = net(x[..., :32, :32]), net(x[..., 2:, 2:])
    inside = slice(12, -12)
    torch.testing.assert_close(
        here[..., 2:, 2:][..., inside, inside], moved[..., :-2, :-2][..., inside, inside]
    )
    assert not torch.allclose(here[..., 2:, 2:], moved[..., :-2, :-2])


def test_images_of_a_batch_do_not_look_at_each_other_in_use():
    net = double(UNet(1, 3, width=4, depth=2))
    x = noise(3, 1, 16, 16)
    torch.testing.assert_close(net(x)[1:2], net(x[1:2]))


@pytest.mark.parametrize(("network", "side"), [(OriginalUNet, 46), (UNet, 14)])
def test_sizes_that_cannot_be_halved_are_refused(network, side):
    net = network(1, 2, width=2, depth=2)
    with pytest.raises(ValueError, match=r"maps of \d+ x \d+ must have an even height and width"):
        net(torch.zeros(1, 1, side, side))


# ----------------------------------------------------------------------------------------- recipe


def test_figures_are_of_all_pixels_pooled_and_leave_the_background_out():
    """By hand from all masks at once; a mean over batches or images would differ."""
    recipe = find("unet").tiny()
    t = torch.randint(3, (5, 6, 6), generator=torch.Generator().manual_seed(2))
    t[0] = 0
    t[0, 0, 0] = 1
    y = noise(5, 3, 6, 6, seed=5) + 2 * one_hot(t, 3).permute(0, 3, 1, 2)
    outputs = [
        recipe.metrics(Echo(1, 2, width=1, depth=1), (y[b], t[b])) for b in (slice(2), slice(2, 5))
    ]
    joined = {k: torch.cat([one[k].reshape(-1) for one in outputs]) for k in outputs[0]}
    got = recipe.summarise(joined)
    p = y.argmax(1)
    both = [((p == k) & (t == k)).sum() for k in range(3)]
    size = [(p == k).sum() + (t == k).sum() for k in range(3)]
    assert got["dice"] == pytest.approx(sum(2 * both[k] / size[k] for k in (1, 2)).item() / 2)
    union = [size[k] - both[k] for k in range(3)]
    assert got["iou"] == pytest.approx(sum(both[k] / union[k] for k in (1, 2)).item() / 2)
    assert got["accuracy"] == pytest.approx((p == t).double().mean().item())
    assert 0 < got["iou"] < got["dice"] < 1


def test_masks_move_with_their_images_in_training():
    recipe = replace(find("unet"), data="shapes:40", batch_size=8)
    data = recipe.dataset()
    assert data.parts == ("image", "mask")
    x, t = data.train(0)
    assert not torch.equal(t, data.train(0 + data.steps_per_epoch)[1])
    bright = (x[:, 0] - x[:, 0][t == 0].median()).abs()
    assert bright[t > 0].mean() > 2 * bright[t == 0].mean()
    none = replace(recipe, mirror=False, degrees=0.0, pixels=0.0)
    assert none.dataset().augment is None


def test_prediction_is_a_mask_of_classes():
    recipe = find("unet").tiny()
    data = recipe.dataset()
    net = recipe.model(data).eval()
    x = data.splits["test"][0][:3]
    with torch.no_grad():
        rows = recipe.predict(net, x, data.spec)
        wanted = net(x).argmax(1)
    for row, mask in zip(rows, wanted, strict=True):
        assert torch.equal(row["mask"], mask)
        assert row["mask"].dtype == torch.int64


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"size": -1}, r"size \(-1\) must be at least 0"),
        ({"width": 0}, r"width \(0\) must be at least 1"),
        ({"depth": 0}, r"depth \(0\) must be a number from 1 to 8"),
        ({"degrees": -1.0}, r"degrees \(-1.0\) must be a number from 0 up"),
        ({"pixels": float("inf")}, r"pixels \(inf\) must be a number from 0 up"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        replace(find("unet"), **fields)


def test_sizes_it_refuses():
    recipe = replace(find("unet"), size=60)
    spec = {"shape": [1, 60, 60], "classes": ["0", "1"]}
    with pytest.raises(
        UserError, match=r"size \(60: images of 60x60\) must be divisible by 8,.*do"
    ):
        recipe.model(Data.described(spec))


def test_the_last_weights_are_kept_when_the_rate_ends_at_zero():
    assert find("unet").monitor() is None
    assert replace(find("unet"), schedule="constant").monitor().metric == "dice"


# --------------------------------------------------------------------------------------- learning


@pytest.mark.slow
@pytest.mark.covers("C23")
def test_goal(tmp_path):
    """Held-out shapes: Dice of at least 0.95 for each of three seeds."""
    for seed in range(3):
        assert run(replace(find("unet"), seed=seed), tmp_path).metrics["dice"] >= 0.95

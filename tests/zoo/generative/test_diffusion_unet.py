"""The U-Net that predicts noise: sizes, conditions, attention, guidance, refusals."""

import pytest
import torch
from torch import nn
from torch.nn.functional import group_norm, silu

from everynet.nn.attention import attend, score_scaled_dot
from everynet.nn.positions import sinusoidal
from everynet.zoo.generative.diffusion_unet import (
    MapNorm,
    NoiseUNet,
    PixelAttention,
    TimeBlock,
    guided_noise,
)


def woken(network, seed=0):
    """The network with all of its weights drawn: those that begin at 0 would hide mistakes."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in network.parameters():
            weight.copy_(0.3 * torch.randn(weight.shape, generator=draw))
    return network.double().eval()


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


def small(**options):
    return woken(NoiseUNet(2, (4, 6, 6), noise_steps=9, **{"blocks": 1, **options}))


# ------------------------------------------------------------------------------------- the blocks


def test_a_block_is_what_the_equations_say():
    block = woken(TimeBlock(4, 6, 5, attends=False, dropout=0.0))
    x, c = normal(2, 4, 6, 6), normal(2, 5, seed=1)
    norm = block.norm1
    h = block.conv1(silu(group_norm(x, norm.num_groups, norm.weight, norm.bias)))
    h = h + block.condition(silu(c))[:, :, None, None]
    norm = block.norm2
    residual = block.conv2(silu(group_norm(h, norm.num_groups, norm.weight, norm.bias)))
    projected = torch.einsum("oi,bihw->bohw", block.project.weight[..., 0, 0], x)
    wanted = projected + block.project.bias[:, None, None] + residual
    torch.testing.assert_close(block(x, c), wanted)


def test_a_new_block_adds_nothing():
    block = TimeBlock(4, 4, 5, attends=True, dropout=0.0).double()
    x = normal(2, 4, 6, 6)
    assert torch.equal(block(x, normal(2, 5)), x)
    network = NoiseUNet(2, (4, 6), noise_steps=9).double()
    assert not network(normal(2, 2, 8, 8), torch.tensor([1, 9])).any()


def test_attention_reads_all_pixels_and_is_added():
    layer = woken(PixelAttention(6))
    x = normal(2, 6, 3, 4)
    pixels = layer.norm(x).flatten(2).mT
    q, k, v = layer.attention.project(pixels).chunk(3, 2)
    read = layer.attention.output(attend(score_scaled_dot, q, k, v)[0])
    torch.testing.assert_close(layer(x), x + read.mT.reshape(x.shape))
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    moved = x.flatten(2)[..., order].reshape(x.shape)
    torch.testing.assert_close(layer(moved).flatten(2), layer(x).flatten(2)[..., order])


def test_norms_keep_the_precision_of_their_input():
    norm = MapNorm(6)
    assert norm.num_groups == 1
    with torch.autocast("cpu", torch.bfloat16):
        assert norm(torch.randn(2, 6, 4, 4).bfloat16()).dtype == torch.bfloat16
    x = normal(2, 6, 4, 4)
    torch.testing.assert_close(norm.double()(x), nn.GroupNorm(1, 6).double()(x))
    groups = {channels: MapNorm(channels).num_groups for channels in (2, 4, 12, 32, 64, 128, 192)}
    assert groups == {2: 1, 4: 1, 12: 3, 32: 8, 64: 16, 128: 32, 192: 32}


@pytest.mark.parametrize("channels", [2, 4, 8, 32])
def test_no_norm_loses_the_condition(channels):
    """With one map a group it would: a constant added to a map is what a norm takes away."""
    block = woken(TimeBlock(channels, channels, 5, attends=False, dropout=0.0))
    x, c = normal(1, channels, 4, 4), normal(2, 1, 5, seed=1)
    assert (block(x, c[0]) - block(x, c[1])).abs().max() > 1e-3


# ------------------------------------------------------------------------------------ the network


@pytest.mark.parametrize("attention", [0, 1, 3])
@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("side", [(8, 8), (12, 20)])
def test_the_noise_has_the_shape_of_the_images(side, blocks, attention):
    network = small(blocks=blocks, attention=attention)
    x = normal(2, 2, *side)
    assert network(x, torch.tensor([1, 9])).shape == x.shape
    attending = [m for m in network.modules() if isinstance(m, PixelAttention)]
    assert len(attending) == 1 + min(attention, 3) * (2 * blocks + 1)  # and the middle


def test_the_sides_halve_and_come_back():
    network, sides = small(), []
    for part in [*network.down, *network.middle, *network.up]:
        part.register_forward_hook(lambda _, given, made: sides.append(made.shape[-1]))
    network(normal(1, 2, 16, 16), torch.tensor([3]))
    assert sides == [16, 8, 8, 4, 4, 4, 4, 4, 4, 8, 8, 8, 16, 16, 16]


def test_the_cifar_network_has_nine_million_weights():
    network = NoiseUNet(3, (64, 128, 128, 128), noise_steps=1000, attention=2)
    assert 8.5e6 < sum(p.numel() for p in network.parameters()) < 9.7e6


def test_the_condition_of_every_block():
    network, given_to = small(classes=3), []
    network.down[0].register_forward_hook(lambda _, given, made: given_to.append(given[1]))
    x, t, y = normal(2, 2, 8, 8), torch.tensor([2, 7]), torch.tensor([1, 3])
    network(x, t, y)
    first, _, second = network.time
    codes = sinusoidal(10, 4)[t]
    time = second(silu(first(codes)))
    torch.testing.assert_close(given_to[0], time + network.label.weight[y])
    network(x, t)
    torch.testing.assert_close(given_to[1], time + network.label.weight[3])  # none of the classes


def test_step_and_class_change_the_noise():
    network, x = small(classes=3), normal(1, 2, 8, 8)
    one, two = torch.tensor([1]), torch.tensor([2])
    base = network(x, one, one)
    assert (network(x, two, one) - base).abs().max() > 1e-6
    assert (network(x, one, two) - base).abs().max() > 1e-6
    assert torch.equal(network(x, one, torch.tensor([3])), network(x, one))


def test_every_output_on_the_way_down_is_read_on_the_way_up():
    network = small()
    x = normal(1, 2, 8, 8).requires_grad_()
    kept = [network.first, *network.down]
    before = network(x, torch.tensor([3])).detach()
    for part in kept[:-1]:
        handle = part.register_forward_hook(lambda _, given, made: made + 0.1)
        assert not torch.allclose(network(x, torch.tensor([3])), before)
        handle.remove()
    used = [part for part in network.up if isinstance(part, TimeBlock)]
    assert len(used) == len(kept)


# --------------------------------------------------------------------------------------- guidance


def test_guidance_goes_from_any_class_beyond_one():
    network = small(classes=3)
    x, t, y = normal(2, 2, 8, 8), torch.tensor([2, 7]), torch.tensor([1, 2])
    of_any, of_class = network(x, t), network(x, t, y)
    for w, wanted in ((0.0, of_any), (1.0, of_class), (3.0, 3 * of_class - 2 * of_any)):
        torch.testing.assert_close(guided_noise(network, x, t, y, w=w, none=3), wanted)
    each = guided_noise(network, x, t, y, w=torch.tensor([0.0, 1.0]).double(), none=3)
    torch.testing.assert_close(each, torch.stack([of_any[0], of_class[1]]))


# ----------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("side", [(30, 30), (8, 10), (4, 8)])
def test_images_that_cannot_be_halved_are_refused(side):
    with pytest.raises(ValueError, match=r"images \(\d+ x \d+\) must have sides from 8 up that 4"):
        small()(normal(1, 2, *side), torch.tensor([1]))
    with pytest.raises(ValueError, match=r"give size=32, or fewer widths"):
        small().check(31, 31)


@pytest.mark.parametrize("widths", [(), (3, 4), (4, 1), (0,)])
def test_widths_that_are_none_are_refused(widths):
    with pytest.raises(ValueError, match=r"widths \(.*\) must be one or more numbers from 2 up"):
        NoiseUNet(1, widths, noise_steps=5)

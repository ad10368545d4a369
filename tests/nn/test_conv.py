"""Convolutions with what follows them, against unfolded matrix products."""

import pytest
import torch
from torch import nn
from torch.nn.functional import unfold

from everynet.nn.conv import ConvNormReLU, ConvReLU, init_he_weights


def convolved(x, conv):
    """As one matrix product for all patches."""
    (kernel, _), (stride, _), (border, _) = conv.kernel_size, conv.stride, conv.padding
    patches = unfold(x, kernel, padding=border, stride=stride)  # batch channels*k*k places
    made = conv.weight.reshape(len(conv.weight), -1) @ patches
    made = made if conv.bias is None else made + conv.bias[:, None]
    side = (x.shape[-1] + 2 * border - kernel) // stride + 1
    return made.reshape(len(x), len(conv.weight), -1, side)


@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (3, 1), (5, 2)])
def test_a_rectified_convolution(kernel, stride):
    torch.manual_seed(0)
    layer = ConvReLU(3, 4, kernel, stride).double()
    x = torch.randn(2, 3, 7, 7, dtype=torch.float64)
    torch.testing.assert_close(layer(x), convolved(x, layer.conv).clamp(min=0))
    assert (layer(x) > 0).any()
    assert layer(x).shape[-1] == -(-7 // stride)


@pytest.mark.parametrize("training", [True, False])
def test_a_normalised_convolution(training):
    torch.manual_seed(0)
    layer = ConvNormReLU(3, 4, 3).double().train(training)
    norm = layer.norm
    for values in (norm.weight.data, norm.bias.data, norm.running_mean):
        values.normal_()
    norm.running_var.uniform_(1, 3)
    x = torch.randn(5, 3, 6, 6, dtype=torch.float64)
    a = convolved(x, layer.conv)
    mean = a.mean((0, 2, 3)) if training else norm.running_mean.clone()
    variance = a.var((0, 2, 3), correction=0) if training else norm.running_var.clone()
    n = (a - mean[:, None, None]) / (variance + norm.eps).sqrt()[:, None, None]
    n = n * norm.weight[:, None, None] + norm.bias[:, None, None]
    torch.testing.assert_close(layer(x), n.clamp(min=0))
    assert layer.conv.bias is None


@pytest.mark.parametrize("groups", [1, 4])
def test_tinit_he_weights_keeps_the_mean_of_squares(groups):
    """Through a rectifier and a layer: of 40,000 numbers the mean of squares is known to 2 %."""
    torch.manual_seed(0)
    layers = nn.ModuleList([nn.Conv2d(64, 128, 3, groups=groups), nn.Linear(1000, 400)])
    layers[0].bias.data.fill_(7)
    init_he_weights(layers)
    x = torch.randn(4, 64, 12, 12).abs() * torch.randint(0, 2, (4, 64, 12, 12))  # max(0, normal)
    made = layers[0](x)
    assert made.square().mean().item() == pytest.approx(2 * x.square().mean().item(), rel=0.1)
    assert layers[1].weight.std().item() == pytest.approx((2 / 1000) ** 0.5, rel=0.02)
    assert not layers[0].bias.any()
    assert not layers[1].bias.any()

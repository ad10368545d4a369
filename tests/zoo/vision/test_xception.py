"""Xception: the paper's counts, separable convolutions against whole ones, and what it learns."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import conv2d, max_pool2d

import everynet
from everynet.data.dataset import Data
from everynet.nn.layers import layer_table
from everynet.recipes.catalog import find
from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.vision.xception import (
    Halving,
    Middle,
    Separable,
    SmallXception,
    Xception,
    draw_costs,
    share,
)


def shaken(net, seed=0):
    """In float64, with gains, biases and statistics of its own."""
    torch.manual_seed(seed)
    for name, tensor in (*net.named_parameters(), *net.named_buffers()):
        if tensor.is_floating_point():
            draw = torch.rand_like if name.endswith("running_var") else torch.randn_like
            tensor.data += 0.3 * draw(tensor)
    return net.double().eval()


def paper():
    with torch.device("meta"):
        return Xception(3, 1000)


# --------------------------------------------------------------------------------------- counts


@pytest.mark.covers("C22")
def test_counts_of_the_paper():
    """Of the reference in Keras: 22,910,480 numbers, 54,528 of them running statistics."""
    net = paper()
    assert sum(p.numel() for p in net.parameters()) == 22_855_952
    statistics = [b for b in net.buffers() if b.dim()]
    assert sum(b.numel() for b in statistics) == 54_528
    separable = [m for m in net.modules() if isinstance(m, Separable)]
    stem = [m for m in net.stem if isinstance(m, nn.Conv2d)]
    assert len(separable) == 34
    assert len(separable) + len(stem) == 36
    skips = [m for m in net.modules() if isinstance(m, Middle | Halving)]
    assert len(skips) + 2 == 14  # and the stem, and the last two layers
    assert [len(net.entry_flow) + 1, len(net.middle_flow), len(net.exit_flow) - 1] == [4, 8, 2]


def test_shapes_of_the_paper():
    rows = layer_table(paper(), (3, 299, 299))
    shapes = [row.shape for row in rows if row.name.endswith("flow.0.norm")]
    shapes += [row.shape for row in rows if row.name in ("stem.0", "stem.3")]
    assert shapes == [(128, 74, 74), (1024, 10, 10), (32, 149, 149), (64, 147, 147)]
    pools = [row.shape for row in rows if row.kind == "MaxPool2d"]
    assert pools == [(128, 74, 74), (256, 37, 37), (728, 19, 19), (1024, 10, 10)]
    assert rows[-1].shape == (1000,)


# ------------------------------------------------------------------------------------ equations


def normed(a, norm):
    """(3) after training."""
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    return (a - norm.running_mean[:, None, None]) * scale[:, None, None] + norm.bias[:, None, None]


def separated(x, layer):
    """(1) to (3) as one convolution, whose kernel is the product of the two."""
    kernel = torch.einsum(
        "kc,cij->kcij", layer.pointwise.weight[..., 0, 0], layer.depthwise.weight[:, 0]
    )
    return normed(conv2d(x.clamp(min=0), kernel, padding=1), layer.norm)


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), channels=st.integers(1, 4), width=st.integers(1, 5))
def test_a_separable_layer_is_a_convolution_with_a_product_for_its_kernel(seed, channels, width):
    layer = shaken(Separable(channels, width), seed)
    x = torch.randn(2, channels, 5, 6, dtype=torch.float64)
    torch.testing.assert_close(layer(x), separated(x, layer))


def test_a_separable_layer_in_training_uses_the_statistics_of_the_batch():
    layer = shaken(Separable(3, 4)).train()
    x = torch.randn(4, 3, 5, 5, dtype=torch.float64)
    made = layer(x)
    torch.testing.assert_close(made.mean((0, 2, 3)), layer.norm.bias)
    torch.testing.assert_close(
        made.var((0, 2, 3), correction=0), layer.norm.weight**2, rtol=1e-3, atol=0
    )


@settings(max_examples=25)
@given(
    channels=st.integers(1, 40),
    outputs=st.integers(1, 40),
    kernel=st.sampled_from([1, 3, 5, 7]),
    side=st.integers(1, 9),
)
def test_the_share_of_multiplications(channels, outputs, kernel, side):
    with torch.device("meta"):
        whole = nn.Conv2d(channels, outputs, kernel, padding=kernel // 2)
        parts = nn.Sequential(
            nn.Conv2d(channels, channels, kernel, padding=kernel // 2, groups=channels),
            nn.Conv2d(channels, outputs, 1),
        )
    work = [
        sum(row.multiplications for row in layer_table(net, (channels, side, side)))
        for net in (parts, whole)
    ]
    assert work[0] / work[1] == pytest.approx(share(outputs, kernel))


def test_a_middle_module_adds_to_what_it_is_given():
    module = shaken(Middle(4))
    x = torch.randn(2, 4, 5, 5, dtype=torch.float64)
    f = x
    for layer in module.layers:
        f = separated(f, layer)
    torch.testing.assert_close(module(x), f + x)
    module.layers[2].norm.weight.data.zero_()
    module.layers[2].norm.bias.data.zero_()
    assert torch.equal(module(x), x)
    assert len(module.layers) == 3


@pytest.mark.parametrize("side", [6, 7])
def test_a_halving_module_has_a_skip_of_its_own(side):
    module = shaken(Halving(3, 4, 5))
    x = torch.randn(2, 3, side, side, dtype=torch.float64)
    f = separated(separated(x, module.layers[0]), module.layers[1])
    f = max_pool2d(f, 3, 2, padding=1)
    skipped = torch.einsum("kc,bcij->bkij", module.skip.weight[..., 0, 0], x[..., ::2, ::2])
    torch.testing.assert_close(module(x), f + normed(skipped, module.norm))
    assert f.shape[-1] == -(-side // 2)


@pytest.mark.parametrize(("kind", "side"), [(Xception, 40), (SmallXception, 18)])
def test_the_network_is_its_flows(kind, side):
    net = shaken(kind(2, 5, width=4, middle=2))
    x = torch.randn(2, 2, side, side, dtype=torch.float64)
    stride, border = (2, 0) if kind is Xception else (1, 1)
    h = conv2d(x, net.stem[0].weight, stride=stride, padding=border)
    h = normed(h, net.stem[1]).clamp(min=0)
    h = normed(conv2d(h, net.stem[3].weight, padding=border), net.stem[4]).clamp(min=0)
    for module in (*net.entry_flow, *net.middle_flow, net.exit_flow[0]):
        h = module(h)
    for layer in net.exit_flow[1:]:
        h = separated(h, layer)
    assert (h < 0).any()
    v = h.clamp(min=0).mean((2, 3))
    expected = v @ net.output.weight.T + net.output.bias
    torch.testing.assert_close(net(x), expected, atol=1e-8, rtol=1e-8)
    assert len(net.entry_flow) == {Xception: 3, SmallXception: 2}[kind]


# --------------------------------------------------------------------------------------- recipe


def test_the_picture_of_costs_shows_a_ninth():
    drawn, found = draw_costs(paper(), (3, 299, 299))
    (axes,) = drawn.axes
    whole, parts = axes.containers
    ratios = [part.get_width() / all_.get_width() for part, all_ in zip(parts, whole, strict=True)]
    assert len(ratios) == 34
    assert min(ratios) < found["share"] < max(ratios)
    assert ratios[0] == pytest.approx(1 / 128 + 1 / 9)
    assert max(ratios) < 1 / 8
    labels = [text.get_text() for text in axes.get_yticklabels()]
    assert labels[:3] == ["entry 0.0", "entry 0.1", "entry 1.0"]
    assert labels[-1] == "exit 2"
    # a 3 x 3 convolution of 64 to 128 maps of 147 x 147
    assert whole[0].get_width() == pytest.approx(147**2 * 9 * 64 * 128)


def test_arguments_it_refuses():
    with pytest.raises(ValueError, match=r"width \(30\) must be a multiple of 4, .*; do width=28"):
        Xception(3, 10, width=30)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"width": 6}, r"width \(6\) must be a multiple of 4"),
        ({"middle": -1}, r"middle \(-1\) must be at least 0"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        everynet.recipe("xception", **fields)


@pytest.mark.parametrize(("name", "least"), [("xception", 32), ("xception-cifar", 8)])
def test_the_least_images(name, least):
    recipe = replace(find(name), width=4, middle=0)
    data = Data.described({"shape": [1, least, least], "classes": ["a", "b"]})
    assert recipe.model(data).eval()(torch.zeros(2, 1, least, least)).shape == (2, 2)
    small = Data.described({"shape": [1, least, least - 1], "classes": ["a", "b"]})
    message = rf"size \({least - 1}\) must be at least {least}, because .*; do size={least}"
    with pytest.raises(UserError, match=message):
        recipe.model(small)


# ------------------------------------------------------------------------------------- learning


@pytest.mark.slow
def test_learns_digits(tmp_path):
    assert run(find("xception"), tmp_path).reached


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.covers("C22")
def test_learns_cifar(tmp_path):
    """Hours on the CPU; about a minute on a GPU."""
    if not torch.cuda.is_available():
        pytest.skip("the whole of CIFAR-10 needs a GPU")
    assert run(find("xception-cifar"), tmp_path, precision="bf16").reached

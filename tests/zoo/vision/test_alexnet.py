"""AlexNet: the paper's counts and sizes, its equations written out, and what it learns."""

import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d

import everynet
from everynet.data.dataset import Data
from everynet.nn.layers import layer_table
from everynet.recipes.catalog import find
from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.vision.alexnet import AlexNet, SmallAlexNet


def size_of(module):
    return sum(p.numel() for p in module.parameters())


# --------------------------------------------------------------------------------------- counts


@pytest.mark.covers("C14", "C16")
@pytest.mark.parametrize(
    ("groups", "parameters", "multiplications"),
    [(1, 62_378_344, 1_135_256_096), (2, 60_965_224, 724_406_816)],
)
def test_counts_of_the_paper(groups, parameters, multiplications):
    with torch.device("meta"):
        net = AlexNet(3, 1000, groups=groups)
    assert size_of(net) == parameters
    rows = [r for r in layer_table(net, (3, 227, 227)) if r.kind in ("Conv2d", "Linear")]
    assert sum(row.multiplications for row in rows) == multiplications
    assert sum(row.parameters for row in rows) == parameters


def test_sides_and_the_first_dense_layer():
    with torch.device("meta"):
        net = AlexNet(3, 1000)
    rows = layer_table(net, (3, 227, 227))
    sides = [row.shape[1] for row in rows if row.kind in ("Conv2d", "MaxPool2d")]
    assert sides == [55, 27, 27, 13, 13, 13, 13, 6]
    assert net.f6[1].weight.shape == (4096, 9216)
    assert sum(map(size_of, (net.f6, net.f7, net.output))) == 58_631_144


@pytest.mark.parametrize(("network", "least"), [(AlexNet, 67), (SmallAlexNet, 15)])
def test_the_least_image_leaves_one_pixel(network, least):
    assert network.least() == least
    assert network.last_size(least) == 1
    assert network.last_size(least - 1) < 1
    assert network.last_size({67: 227, 15: 32}[least]) == {67: 6, 15: 3}[least]


# ------------------------------------------------------------------------------------ equations


def convolved(x, conv, groups):
    """(1), group by group."""
    parts = zip(x.chunk(groups, 1), conv.weight.chunk(groups), conv.bias.chunk(groups), strict=True)
    made = [conv2d(part, w, b, conv.stride, conv.padding) for part, w, b in parts]
    return torch.cat(made, 1)


def normalised(h):
    """(3), map by map."""
    made = []
    for k in range(h.shape[1]):
        squares = sum(h[:, j] ** 2 for j in range(max(0, k - 2), min(h.shape[1], k + 3)))
        made.append(h[:, k] / (2 + 1e-4 * squares) ** 0.75)
    return torch.stack(made, 1)


def pooled(r):
    """(4)."""
    side = (r.shape[-1] - 3) // 2 + 1
    shifted = [
        r[..., i : i + 2 * side - 1 : 2, j : j + 2 * side - 1 : 2]
        for i in range(3)
        for j in range(3)
    ]
    return torch.stack(shifted).amax(0)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("network", "size"), [(AlexNet, 99), (SmallAlexNet, 23)])
def test_it_is_its_equations(network, size, groups):
    torch.manual_seed(0)
    net = network(3, 5, groups=groups, width=6, size=size).double().eval()
    for p in net.parameters():
        p.data += 0.01 * torch.randn_like(p)  # biases too
    x = 100 * torch.randn(2, 3, size, size, dtype=torch.float64)  # so large that (3) acts
    h = convolved(x, net.c1[0], 1).clamp(min=0)
    m = pooled(normalised(h))
    h = convolved(m, net.c2[0], groups).clamp(min=0)
    m = pooled(normalised(h))
    h = convolved(m, net.c3[0], 1).clamp(min=0)
    h = convolved(h, net.c4[0], groups).clamp(min=0)
    h = convolved(h, net.c5[0], groups).clamp(min=0)
    h = pooled(h).flatten(1)
    for dense in (net.f6[1], net.f7[1]):
        h = (h @ dense.weight.T + dense.bias).clamp(min=0)
    expected = h @ net.output.weight.T + net.output.bias
    torch.testing.assert_close(net(x), expected, atol=1e-9, rtol=1e-9)
    if network is SmallAlexNet:
        assert net.c1[0].kernel_size == (5, 5)
        assert convolved(x, net.c1[0], 1).shape[-1] == size


def test_normalisation_is_a_competition_of_five_maps():
    norm = AlexNet(1, 2, width=3, size=67).norm.double()
    h = torch.zeros(1, 9, 1, 1, dtype=torch.float64)
    h[0, 4] = 200.0
    alone = 200 / (2 + 1e-4 * 200**2) ** 0.75
    assert norm(h)[0, 4].item() == pytest.approx(alone, rel=1e-12)
    for other, suppressed in ((2, True), (6, True), (1, False), (7, False)):
        both = h.clone()
        both[0, other] = 100.0
        assert (norm(both)[0, 4].item() < 0.99 * alone) == suppressed
    torch.testing.assert_close(norm(h / 1e6), h / 1e6 / 2**0.75)


def test_dropout_leaves_out_half_of_the_dense_inputs_while_training():
    torch.manual_seed(0)
    net = AlexNet(1, 2, width=3, size=67)
    seen = {}
    for name in ("f6", "f7"):
        getattr(net, name)[1].register_forward_pre_hook(
            lambda _, given, name=name: seen.update({name: given[0]})
        )
    x = torch.randn(64, 1, 67, 67)
    net.eval()(x)
    whole = dict(seen)
    net.train()(x)
    half = whole["f6"] > 0
    ratio = (seen["f6"] / whole["f6"])[half]
    assert set(ratio.round(decimals=4).tolist()) == {0.0, 2.0}
    assert (ratio == 0).double().mean().item() == pytest.approx(0.5, abs=0.1)
    assert (seen["f7"] == 0).double().mean() > (whole["f7"] == 0).double().mean() + 0.1
    assert [m.p for m in net.modules() if isinstance(m, nn.Dropout)] == [0.5, 0.5]


# --------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"width": 10}, r"width \(10\) must be divisible by 3, .*; do width=6"),
        ({"width": 9, "groups": 2}, r"width \(9\) must be divisible by 6, .*; do width=6"),
        ({"size": 66}, r"size \(66\) must be at least 67, .*; do size=67"),
    ],
)
def test_arguments_it_refuses(arguments, message):
    with torch.device("meta"), pytest.raises(ValueError, match=message):
        AlexNet(3, 10, **arguments)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"groups": 3}, r"groups \(3\) must be 1 or 2"),
        ({"width": 0}, r"width \(0\) must be a multiple of 3"),
        ({"width": 9, "groups": 2}, r"width \(9\) must be a multiple of 6"),
        ({"dropout": 1.0}, r"dropout \(1.0\) must be at least 0 and below 1"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        everynet.recipe("alexnet", **fields)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("alexnet", (64, 64), r"images of 64x64\) must give squares of at least 67 .*; do size=67"),
        ("alexnet", (80, 100), r"images of 100x80\) must give squares of .*; do size=100"),
        ("alexnet-cifar", (14, 14), r"images of 14x14\) must give .* at least 15 .*; do size=15"),
    ],
)
def test_images_that_do_not_fit(name, shape, message):
    data = Data.described({"shape": [1, *shape], "classes": ["a", "b"]})
    with pytest.raises(UserError, match=message):
        find(name).model(data)


# ------------------------------------------------------------------------------------- learning


@pytest.mark.slow
def test_learns_digits(tmp_path):
    assert run(find("alexnet"), tmp_path).reached


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.covers("C16")
def test_learns_cifar(tmp_path):
    """Hours on the CPU; about a minute on a GPU."""
    if not torch.cuda.is_available():
        pytest.skip("the whole of CIFAR-10 needs a GPU")
    assert run(find("alexnet-cifar"), tmp_path, precision="bf16").reached

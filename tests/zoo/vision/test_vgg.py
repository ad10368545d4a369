"""VGG: the paper's counts, torchvision's names, the equations written out, and what it learns."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.functional import unfold

import everynet
from everynet.data.dataset import Data
from everynet.nn.layers import layer_table
from everynet.recipes.catalog import find
from everynet.recipes.trained import Trained
from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.training.loop import begin
from everynet.training.start import Start
from everynet.zoo.vision.vgg import VGG, SmallVGG, draw_costs

# Where torchvision has its convolutions: https://github.com/pytorch/vision, models/vgg.py.
CONVOLUTIONS = {
    11: (0, 3, 6, 8, 11, 13, 16, 18),
    13: (0, 2, 5, 7, 10, 12, 15, 17, 20, 22),
    16: (0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28),
    19: (0, 2, 5, 7, 10, 12, 14, 16, 19, 21, 23, 25, 28, 30, 32, 34),
}


def size_of(module):
    return sum(p.numel() for p in module.parameters())


def on_meta(depth):
    with torch.device("meta"):
        return VGG(3, 1000, depth=depth)


# --------------------------------------------------------------------------------------- counts


@pytest.mark.covers("C17")
@pytest.mark.parametrize(
    ("depth", "parameters"),
    [(11, 132_863_336), (13, 133_047_848), (16, 138_357_544), (19, 143_667_240)],
)
def test_parameters_and_names_are_those_of_torchvision(depth, parameters):
    net = on_meta(depth)
    assert size_of(net) == parameters
    assert size_of(net.classifier) == 123_642_856
    layers = [f"features.{n}" for n in CONVOLUTIONS[depth]] + [f"classifier.{n}" for n in (0, 3, 6)]
    assert list(net.state_dict()) == [f"{n}.{part}" for n in layers for part in ("weight", "bias")]
    assert len(layers) == depth


@pytest.mark.covers("C14", "C17")
def test_multiplications_and_shapes_of_sixteen_layers():
    rows = layer_table(on_meta(16), (3, 224, 224))
    weighted = [row for row in rows if row.kind in ("Conv2d", "Linear")]
    assert sum(row.multiplications for row in weighted) == 15_470_264_320
    assert sum(row.multiplications for row in weighted[-3:]) == 123_633_664
    pools = [row.shape for row in rows if row.kind == "MaxPool2d"]
    assert pools == [(64, 112, 112), (128, 56, 56), (256, 28, 28), (512, 14, 14), (512, 7, 7)]


def test_two_small_filters_see_what_one_large_does():
    for layers, seen in ((2, 5), (3, 7)):
        stack = nn.Sequential(*(nn.Conv2d(4, 4, 3, padding=1, bias=False) for _ in range(layers)))
        assert layer_table(stack, (4, 9, 9))[-1].receptive_field == (seen, seen)
    assert size_of(stack) / 4**2 == 27


# ------------------------------------------------------------------------------------ equations


def convolved(x, conv):
    """(1) as one matrix product for all patches."""
    patches = unfold(x, 3, padding=1)  # batch channels*9 places
    made = conv.weight.reshape(len(conv.weight), -1) @ patches
    made = made if conv.bias is None else made + conv.bias[:, None]
    return made.reshape(len(x), len(conv.weight), *x.shape[2:])


def pooled(h):
    """(3), where sides are even."""
    return h.unflatten(3, (-1, 2)).unflatten(2, (-1, 2)).amax((3, 5))


def normed(a, norm):
    """(6) after training."""
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    return (a - norm.running_mean[:, None, None]) * scale[:, None, None] + norm.bias[:, None, None]


def shaken(net):
    """In float64, with biases and statistics of its own."""
    for tensor in (*net.parameters(), *net.buffers()):
        if tensor.is_floating_point():
            tensor.data += 0.2 * torch.rand_like(tensor)
    return net.double().eval()


STAGES = {11: (1, 1, 2, 2, 2), 16: (2, 2, 3, 3, 3)}


@pytest.mark.parametrize("depth", STAGES)
def test_vgg_is_its_equations(depth):
    torch.manual_seed(0)
    net = shaken(VGG(2, 5, depth=depth, width=1))
    x = torch.randn(2, 2, 224, 224, dtype=torch.float64)  # of which 7 x 7 are left, as they are
    convolutions = iter(m for m in net.features if isinstance(m, nn.Conv2d))
    m = x
    for layers in STAGES[depth]:
        for _ in range(layers):
            m = convolved(m, next(convolutions)).clamp(min=0)  # and (2)
        m = pooled(m)
    h = m.flatten(1)
    for number in (0, 3):
        dense = net.classifier[number]
        h = (h @ dense.weight.T + dense.bias).clamp(min=0)
    expected = h @ net.classifier[6].weight.T + net.classifier[6].bias
    torch.testing.assert_close(net(x), expected, atol=1e-9, rtol=1e-9)


def test_small_vgg_is_its_equations():
    torch.manual_seed(0)
    net = shaken(SmallVGG(2, 5, depth=16, width=2))
    x = torch.randn(2, 2, 64, 64, dtype=torch.float64)
    convolutions = iter(m for m in net.features if isinstance(m, nn.Conv2d))
    norms = iter(m for m in net.features if isinstance(m, nn.BatchNorm2d))
    m = x
    for layers in STAGES[16]:
        for _ in range(layers):
            m = normed(convolved(m, next(convolutions)), next(norms)).clamp(min=0)
        m = pooled(m)
    dense = net.classifier[1]
    expected = m.sum((2, 3)) / 4 @ dense.weight.T + dense.bias
    torch.testing.assert_close(net(x), expected, atol=1e-9, rtol=1e-9)


def test_dropout_stands_behind_both_dense_layers():
    net = VGG(1, 2, depth=11, width=1, dropout=0.3)
    kinds = [type(m).__name__ for m in net.classifier]
    assert kinds == ["Linear", "ReLU", "Dropout"] * 2 + ["Linear"]
    torch.manual_seed(0)
    h = torch.ones(1, 10_000)
    left = net.classifier[2].train()(h)
    torch.testing.assert_close(left.unique(), torch.tensor([0.0, 1 / 0.7]))


# --------------------------------------------------------------------------------------- recipe


def test_a_file_of_weights_of_this_layout_is_started_from(tmp_path):
    """A reference by torch.nn alone; its last layer, of other classes, is left out."""
    recipe = replace(
        find("vgg").tiny(), width=2, start=Trained(str(tmp_path / "weights.safetensors"))
    )
    data = Data.described({"shape": [1, 32, 32], "classes": [str(n) for n in range(10)]})
    torch.manual_seed(0)
    layers, channels = {}, 1
    for number, width in zip(CONVOLUTIONS[11], (2, 4, 8, 8, 16, 16, 16, 16), strict=True):
        layers[f"features.{number}"] = nn.Conv2d(channels, width, 3, padding=1)
        channels = width
    layers["classifier.0"] = nn.Linear(16 * 49, 128)
    layers["classifier.3"] = nn.Linear(128, 128)
    layers["classifier.6"] = nn.Linear(128, 1000)
    weights = {f"{n}.{k}": v for n, layer in layers.items() for k, v in layer.state_dict().items()}
    save_file(weights, tmp_path / "weights.safetensors")
    net = begin(recipe, data, start=Start.of(recipe, data.spec)).model.eval()
    x = torch.randn(2, 1, 32, 32)
    h = x
    for number in CONVOLUTIONS[11]:
        h = layers[f"features.{number}"](h).relu()
        h = nn.functional.max_pool2d(h, 2) if number in (0, 3, 8, 13, 18) else h
    h = h.expand(-1, -1, 7, 7).flatten(1)
    h = layers["classifier.3"](layers["classifier.0"](h).relu()).relu()
    y = h @ net.classifier[6].weight.T + net.classifier[6].bias
    torch.testing.assert_close(net(x), y, atol=1e-5, rtol=1e-4)
    assert net.classifier[6].out_features == 10


def test_the_picture_of_costs_tells_where_the_parameters_sit():
    drawn, shares = draw_costs(on_meta(16), (3, 224, 224))
    parameters, multiplications = drawn.axes
    _, texts = parameters.get_legend_handles_labels()
    assert texts == ["convolutions: 14.7 M", "dense: 123.6 M"]
    _, texts = multiplications.get_legend_handles_labels()
    assert texts == ["convolutions: 15.3 G", "dense: 123.6 M"]
    assert [text.get_text() for text in parameters.get_yticklabels()][-1] == "classifier.6"
    assert shares["dense"] == pytest.approx(123_642_856 / 138_357_544)
    assert shares["convolutions"] == pytest.approx(1 - 123_633_664 / 15_470_264_320)


def test_arguments_it_refuses():
    with pytest.raises(ValueError, match=r"depth \(12\) must be 11, 13, 16 or 19, .*; do depth=16"):
        VGG(3, 10, depth=12)
    with pytest.raises(TypeError, match=r"missing .* required .*argument: 'classes'"):
        VGG(19)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"depth": 18}, r"depth \(18\) must be 11, 13, 16 or 19; do depth=16"),
        ({"width": 0}, r"width \(0\) must be at least 1"),
        ({"dropout": -0.1}, r"dropout \(-0.1\) must be at least 0 and below 1"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        everynet.recipe("vgg", **fields)


def test_images_that_are_too_small():
    data = Data.described({"shape": [3, 40, 31], "classes": ["a", "b"]})
    with pytest.raises(UserError, match=r"size \(31\) must be at least 32, .*; do size=32"):
        find("vgg-cifar").model(data)


# ------------------------------------------------------------------------------------- learning


@pytest.mark.slow
def test_learns_digits(tmp_path):
    assert run(find("vgg"), tmp_path).reached


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.covers("C17")
def test_learns_cifar(tmp_path):
    """Hours on the CPU; about a minute on a GPU."""
    if not torch.cuda.is_available():
        pytest.skip("the whole of CIFAR-10 needs a GPU")
    assert run(find("vgg-cifar"), tmp_path, precision="bf16").reached

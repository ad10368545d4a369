"""ResNet: its counts and names, each equation by hand, weights of others, and what it refuses.

The numbers of parameters are those of torchvision's documentation (18 to 152 layers), and of the
paper's networks for CIFAR with shortcuts that have no weights.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn
from torch.nn.functional import conv2d, cross_entropy, max_pool2d

import everynet
from everynet.cli import main
from everynet.data.dataset import Data
from everynet.nn.layers import layer_table
from everynet.recipes.catalog import find
from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.vision.resnet import (
    BasicBlock,
    Bottleneck,
    CifarBlock,
    CifarResNet,
    PlainBlock,
    PlainNet,
    ResNet,
    conv,
    init_weights,
    residual_sizes,
)


def double(module, seed=0):
    """The module in float64 with weights, gains, biases and statistics of its own."""
    generator = torch.Generator().manual_seed(seed)
    for name, value in module.double().state_dict().items():
        if value.is_floating_point():
            drawn = torch.randn(value.shape, generator=generator, dtype=torch.float64)
            spread = max(1, value[0].numel()) ** 0.5 if value.dim() > 1 else 2.0
            value.copy_(drawn.abs() + 0.5 if "var" in name else drawn / spread)
    return module


def noise(*shape, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def parameters(module):
    return sum(p.numel() for p in module.parameters())


# ------------------------------------------------------------------------------ counts and names


@pytest.fixture
def shapes_only(monkeypatch):
    """Networks made here have no numbers; drawing none of them spares torch an import."""
    monkeypatch.setattr(nn.init, "normal_", lambda weight, std: weight)
    with torch.device("meta"):
        yield


@pytest.mark.covers("C20")
@pytest.mark.parametrize(
    ("depth", "count", "tensors"),
    [
        (18, 11_689_512, 122),
        (34, 21_797_672, 218),
        (50, 25_557_032, 320),
        (101, 44_549_160, 626),
        (152, 60_192_808, 932),
    ],
)
@pytest.mark.usefixtures("shapes_only")
def test_parameters_for_photographs(depth, count, tensors):
    net = ResNet(3, 1000, depth=depth)
    assert parameters(net) == count
    assert len(net.state_dict()) == tensors


@pytest.mark.covers("C20")
@pytest.mark.parametrize(
    ("kind", "depth", "count"),
    [
        (CifarResNet, 20, 269_722),
        (PlainNet, 20, 269_722),
        (CifarResNet, 56, 853_018),
        (CifarResNet, 110, 1_727_962),
        (CifarResNet, 1202, 19_421_274),
    ],
)
@pytest.mark.usefixtures("shapes_only")
def test_parameters_for_small_images(kind, depth, count):
    assert parameters(kind(3, 10, depth=depth)) == count


@pytest.mark.usefixtures("shapes_only")
def test_the_default_has_fifty_layers_named_as_others_name_them():
    shapes = {name: tuple(value.shape) for name, value in ResNet(3, 1000).state_dict().items()}
    wanted = {
        "conv1.weight": (64, 3, 7, 7),
        "bn1.running_mean": (64,),
        "layer1.0.conv1.weight": (64, 64, 1, 1),
        "layer1.0.downsample.0.weight": (256, 64, 1, 1),
        "layer1.0.downsample.1.running_var": (256,),
        "layer2.0.conv2.weight": (128, 128, 3, 3),
        "layer2.3.conv1.weight": (128, 512, 1, 1),
        "layer3.5.bn2.bias": (256,),
        "layer4.0.downsample.0.weight": (2048, 1024, 1, 1),
        "layer4.2.bn3.num_batches_tracked": (),
        "fc.weight": (1000, 2048),
        "fc.bias": (1000,),
    }
    assert {name: shapes[name] for name in wanted} == wanted
    assert "layer1.1.downsample.0.weight" not in shapes


@pytest.mark.usefixtures("shapes_only")
def test_layers_sizes_and_multiplications():
    """20 weighted layers; 1.81 G multiplications for 18 layers and 41 M for CIFAR's 20."""
    rows = layer_table(CifarResNet(3, 10), (3, 32, 32))
    photo = layer_table(ResNet(3, 1000, depth=18), (3, 224, 224))
    weighted = [row for row in rows if row.kind in ("Conv2d", "Linear")]
    assert len(weighted) == 20
    assert sum(row.multiplications for row in weighted) == 40_551_040
    shapes = [row.shape for row in rows if row.kind == "Conv2d"]
    assert [*dict.fromkeys(shapes)] == [(16, 32, 32), (32, 16, 16), (64, 8, 8)]
    products = [row.multiplications for row in photo if row.kind in ("Conv2d", "Linear")]
    assert sum(products) == 1_814_073_344
    assert photo[-1].receptive_field == (224, 224)


# ---------------------------------------------------------------------------- equations by hand


class ByHand:
    """Networks out of nothing but tensors by name, and equations (1) to (8)."""

    def __init__(self, tensors, *, training):
        self.tensors, self.training = tensors, training

    def norm(self, a, name):
        mean, var = (self.tensors[f"{name}.running_{what}"] for what in ("mean", "var"))
        if self.training:
            mean = a.mean((0, 2, 3))
            var = ((a - mean[:, None, None]) ** 2).mean((0, 2, 3))
        gain, bias = self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"]
        scale = gain / (var + 1e-5).sqrt()
        return (a - mean[:, None, None]) * scale[:, None, None] + bias[:, None, None]  # (1)

    def normed(self, x, name, number, stride=1):
        weight = self.tensors[f"{name}.conv{number}.weight"]
        made = conv2d(x, weight, stride=stride, padding=weight.shape[2] // 2)
        return self.norm(made, f"{name}.bn{number}")

    def branch(self, x, name, stride):
        if f"{name}.conv3.weight" not in self.tensors:
            return self.normed(self.normed(x, name, 1, stride).clamp(min=0), name, 2)  # (2)
        h = self.normed(x, name, 1).clamp(min=0)
        return self.normed(self.normed(h, name, 2, stride).clamp(min=0), name, 3)  # (3)

    def projected(self, x, name, stride):
        if f"{name}.downsample.0.weight" not in self.tensors:
            return x  # (5)
        made = conv2d(x, self.tensors[f"{name}.downsample.0.weight"], stride=stride)
        return self.norm(made, f"{name}.downsample.1")  # (6)

    def padded(self, x, made):
        seen = torch.zeros_like(made)
        seen[:, : x.shape[1]] = x if made.shape == x.shape else x[:, :, ::2, ::2]
        return seen  # (7)

    def last(self, h):
        return h.mean((2, 3)) @ self.tensors["fc.weight"].T + self.tensors["fc.bias"]

    def photographs(self, x, blocks):
        stem = conv2d(x, self.tensors["conv1.weight"], stride=2, padding=3)
        h = max_pool2d(self.norm(stem, "bn1").clamp(min=0), 3, 2, 1)
        for number, count in enumerate(blocks, 1):
            for block in range(count):
                name, stride = f"layer{number}.{block}", 2 if number > 1 and block == 0 else 1
                added = self.branch(h, name, stride)
                h = (self.projected(h, name, stride) + added).clamp(min=0)  # (4)
        return self.last(h)

    def small(self, x, blocks, *, residual):
        h = self.norm(conv2d(x, self.tensors["conv1.weight"], padding=1), "bn1").clamp(min=0)
        for number in (1, 2, 3):
            for block in range(blocks):
                stride = 2 if number > 1 and block == 0 else 1
                made = self.branch(h, f"layer{number}.{block}", stride)
                h = (made + self.padded(h, made) if residual else made).clamp(min=0)  # (4) (8)
        return self.last(h)


def compared(net, by_hand, x):
    """Values and gradients of all weights and of the input, equal to those by hand."""
    names = [name for name, _ in net.named_parameters()]
    given = [*net.parameters(), x.requires_grad_()]
    y = torch.arange(len(x)) % 3
    outputs = net(x), by_hand(x)
    torch.testing.assert_close(*outputs)
    ours, theirs = (torch.autograd.grad(cross_entropy(out, y), given) for out in outputs)
    for name, one, other in zip([*names, "x"], ours, theirs, strict=True):
        torch.testing.assert_close(one, other, msg=lambda said, name=name: name + said)
        assert one.abs().max() > 0, name


@pytest.mark.covers("C20")
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("depth", "blocks"), [(18, (2, 2, 2, 2)), (50, (3, 4, 6, 3))])
def test_networks_for_photographs_by_hand(depth, blocks, training):
    net = double(ResNet(3, 5, depth=depth, width=4)).train(training)
    hand = ByHand(net.state_dict(keep_vars=True), training=training)
    compared(net, lambda x: hand.photographs(x, blocks), noise(3, 3, 40, 33))


@pytest.mark.covers("C20")
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("kind", "residual"), [(CifarResNet, True), (PlainNet, False)])
def test_networks_for_small_images_by_hand(kind, residual, training):
    net = double(kind(2, 4, depth=14, width=3)).train(training)
    hand = ByHand(net.state_dict(keep_vars=True), training=training)
    compared(net, lambda x: hand.small(x, 2, residual=residual), noise(3, 2, 12, 9))


def test_running_statistics_follow_the_batches():
    net = CifarResNet(1, 2, depth=8, width=2).double()
    x = noise(4, 1, 6, 6)
    net(x)
    seen = conv2d(x, net.conv1.weight, padding=1).mean((0, 2, 3))
    torch.testing.assert_close(net.bn1.running_mean, 0.1 * seen)


@pytest.mark.parametrize("depth", [18, 50])
def test_channels_last_changes_nothing(depth):
    net = double(ResNet(3, 3, depth=depth, width=2)).eval()
    x = noise(2, 3, 33, 40)
    expected = net(x)
    net.to(memory_format=torch.channels_last)
    torch.testing.assert_close(net(x.to(memory_format=torch.channels_last)), expected)


# -------------------------------------------------------------------------------------- identity


BLOCKS = [(BasicBlock, 4, 4), (Bottleneck, 16, 4), (CifarBlock, 4, 4)]


@pytest.mark.covers("C20")
@pytest.mark.parametrize(("kind", "channels", "width"), BLOCKS)
@pytest.mark.parametrize("training", [False, True])
def test_a_block_that_adds_nothing_is_the_identity_of_what_is_not_negative(
    kind, channels, width, training
):
    block = double(kind(channels, width)).train(training)
    norm = block.bn3 if kind is Bottleneck else block.bn2
    norm.weight.data.zero_()
    norm.bias.data.zero_()
    x = noise(3, channels, 5, 6)
    assert torch.equal(block(x.abs()), x.abs())
    assert torch.equal(block(x), x.clamp(min=0))


@pytest.mark.covers("C20")
@pytest.mark.parametrize(("kind", "channels", "width"), BLOCKS)
def test_the_derivative_before_the_last_rectifier_is_one_and_what_is_added(kind, channels, width):
    """The last bias is so large that the rectifier lets all through."""
    block = double(kind(channels, width)).eval()
    (block.bn3 if kind is Bottleneck else block.bn2).bias.data.fill_(1e4)
    x = noise(1, channels, 2, 3)
    whole = torch.autograd.functional.jacobian(block, x).reshape(x.numel(), -1)
    added = torch.autograd.functional.jacobian(block.residual, x).reshape(x.numel(), -1)
    assert added.abs().max() > 0.01
    identity = torch.eye(x.numel(), dtype=torch.float64)
    torch.testing.assert_close(whole, identity + added, rtol=1e-8, atol=1e-10)


def test_a_plain_block_passes_nothing_on_unchanged():
    block = double(PlainBlock(4, 4)).eval()
    x = noise(2, 4, 5, 5).abs()
    torch.testing.assert_close(block(x), BasicBlock.residual(block, x).clamp(min=0))
    block.bn2.weight.data.zero_()
    block.bn2.bias.data.zero_()
    assert not block(x).any()


def test_a_shortcut_without_weights_takes_every_other_pixel_and_adds_empty_maps():
    shortcut = CifarBlock(2, 5, 2).downsample
    x = noise(2, 2, 5, 6)
    seen = shortcut(x)
    assert torch.equal(seen[:, :2], x[:, :, ::2, ::2])
    assert not seen[:, 2:].any()
    assert not list(shortcut.parameters())


def test_weights_at_tinit_he_weights():
    """Their variance is 2 / (outputs k^2); of n numbers it is known to sqrt(2 / n)."""
    torch.manual_seed(0)
    for channels, width, side in ((3, 64, 7), (64, 128, 1), (32, 64, 3)):
        made = conv(channels, width, side)
        made.apply(init_weights)
        n = made.weight.numel()
        ratio = made.weight.var().item() * width * side**2 / 2
        assert ratio == pytest.approx(1, abs=4 * (2 / n) ** 0.5)
    net = CifarResNet(3, 10, depth=8)
    spread = net.layer3[0].conv2.weight.detach().std()
    assert spread == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.02)
    assert net.bn1.weight.eq(1).all()


# ------------------------------------------------------------------------------- what blocks add


def test_how_much_each_block_adds():
    net = double(CifarResNet(2, 3, depth=8, width=3)).eval()
    x = noise(4, 2, 8, 8)
    sizes = residual_sizes(net, x)
    h = net.bn1(net.conv1(x)).relu()
    for number, block in enumerate((net.layer1[0], net.layer2[0], net.layer3[0])):
        for row, part in enumerate((block.downsample(h), block.residual(h))):
            assert sizes[row, number] == pytest.approx(part.square().mean().sqrt().item(), rel=1e-5)
        h = block(h)
    torch.testing.assert_close(sizes[2], sizes[1] / sizes[0])
    assert not net.layer1[0]._forward_pre_hooks
    spec = {"shape": [2, 8, 8], "classes": ["a", "b", "c"]}
    data = Data(dict.fromkeys(("train", "valid"), (x, torch.zeros(4).long())), spec)
    drawn, counts = find("resnet-cifar").picture_blocks(net, data, [])
    assert counts == {"smaller": float((sizes[1] < sizes[0]).sum()), "blocks": 3.0}
    left, right = drawn.axes
    shown = {line.get_label(): line.get_ydata() for axes in (left, right) for line in axes.lines}
    np.testing.assert_allclose(shown["shortcut, s(x)"], sizes[0].numpy())
    np.testing.assert_allclose(shown["residual, F(x)"], sizes[1].numpy())
    np.testing.assert_allclose(shown["F(x) / s(x)"], sizes[2].numpy())


# ---------------------------------------------------------------------------------------- recipes


@pytest.fixture
def photos(tmp_path):
    """A folder of photographs in two classes, of several sizes."""
    random = np.random.default_rng(0)
    for name, colour in (("lawn", (60, 160, 60)), ("brick", (170, 70, 50))):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(30):
            size = (30 + number % 5, 34, 3)
            pixels = random.normal(colour, 25, size).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    return tmp_path / "photos"


def test_fine_tuning_from_weights_of_others_is_one_command(photos, tmp_path, capsys):
    """Weights for 1,000 classes: all but the last layer are taken, and the run says so."""
    torch.manual_seed(3)
    theirs = ResNet(3, 1000, depth=18, width=4)
    save_file(theirs.state_dict(), tmp_path / "weights.safetensors")
    words = ["run", "resnet", f"data={photos}", "size=32", f"start={tmp_path}/weights.safetensors"]
    small = ["width=4", "steps=2", "lr=1e-9", "batch_size=4"]
    assert main([*words, *small, "--out", str(tmp_path / "runs"), "--device", "cpu"]) == 0
    said = capsys.readouterr()
    line = next(t for t in (said.out + said.err).splitlines() if "began from" in t)
    assert "120 of 122 tensors" in line
    assert "new: fc.weight, fc.bias" in line
    assert "left out: fc.bias, fc.weight" in line
    [folder] = (tmp_path / "runs").iterdir()
    net = everynet.load(folder)
    assert net.fc.weight.shape == (2, 32)
    for name, value in net.named_parameters():
        if "fc" not in name:
            torch.testing.assert_close(value, theirs.state_dict()[name], rtol=1e-3, atol=1e-6)


def test_weights_of_another_network_are_refused(photos, tmp_path):
    save_file({"features.0.weight": torch.zeros(3)}, tmp_path / "other.safetensors")
    recipe = everynet.recipe(
        "resnet", data=str(photos), size=16, start=str(tmp_path / "other.safetensors"), width=2
    )
    with pytest.raises(UserError, match="must hold weights that fit this network: none of its 1"):
        run(recipe, tmp_path / "runs")


def test_gains_are_decayed_too_so_that_a_block_can_fade_away():
    """With no gradient at all a step of decay shrinks every weight and gain alike."""
    recipe = replace(find("resnet-cifar").tiny(), optimizer="sgd", lr=0.5, weight_decay=0.1)
    net = recipe.model(Data.described({"shape": [1, 8, 8], "classes": ["a", "b"]}))
    before = [p.detach().clone() for p in net.parameters()]
    optimizer = recipe.optimizers(net)["main"]
    for p in net.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    for now, then in zip(net.parameters(), before, strict=True):
        torch.testing.assert_close(now.detach(), then * (1 - 0.5 * 0.1))


@pytest.mark.parametrize(("name", "stages"), [("resnet", 4), ("resnet-cifar", 3)])
def test_stages_and_blocks_are_drawn(name, stages):
    recipe = find(name).tiny()
    data = recipe.dataset()
    with torch.no_grad():
        drawn = recipe.draw(recipe.model(data).eval(), data, [])
    titles = [axes.get_title("left").split(":")[0] for axes in drawn["activations"].figure.axes[1:]]
    assert titles == ["conv1", *(f"layer{k + 1}" for k in range(stages)), "probability"]
    named = drawn["blocks"].figure.axes[0].get_legend_handles_labels()[1]
    marks = [name for name in named if name.startswith("stage")]
    assert marks == [f"stage {k}" for k in range(2, stages + 1)]


def test_a_plain_net_has_no_blocks_that_add():
    recipe = find("plain-cifar").tiny()
    data = recipe.dataset()
    with torch.no_grad():
        drawn = recipe.draw(recipe.model(data).eval(), data, [])
    assert "blocks" not in drawn
    assert "activations" in drawn


# ---------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("resnet", {"depth": 20}, r"depth \(20\) must be one of 18, 34, 50, 101, 152"),
        ("resnet", {"width": 0}, r"width \(0\) must be at least 1"),
        ("resnet", {"batch_size": 1}, r"batch_size \(1\) must be at least 2, because norms"),
        ("resnet-cifar", {"depth": 18}, r"depth \(18\) must be 6 n \+ 2, such as"),
        ("resnet-cifar", {"depth": 2}, r"depth \(2\) must be 6 n \+ 2, such as"),
        ("plain-cifar", {"width": 0}, r"width \(0\) must be at least 1"),
    ],
)
def test_settings_it_refuses(name, fields, message):
    with pytest.raises(UserError, match=message):
        replace(find(name), **fields)


def test_depths_that_the_networks_refuse():
    with pytest.raises(ValueError, match=r"depth \(20\) must be one of 18, 34, 50, 101, 152, beca"):
        ResNet(3, 10, depth=20)
    with pytest.raises(ValueError, match=r"depth \(21\) must be 6 n \+ 2 .* try 20"):
        CifarResNet(3, 10, depth=21)
    with pytest.raises(ValueError, match=r"depth \(0\) must be 6 n \+ 2 .* try 8"):
        PlainNet(3, 10, depth=0)


# -------------------------------------------------------------------------------------- learning


@pytest.mark.slow
@pytest.mark.covers("C20")
def test_learns_digits(tmp_path):
    assert run(find("resnet"), tmp_path).reached


@pytest.mark.slow
@pytest.mark.real_data
def test_residual_nets_learn_small_cifar(tmp_path):
    """A short run on a share of the set: well above the tenth of chance."""
    recipe = replace(
        find("resnet-cifar"),
        **{"data": "cifar10-small", "holdout": True, "steps": 300, "batch_size": 64},
        **{"warmup": 15, "eval_every": 300},
    )
    assert run(recipe, tmp_path).metrics["accuracy"] >= 0.35

"""GoogLeNet: the notes' multiplications, the paper's counts, its equations, and what it learns."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d, cross_entropy

import everynet
from everynet.data.dataset import Data
from everynet.data.images.augment import mixed_cross_entropy, mixup
from everynet.nn.layers import layer_table
from everynet.recipes.catalog import find
from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.vision.googlenet import (
    TABLE,
    AuxiliaryHead,
    GoogLeNet,
    Inception,
    NaiveInception,
    NormedInception,
    SmallGoogLeNet,
    draw_costs,
)


def size_of(module):
    return sum(p.numel() for p in module.parameters())


def shaken(net):
    """In float64, with biases and statistics of its own."""
    for tensor in (*net.parameters(), *net.buffers()):
        if tensor.is_floating_point():
            tensor.data += 0.1 * torch.rand_like(tensor)
    return net.double().eval()


# --------------------------------------------------------------------------------------- counts


@pytest.mark.covers("C14", "C18")
def test_multiplications_of_both_modules():
    """On 256 maps of 28 x 28, and how a figure for the second comes about that is too large."""
    with torch.device("meta"):
        naive, module = (
            NaiveInception(256, 128, 192, 96),
            Inception(256, 128, (64, 192), (64, 96), 64),
        )
    rows = layer_table(naive, (256, 28, 28))
    assert sum(row.multiplications for row in rows) == 854_196_224
    rows = layer_table(module, (256, 28, 28))
    work = {row.name: row.multiplications for row in rows if row.multiplications}
    assert len(work) == 6
    assert sum(work.values()) == 271_351_808
    assert work["three.1.conv"] == 28 * 28 * 64 * 9 * 192
    assert sum(work.values()) + work["three.1.conv"] == 358_055_936
    x = torch.empty(1, 256, 28, 28, device="meta")
    assert naive(x).shape == (1, 672, 28, 28)
    assert module(x).shape == (1, 480, 28, 28)


@pytest.mark.covers("C19")
def test_counts_and_shapes_of_the_paper():
    with torch.device("meta"):
        net = GoogLeNet(3, 1000)
    heads = size_of(net.head1) + size_of(net.head2)
    assert size_of(net) - heads == 6_998_552
    assert heads == 3_188_840 + 3_190_888
    rows = {row.name: row for row in layer_table(net, (3, 224, 224))}
    assert rows["stem.0.conv"].shape == (64, 112, 112)
    assert rows["stem.4.conv"].shape == (192, 56, 56)
    made = {}
    for name, module in net.inception.items():
        module.register_forward_hook(lambda m, x, y, name=name: made.update({name: y.shape[1:]}))
    answers = net.with_heads(torch.empty(1, 3, 224, 224, device="meta"))
    assert [y.shape for y in answers] == [(1, 1000)] * 3
    depths = [256, 480, 512, 512, 512, 528, 832, 832, 1024]
    sides = [28, 28, 14, 14, 14, 14, 14, 7, 7]
    assert made == {n: (d, s, s) for n, d, s in zip(TABLE, depths, sides, strict=True)}
    assert net.head1.dense[0].in_features == 128 * 4 * 4


# ------------------------------------------------------------------------------------ equations


def rectified(x, layer):
    """(1) of a layer with or without a norm."""
    conv = layer.conv
    a = conv2d(x, conv.weight, conv.bias, conv.stride, conv.kernel_size[0] // 2)
    if hasattr(layer, "norm"):
        norm = layer.norm
        a = (a - norm.running_mean[:, None, None]) / (norm.running_var + norm.eps).sqrt()[
            :, None, None
        ] * norm.weight[:, None, None] + norm.bias[:, None, None]
    return a.clamp(min=0)


def highest(x):
    """P: the highest of the 3 x 3 pixels around each."""
    padded = nn.functional.pad(x, (1, 1, 1, 1), value=-math.inf)
    height, width = x.shape[2:]
    shifted = [padded[..., i : i + height, j : j + width] for i in range(3) for j in range(3)]
    return torch.stack(shifted).amax(0)


def inception(x, module):
    """(5)."""
    return torch.cat(
        [
            rectified(x, module.one),
            rectified(rectified(x, module.three[0]), module.three[1]),
            rectified(rectified(x, module.five[0]), module.five[1]),
            rectified(highest(x), module.pool[1]),
        ],
        1,
    )


def response(a):
    """(2), map by map."""
    made = []
    for k in range(a.shape[1]):
        squares = sum(a[:, j] ** 2 for j in range(max(0, k - 2), min(a.shape[1], k + 3)))
        made.append(a[:, k] / (1 + 2e-5 * squares) ** 0.75)
    return torch.stack(made, 1)


def halved(x):
    """(3): every second of the highest."""
    return highest(x)[..., ::2, ::2]


def test_the_naive_module_is_its_equation():
    torch.manual_seed(0)
    module = shaken(NaiveInception(4, 2, 3, 5))
    x = torch.randn(2, 4, 7, 7, dtype=torch.float64)
    parts = [rectified(x, part) for part in (module.one, module.three, module.five)]
    torch.testing.assert_close(module(x), torch.cat([*parts, highest(x)], 1))


@pytest.mark.parametrize("kind", [Inception, NormedInception])
def test_the_module_with_bottlenecks_is_its_equation(kind):
    torch.manual_seed(0)
    module = shaken(kind(4, 2, (3, 5), (2, 4), 3))
    x = torch.randn(2, 4, 7, 7, dtype=torch.float64)
    torch.testing.assert_close(module(x), inception(x, module))
    assert kind.conv.__name__ == {Inception: "ConvReLU"}.get(kind, "ConvNormReLU")


def headed(u, head):
    """(8)."""
    side = (u.shape[-1] - 5) // 3 + 1
    means = torch.stack(
        [u[..., 3 * i : 3 * i + 5, 3 * j : 3 * j + 5].mean((2, 3)) for i in range(side)
         for j in range(side)], -1
    ).unflatten(-1, (side, side))  # fmt: skip
    a = rectified(means, head.conv).flatten(1)
    h = (a @ head.dense[0].weight.T + head.dense[0].bias).clamp(min=0)
    return h @ head.output.weight.T + head.output.bias


def test_googlenet_and_its_heads_are_their_equations():
    torch.manual_seed(0)
    net = shaken(GoogLeNet(2, 5, width=8, size=113))  # 8 x 8 where the heads look
    x = 100 * torch.randn(2, 2, 113, 113, dtype=torch.float64)
    h = response(halved(rectified(x, net.stem[0])))
    h = rectified(rectified(h, net.stem[3]), net.stem[4])
    h, kept = halved(response(h)), {}
    for name, module in net.inception.items():
        h = inception(halved(h) if name in ("4a", "5a") else h, module)
        kept[name] = h
    v = h.sum((2, 3)) / h[0, 0].numel()
    y = v @ net.output.weight.T + net.output.bias
    answers = net.with_heads(x)
    torch.testing.assert_close(answers[0], y, atol=1e-8, rtol=1e-8)
    torch.testing.assert_close(answers[1], headed(kept["4a"], net.head1), atol=1e-8, rtol=1e-8)
    torch.testing.assert_close(answers[2], headed(kept["4d"], net.head2), atol=1e-8, rtol=1e-8)
    assert torch.equal(net(x), answers[0])


def test_the_small_form_is_its_equations():
    torch.manual_seed(0)
    net = shaken(SmallGoogLeNet(2, 5, width=8))
    x = torch.randn(2, 2, 20, 20, dtype=torch.float64)
    h = rectified(halved(rectified(x, net.stem[0])), net.stem[2])
    for name, module in net.inception.items():
        h = inception(halved(h) if name in ("4a", "5a") else h, module)
    expected = h.mean((2, 3)) @ net.output.weight.T + net.output.bias
    torch.testing.assert_close(net(x), expected, atol=1e-8, rtol=1e-8)


def test_dropout_before_the_logits_only():
    with torch.device("meta"):
        net = GoogLeNet(3, 1000)
    found = {n: m.p for n, m in net.named_modules() if isinstance(m, nn.Dropout)}
    assert found == {"head1.drop": 0.7, "head2.drop": 0.7, "drop": 0.4}
    head = AuxiliaryHead(4, 3, 8, 5)
    torch.manual_seed(0)
    head.conv.conv.bias.data.fill_(1.0)
    head.dense[0].weight.data.fill_(1.0)
    seen = []
    head.output.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    x = torch.zeros(50, 4, 5, 5)
    head.eval()(x)
    head.train()(x)
    left = (seen[1] / seen[0]).round(decimals=3).unique()
    torch.testing.assert_close(left, torch.tensor([0.0, 3.333]))


@pytest.mark.parametrize("kind", [GoogLeNet, SmallGoogLeNet])
def test_dropout_leaves_out_some_of_the_means(kind):
    torch.manual_seed(0)
    net, seen = kind(1, 2, width=8).eval(), []
    net.output.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    x = torch.randn(4, 1, 65, 65)
    net(x)
    net.drop.train()
    net(x)
    left = (seen[1] / seen[0])[seen[0] > 0].round(decimals=3).unique()
    torch.testing.assert_close(left, torch.tensor([0.0, 1.667]))


# ----------------------------------------------------------------------------------------- loss


@pytest.fixture(scope="module")
def begun():
    torch.manual_seed(0)
    net = GoogLeNet(1, 4, width=8, size=65).eval()
    return net, (torch.randn(6, 1, 65, 65), torch.tensor([0, 1, 2, 3, 0, 1]))


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_loss_adds_three_tenths_of_each_head(begun, smoothing):
    net, (x, t) = begun
    terms = everynet.recipe("googlenet", smoothing=smoothing).objective(net, (x, t))
    y, first, second = (cross_entropy(z, t, label_smoothing=smoothing) for z in net.with_heads(x))
    torch.testing.assert_close(terms["cross_entropy"], y)
    torch.testing.assert_close(terms["heads"], 0.3 * first + 0.3 * second)


def test_mixed_images_are_mixed_once_for_all_heads(begun):
    net, (x, t) = begun
    torch.manual_seed(7)
    terms = everynet.recipe("googlenet", mixup=0.5).objective(net, (x, t))
    torch.manual_seed(7)
    mixed, own = mixup(x, 0.5)
    y, first, second = (mixed_cross_entropy(z, t, own) for z in net.with_heads(mixed))
    torch.testing.assert_close(terms["cross_entropy"], y)
    torch.testing.assert_close(terms["heads"], 0.3 * (first + second))


def test_heads_bring_gradients_to_the_lower_half_alone(begun):
    net, (x, t) = begun
    terms = everynet.recipe("googlenet").objective(net, (x, t))
    terms["heads"].backward()
    touched = {n.split(".")[1] for n, p in net.inception.named_parameters(prefix="inception")
               if p.grad is not None}  # fmt: skip
    assert touched == {"3a", "3b", "4a", "4b", "4c", "4d"}
    assert net.output.weight.grad is None
    net.zero_grad()


# --------------------------------------------------------------------------------------- recipe


def test_the_picture_of_costs_compares_both_modules():
    with torch.device("meta"):
        net = GoogLeNet(3, 1000)
    drawn, shares = draw_costs(net, (3, 224, 224))
    (axes,) = drawn.axes
    _, texts = axes.get_legend_handles_labels()
    given = (192, 256, 480, 512, 512, 512, 528, 832, 832)
    sides = (28, 28, 14, 14, 14, 14, 14, 7, 7)
    work = [
        side**2 * channels * (one + 9 * three[1] + 25 * five[1])
        for side, channels, (one, three, five, _) in zip(sides, given, TABLE.values(), strict=True)
    ]
    assert work[1] == 854_196_224  # the example of the notes
    assert texts == ["naive: 3.9 G", "with bottlenecks: 1.1 G"]
    naive, cheap = axes.containers
    assert cheap[0].get_width() == 28**2 * (192 * (64 + 96 + 16 + 32) + 9 * 96 * 128 + 25 * 16 * 32)
    assert [bar.get_width() for bar in naive] == work
    total = sum(bar.get_width() for bar in cheap)
    assert shares["share"] == pytest.approx(total / sum(work))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"width": 12}, r"width \(12\) must be a multiple of 8, because .*; do width=8"),
        ({"size": 64}, r"size \(64\) must be at least 65, because .*; do size=65"),
    ],
)
def test_arguments_it_refuses(arguments, message):
    with torch.device("meta"), pytest.raises(ValueError, match=message):
        GoogLeNet(3, 10, **arguments)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"width": 20}, r"width \(20\) must be a multiple of 8"),
        ({"dropout": 1.0}, r"dropout \(1.0\) must be at least 0 and below 1"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        everynet.recipe("googlenet", **fields)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("googlenet", (64, 64), r"images of 64x64\) must give squares of at least 65 .*size=65"),
        ("googlenet", (90, 70), r"images of 70x90\) must give squares of .*; do size=90"),
        ("googlenet-cifar", (15, 20), r"size \(15\) must be at least 16, because .*; do size=16"),
    ],
)
def test_images_that_do_not_fit(name, shape, message):
    data = Data.described({"shape": [1, *shape], "classes": ["a", "b"]})
    with pytest.raises(UserError, match=message):
        find(name).model(data)


def test_photographs_of_any_shape_for_the_small_form():
    data = Data.described({"shape": [3, 16, 40], "classes": ["a", "b", "c"]})
    net = replace(find("googlenet-cifar"), width=8).model(data).eval()
    assert net(torch.zeros(2, 3, 16, 40)).shape == (2, 3)


# ------------------------------------------------------------------------------------- learning


@pytest.mark.slow
def test_learns_digits(tmp_path):
    assert run(find("googlenet"), tmp_path).reached


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.covers("C19")
def test_learns_cifar(tmp_path):
    """Hours on the CPU; about a minute on a GPU."""
    if not torch.cuda.is_available():
        pytest.skip("the whole of CIFAR-10 needs a GPU")
    assert run(find("googlenet-cifar"), tmp_path, precision="bf16").reached

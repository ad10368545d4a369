"""LeNet against loops over scipy's correlation, its counts, its table, what it sees and learns."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.signal import correlate2d
from torch import nn

import everynet
from everynet.nn.layers import layer_table
from everynet.recipes.catalog import find
from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.vision.lenet import (
    TABLE,
    CodeDistance,
    LeNet,
    SparseLeNet,
    Squash,
    TableConv,
)


def parameters(module):
    return sum(p.numel() for p in module.parameters())


def double(module, seed=0):
    """The module in float64 with weights of its own."""
    generator = torch.Generator().manual_seed(seed)
    module = module.double().eval()
    for p in module.parameters():
        p.data = (
            torch.randn(p.shape, generator=generator, dtype=torch.float64) / p[0].numel() ** 0.5
        )
    return module


def by_hand(value):
    return value.detach().numpy()


# ------------------------------------------------------------------------------------ equations


def correlated(x, kernels, bias, table):
    """Equation (1) or (7): map k is the sum over the maps of its row, plus its bias."""
    return np.stack(
        [
            bias[k] + sum(correlate2d(x[c], kernels[k][c], mode="valid") for c in row)
            for k, row in enumerate(table)
        ]
    )


def halved(h):
    """Equation (2)."""
    return (h[:, ::2, ::2] + h[:, 1::2, ::2] + h[:, ::2, 1::2] + h[:, 1::2, 1::2]) / 4


@pytest.mark.covers("C15")
@pytest.mark.parametrize("channels", [1, 3])
def test_lenet_is_its_equations(channels):
    net = double(LeNet(channels, 7))
    x = torch.randn(2, channels, 32, 32, dtype=torch.float64)
    for image, y in zip(x.numpy(), by_hand(net(x)), strict=True):
        c1, c3 = net.c1[0], net.c3[0]
        h = image
        for conv in (c1, c3):
            full = [range(conv.in_channels)] * conv.out_channels
            h = np.tanh(correlated(h, by_hand(conv.weight), by_hand(conv.bias), full))
            h = halved(h)
        h = h.reshape(-1)
        for full in (net.c5[0], net.f6[0]):
            h = np.tanh(by_hand(full.weight) @ h + by_hand(full.bias))
        expected = by_hand(net.output.weight) @ h + by_hand(net.output.bias)
        np.testing.assert_allclose(y, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.covers("C15")
def test_sparse_lenet_is_its_equations():
    net = double(SparseLeNet(1, 10))
    x = torch.randn(2, 1, 32, 32, dtype=torch.float64)

    def f(a):
        return 1.7159 * np.tanh(2 / 3 * a)

    for image, y in zip(x.numpy(), by_hand(net(x)), strict=True):
        c1 = net.c1[0]
        h = f(correlated(image, by_hand(c1.weight), by_hand(c1.bias), [[0]] * 6))
        h = f(by_hand(net.s2[0].gain) * halved(h) + by_hand(net.s2[0].bias))
        c3, kernels = net.c3[0], iter(by_hand(net.c3[0].weight))
        table = [{c: next(kernels) for c in row} for row in TABLE]
        h = f(correlated(h, table, by_hand(c3.bias), table))
        h = f(by_hand(net.s4[0].gain) * halved(h) + by_hand(net.s4[0].bias))
        h = h.reshape(-1)
        for full in (net.c5[0], net.f6[0]):
            h = f(by_hand(full.weight) @ h + by_hand(full.bias))
        expected = -((h - net.output.codes.numpy()) ** 2).sum(1)
        np.testing.assert_allclose(y, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("network", [LeNet, SparseLeNet])
def test_gradients(network):
    """Each weight's derivative against a central difference of the whole network."""
    net = double(network(1, 3))
    x = torch.randn(1, 1, 32, 32, dtype=torch.float64)
    weight = torch.randn(3, dtype=torch.float64)
    (net(x)[0] @ weight).backward()
    for p in net.parameters():
        direction = torch.randn_like(p)
        with torch.no_grad():
            ends = []
            for side in (1, -1):
                p.add_(side * 1e-6 * direction)
                ends.append((net(x)[0] @ weight).item())
                p.sub_(side * 1e-6 * direction)
        slope = (ends[0] - ends[1]) / 2e-6
        assert slope == pytest.approx((p.grad * direction).sum().item(), rel=1e-5, abs=1e-7)


def test_squash_goes_through_one_and_bends_most_there():
    """f(1) = 1 and f(-1) = -1, with the extremes of its second derivative at +1 and -1."""
    a = torch.tensor([1.0, -1.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(Squash()(a), a, atol=1e-4, rtol=0)
    a = torch.linspace(0.5, 1.5, 1001, dtype=torch.float64, requires_grad=True)
    first = torch.autograd.grad(Squash()(a).sum(), a, create_graph=True)[0]
    second = torch.autograd.grad(first.sum(), a)[0]
    assert a[second.argmin()].item() == pytest.approx(1.0, abs=0.02)


def test_codes_are_signs_and_scores_are_distances():
    """At a class's own code the score is 0, at another's -4 for each sign that differs."""
    output = CodeDistance(84, 10).double()
    codes = output.codes
    assert set(codes.unique().tolist()) == {-1.0, 1.0}
    differ = (codes[:, None] != codes[None]).sum(2)
    torch.testing.assert_close(output(codes), -4.0 * differ.double())
    assert (differ + 84 * torch.eye(10) >= 25).all()  # no two classes are hard to tell apart
    assert torch.equal(CodeDistance(84, 10).codes, CodeDistance(84, 10).codes)
    assert not list(output.parameters())


# --------------------------------------------------------------------------------------- counts


@pytest.mark.covers("C15")
def test_parameters():
    """The counts of the paper, layer by layer."""
    full, sparse = LeNet(1, 10), SparseLeNet(1, 10)
    assert parameters(full) == 61_706
    assert parameters(sparse) == 60_000
    layers = ("c1", "s2", "c3", "s4", "c5", "f6", "output")
    assert [parameters(getattr(full, n)) for n in layers] == [156, 0, 2416, 0, 48120, 10164, 850]
    assert [parameters(getattr(sparse, n)) for n in layers] == [156, 12, 1516, 32, 48120, 10164, 0]


def test_the_table_of_layers():
    rows = {
        row.name: row[2:6] for row in layer_table(LeNet(1, 10), (1, 32, 32)) if row.kind != "Tanh"
    }
    assert rows == {
        "c1.0": ((6, 28, 28), 156, 6 * 28 * 28 * 25, (5, 5)),
        "s2": ((6, 14, 14), 0, 6 * 14 * 14, (6, 6)),
        "c3.0": ((16, 10, 10), 2416, 16 * 100 * 150, (14, 14)),
        "s4": ((16, 5, 5), 0, 16 * 25, (16, 16)),
        "c5.0": ((120,), 48120, 48000, (32, 32)),
        "f6.0": ((84,), 10164, 10080, (32, 32)),
        "output": ((10,), 850, 840, (32, 32)),
    }


@pytest.mark.covers("C7")
def test_receptive_fields_are_where_the_gradient_is_not_zero():
    net = double(LeNet(1, 10))
    fields = {row.name.split(".")[0]: row.receptive_field for row in layer_table(net, (1, 32, 32))}
    x = torch.randn(1, 1, 32, 32, dtype=torch.float64, requires_grad=True)
    h = x
    for name in ("c1", "s2", "c3", "s4"):
        h = getattr(net, name)(h)
        side = h.shape[-1] // 2
        (gradient,) = torch.autograd.grad(h[0, 0, side, side], x, retain_graph=True)
        places = gradient[0, 0].nonzero()
        assert tuple((places.amax(0) - places.amin(0) + 1).tolist()) == fields[name], name
    (gradient,) = torch.autograd.grad(net(x)[0, 0], x)
    assert (gradient != 0).all()  # from c5 on a unit sees the whole image


# ------------------------------------------------------------------------------------ the table


def test_the_table_of_1998():
    """Six rows of three neighbours, nine of four, one of all six; each map is seen ten times."""
    assert [len(row) for row in TABLE] == [3] * 6 + [4] * 9 + [6]
    assert len({frozenset(row) for row in TABLE}) == 16
    assert [sum(c in row for row in TABLE) for c in range(6)] == [10] * 6
    around = {frozenset((k + i) % 6 for i in range(n)) for n in (3, 4) for k in range(6)}
    assert {frozenset(row) for row in TABLE[:12]} == around


@pytest.mark.covers("C15")
def test_maps_off_the_table_have_no_gradient():
    conv = double(TableConv(TABLE, 5))
    x = torch.randn(1, 6, 14, 14, dtype=torch.float64, requires_grad=True)
    y = conv(x)
    for k, row in enumerate(TABLE):
        (gradient,) = torch.autograd.grad(y[0, k].sum(), x, retain_graph=True)
        joined = gradient[0].abs().amax((1, 2)) > 0
        assert set(joined.nonzero()[:, 0].tolist()) == set(row), k


def test_a_full_table_is_a_plain_convolution():
    conv = double(TableConv(((0, 1, 2),) * 4, 3))
    x = torch.randn(2, 3, 9, 9, dtype=torch.float64)
    kernels = conv.weight.reshape(4, 3, 3, 3)
    torch.testing.assert_close(conv(x), nn.functional.conv2d(x, kernels, conv.bias))


# --------------------------------------------------------------------------------------- shifts


def test_the_first_layer_moves_with_the_image():
    """Off the borders a moved image gives moved maps; the logits are not the same."""
    net = double(LeNet(1, 10))
    x = torch.randn(1, 1, 40, 40, dtype=torch.float64)
    here, moved = x[..., 4:36, 4:36], x[..., 1:33, 6:38]  # 3 rows up, 2 columns right
    maps, others = net.c1(here), net.c1(moved)
    torch.testing.assert_close(others[..., 3:, :-2], maps[..., :-3, 2:], atol=1e-12, rtol=0)
    assert not torch.allclose(net(here), net(moved))


def test_channels_last_changes_nothing():
    for net in (double(LeNet(1, 10)), double(SparseLeNet(1, 10))):
        x = torch.randn(4, 1, 32, 32, dtype=torch.float64)
        expected = net(x)
        net.to(memory_format=torch.channels_last)
        torch.testing.assert_close(net(x.to(memory_format=torch.channels_last)), expected)


def test_both_can_be_built_without_numbers():
    """As `everynet show` does."""
    with torch.device("meta"):
        nets = LeNet(1, 10), SparseLeNet(1, 10)
    assert [parameters(net) for net in nets] == [61_706, 60_000]


# --------------------------------------------------------------------------------------- recipe


def test_the_network_follows_the_data():
    recipe = find("lenet")
    data = recipe.dataset()
    assert data.spec["shape"] == [1, 32, 32]
    assert recipe.model(data).output.out_features == 10
    assert data.augment is not None
    once, again = (data.train(3)[0] for _ in range(2))
    assert torch.equal(once, again)  # a function of the step


def test_prediction_names_the_class():
    recipe = find("lenet").tiny()
    data = recipe.dataset()
    net = recipe.model(data).eval()
    x = data.splits["test"][0][:3]
    with torch.no_grad():
        rows = recipe.predict(net, x, data.spec)
        expected = net(x).softmax(1)
    assert len(rows) == 3
    for row, p in zip(rows, expected, strict=True):
        assert list(row) == ["class", "probability", "probabilities"]
        assert row["class"] == str(p.argmax().item())
        assert row["probability"] == row["probabilities"][row["class"]] == pytest.approx(p.max())
        assert sum(row["probabilities"].values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"size": 28}, r"size \(28\) must be 32, because two 5 x 5 filters and two pools leave 5"),
        ({"pixels": -1.0}, r"pixels \(-1.0\) must be a number from 0 up"),
        ({"degrees": float("nan")}, r"degrees \(nan\) must be a number from 0 up"),
        ({"scale": 1.0}, r"scale \(1.0\) must be at least 0 and below 1"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        replace(find("lenet"), **fields)


def test_data_it_refuses():
    with pytest.raises(UserError, match=r"data \(iris\) must be images with a class each"):
        everynet.recipe("lenet", data="iris").dataset()
    with pytest.raises(UserError, match=r"data \(china\) must be images with a class each"):
        everynet.recipe("lenet", data="china", batch_size=1).dataset()
    with pytest.raises(UserError, match=r"data \(iris\) must be images with a class each"):
        everynet.recipe("cnn-mnist", data="iris", batch_size=8).dataset()


def test_last_weights_are_kept_when_the_rate_ends_at_zero():
    recipe = find("lenet")
    assert recipe.monitor() is None
    assert replace(recipe, schedule="constant").monitor().metric == "accuracy"
    assert replace(recipe, schedule="plateau").monitor().metric == "accuracy"


# ------------------------------------------------------------------------------------- learning


def mean_accuracy(recipe, tmp_path):
    """Over three seeds, on the test set."""
    found = [run(replace(recipe, seed=s), tmp_path).metrics["accuracy"] for s in range(3)]
    return sum(found) / len(found)


@pytest.mark.slow
@pytest.mark.covers("C15")
def test_learns_digits(tmp_path):
    assert mean_accuracy(find("lenet"), tmp_path) >= 0.985


@pytest.mark.slow
def test_the_network_of_1998_learns_digits(tmp_path):
    assert mean_accuracy(find("lenet-1998"), tmp_path) >= 0.97


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.covers("C15")
def test_learns_mnist(tmp_path):
    assert mean_accuracy(find("lenet-mnist"), tmp_path) >= 0.988


@pytest.mark.slow
@pytest.mark.real_data
def test_learns_fashion(tmp_path):
    assert mean_accuracy(find("lenet-fashion"), tmp_path) >= 0.89

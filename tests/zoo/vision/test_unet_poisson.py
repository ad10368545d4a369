"""Poisson's equation by networks: the plain one, what both see, the figures and the pictures."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d

from everynet.data.dataset import Data
from everynet.data.sets import poisson
from everynet.recipes.catalog import find
from everynet.recipes.experiment import Table
from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.vision.unet import UNetWithoutNorm
from everynet.zoo.vision.unet_poisson import (
    ByPlainCNN,
    ByUNet,
    PlainCNN,
    influence,
    parameters,
    relative_error,
    width_for,
)
from tests.zoo.cells import cell

F64 = torch.float64


def noise(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


class Solve(nn.Module):
    """The exact solver as a network, in the units that data has."""

    def forward(self, x):
        return poisson.solve(x[:, 0])[:, None]


# ---------------------------------------------------------------------------------------- equations


def test_the_relative_error_in_closed_form():
    """Equation (2): a field that is c times too large is off by |c - 1|, whatever its size."""
    u = noise(3, 1, 4, 4) * torch.tensor([1.0, 10.0, 0.1])[:, None, None, None]
    factor = torch.tensor([1.5, 0.8, 1.0], dtype=F64)
    wanted = torch.tensor([0.5, 0.2, 0.0], dtype=F64)
    torch.testing.assert_close(relative_error(factor[:, None, None, None] * u, u), wanted)
    v, u = torch.tensor([[[[3.0, 0.0]]]]), torch.tensor([[[[0.0, 4.0]]]])
    assert relative_error(v, u).item() == pytest.approx(5 / 4)


def test_the_loss_is_the_mean_of_that_over_samples():
    recipe, u = ByUNet(), noise(2, 1, 8, 8)
    net = nn.Identity()
    terms = recipe.objective(net, (torch.cat([1.1 * u[:1], 0.5 * u[1:]]), u))
    assert terms["relative_l2"].item() == pytest.approx((0.1 + 0.5) / 2)
    rows = recipe.metrics(net, (1.1 * u, u))["relative_l2"]
    torch.testing.assert_close(rows, torch.full((2,), 0.1, dtype=F64))


@pytest.mark.covers("C24")
def test_the_influence_of_the_exact_solver_is_greens_function():
    """Equations (1) and (3) for a network that solves the equation."""
    x = noise(3, 1, 12, 12)
    g = influence(Solve(), x, 4, 7)[0]
    torch.testing.assert_close(g, poisson.response(4, 7, 12), rtol=1e-9, atol=1e-12)
    f, u = poisson.draw(1, 3)
    g = influence(Solve(), f[:, None], 9, 20)[0]
    assert (g * f[0]).sum().item() == pytest.approx(u[0, 9, 20].item(), rel=1e-9)


def test_the_influence_is_the_mean_of_a_batch():
    class Square(nn.Module):
        def forward(self, x):
            return x.square()

    x = noise(5, 1, 3, 3)
    g = influence(Square(), x, 1, 2)
    assert g[0, 1, 2].item() == pytest.approx(2 * x[:, 0, 1, 2].mean().item())
    g[0, 1, 2] = 0
    assert not g.any()


@pytest.mark.covers("C24")
@pytest.mark.parametrize("layers", [2, 3, 5])
def test_a_plain_network_sees_a_square_of_two_points_a_layer_and_one(layers):
    """Equation (4): the gradient is zero outside, and reaches the corners of the square."""
    net = PlainCNN(1, 1, width=4, layers=layers).double()
    for layer in net.layers:
        layer.weight.data.abs_()
        layer.bias.data.fill_(1.0)  # no rectifier is shut
    g = influence(net, noise(1, 1, 17, 17).abs(), 8, 8)[0]
    inside = torch.zeros(17, 17, dtype=torch.bool)
    inside[8 - layers : 9 + layers, 8 - layers : 9 + layers] = True
    assert inside.sum() == (1 + 2 * layers) ** 2
    assert torch.equal(g != 0, inside)


@pytest.mark.covers("C24")
def test_the_u_net_sees_the_whole_square():
    net = UNetWithoutNorm(1, 1, width=2, depth=3).double()
    for module in net.modules():
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
            module.weight.data.abs_()
            module.bias.data.fill_(1.0)
    g = influence(net, torch.ones(1, 1, 32, 32, dtype=F64), 15, 15)[0]
    assert (g != 0).double().mean() > 0.6, "a pool lets one of four pass: most places count"
    assert g[:4].any()
    assert g[-4:].any()


@pytest.mark.parametrize(("width", "layers"), [(2, 3), (8, 8), (5, 12)])
def test_as_many_parameters(width, layers):
    """Equation (5): within a tenth of the U-Net's, and no other width is nearer."""
    wanted = parameters(UNetWithoutNorm(1, 1, width=width, depth=3))
    n, w = layers, width_for(wanted, layers)
    less, found, more = (parameters(PlainCNN(1, 1, width=w + by, layers=n)) for by in (-1, 0, 1))
    assert found == 9 * (n - 2) * w**2 + (n + 17) * w + 1
    assert abs(found - wanted) == min(abs(count - wanted) for count in (less, found, more))
    assert 0.9 < found / wanted < 1.1


def test_two_layers_are_sized_too():
    assert parameters(PlainCNN(1, 1, width=width_for(1000, 2), layers=2)) == pytest.approx(
        1000, abs=10
    )


def test_the_plain_network_is_its_layers():
    net = PlainCNN(2, 3, width=5, layers=3).double()
    x = noise(2, 2, 6, 7)
    a = x
    for number, layer in enumerate(net.layers):
        a = conv2d(a, layer.weight, layer.bias, padding=1)
        a = a if number == 2 else a.clamp(min=0)
    torch.testing.assert_close(net(x), a)
    with pytest.raises(ValueError, match=r"layers \(1\) must be at least 2, because one comes in"):
        PlainCNN(1, 1, width=4, layers=1)


# ------------------------------------------------------------------------------------------ recipe


def test_both_begin_from_the_same_seed_with_the_same_data_and_equal_sizes():
    recipe = find("unet-poisson")
    unet, cnn = recipe.cells().values()
    assert (unet.seed, unet.data, unet.steps, unet.lr) == (cnn.seed, cnn.data, cnn.steps, cnn.lr)
    spec = {"shape": [1, 32, 32], "target_shape": [1, 32, 32]}
    sizes = [parameters(one.model(Data.described(spec))) for one in (unet, cnn)]
    assert abs(sizes[1] / sizes[0] - 1) < 0.1


def test_training_sources_are_turned_with_their_fields():
    recipe = ByUNet(data="poisson:40", batch_size=8)
    data = recipe.dataset()
    x, u = (part.double()[:, 0] for part in data.train(0))
    again = poisson.solve(x * data.spec["std"][0]) / data.spec["target_std"]
    torch.testing.assert_close(again, u, rtol=1e-4, atol=1e-4)
    assert not torch.equal(data.train(0)[0], data.stored(0)[0])


def table(unet, cnn):
    return Table(
        {
            "unet": cell(test={"relative_l2": unet}, network=nn.Linear(3, 4)),
            "cnn": cell(test={"relative_l2": cnn}, network=nn.Linear(3, 5)),
        },
        {},
    )


def test_figures_are_of_the_test_sources():
    found = find("unet-poisson").metrics(table(0.04, 0.2))
    assert found == {
        "relative_l2": 0.04,
        "relative_l2_cnn": 0.2,
        "advantage": pytest.approx(5),
        "parameters": 16.0,
        "parameters_cnn": 20.0,
    }
    assert math.isnan(find("unet-poisson").metrics(table(0.04, math.nan))["advantage"])


def test_the_picture_of_what_is_seen_is_in_the_units_of_the_equation():
    """Equations (1), (3) and (4): for a network that solves it, all maps are Green's function."""
    recipe = replace(find("unet-poisson"), layers=3)
    spec = {"std": [0.5], "target_std": 0.02}

    class Standardised(nn.Module):
        def forward(self, x):
            return poisson.solve(0.5 * x[:, 0])[:, None] / 0.02

    figure = recipe._influence({"net": Standardised()}, noise(2, 1, 16, 16), spec)
    exact, net = (axes.images[0].get_array() for axes in figure.axes[:2])
    assert np.allclose(exact, poisson.response(10, 6, 16))
    assert np.allclose(net, exact)
    assert figure.axes[1].patches[0].get_width() == 7


def test_a_cell_predicts_the_field():
    recipe = ByPlainCNN(width=2, depth=1, layers=3)
    net = recipe.model(Data.described({"shape": [1, 8, 8], "target_shape": [1, 8, 8]}))
    x = torch.randn(70, 1, 8, 8)
    with torch.no_grad():
        rows = recipe.predict(net, x, {})
        torch.testing.assert_close(torch.stack([row["field"] for row in rows]), net(x))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"width": 0}, r"width \(0\) must be at least 1"),
        ({"depth": 9}, r"depth \(9\) must be a number from 1 to 8"),
        ({"layers": 1}, r"layers \(1\) must be at least 2"),
        ({"every": 0}, r"every \(0\) must be at least 1"),
        ({"lr": 0.0}, r"lr \(0.0\) must be a positive number"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        replace(find("unet-poisson"), **fields)


def test_a_depth_that_the_square_cannot_be_halved_to():
    spec = {"shape": [1, 12, 12], "target_shape": [1, 12, 12]}
    with pytest.raises(UserError, match=r"depth \(3\) must be such that images of 12x12 can be"):
        ByUNet(depth=3).model(Data.described(spec))


def test_images_that_are_not_square_are_refused(tmp_path):
    x = np.zeros((40, 1, 8, 16), np.float32)
    np.savez(tmp_path / "wide.npz", x=x + np.arange(40)[:, None, None, None], y=x)
    with pytest.raises(UserError, match=r"wide.npz: images of 16x8\) must be square, because"):
        ByUNet(data=str(tmp_path / "wide.npz"), batch_size=8).dataset()


# --------------------------------------------------------------------------------------- learning


@pytest.mark.slow
@pytest.mark.covers("C24")
def test_goal(tmp_path):
    """Held-out sources: at most 5 % off, and less than a plain network of the same size."""
    result = run(find("unet-poisson"), tmp_path)
    assert result.metrics["relative_l2"] <= 0.05
    assert result.metrics["relative_l2"] < result.metrics["relative_l2_cnn"]
    assert abs(result.metrics["parameters_cnn"] / result.metrics["parameters"] - 1) < 0.1

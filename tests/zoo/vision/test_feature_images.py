"""Images that drive units: on a linear network in closed form, on runs of other recipes."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import everynet
from everynet import runs
from everynet.recipes.catalog import find
from everynet.recipes.settings import override
from everynet.runs.job import Job
from everynet.system.errors import UserError
from everynet.zoo.vision.feature_images import (
    _centred,
    _patches,
    ascend,
    ascent_step,
    blur,
    layer_output,
    middle_pixel,
    total_variation,
)


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


LOW, HIGH = (torch.full((1, 1, 1), v, dtype=torch.float64) for v in (-1.0, 2.0))


# ------------------------------------------------------------------------------------ equations


def test_total_variation_of_known_images():
    z = torch.zeros(3, 1, 4, 5, dtype=torch.float64)
    z[1] = torch.arange(5.0)  # rises by 1 to the right
    z[2, :, ::2] = 2.0  # stripes of 2
    assert total_variation(z).tolist() == pytest.approx([0.0, 1.0, 2.0])


def test_a_step_up_has_its_length_and_stays_between_black_and_white():
    x, g = torch.zeros(2, 1, 6, 6, dtype=torch.float64), randn(2, 1, 6, 6)
    b = blur(g)
    step = ascent_step(x, g, 0.1, LOW, HIGH)
    expected = 0.1 * b / b.square().mean((1, 2, 3), keepdim=True).sqrt()
    torch.testing.assert_close(step, expected)
    far = ascent_step(x, g, 100.0, LOW, HIGH)
    assert (float(far.min()), float(far.max())) == (-1.0, 2.0)
    assert torch.equal(ascent_step(x, torch.zeros_like(g), 0.1, LOW, HIGH), x)


def test_the_blur_has_weights_1_2_1_and_takes_out_stripes():
    spot = torch.zeros(1, 1, 5, 5, dtype=torch.float64)
    spot[0, 0, 2, 2] = 16.0
    row = torch.tensor([0.0, 1.0, 2.0, 1.0, 0.0]).double()
    torch.testing.assert_close(blur(spot)[0, 0], row[:, None] * row)
    stripes = torch.tensor([1.0, -1.0] * 4).double().expand(1, 1, 8, 8)
    assert float(blur(stripes)[..., 1:-1].abs().max()) < 1e-12


def test_of_a_linear_unit_the_best_image_is_light_where_its_weights_are_positive():
    """Without costs and jitter: white where the blurred weights are above 0, black below."""
    w = randn(1, 1, 6, 6)
    settings = replace(find("feature-images"), l2=0.0, tv=0.0, jitter=0, steps=200, lr=0.5)

    def units(x):
        return 50 + (w * x).sum((1, 2, 3))[:, None]

    black = torch.zeros(1, 1, 6, 6).double()
    x, way = ascend(
        units, black, torch.tensor([0]), settings, limits=(LOW, HIGH), generator=torch.Generator()
    )
    b = blur(w)
    clear = b.abs() > 0.02 * float(b.abs().max())
    assert torch.equal(x[clear], torch.where(b > 0, HIGH, LOW)[clear])
    assert float(way[-1]) > float(way[1]) > float(way[0])


@pytest.mark.parametrize(("l2", "tv"), [(0.7, 0.0), (0.0, 0.4)])
def test_the_costs_are_those_of_equation_1(l2, tv):
    """One step of a constant unit goes down the gradient of the costs alone."""
    settings = replace(find("feature-images"), l2=l2, tv=tv, jitter=0, steps=1, lr=0.1)
    start = 0.3 * randn(1, 1, 6, 6)
    x, _ = ascend(
        lambda x: 0 * x.sum((1, 2, 3))[:, None], start, torch.tensor([0]), settings,
        limits=(LOW, HIGH), generator=torch.Generator(),
    )  # fmt: skip
    z = (start - LOW).requires_grad_()
    cost = l2 * z.square().mean() + tv * total_variation(z).sum()
    (g,) = torch.autograd.grad(-cost, z)
    torch.testing.assert_close(x, ascent_step(start, g, 0.1, LOW, HIGH))


def test_the_unit_is_raised_as_a_logarithm():
    settings = replace(find("feature-images"), l2=0.5, tv=0.0, jitter=0, steps=1, lr=0.1)
    start, w = 0.1 * randn(1, 1, 6, 6), randn(1, 1, 6, 6, seed=1)
    x, way = ascend(
        lambda x: 3 + (w * x).sum((1, 2, 3))[:, None], start, torch.tensor([0]), settings,
        limits=(LOW, HIGH), generator=torch.Generator(),
    )  # fmt: skip
    a = 3 + (w * start).sum()
    g = w / (1 + a) - 0.5 * 2 * (start - LOW) / 36
    assert float(way[0]) == pytest.approx(float(a))
    torch.testing.assert_close(x, ascent_step(start, g, 0.1, LOW, HIGH))


def test_the_image_moves_until_three_quarters_and_steps_shrink_to_nothing():
    """What the units are given tells the jitter, and a linear unit's path the size of a step."""
    settings_ = replace(find("feature-images"), l2=0.0, tv=0.0, jitter=2, steps=40, lr=0.01)
    seen = []

    def units(x):
        seen.append(x.detach().clone())
        return x.sum((1, 2, 3))[:, None] + 1e6  # every pixel is pushed up alike

    start = 0.01 * randn(1, 1, 6, 6)
    x, _ = ascend(
        units, start, torch.tensor([0]), settings_, limits=(LOW, HIGH),
        generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    moved, still, level = [], start, 0.0
    for step, shown in enumerate(seen):
        moved.append(not torch.allclose(shown - level, still))
        level += 0.01 * (1 - step / 40)
    assert 15 < sum(moved[:30]) <= 30, "of 25 places one is where it was"
    assert not any(moved[30:])
    torch.testing.assert_close(x, still + level)


def test_metrics_are_the_least_and_the_medians():
    result = {
        "unit_drive": torch.tensor([9.0, 2.0, 4.0]), "class_drive": torch.tensor([8.0, 7.0, 3.0]),
    }  # fmt: skip
    found = find("feature-images").metrics(result)
    assert found == {"drive": 2.0, "unit_drive": 4.0, "class_drive": 7.0}


# --------------------------------------------------------------------------- places and patches


def test_the_image_is_moved_so_that_its_best_place_is_the_middle():
    x, maps = torch.zeros(2, 1, 8, 8).double(), torch.zeros(2, 1, 4, 4).double()
    x[1, 0, 2, 4], maps[1, 0, 1, 2] = 1.0, 5.0  # place (1, 2) of 4 x 4 begins at pixel (2, 4)
    found = _centred(x, maps, LOW)
    assert float(found[0, 0, 4, 4]) == 1.0
    assert int((found == 1).sum()) == 1
    assert float(found[0, 0, 0, 0]) == -1.0  # black comes in


def test_patches_lie_around_the_places_that_drive_a_unit():
    x = torch.arange(3 * 64).reshape(3, 1, 8, 8).double()
    maps = torch.zeros(3, 1, 8, 8).double()
    maps[0, 0, 3, 4], maps[1, 0, 0, 0], maps[2, 0, 7, 7] = 3.0, 2.0, 1.0
    found = _patches(x, maps, (3, 3))
    assert found.shape == (1, 3, 1, 3, 3)
    assert torch.equal(found[0, 0], x[0, :, 2:5, 3:6])
    assert torch.equal(found[0, 1], x[1, :, :3, :3])
    assert torch.equal(found[0, 2], x[2, :, 5:, 5:])


def test_what_a_layer_makes_is_seen_with_its_gradient():
    net = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU()).double()
    x = randn(1, 1, 5, 5).requires_grad_()
    with layer_output(net, "0") as made:
        net(x)
    assert torch.equal(middle_pixel(made[0]), net[0](x)[:, :, 2, 2])
    (g,) = torch.autograd.grad(made[0][0, 0, 2, 2], x)
    torch.testing.assert_close(g[0, 0, 1:4, 1:4], net[0].weight[0, 0])
    assert not net[0]._forward_hooks


# --------------------------------------------------------------------------------------- recipe


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Runs without pictures: a LeNet, an MLP without maps, one on a table."""
    out = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "draw", lambda self, model: ())
        return {name: runs.run(override(find(name), {"steps": "20"}), out).folder
                for name in ("lenet", "mlp", "mlp-xor")}  # fmt: skip


def test_units_of_a_run_are_driven(made):
    recipe = replace(find("feature-images"), of=everynet.trained(made["lenet"]), steps=20, units=3)
    assert recipe.layer_name(recipe.of.model.double(), randn(1, 1, 32, 32)) == "s4"
    result = recipe.simulate(torch.Generator().manual_seed(0))
    assert result["images"].shape[1:] == (1, 32, 32)
    assert 0 <= float(result["images"].min()) <= float(result["images"].max()) <= 1 + 1e-6
    assert recipe.metrics(result)["drive"] > 0
    assert list(recipe.draw(result)) == list(recipe.picture_names())
    other = replace(recipe, layer="c1")
    assert other.layer_name(recipe.of.model.double(), randn(1, 1, 32, 32)) == "c1"


def test_runs_and_layers_that_cannot_be_are_refused(made, tmp_path):
    with pytest.raises(UserError, match=r"of \(.*\) must be the run of a network that tells imag"):
        runs.run(override(find("feature-images"), {"of": str(made["mlp-xor"])}), tmp_path / "runs")
    flat = replace(find("feature-images"), of=everynet.trained(made["mlp"]))
    with pytest.raises(UserError, match=r"of \(.*\) must have a layer of maps, because units"):
        flat.simulate(torch.Generator())
    wrong = replace(find("feature-images"), of=everynet.trained(made["lenet"]), layer="c5")
    with pytest.raises(UserError, match=r"layer \(c5\) must be a module that gives maps"):
        wrong.simulate(torch.Generator())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"units": 0}, r"units \(0\) must be at least 1"),
        ({"steps": 0}, r"steps \(0\) must be at least 1"),
        ({"learned": 0}, r"learned \(0\) must be at least 1"),
        ({"tv": -1.0}, r"tv \(-1.0\) must be a number from 0 up"),
        ({"lr": 0.0}, r"lr \(0.0\) must be a positive number"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        replace(find("feature-images"), **fields)


@pytest.mark.slow
@pytest.mark.covers("C13")
def test_the_goal_is_reached(tmp_path):
    assert runs.run(find("feature-images"), tmp_path).reached

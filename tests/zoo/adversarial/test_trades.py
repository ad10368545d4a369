"""TRADES against the closed forms of linear models."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from everynet import runs
from everynet.recipes.catalog import find
from everynet.recipes.recipe import Goal
from everynet.system.errors import UserError
from everynet.training.loop import begin
from everynet.zoo.adversarial.attacks import ascend, random_start, risk
from everynet.zoo.adversarial.trades import (
    SmallCNN,
    divergence,
    inner_maximum,
    linear_divergence,
    linear_product,
    robust_risk,
    trades_terms,
    two_class_loss,
)


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def line():
    """A linear model of two classes with one output."""
    model = nn.Linear(9, 1).double()
    with torch.no_grad():
        model.weight.copy_(0.3 * numbers(1, 9, seed=1))
        model.bias.fill_(0.2)
    return model


class TwoLogits(nn.Module):
    """The same with a logit of 0 for the first class."""

    def __init__(self, line):
        super().__init__()
        self.line = line

    def forward(self, x):
        return nn.functional.pad(self.line(x), (1, 0))


# ------------------------------------------------------------------------------------ equations


@pytest.mark.covers("X6")
def test_the_inner_maximum_of_a_linear_model(line):
    """KL is convex along w: ascent ends at either end of the ball, and the better one is (6)."""
    x, eps, w = numbers(40, 9, seed=2), 0.2, line.weight[0].detach()
    f, net = line(x)[:, 0].detach(), TwoLogits(line)
    law = linear_divergence(f, w, eps)
    best = torch.zeros(40, dtype=torch.float64)
    for seed in range(12):
        torch.manual_seed(seed)
        moved = inner_maximum(net, x, eps=eps, step_size=0.05, steps=40, low=-99, high=99)
        assert float((moved - x).abs().max()) <= eps + 1e-12
        p, q = net(x).detach().softmax(1), net(moved).detach().softmax(1)
        found = (p * (p.log() - q.log())).sum(1)
        assert bool((found[None] - law).abs().amin(0).max() < 1e-9), "one of the two ends"
        best = torch.maximum(best, found)
    torch.testing.assert_close(best, law.amax(0), atol=1e-9, rtol=0)


@pytest.mark.covers("X6")
def test_the_least_product_of_a_linear_model(line):
    """(5), by ascent of -f(x) f(x'), and by the worst of many points of the ball."""
    x, eps, w = numbers(30, 9, seed=3), 0.3, line.weight[0].detach()
    f = line(x)[:, 0].detach()
    law = linear_product(f, w, eps)
    how = {"eps": eps, "step_size": 0.1, "steps": 20, "low": -99, "high": 99}
    moved = ascend(lambda v: -(f * line(v)[:, 0]).sum(), x, x, **how)
    torch.testing.assert_close(f * line(moved)[:, 0].detach(), law, atol=1e-12, rtol=0)
    for seed in range(20):
        other = random_start(x, eps, "linf", torch.Generator().manual_seed(seed))
        assert bool((f * line(other)[:, 0].detach() >= law - 1e-12).all())


@pytest.mark.covers("X6")
def test_the_robust_risk_of_a_linear_model(line):
    """(1) counts what ascent of the loss gets wrong, for a reach of eps ||w||_1."""
    x, eps, w = numbers(200, 9, seed=4), 0.2, line.weight[0].detach()
    f, y = line(x)[:, 0].detach(), torch.arange(200) % 2
    law = robust_risk(f, 2 * y - 1, eps * w.abs().sum())
    net = TwoLogits(line)
    how = {"eps": eps, "step_size": 0.1, "steps": 20, "low": -99, "high": 99}
    moved = ascend(lambda v: cross_entropy(net(v), y, reduction="sum"), x, x, **how)
    assert float(risk(net, moved, y)) == pytest.approx(float(law), abs=1e-12)
    assert float(robust_risk(f, 2 * y - 1, 0.0)) < float(law)


def test_the_objective_of_two_classes_by_hand():
    f, changed = torch.tensor([2.0, -1.0]).double(), torch.tensor([1.0, 0.5]).double()
    s = torch.tensor([1, 1])
    g = lambda a: torch.log1p(torch.exp(-torch.tensor(a)))  # noqa: E731 -- as in the docstring
    expected = (g(2.0) + 3 * g(2.0) + g(-1.0) + 3 * g(-0.5)) / 2
    assert float(two_class_loss(f, changed, s, 3.0)) == pytest.approx(float(expected), abs=1e-6)


def test_the_terms_of_several_classes():
    """KL(p || p'), in this order, is a mean over samples, and no term is 0 by its own design."""
    z, changed, y = numbers(5, 4), numbers(5, 4, seed=1), torch.tensor([0, 1, 2, 3, 0])
    p, q = z.softmax(1), changed.softmax(1)
    terms = trades_terms(z, changed, y, 6.0)
    expected = 6.0 * (p * (p / q).log()).sum(1).mean()
    torch.testing.assert_close(terms["divergence"], expected)
    torch.testing.assert_close(terms["cross_entropy"], -p.log()[range(5), y].mean())
    assert float(divergence(z, z)) == pytest.approx(0.0, abs=1e-14)
    assert float(divergence(z, changed)) != pytest.approx(float(divergence(changed, z)), abs=1e-3)


def test_the_ascent_begins_beside_the_image_and_leaves_the_network_as_it_was():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Dropout(0.5), nn.Tanh(), nn.Linear(8, 3))
    x = torch.rand(4, 1, 4, 4)
    moved = inner_maximum(net.train(), x, eps=0.1, step_size=0.03, steps=5)
    assert net.training
    assert net[2].training
    assert all(p.grad is None for p in net.parameters())
    assert not moved.requires_grad
    net.eval()
    with torch.no_grad():
        near, far = (divergence(net(x), net(other)) for other in (x + 1e-3, moved))
    assert float(far) > 10 * float(near)


# --------------------------------------------------------------------------------------- recipe


def test_the_size_of_the_attack_grows_on_the_device(monkeypatch):
    """In the first tenth of the updates: read from the clock, so that the update is captured."""
    recipe = replace(find("trades").tiny(), steps=20, ramp=0.5, eps=0.2)
    data, seen = recipe.dataset(), []
    state = begin(recipe, data)
    plain = type(recipe).terms

    def terms(self, model, x, y, eps):
        seen.append(eps)
        return plain(self, model, x, y, eps)

    monkeypatch.setattr(type(recipe), "terms", terms)
    for step in (0, 5, 10, 15):
        state.step = step
        state.set_clock(step)
        recipe.step(state, data.train(step))
    assert all(isinstance(eps, torch.Tensor) for eps in seen)
    assert [float(eps) for eps in seen] == pytest.approx([0.0, 0.1, 0.2, 0.2])


def test_pixels_of_the_data_are_from_black_to_white():
    for name in ("trades", "adversarial"):
        data = find(name).dataset()
        x = data.splits["train"][0]
        assert (float(x.min()), float(x.max())) == pytest.approx((0.0, 1.0), abs=1e-6)
        assert (data.spec["mean"], data.spec["std"]) == ([0.0], [1.0])
        assert data.spec["task"] == "classification"


def test_beta_0_is_the_cross_entropy_alone():
    recipe = replace(find("trades").tiny(), beta=0.0)
    data = recipe.dataset()
    model = recipe.model(data)
    assert [*recipe.objective(model, data.train(0))] == ["cross_entropy"]


def test_the_network_of_the_paper():
    net = SmallCNN(1, 10)
    assert sum(p.numel() for p in net.parameters()) == 312_202
    assert net(torch.rand(2, 1, 28, 28)).shape == (2, 10)
    assert float(net(torch.rand(2, 1, 28, 28)).detach().abs().max()) < 0.1


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("trades", {"eps": -0.1}, r"eps \(-0.1\) must be a number from 0 to 1"),
        ("trades", {"eps": 1.5}, r"eps \(1.5\) must be a number from 0 to 1"),
        ("trades", {"beta": -1.0}, r"beta \(-1.0\) must be a number from 0 up"),
        ("trades", {"inner": 0}, r"inner \(0\) must be at least 1"),
        ("trades", {"mixup": 0.2}, r"mixup \(0.2\) must be 0, because examples are made of one"),
        ("trade-off", {"betas": (6.0,)}, r"betas .* must be two or more numbers from 0 that rise"),
        ("trade-off", {"betas": (6.0, 1.0)}, r"betas .* must be two or more numbers from 0"),
        ("trade-off", {"eps": 2.0}, r"eps \(2.0\) must be a number from 0 to 1"),
        ("adversarial", {"share": 2.0}, r"share \(2.0\) must be a number from 0 to 1"),
        ("adversarial", {"attack": "cw"}, r"attack .*cw"),
    ],
)
def test_settings_it_refuses(name, fields, message):
    with pytest.raises(UserError, match=message):
        replace(find(name), **fields)


def test_images_too_small_for_the_network_of_the_paper():
    recipe = replace(find("trades-mnist"), data="digits", holdout=True, batch_size=8)
    with pytest.raises(UserError, match=r"size \(8 x 8\) must be square and at least 16, because"):
        recipe.model(recipe.dataset())


# ------------------------------------------------------------------------------------- learning


@pytest.mark.slow
@pytest.mark.covers("X6")
@pytest.mark.parametrize("name", ["trades", "trade-off"])
def test_the_goal_is_reached(name, tmp_path):
    result = runs.run(find(name), tmp_path)
    assert all(goal.reached(result.metrics) for goal in Goal.parse(find(name).goal))

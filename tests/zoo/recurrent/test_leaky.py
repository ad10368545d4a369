"""Leaky units against scipy's filter, their closed forms, and the time constants they find."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.signal import lfilter

from everynet import runs
from everynet.recipes.catalog import find
from everynet.system.errors import UserError
from everynet.zoo.recurrent.leaky import LeakyUnits, by_loop, step_response

TAUS = (0.5, 3.0, 20.0)


def units():
    return LeakyUnits(TAUS).double()


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.covers("R5")
@torch.no_grad()
def test_it_is_scipys_filter():
    net, v, mu = units(), normal(2, 50, 3), normal(2, 3, seed=1)
    for begin in (None, mu):
        found, last = net(v, begin)
        assert torch.equal(last, found[:, -1])
        looped = by_loop(net.alpha, v, torch.zeros_like(mu) if begin is None else begin)
        torch.testing.assert_close(found, looped, rtol=1e-12, atol=1e-12)
        for n in range(3):
            alpha = math.exp(-1 / net.tau[n].item())
            zi = alpha * (np.zeros((2, 1)) if begin is None else begin[:, n : n + 1].numpy())
            expected, _ = lfilter([1 - alpha], [1, -alpha], v[..., n].numpy(), axis=1, zi=zi)
            np.testing.assert_allclose(found[..., n].numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.covers("R5")
@torch.no_grad()
def test_the_time_constant_is_minus_one_over_the_logarithm():
    net = units()
    torch.testing.assert_close(-1 / net.alpha.log(), net.tau, rtol=1e-12, atol=0)
    assert net.tau.tolist() == pytest.approx(TAUS, rel=1e-6)
    assert net.alpha.tolist() == pytest.approx([math.exp(-1 / tau) for tau in TAUS], rel=1e-6)


@pytest.mark.covers("R5")
@torch.no_grad()
def test_a_step_is_answered_by_an_exponential_and_left_to_itself_a_state_fades():
    net, times = units(), torch.arange(1, 61).double()
    found, _ = net(torch.ones(1, 60, 3).double())
    torch.testing.assert_close(found[0], step_response(net.tau, times), rtol=1e-12, atol=1e-12)
    at_tau = step_response(net.tau, net.tau).diagonal()
    assert at_tau.tolist() == pytest.approx([1 - 1 / math.e] * 3)
    fading, _ = net(torch.zeros(1, 60, 3).double(), torch.ones(1, 3).double())
    expected = torch.exp(-times[:, None] / net.tau)
    torch.testing.assert_close(fading[0], expected, rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_stopping_and_going_on_changes_nothing():
    net, v = units(), normal(2, 30, 3)
    first, mu = net(v[:, :11])
    second, _ = net(v[:, 11:], mu)
    torch.testing.assert_close(torch.cat([first, second], 1), net(v)[0], rtol=1e-12, atol=1e-12)


def test_gradients_are_right_and_none_reach_what_is_fixed():
    net, v, mu = units(), normal(2, 7, 3), normal(2, 3, seed=1)
    given = [part.requires_grad_() for part in (v, mu)]

    def means(log_tau, v, mu):
        return torch.func.functional_call(net, {"log_tau": log_tau}, (v, mu))[0]

    assert torch.autograd.gradcheck(means, (net.log_tau, *given))
    fixed = units().requires_grad_(False)
    fixed(v)[0].sum().backward()
    assert fixed.log_tau.grad is None
    torch.testing.assert_close(fixed(v)[0], net(v)[0])


def test_the_loss_is_the_mean_square_and_figures_tell_how_far_time_constants_are_off():
    recipe = replace(find("leaky-units"), taus=(2.0, 8.0), length=30, noise=0.5)
    data = recipe.dataset()
    v, y = next(data.valid)
    model = LeakyUnits((2.0, 10.0))
    with torch.no_grad():
        expected = ((model(v)[0] - y) ** 2).sum() / y.numel()
        torch.testing.assert_close(recipe.objective(model, (v, y))["mse"], expected)
        figures = recipe.metrics(model, (v, y))
    torch.testing.assert_close(figures["mse"].mean(), expected)
    assert figures["tau_error"].tolist() == pytest.approx([0.25] * len(v), rel=1e-5)
    true = LeakyUnits(recipe.taus)(v)[0]
    assert (y - true).std().item() == pytest.approx(0.5, rel=0.05)
    assert recipe.model(data).tau.tolist() == pytest.approx([16.0, 16.0])


@pytest.mark.parametrize("taus", [(), (1.0, 0.0)])
def test_time_constants_it_refuses(taus):
    with pytest.raises(ValueError, match=r"taus \(.*\) must be positive, because a unit forgets"):
        LeakyUnits(taus)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"taus": ()}, r"taus \(\(\)\) must be positive, at least one"),
        ({"taus": (1.0, -1.0)}, r"taus \(.*\) must be positive, at least one"),
        ({"start_tau": 0.0}, r"start_tau \(0.0\) must be a positive number"),
        ({"noise": -0.1}, r"noise \(-0.1\) must be a number from 0 up"),
        ({"length": 1}, r"length \(1\) must be at least 2"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        replace(find("leaky-units"), **fields)


@pytest.mark.slow
@pytest.mark.covers("R5")
def test_finds_the_time_constants(tmp_path):
    result = runs.run(find("leaky-units"), tmp_path)
    assert result.reached, result.metrics

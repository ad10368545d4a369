"""The bound of a VAE beside exact answers: a linear model of Gaussian pixels has them all."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.distributions import Bernoulli, MultivariateNormal, Normal
from torch.distributions import kl_divergence as exact_kl

from everynet.data.dataset import Data
from everynet.system.errors import UserError
from everynet.system.seeds import seeded_by
from everynet.training.loop import evaluate, trained
from everynet.zoo.generative import vae as vae_file
from everynet.zoo.generative.vae import (
    RECIPES,
    VAE,
    BernoulliDecoder,
    BinaryVAE,
    GaussianDecoder,
    bound_in_pieces,
    conv_networks,
    draw_code,
    kl_divergence,
    log_normal,
    mlp_networks,
)

STD, LATENT, PIXELS = 0.7, 3, 5
SMALL = replace(RECIPES["vae"].tiny(), name="vae")


@pytest.fixture
def linear():
    """A linear VAE whose encoder is the true posterior, and images that it draws.

    The columns of W are orthogonal, so that the posterior has independent entries.
    """
    with seeded_by(3):
        w = torch.linalg.qr(torch.randn(PIXELS, LATENT).double())[0]
        w = w * torch.tensor([0.5, 1.0, 2.0]).double()
        b = torch.randn(PIXELS).double()
        x = torch.randn(40, PIXELS).double() * 2
    encoder, network = nn.Linear(PIXELS, 2 * LATENT).double(), nn.Linear(LATENT, PIXELS).double()
    model = VAE(encoder, GaussianDecoder(network, STD))
    variance = 1 / (1 + w.square().sum(0) / STD**2)
    with torch.no_grad():
        network.weight.copy_(w)
        network.bias.copy_(b)
        posterior = variance[:, None] * w.T / STD**2
        encoder.weight.copy_(torch.cat([posterior, torch.zeros_like(posterior)]))
        encoder.bias.copy_(torch.cat([-posterior @ b, variance.log()]))
    return model, x


def exact_log_likelihood(model, x):
    w, b = model.decoder.network.weight, model.decoder.network.bias
    covariance = w @ w.T + STD**2 * torch.eye(PIXELS).double()
    return MultivariateNormal(b, covariance).log_prob(x)


def expected_bound(model, x):
    """The bound with its expectation over codes taken by hand."""
    w, (mu, log_var) = model.decoder.network.weight, model.encode(x)
    square = (x - model(x)).square().sum(1) + (log_var.exp() * w.square().sum(0)).sum(1)
    term = -square / (2 * STD**2) - PIXELS / 2 * math.log(2 * math.pi * STD**2)
    return term - kl_divergence(mu, log_var)


def moved(model, size=0.3):
    """The same with an encoder that is wrong."""
    with torch.no_grad(), seeded_by(8):
        for weight in model.encoder.parameters():
            weight.add_(size * torch.randn_like(weight))
    return model


# ------------------------------------------------------------------------ divergence and codes


def test_the_divergence_is_exact_and_that_of_drawn_codes():
    with seeded_by(1):
        mu, log_var = torch.randn(2, 6, 4).double()
        q, p = Normal(mu, (log_var / 2).exp()), Normal(torch.zeros_like(mu), 1.0)
        torch.testing.assert_close(kl_divergence(mu, log_var), exact_kl(q, p).sum(1))
        many = [each[:1].expand(150_000, -1) for each in (mu, log_var)]
        z = draw_code(*many)
    zero = torch.zeros_like(z)
    drawn = (log_normal(z, *many) - log_normal(z, zero, zero)).mean()
    torch.testing.assert_close(drawn, kl_divergence(mu, log_var)[0], atol=1e-2, rtol=0)


def test_codes_have_their_moments_and_a_gradient_to_both():
    mu = torch.tensor([[1.0, -2.0]]).double().requires_grad_()
    log_var = torch.tensor([[0.5, -1.0]]).double().requires_grad_()
    n = 200_000
    with seeded_by(2):
        z = draw_code(mu.expand(n, -1), log_var.expand(n, -1))
    std = (log_var / 2).exp()[0]
    assert ((z.mean(0) - mu[0]).abs() < 5 * std / math.sqrt(n)).all()
    assert ((z.std(0) / std - 1).abs() < 5 / math.sqrt(2 * n)).all()
    # d/dmu E z^2 = 2 mu and d/dlog_var E z^2 = sigma^2
    slopes = torch.autograd.grad(z.square().mean(0).sum(), (mu, log_var))
    torch.testing.assert_close(slopes[0], 2 * mu, atol=0.03, rtol=0)
    torch.testing.assert_close(slopes[1], log_var.exp(), atol=0.03, rtol=0)


def test_likelihoods_are_those_of_torch():
    with seeded_by(4):
        network, z = nn.Linear(2, 6).double(), torch.randn(5, 2).double()
        x = torch.rand(5, 6).double().round()
        binary, real = BernoulliDecoder(network), GaussianDecoder(network, 0.3)
        wanted = Bernoulli(logits=network(z)).log_prob(x).sum(1)
        torch.testing.assert_close(binary.log_likelihood(x, z), wanted)
        torch.testing.assert_close(binary(z), network(z).sigmoid())
        wanted = Normal(network(z), 0.3).log_prob(x).sum(1)
        torch.testing.assert_close(real.log_likelihood(x, z), wanted)
        wanted = Normal(z / 2, (z / 2).exp()).log_prob(z).sum(1)
        torch.testing.assert_close(log_normal(z, z / 2, z), wanted)
    far = BernoulliDecoder(nn.Identity())
    logits = torch.tensor([[200.0, -200.0]])
    assert far.log_likelihood(torch.tensor([[0.0, 1.0]]), logits) == -400  # log(0) is not reached


# ------------------------------------------------------------------------------ bounds, exactly


def test_at_the_true_posterior_every_bound_is_the_exact_value(linear):
    model, x = linear
    exact = exact_log_likelihood(model, x)
    torch.testing.assert_close(expected_bound(model, x), exact, atol=1e-6, rtol=0)
    with seeded_by(5):
        each = model.log_weights(x, 4)
    torch.testing.assert_close(each, exact.expand(4, -1), atol=1e-6, rtol=0)  # whatever code
    torch.testing.assert_close(model.importance_bound(x, 3), exact, atol=1e-6, rtol=0)


def test_the_drawn_bound_is_the_expected_one_and_below_the_exact_value(linear):
    model, x = moved(linear[0]), linear[1]
    exact, expected = exact_log_likelihood(model, x), expected_bound(model, x)
    assert (expected < exact).all()
    with seeded_by(6), torch.no_grad():
        many = x[:4].repeat(50_000, 1)
        terms = model.negative_elbo(many)
        drawn = -sum(terms).view(-1, 4)
    error = drawn.std(0) / math.sqrt(len(drawn))
    assert ((drawn.mean(0) - expected[:4]).abs() < 5 * error).all()
    torch.testing.assert_close(terms[1], kl_divergence(*model.encode(many)))
    torch.testing.assert_close(model.negative_elbo(x, 3.0)[1], 3 * model.negative_elbo(x)[1])


def test_more_codes_bring_the_bound_nearer_to_the_exact_value(linear):
    model, x = moved(linear[0], 0.1), linear[1]
    exact = exact_log_likelihood(model, x).mean()
    with seeded_by(7), torch.no_grad():
        found = [expected_bound(model, x).mean()]
        for k in (2, 5, 20, 100, 1000):
            repeats = x.repeat(max(1, 4000 // k), 1)
            found.append(model.importance_bound(repeats, k).mean())
    assert all(a < b for a, b in pairwise(found))
    assert 0 < exact - found[-1] < 0.1 * (exact - found[0])


def test_the_gradient_through_drawn_codes_is_that_of_the_expected_bound(linear):
    model, x = moved(linear[0]), linear[1][:4]
    weights = list(model.parameters())
    wanted = torch.autograd.grad(-expected_bound(model, x).mean(), weights)
    with seeded_by(9):
        loss = sum(model.negative_elbo(x.repeat(50_000, 1))).mean()
    found = torch.autograd.grad(loss, weights)
    for mine, exact in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, exact, atol=0.03, rtol=0.01)


def test_many_codes_of_a_binary_network_give_the_integral_over_all_codes():
    """log p(x) of two numbers of code by a fine grid."""
    with seeded_by(10), torch.no_grad():
        encoder, network = mlp_networks((1, 3, 3), 8, 2)
        model = VAE(encoder, BernoulliDecoder(network)).double()
        network[-2].weight *= 3
        encoder[-1].weight *= 0.3  # q is wide, so that weights vary little
        x = torch.rand(6, 1, 3, 3).double().round()
        side = torch.linspace(-7, 7, 141).double()
        z = torch.cartesian_prod(side, side)
        zero = torch.zeros_like(z)
        log_prior = log_normal(z, zero, zero)
        exact = torch.stack([
            (model.decoder.log_likelihood(one.expand(len(z), 1, 3, 3), z) + log_prior).logsumexp(0)
            + 2 * math.log(0.1) for one in x
        ])  # fmt: skip
        found = model.importance_bound(x, 20_000)
    torch.testing.assert_close(found, exact, atol=0.02, rtol=0)


def test_codes_in_pieces_are_all_counted(linear, monkeypatch):
    model, x = linear
    monkeypatch.setattr(vae_file, "PIECE", 7 * x.numel())
    exact = exact_log_likelihood(model, x)
    torch.testing.assert_close(bound_in_pieces(model, x, 20), exact, atol=1e-6, rtol=0)


@pytest.mark.parametrize("make", [lambda: mlp_networks((1, 8, 8), 6, 2),
                                  lambda: conv_networks((1, 8, 8), 3, 6, 2)])  # fmt: skip
def test_networks_map_images_to_codes_and_back(make):
    encoder, decoder = make()
    x = torch.rand(3, 1, 8, 8)
    assert encoder(x).shape == (3, 4)
    assert decoder(torch.zeros(3, 2)).shape == x.shape


# ------------------------------------------------------------------------------------- the recipe


@pytest.fixture(scope="module")
def learned():
    recipe = replace(SMALL, steps=20, batch_size=50)
    data = recipe.dataset()
    return recipe, trained(recipe, data), data


def test_training_draws_pixels_anew_and_evaluation_does_not():
    recipe = replace(SMALL, beta=2.0)
    data = recipe.dataset()
    model = recipe.model(data)
    x = data.splits["train"][0][:50]
    with seeded_by(1):
        first = recipe.objective(model, (x,))
    with seeded_by(2):
        other = recipe.objective(model, (x,))
    assert first["kl"] != other["kl"]  # the encoder saw other pixels
    y = data.splits["test"][0][:50]
    with seeded_by(1):
        kl = recipe.metrics(model, (y,))["kl"]
    with seeded_by(2):
        found = recipe.metrics(model, (y,))
    torch.testing.assert_close(found["kl"], kl)  # with beta 1
    torch.testing.assert_close(found["negative_elbo"], found["reconstruction"] + found["kl"])
    torch.testing.assert_close(recipe.objective(model, (y,))["kl"], 2 * kl.mean())


def test_samples_codes_and_lines_between_two(learned):
    recipe, model, data = learned
    draw = lambda: torch.Generator().manual_seed(1)  # noqa: E731
    made = recipe.sample(model, data.spec, draw(), n=5)
    assert made.shape == (5, 1, 8, 8)
    assert made.unique().numel() > 2
    assert recipe.sample(model, data.spec, draw(), n=5, pixels=True).unique().tolist() == [0, 1]
    two = data.splits["test"][0][:2]
    line = recipe.sample(model, data.spec, draw(), n=4, between=two)
    torch.testing.assert_close(line[[0, -1]], model(two))
    with pytest.raises(AssertionError):
        torch.testing.assert_close(line[1], line[0])
    one = recipe.sample(model, data.spec, draw(), code=(0.0,) * recipe.latent_size)
    torch.testing.assert_close(one, model.decoder(torch.zeros(1, recipe.latent_size)))


def test_predictions_are_code_likelihood_and_reconstruction(learned):
    recipe, model, data = learned
    x = data.splits["test"][0][:3]
    with torch.no_grad():
        found = recipe.predict(model, x * 0.8 + 0.1, data.spec, importance=50)
        again = recipe.predict(model, x, data.spec, importance=50)
    assert [one["log_likelihood"] for one in found] == [one["log_likelihood"] for one in again]
    torch.testing.assert_close(torch.tensor([one["code"] for one in found]), model.encode(x)[0])
    torch.testing.assert_close(torch.stack([one["reconstruction"] for one in found]), model(x))
    assert all(-64 < one["log_likelihood"] < 0 for one in found)


def test_final_takes_the_number_of_codes_and_of_samples(learned):
    recipe, model, data = learned
    with torch.no_grad():
        few = recipe.final(model, data, torch.Generator(), importance=1, samples=30)
        more = recipe.final(model, data, torch.Generator(), importance=50, samples=30)
    assert more["negative_log_likelihood"] < few["negative_log_likelihood"]
    assert few.keys() == recipe.meanings.keys() - {"negative_elbo", "reconstruction", "kl"}


def test_refusals(learned):
    recipe, model, data = learned
    draw, spec = torch.Generator(), data.spec
    two = data.splits["test"][0][:2]
    with pytest.raises(UserError, match=r"n \(0\) must be from 1 to 100,000"):
        recipe.sample(model, spec, draw, n=0)
    with pytest.raises(UserError, match=r"n \(1\) must be at least 2, because both ends"):
        recipe.sample(model, spec, draw, n=1, between=two)
    with pytest.raises(UserError, match=r"between \(1 images\) must be two: a.png,b.png"):
        recipe.sample(model, spec, draw, between=two[:1])
    with pytest.raises(UserError, match=r"code \(2 numbers\) must be 3, as many as were learned"):
        recipe.sample(model, spec, draw, code=(0.0, 1.0))
    with pytest.raises(UserError, match=r"inputs \(0 to 3\) must hold pixels from 0 to 1"):
        recipe.predict(model, 3 * two, spec)
    for call in (lambda: recipe.predict(model, two, spec, importance=0),
                 lambda: recipe.final(model, data, draw, importance=0)):  # fmt: skip
        with pytest.raises(UserError, match=r"importance \(0\) must be from 1 to 100,000"):
            call()
    with pytest.raises(UserError, match=r"samples \(1\) must be from 2 to 100,000; 0 is as"):
        recipe.final(model, data, draw, samples=1)
    with pytest.raises(UserError, match=r"images \(10 x 8\) must have sides that 4 divides"):
        RECIPES["vae-conv"].model(Data.described({"shape": [1, 10, 8]}))
    with pytest.raises(ValueError, match=r"std \(0\) must be above 0"):
        GaussianDecoder(nn.Identity(), 0)
    with pytest.raises(UserError, match=r"beta \(-1.0\) must be a number from 0 up"):
        BinaryVAE(beta=-1.0)


@pytest.mark.slow
def test_a_larger_beta_leaves_less_in_the_code():
    """KL falls with beta, and the reconstruction gets worse."""
    found = []
    for beta in (0.25, 1.0, 4.0):
        recipe = replace(RECIPES["vae"], steps=600, beta=beta)
        data = recipe.dataset()
        found.append(evaluate(recipe, trained(recipe, data), data.valid))
    kl, reconstruction = ([one[n] for one in found] for n in ("kl", "reconstruction"))
    assert kl[0] > 1.2 * kl[1] > 1.4 * kl[2]
    assert reconstruction[0] < reconstruction[1] < reconstruction[2]

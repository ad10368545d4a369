"""Diffusion beside exact answers: on Gaussian data everything about it is known."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import MultivariateNormal, Normal
from torch.distributions import kl_divergence as exact_kl

from everynet import runs
from everynet.plot import Film
from everynet.recipes.settings import override
from everynet.system.errors import UserError
from everynet.system.seeds import generator, seeded_by
from everynet.training.device import choose
from everynet.training.graph import captured
from everynet.training.loop import begin, train
from everynet.zoo.generative import diffusion as diffusion_file
from everynet.zoo.generative.diffusion import (
    DDIM,
    DDPM,
    HOLD,
    RECIPES,
    SCHEDULES,
    Diffusion,
    ExactNoise,
    NoiseMLP,
    NoiseSchedule,
    bound,
    bound_terms,
    cosine_betas,
    denoise,
    draw_steps,
    gaussian_log_likelihood,
    last_of,
    linear_betas,
    sampling_steps,
    signal_left,
    simple_loss,
    weighted_loss,
)

SMALL = replace(RECIPES["diffusion-ring"].tiny(), name="diffusion-ring")
MEAN = torch.tensor([0.8, -0.5]).double()
COVARIANCE = torch.tensor([[0.9, 0.3], [0.3, 0.6]]).double()
STEPS = st.integers(50, 400)


def schedule_of(steps=40, noising="linear"):
    return NoiseSchedule(SCHEDULES[noising](steps))


def exact_model(steps, noising="linear"):
    """The exact noise of Gaussian data, as a network."""
    schedule = schedule_of(steps, noising)
    return Diffusion(ExactNoise(MEAN[None], COVARIANCE, schedule), schedule)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


# ------------------------------------------------------------------------------------- schedules


def test_a_thousand_linear_steps_leave_the_published_signal():
    left = signal_left(linear_betas(1000))
    assert left[-1].item() == pytest.approx(4.04e-5, rel=2e-3)
    betas = linear_betas(1000)
    assert (betas[0].item(), betas[-1].item()) == pytest.approx((1e-4, 0.02))
    for steps in (100, 250, 4000):  # as much noise in the end
        assert signal_left(linear_betas(steps))[-1].log().item() == pytest.approx(-10.1, abs=0.8)


def test_the_signal_left_is_the_product_of_what_each_step_leaves():
    betas = linear_betas(50)
    left, product = signal_left(betas), 1.0
    for t in range(51):
        assert left[t].item() == pytest.approx(product, rel=1e-12)
        product *= 1 - betas[min(t, 49)].item()


def test_the_cosine_schedule_is_its_function_but_for_the_last_step():
    def f(t):
        return math.cos((t / 100 + 0.008) / 1.008 * math.pi / 2) ** 2

    left = signal_left(cosine_betas(100))
    for t in (0, 1, 30, 99):
        assert left[t].item() == pytest.approx(f(t) / f(0), rel=1e-9)
    assert cosine_betas(100)[-1].item() == 0.999  # else nothing would be left


@pytest.mark.parametrize("noising", SCHEDULES)
def test_moments_step_by_step_are_those_of_t_steps_at_once(noising):
    schedule = schedule_of(60, noising)
    mean, variance = 1.0, 0.25
    zero, one = torch.zeros(()).double(), torch.ones(()).double()
    for t in range(1, 61):
        signal = schedule.noise_further(one, zero, t - 1, t).item()
        added = schedule.noise_further(zero, one, t - 1, t).item()
        mean, variance = signal * mean, signal**2 * variance + added**2
        abar = schedule.abar[t]
        assert mean == pytest.approx(math.sqrt(abar), rel=1e-10)
        assert variance == pytest.approx(0.25 * abar + 1 - abar, rel=1e-10)
        at_once = schedule(one.view(1), torch.tensor([t]), torch.tensor([2.0]).double())
        assert at_once.item() == pytest.approx(math.sqrt(abar) + 2 * math.sqrt(1 - abar))
        jump = schedule.noise_further(one, one, 0, t).item()
        assert jump == pytest.approx(math.sqrt(abar) + math.sqrt(1 - abar))


def test_steps_of_a_batch_are_one_of_each_equal_part():
    with seeded_by(1):
        t = draw_steps(8, 1000, torch.device("cpu"))
        many = torch.cat([draw_steps(16, 7, torch.device("cpu")) for _ in range(600)])
    assert ((t - 1) // 125).tolist() == [*range(8)]
    shares = many.bincount(minlength=8)[1:] / len(many)
    assert len(shares) == 7  # none beyond T
    torch.testing.assert_close(shares, torch.full((7,), 1 / 7), atol=0.02, rtol=0)


# ------------------------------------------------------------------------------------- posterior


@given(steps=STEPS, seed=st.integers(0, 99), noising=st.sampled_from([*SCHEDULES]))
@settings(max_examples=20)
def test_both_forms_of_the_posterior_mean_are_equal(steps, seed, noising):
    schedule = schedule_of(steps, noising)
    t = 1 + seed % (steps - 1)
    x, eps = normal(2, 3, seed=seed)
    noisy = schedule(x[None], torch.tensor([t]), eps[None])[0]
    for s in {t - 1, t // 2}:
        one = schedule.posterior_mean(x, noisy, t, s)
        other = schedule.posterior_mean_by_noise(noisy, eps, t, s)
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)
    torch.testing.assert_close(schedule.data_of(noisy, eps, t), x)
    torch.testing.assert_close(schedule.noise_of(noisy, x, t), eps)


def test_the_posterior_is_that_of_conditioning_gaussians():
    """p(x_s | x_0, x_t) by the rule for the joint Gaussian of x_s and x_t, given x_0."""
    schedule, x0, xt = schedule_of(), 0.7, -1.3
    for t, s in ((2, 1), (17, 16), (40, 39), (40, 10)):
        a, alpha = schedule.abar[s], schedule.abar[t] / schedule.abar[s]
        variance_s, variance_t = 1 - a, 1 - schedule.abar[t]
        cov = math.sqrt(alpha) * variance_s
        mean = math.sqrt(a) * x0 + cov / variance_t * (xt - math.sqrt(schedule.abar[t]) * x0)
        made = schedule.posterior_mean(torch.tensor(x0), torch.tensor(xt), t, s)
        assert made.item() == pytest.approx(mean, rel=1e-6)
        assert schedule.posterior_variance(t, s) == pytest.approx(
            variance_s - cov**2 / variance_t, rel=1e-9
        )


def test_the_posterior_mean_is_not_what_is_often_printed():
    """With sqrt(1 - alpha_t), or alpha_t for abar_t, under the noise the mean is another."""
    schedule, (x, eps) = schedule_of(), normal(2, 4)
    t = 25
    alpha, abar = 1 - schedule.betas[t], schedule.abar[t]
    right = schedule.posterior_mean_by_noise(x, eps, t, t - 1)
    for wrong in (math.sqrt(1 - alpha), math.sqrt(1 - abar), schedule.betas[t] / (1 - abar)):
        assert ((x - wrong * eps) / math.sqrt(alpha) - right).abs().max() > 1e-3


# ---------------------------------------------------------------------------------------- losses


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_exact_weight_makes_the_error_of_the_noise_a_divergence(share):
    schedule = schedule_of()
    weights, misfits = schedule.weights(share), schedule.misfits(share)
    x, eps, guess = normal(3, 5)
    for t in (2, 9, 40):
        noisy = schedule(x[None], torch.tensor([t]), eps[None])[0]
        q = Normal(
            schedule.posterior_mean(x, noisy, t, t - 1),
            math.sqrt(schedule.posterior_variance(t, t - 1)),
        )
        p = Normal(
            schedule.posterior_mean_by_noise(noisy, guess, t, t - 1),
            math.sqrt(schedule.model_variance(t, t - 1, share)),
        )
        made = weighted_loss(eps[None], guess[None], weights[t : t + 1]) + 5 * misfits[t]
        torch.testing.assert_close(made[0], exact_kl(q, p).sum(), atol=1e-10, rtol=1e-10)
    assert misfits[2:].eq(0).all() == (share == 0)


def test_the_simple_loss_is_a_mean_and_least_at_the_exact_noise():
    eps, guess = normal(2, 3, 4)
    wanted = (eps - guess).pow(2).mean(1)
    torch.testing.assert_close(simple_loss(eps, guess), wanted)
    model = exact_model(20)
    x = MultivariateNormal(MEAN, COVARIANCE).sample((40_000,))
    eps = normal(40_000, 2, seed=3)
    for t in (3, 12, 20):
        times = torch.full((len(x),), t)
        noisy = model.schedule(x, times, eps)
        best = simple_loss(eps, model(noisy, times)).mean()
        abar = model.schedule.abar[t]
        c = abar * COVARIANCE + (1 - abar) * torch.eye(2).double()
        known = 1 - (1 - abar) * torch.linalg.inv(c).trace() / 2  # E var(eps | x_t)
        assert best.item() == pytest.approx(known.item(), rel=0.02)
        for wrong in (1.05, 0.95):
            assert simple_loss(eps, wrong * model(noisy, times)).mean() > best


def test_the_exact_noise_of_a_mixture_is_the_gradient_of_its_density():
    """e*(x, t) = -sqrt(1 - abar_t) d log p_t(x) / dx."""
    schedule = schedule_of()
    means = torch.tensor([[1.0, 0.0], [-1.0, 0.5], [0.0, -2.0]]).double()
    exact = ExactNoise(means, COVARIANCE, schedule)
    x = normal(6, 2).requires_grad_()
    t = torch.tensor([1, 5, 10, 20, 30, 40])
    total = 0.0
    for row, time in enumerate(t.tolist()):
        abar = schedule.abar[time]
        c = abar * COVARIANCE + (1 - abar) * torch.eye(2).double()
        parts = MultivariateNormal(math.sqrt(abar) * means, c).log_prob(x[row])
        total = total + parts.logsumexp(0) * math.sqrt(1 - abar)
    (slope,) = torch.autograd.grad(total, x)
    torch.testing.assert_close(exact(x, t), -slope)


# ----------------------------------------------------------------------------------------- bound


def expected_terms(schedule, share):
    """The mean of each term over Gaussian data, whose noise is guessed exactly."""
    eye, found = torch.eye(2).double(), []
    weights, misfits = schedule.weights(share), schedule.misfits(share)
    for t in range(1, schedule.steps + 1):
        abar = schedule.abar[t]
        c = abar * COVARIANCE + (1 - abar) * eye
        error = (2 - (1 - abar) * torch.linalg.inv(c).trace()).item()  # E |eps - e*|^2
        if t == 1:
            variance = schedule.model_variance(1, 0, share)
            square = (1 - abar) / abar * error / (2 * variance)
            found.append(square + math.log(2 * math.pi * variance))
        else:
            found.append(weights[t].item() * error + 2 * misfits[t].item())
    second = (COVARIANCE + MEAN.outer(MEAN)).trace().item()
    abar = schedule.abar[-1]
    return [*found, (abar * second - 2 * abar - 2 * math.log(1 - abar)) / 2]


def test_the_bound_of_gaussian_data_with_exact_noise_is_their_log_likelihood():
    """Within 1 %, as the step back from Gaussian data varies almost as that of noising."""
    entropy = MultivariateNormal(MEAN, COVARIANCE).entropy().item()
    found = {share: sum(expected_terms(schedule_of(1000), share)) for share in (0.0, 0.5, 1.0)}
    assert found[1.0] == pytest.approx(entropy, rel=0.01)
    assert all(value >= entropy for value in found.values())  # it is a bound


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_terms_of_the_bound_have_these_means(share):
    model, rows = exact_model(12), 4000
    with seeded_by(4):
        x = MultivariateNormal(MEAN, COVARIANCE).sample((rows,))
    terms = bound_terms(model, x, generator(1), share=share, at_once=8000)
    assert terms.shape == (rows, 13)
    wanted = torch.tensor(expected_terms(model.schedule, share)).double()
    error = 5 * terms.std(0) / math.sqrt(rows) + 1e-9
    assert ((terms.mean(0) - wanted).abs() <= error).all()
    torch.testing.assert_close(bound(terms), terms.sum(1))


def test_the_bound_is_larger_for_a_wrong_guess_and_its_first_term_exact():
    schedule = NoiseSchedule(torch.full((8,), 0.1).double())  # much of the data is left in x_T
    model, (x,) = (
        Diffusion(ExactNoise(MEAN[None], COVARIANCE, schedule), schedule),
        normal(1, 200, 2),
    )
    terms = bound_terms(model, x, generator(1))
    torch.testing.assert_close(bound(terms), terms.sum(1))
    abar = schedule.abar[-1]
    start = Normal(math.sqrt(abar) * x, math.sqrt(1 - abar))
    wanted = exact_kl(start, Normal(torch.zeros_like(x), 1.0)).sum(1)
    torch.testing.assert_close(terms[:, -1], wanted)
    model.network.means += 1
    assert bound(bound_terms(model, x, generator(1))).mean() > bound(terms).mean()


def test_the_last_term_of_the_bound_is_the_density_around_the_guess():
    model, x = exact_model(1), normal(1, 2)
    terms = bound_terms(model, x, generator(7), limit=0.3)
    std = math.sqrt(model.schedule.betas[1])
    draw = torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=generator(7))))
    eps = torch.randn(1, 2, generator=draw, dtype=torch.float64)
    t = torch.ones(1).long()
    noisy = model.schedule(x, t, eps)
    guess = model.schedule.data_of(noisy, model(noisy, t), 1).clamp(-0.3, 0.3)
    torch.testing.assert_close(terms[:, 0], -Normal(guess, std).log_prob(x).sum(1))
    torch.testing.assert_close(
        gaussian_log_likelihood(x, guess, torch.tensor(std).double()),
        Normal(guess, std).log_prob(x),
    )


# -------------------------------------------------------------------------------------- sampling


def exact_moments(model, steps, sampler):
    """Mean and covariance of what is drawn: each step is affine where the noise is exact."""
    mean, cov, eye = torch.zeros(2).double(), torch.eye(2).double(), torch.eye(2).double()
    for t, s in sampling_steps(steps, model.schedule.steps):
        x = torch.cat([torch.zeros(1, 2).double(), eye])
        eps = model(x, torch.full((3,), t))
        shift, *columns = sampler.step(model.schedule, x, eps, t, s, z=0.0)
        added = sampler.step(model.schedule, x, eps, t, s, z=1.0)[0, 0] - shift[0]
        a = torch.stack(columns, 1) - shift[:, None]
        mean, cov = a @ mean + shift, a @ cov @ a.T + added**2 * eye
    return mean, cov


@pytest.mark.parametrize("sampler", [DDPM(), DDPM(1.0), DDIM()])
def test_exact_noise_gives_the_mean_and_the_covariance_of_the_data(sampler):
    mean, cov = exact_moments(exact_model(1000), 1000, sampler)
    scale = COVARIANCE.diagonal().sqrt()
    assert ((mean - MEAN).abs() / scale).max() < 0.02
    assert ((cov - COVARIANCE).abs() / scale.outer(scale)).max() < 0.02


@pytest.mark.parametrize("sampler", [DDPM(), DDPM(1.0), DDIM(), DDIM(1.0)])
def test_what_is_drawn_has_these_moments(sampler):
    """DDIM with eta = 1 and DDPM draw from the same distribution."""
    model, rows = exact_model(30), 20_000
    way = denoise(model, model.schedule, normal(rows, 2), 15, sampler, generator=generator(2))
    x, (mean, cov) = last_of(way), exact_moments(model, 15, sampler)
    scale = cov.diagonal().sqrt()
    assert ((x.mean(0) - mean).abs() / scale).max() < 5 / math.sqrt(rows)
    assert ((x.T.cov() - cov).abs() / scale.outer(scale)).max() < 7 / math.sqrt(rows)
    if sampler == DDIM(1.0):
        for one, other in zip(exact_moments(model, 15, DDPM()), (mean, cov), strict=True):
            torch.testing.assert_close(one, other)


def test_the_mean_of_every_step_of_ddpm_is_the_posterior_mean():
    schedule, (x, eps) = schedule_of(), normal(2, 5)
    for t in (40, 7, 1):
        data = schedule.data_of(x, eps, t)
        wanted = schedule.posterior_mean(data, x, t, t - 1)
        zero = torch.zeros_like(x)
        made = DDPM().step(schedule, x, eps, t, t - 1, z=zero)
        torch.testing.assert_close(made, wanted)
        one = DDPM(0.3).step(schedule, x, eps, t, t - 1, z=1.0) - made
        std = math.sqrt(schedule.model_variance(t, t - 1, 0.3)) if t > 1 else 0.0
        torch.testing.assert_close(one, torch.full_like(one, std))  # z = 0 at t = 1


def test_ddim_with_all_of_the_noise_is_ddpm():
    """Step for step with the same noise, so that it is the same distribution."""
    schedule, (x, eps, z) = schedule_of(), normal(3, 5)
    for t, s in ((40, 39), (12, 11), (30, 10), (1, 0)):
        one = DDIM(1.0).step(schedule, x, eps, t, s, z=z)
        torch.testing.assert_close(one, DDPM(0.0).step(schedule, x, eps, t, s, z=z))


def test_ddim_keeps_the_distribution_of_x_s_given_the_data_whatever_eta():
    schedule, rows = schedule_of(), 100_000
    data, (eps, z) = normal(1).expand(rows), normal(2, rows, seed=1)
    t, s = 30, 20
    x = schedule(data, torch.full((rows,), t), eps)
    for eta in (0.0, 0.6):
        made = DDIM(eta).step(schedule, x, eps, t, s, z=z)
        mean, std = math.sqrt(schedule.abar[s]) * data[0], math.sqrt(1 - schedule.abar[s])
        assert (made.mean() - mean).abs() < 5 * std / math.sqrt(rows)
        assert (made.std() / std - 1).abs() < 5 / math.sqrt(2 * rows)


@given(noise_steps=st.integers(1, 60), steps=st.integers(1, 60))
@settings(max_examples=30)
def test_steps_of_sampling_go_from_all_noise_to_none(noise_steps, steps):
    if steps > noise_steps:
        with pytest.raises(UserError, match=r"steps \(\d+\) must be from 1 to \d+, because the"):
            sampling_steps(steps, noise_steps)
        return
    pairs = sampling_steps(steps, noise_steps)
    assert len(pairs) == steps
    assert (pairs[0][0], pairs[-1][1]) == (noise_steps, 0)
    assert all(t > s for t, s in pairs)


def test_a_limit_holds_what_noisy_data_is_taken_for():
    model = exact_model(30)
    way = [*denoise(model, model.schedule, 5 * normal(9, 2), 10, DDIM(), limit=0.4)]
    assert all(data.abs().max() <= 0.4 for _, _, data in way)
    assert way[-1][1].abs().max() <= 0.4 + 1e-9
    assert [s for s, _, _ in way] == [27, 24, 21, 18, 15, 12, 9, 6, 3, 0]


def test_off_cuda_a_captured_function_is_itself():
    def draw(x):
        return x + 1

    assert captured(draw, torch.zeros(2)) is draw


# ---------------------------------------------------------------------------------- the ring


def test_the_network_is_given_the_step():
    network = NoiseMLP(2, 8, 2, 10).double()
    x = normal(1, 2).expand(2, 2)
    made = network(x, torch.tensor([3, 9]))
    assert (made[0] - made[1]).abs().max() > 1e-6
    h = network.input(x[:1])
    for layer in network.hidden:
        h = h + layer(torch.nn.functional.silu(h + network.time(network.codes[3])))
    torch.testing.assert_close(made[:1], network.output(torch.nn.functional.silu(h)))


def test_the_exact_noise_of_the_ring_gives_all_of_its_modes():
    recipe = replace(RECIPES["diffusion-ring"], held_out=1000)
    model = begin(recipe, recipe.dataset()).model.double()
    exact = Diffusion(recipe.exact(model), model.schedule)
    fake = recipe.generate(exact, normal(1000, 2), 50, DDPM(), generator(1))
    assert recipe.count_modes(fake) == 8
    assert recipe.count_by_mode(fake).sum() >= 980


def test_an_evaluation_says_how_far_the_guess_is_from_the_best():
    recipe = replace(SMALL, held_out=400)
    data = recipe.dataset()
    model = begin(recipe, data).model
    exact = Diffusion(recipe.exact(model), model.schedule)
    exact.register_parameter("some", torch.nn.Parameter(torch.zeros(1)))
    batch = next(iter(data.valid))
    with seeded_by(1):
        known = recipe.summarise(recipe.metrics(exact, batch))
    assert known["excess_mse"] == 0
    with seeded_by(1), torch.no_grad():
        learned = recipe.summarise(recipe.metrics(model, batch))
    assert learned["noise_mse"] == pytest.approx(
        known["noise_mse"] + learned["excess_mse"], rel=0.15
    )


def test_points_and_films_are_sampled():
    recipe = SMALL
    data = recipe.dataset()
    state = begin(recipe, data)
    for _ in train(recipe, state, data, setup=choose("cpu")):
        pass
    model = recipe.deployed(state).eval()
    with torch.no_grad():
        made = {
            method: recipe.sample(model, data.spec, generator(1), n=7, steps=5, method=method)
            for method in ("ddim", "ddpm")
        }
        assert {tuple(some.shape) for some in made.values()} == {(7, 2)}
        assert not torch.equal(*made.values())
        film = recipe.sample(model, data.spec, generator(1), n=7, steps=2, film=True)
    assert isinstance(film, Film)
    assert len(film.frames) == 3 + HOLD


# ---------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"n": 0}, r"n \(0\) must be between 1 and 1,000,000: so many points are made"),
        (
            {"steps": 11},
            r"steps \(11\) must be from 1 to 10, because the network learned to undo 10",
        ),
        ({"method": "ddmp"}, r"unknown method 'ddmp'; did you mean ddpm"),
        ({"eta": 1.5}, r"eta \(1.5\) must be from 0 to 1: how much noise is drawn"),
    ],
)
def test_bad_settings_of_sampling_are_refused(given, said):
    model = begin(SMALL, SMALL.dataset()).model
    with pytest.raises(UserError, match=said):
        SMALL.sample(model, {}, generator(0), **{"n": 2, "steps": 2, **given})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"noising": "cosin"}, "noising.*cosine"),
        ({"noise_steps": "1"}, r"noise_steps \(1\) must be at least 2"),
        ({"sampling_steps": "500"}, r"sampling_steps \(500\) must be at most noise_steps \(200\)"),
        ({"hidden_size": "7"}, r"hidden_size \(7\) must be even: sines and cosines of t"),
        ({"layers": "0"}, r"layers \(0\) must be at least 1"),
        ({"decay": "1.0"}, r"decay \(1.0\) must be above 0 and below 1"),
    ],
)
def test_bad_settings_are_refused(given, said):
    with pytest.raises(UserError, match=said):
        override(RECIPES["diffusion-ring"], given)


@pytest.mark.parametrize("betas", [[], [0.1, 0.0], [0.2, 1.0], [0.1, math.nan]])
def test_betas_that_are_no_variances_are_refused(betas):
    with pytest.raises(ValueError, match="above 0 and below 1, because they are variances"):
        NoiseSchedule(torch.tensor(betas).double())


def test_the_file_offers_one_way_to_draw_by_each_name():
    assert set(diffusion_file.SAMPLERS) == {"ddim", "ddpm"}


# --------------------------------------------------------------------------------------- learning


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_goal(seed, tmp_path):
    recipe = replace(RECIPES["diffusion-ring"], name="diffusion-ring", seed=seed)
    found = runs.run(recipe, tmp_path, device="cpu").metrics
    print(found)
    assert all(goal.reached(found) for goal in recipe.goals())

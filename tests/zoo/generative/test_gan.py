"""The two players of a GAN: what they play for, and that neither touches the other."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import binary_cross_entropy_with_logits

from everynet import runs
from everynet.data.draws import Share
from everynet.runs import checkpoint
from everynet.runs.checkpoint import read_bundle
from everynet.runs.job import Job
from everynet.system.errors import UserError
from everynet.system.seeds import seed
from everynet.training.device import choose
from everynet.training.loop import UPDATE, begin, evaluate, train, trained
from everynet.training.processes import World
from everynet.zoo.generative.gan import (
    GAN,
    HOLD,
    RECIPES,
    GaussianRing,
    best_discriminator,
    discriminator_loss,
    generator_loss,
    gradient_penalty,
)
from everynet.zoo.generative.pictures.generation import game_frames
from everynet.zoo.generative.ring import mixture_density, mode_centres, sample_ring
from tests.plot.legible import faults
from tests.runs.test_resume import contents, stopped_after
from tests.training.torchrun import torchrun

SMALL = replace(
    RECIPES["gan-ring"].tiny(), name="gan-ring", steps=8, eval_every=4, schedule="constant"
)


def scores(number, rows):
    draw = torch.Generator().manual_seed(number)
    return torch.randn(rows, generator=draw, dtype=torch.float64) * 3


def line(mean, std):
    """A Gaussian density on a fine line."""
    x = torch.linspace(-12, 12, 4801, dtype=torch.float64)
    return torch.exp(-((x - mean) ** 2) / (2 * std**2)) / (std * math.sqrt(2 * math.pi))


# --------------------------------------------------------------------------------------- the game


@given(real=st.integers(1, 9), made=st.integers(1, 9), number=st.integers(0, 99))
@settings(max_examples=10)
def test_the_losses_are_what_the_equations_say(real, made, number):
    s, t = scores(number, real), scores(number + 1, made)
    v = s.sigmoid().log().mean() + (1 - t.sigmoid()).log().mean()
    torch.testing.assert_close(discriminator_loss(s, t), -v)
    torch.testing.assert_close(generator_loss(t), -t.sigmoid().log().mean())
    ones, zeros = torch.ones_like(s), torch.zeros_like(t)
    entropy = binary_cross_entropy_with_logits(s, ones) + binary_cross_entropy_with_logits(t, zeros)
    torch.testing.assert_close(discriminator_loss(s, t), entropy)


def test_the_generators_gradient_does_not_vanish_where_it_is_found_out():
    """By the score it is D - 1 for (3); that of log(1 - D) would be -D, nothing at D = 0."""
    s = torch.tensor([-12.0, -1.0, 0.0, 3.0], dtype=torch.float64, requires_grad=True)
    (generator_loss(s) * len(s)).backward()
    torch.testing.assert_close(s.grad, s.detach().sigmoid() - 1)
    assert s.grad[0] == pytest.approx(-1, abs=1e-5)


def test_the_penalty_of_a_plane_is_its_slope():
    """For s = 3 x - 4 y it is gamma / 2 x 25 wherever the points are, and it can be descended."""
    x = torch.randn(6, 2, dtype=torch.float64, requires_grad=True)
    slope = torch.tensor([3.0, -4.0], dtype=torch.float64, requires_grad=True)
    found = gradient_penalty(x @ slope, x, 0.1)
    assert found.item() == pytest.approx(0.05 * 25)
    found.backward()
    torch.testing.assert_close(slope.grad, 0.1 * slope.detach())


@given(mean=st.floats(-3, 3), std=st.floats(0.4, 1.4))  # 6 deviations lie on the grid
@settings(max_examples=10)
def test_no_answer_is_worth_more_than_the_best(mean, std):
    """V at (5) is -2 log 2 + 2 JSD, and any other D has less."""
    p, q, cell = line(0.0, 1.0), line(mean, std), 24 / 4800
    best, middle = best_discriminator(p, q), (p + q) / 2
    divergence = (torch.xlogy(p, p / middle) + torch.xlogy(q, q / middle)).sum() * cell / 2
    expected = -2 * math.log(2) + 2 * divergence

    def worth(answer):
        answer = answer.clamp(1e-15, 1 - 1e-15)  # where a density is all but 0
        return ((torch.xlogy(p, answer) + torch.xlogy(q, 1 - answer)) * cell).sum()

    assert worth(best).item() == pytest.approx(expected.item(), abs=1e-8)
    for other in (best * 0.9, best**0.5, (best + 0.5) / 2):
        assert worth(other) <= worth(best) + 1e-12


def test_the_best_answer_for_two_gaussians():
    """Of equal width the ratio is a sigmoid: its score is the log of p / q, which is a line."""
    x = torch.linspace(-12, 12, 4801, dtype=torch.float64)
    torch.testing.assert_close(best_discriminator(line(1, 1), line(-1, 1)), torch.sigmoid(2 * x))


@pytest.mark.covers("G12")
def test_a_discriminator_learns_the_best_answer():
    """Real points at 1 and made ones at -1, in one dimension, by descending (2) alone."""
    torch.manual_seed(0)
    judge = GAN(1, 16, 1)
    optimizer = torch.optim.Adam(judge.discriminator.parameters(), 1e-2, fused=True)
    for _ in range(300):
        real, made = torch.randn(512, 1) + 1, torch.randn(512, 1) - 1
        optimizer.zero_grad()
        discriminator_loss(judge.score(real), judge.score(made)).backward()
        optimizer.step()
    x = torch.linspace(-2.5, 2.5, 101)
    answer = judge.score(x[:, None]).sigmoid()
    torch.testing.assert_close(answer, torch.sigmoid(2 * x), rtol=0, atol=0.05)


# --------------------------------------------------------------------------------- the two players


def begun(recipe=SMALL):
    data = recipe.dataset()
    return data, begin(recipe, data, choose("cpu"))


@pytest.mark.covers("G12")
@pytest.mark.parametrize("player", ["generator", "discriminator"])
def test_a_descent_of_one_player_leaves_the_other_alone(player):
    data, state = begun()
    other = {"generator": "discriminator", "discriminator": "generator"}[player]
    before = {n: p.clone() for n, p in state.model.named_parameters()}
    (x,) = data.train(0)
    made = state.model.score(state.model.generator(torch.randn(8, 2)))
    loss = generator_loss(made) if player == "generator" else discriminator_loss(
        state.model.score(x), made
    )  # fmt: skip
    state.descend(loss, player)
    for name, parameter in state.model.named_parameters():
        mine = name.startswith(player)
        assert torch.equal(parameter, before[name]) != mine, name
        assert (parameter.grad is None) != mine, name
    assert other in state.optimizers


def test_one_update_equals_one_by_hand():
    """D first, on (2); then G on (3) against the D that has just learned, from the same noise."""
    recipe = replace(SMALL, gamma=50.0)  # Adam's first step hardly changes with a small penalty
    data, state = begun(recipe)
    _, hand = begun(recipe)
    (x,) = data.train(0)
    (record,) = [next(train(recipe, state, data))]
    model = hand.model
    rules = {
        name: torch.optim.Adam(player.parameters(), recipe.lr, betas=(0.5, 0.9))
        for name, player in model.named_children()
    }
    seed(torch.device("cpu"), recipe.seed, UPDATE, 0, 0)
    z = torch.randn(len(x), 2)
    real, made = model.score(x).sigmoid(), model(z).sigmoid()
    d_loss = -(real.log().mean() + (1 - made).log().mean())
    slopes = torch.func.vmap(torch.func.grad(lambda at: model.score(at[None])[0]))(x)
    penalty = recipe.gamma / 2 * slopes.norm(dim=1).pow(2).mean()
    (d_loss + penalty).backward()
    rules["discriminator"].step()
    model.zero_grad()
    g_loss = -model(z).sigmoid().log().mean()
    g_loss.backward()
    rules["generator"].step()
    torch.testing.assert_close(record.terms["discriminator"], d_loss.detach())
    torch.testing.assert_close(record.terms["penalty"], penalty.detach())
    torch.testing.assert_close(record.terms["generator"], g_loss.detach())
    for name, parameter in state.model.named_parameters():
        torch.testing.assert_close(parameter, model.get_parameter(name), msg=name)


# ----------------------------------------------------------------------------------------- the data


def test_points_of_the_ring_have_its_moments():
    """Mean 0, variance radius^2 / 2 + std^2 along each axis, every mode as often as another."""
    n = 40_000
    x = sample_ring(n, 2.0, 0.1, torch.Generator().manual_seed(0)).double()
    assert x.mean(0).abs().max() < 4 * math.sqrt(2.01 / n)
    assert (x.var(0) - 2.01).abs().max() < 4 * 2.01 * math.sqrt(2 / n)
    counts = torch.cdist(x, mode_centres(2.0)).argmin(1).bincount(minlength=8)
    assert (counts - n / 8).abs().max() < 4 * math.sqrt(n / 8 * 7 / 8)
    assert mode_centres(2.0)[2].tolist() == pytest.approx([0.0, 2.0])


def test_the_density_is_that_of_the_points():
    """Its integral over the plane is 1, and over a disc the share of points in it."""
    side = torch.linspace(-4, 4, 401, dtype=torch.float64)
    grid = torch.cartesian_prod(side, side)
    p = mixture_density(grid, mode_centres(2.0), 0.1) * (8 / 400) ** 2
    assert p.sum().item() == pytest.approx(1.0, abs=1e-6)
    mean, inside = mode_centres(2.0)[:1], 0.15
    share = p[torch.cdist(grid, mean)[:, 0] <= inside].sum().item()
    expected = (1 - math.exp(-(inside**2) / (2 * 0.1**2))) / 8
    assert share == pytest.approx(expected, rel=0.02)


def test_batches_are_made_from_seed_and_step():
    data, other = SMALL.dataset(), replace(SMALL, seed=1).dataset()
    assert torch.equal(data.train(3)[0], data.train(3)[0])
    assert not torch.equal(data.train(3)[0], data.train(4)[0])
    assert not torch.equal(data.train(3)[0], other.train(3)[0])
    halves = [data.train(3, Share(rank, 2))[0] for rank in range(2)]
    assert torch.equal(torch.cat(halves), data.train(3)[0])
    assert torch.equal(next(data.test)[0], next(other.test)[0])
    assert not torch.equal(next(data.test)[0], next(data.valid)[0])
    assert data.digest == other.digest != replace(SMALL, std=0.2).dataset().digest


# ---------------------------------------------------------------------------------------- judging


def judged(made):
    (real,) = next(replace(SMALL, held_out=1000).dataset().test)
    return SMALL.summarise({"real": real.flatten(), "fake": made.flatten()})


def test_figures_of_points_that_are_known():
    real = sample_ring(1000, 2.0, 0.1, torch.Generator().manual_seed(9))
    whole = judged(real)
    assert whole["modes"] == 8
    inside = 1 - math.exp(-4.5)  # of a round Gaussian within three standard deviations
    assert whole["quality"] == pytest.approx(inside, abs=4 * math.sqrt(inside / 90 / 1000))
    assert abs(whole["energy_distance"]) < 0.01
    half = judged(real[real[:, 0] > 1])  # three of the eight
    assert half["modes"] == 3
    assert half["quality"] == pytest.approx(inside, abs=0.03)
    assert half["energy_distance"] > 1
    off = judged(real * 1.2)  # on a ring that is too wide by four standard deviations
    assert (off["modes"], off["quality"]) == (0, pytest.approx(0.1, abs=0.1))


def test_a_mode_needs_a_quarter_of_its_share():
    """Of 800 points each mode's share is 100."""
    each = [100] * 7 + [25]
    rows = torch.cat([mode_centres(2.0)[k : k + 1].expand(n, 2) for k, n in enumerate(each)])
    far = torch.full((800 - len(rows), 2), 9.0)
    assert judged(torch.cat([rows, far]).float())["modes"] == 8
    assert judged(torch.cat([rows[:-1], far, far[:1]]).float())["modes"] == 7


def test_evaluation_is_repeatable():
    data, state = begun()
    torch.manual_seed(3)
    first = evaluate(SMALL, state.model, data.test)
    torch.manual_seed(4)
    assert evaluate(SMALL, state.model, data.test) == first


def test_samples_follow_from_the_generator():
    data, state = begun()
    one, again, other = (
        SMALL.sample(state.model, data.spec, torch.Generator().manual_seed(s), n=7)
        for s in (0, 0, 1)
    )
    assert one.shape == (7, 2)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    with pytest.raises(UserError, match=r"n \(0\) must be between 1 and 1,000,000: so many"):
        SMALL.sample(state.model, data.spec, torch.Generator(), n=0)


# ----------------------------------------------------------------------------- stopping, many ranks


@pytest.fixture
def undrawn(monkeypatch):
    """Runs without pictures, which take longer than the rest."""
    monkeypatch.setattr(Job, "draw", lambda self, model: ())


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "draw", lambda self, model: ())
        return runs.run(SMALL, tmp_path_factory.mktemp("unbroken"), device="cpu")


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("stop", [1, 3, 5])
def test_stop_and_resume_is_bit_equal(stop, unbroken, tmp_path, monkeypatch):
    folder = stopped_after(stop, SMALL, tmp_path, monkeypatch)
    assert runs.resume(SMALL, folder).metrics == unbroken.metrics
    assert contents(folder) == contents(unbroken.folder)


def test_restoring_into_another_seed_brings_everything_back(unbroken, tmp_path):
    path = checkpoint.newest(unbroken.folder)
    _, state = begun(replace(SMALL, seed=99))
    progress = checkpoint.restore(path, state, SMALL.deployed(state))
    checkpoint.save(tmp_path / path.name, state, SMALL.deployed(state), progress)
    assert read_bundle(tmp_path / path.name) == read_bundle(path)


def test_processes_have_points_and_noise_of_their_own():
    recipe = replace(SMALL, batch_size=16)
    terms = []
    for rank in range(2):
        data, state = begun(recipe)
        record = next(train(recipe, state, data, world=World(rank, 2)))
        terms.append(record.terms["generator"].item())  # of 8 points each, from their noise alone
    assert terms[0] != terms[1]


@pytest.mark.slow
def test_two_processes_play_one_game(tmp_path):
    words = ("run", "gan-ring", "steps=12", "hidden_size=8", "held_out=50", "--out", str(tmp_path))
    with torchrun(*words, "--device", "cpu", "--quiet") as both:
        said, errors = both.communicate(timeout=240)
    assert both.returncode == 0, errors
    (folder,) = tmp_path.iterdir()
    assert said.split() == [str(folder)]
    assert checkpoint.steps(folder)[-1] == 12


# ------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"gamma": -0.1}, r"gamma \(-0.1\) must be a number from 0 up"),
        ({"radius": -1.0}, r"radius \(-1.0\) must be a positive number"),
        ({"std": 0.0}, r"std \(0.0\) must be a positive number"),
        ({"momentum": 1.0}, r"momentum \(1.0\) must be at least 0 and below 1"),
        ({"latent_size": 0}, r"latent_size \(0\) must be at least 1"),
        ({"hidden_size": 0}, r"hidden_size \(0\) must be at least 1"),
        ({"held_out": 1}, r"held_out \(1\) must be at least 2, because pairs are compared"),
        ({"optimizer": "sgd"}, r"optimizer \(sgd\) must be adam or adamw, because momentum"),
    ],
)
def test_bad_settings(fields, message):
    with pytest.raises(UserError, match=message):
        GaussianRing(**fields)


@pytest.mark.slow
@pytest.mark.covers("G12")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_goal(seed, tmp_path):
    result = runs.run(replace(RECIPES["gan-ring"], seed=seed), tmp_path, device="cpu")
    assert result.reached, result.metrics


# ------------------------------------------------------------------------------------------ film


def test_the_film_learns_anew_what_was_learned_and_ends_with_what_was_kept():
    data, z = SMALL.dataset(), torch.randn(50, SMALL.latent_size)
    model, kept = trained(SMALL, data), begin(replace(SMALL, seed=5), data).model
    with torch.no_grad():
        names, points, answers = zip(*SMALL._learn_again(kept, z), strict=True)
        assert names[0] == "step 0"
        assert names[-2:] == ("step 8", "as kept")
        assert not torch.equal(points[0], points[1])
        assert torch.equal(points[-2], model.generator(z))
        assert torch.equal(points[-1], kept.generator(z))
        last = [*game_frames([(names[-1], points[-1], answers[-1])], span=3.0, truth=SMALL.rings())]
        left, right, _ = last[0].axes
        assert torch.equal(torch.tensor(left.collections[0].get_offsets()).float(), points[-1])
        assert right.images[0].get_array().max() == pytest.approx(answers[-1].max().item())
        assert len(left.patches) == 8
        assert not faults(last[0])


def test_a_film_of_the_game_moves(monkeypatch):
    monkeypatch.setattr("everynet.zoo.generative.gan.FRAMES", 2)
    model = begin(SMALL, SMALL.dataset()).model
    with torch.no_grad():
        film = SMALL.sample(model, {}, torch.Generator(), n=20, film=True)
    assert len(film.frames) == 3 + HOLD
    assert (film.frames[0] != film.frames[1]).any()
    with pytest.raises(UserError, match=r"n \(1001\) must be between 1 and 1,000: so many points"):
        SMALL.sample(model, {}, torch.Generator(), n=1001, film=True)

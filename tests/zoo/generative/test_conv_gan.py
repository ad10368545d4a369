"""A GAN for images: its players, noise on circles, images by step."""

import math
from dataclasses import replace

import pytest
import torch

from everynet.data.dataset import Data
from everynet.plot.film import Film
from everynet.system.errors import UserError
from everynet.training.device import choose
from everynet.training.loop import begin, train, trained
from everynet.zoo.generative.conv_gan import RECIPES, SHOTS, SHOWN, ConvGAN, between
from everynet.zoo.generative.gan import discriminator_loss, generator_loss, gradient_penalty

IMAGES = replace(RECIPES["gan-mnist"].tiny(), name="gan-mnist")


def begun(recipe):
    data = recipe.dataset()
    return data, begin(recipe, data, choose("cpu"))


@pytest.fixture(scope="module")
def drawn():
    recipe = replace(IMAGES, steps=12, batch_size=16)
    data = recipe.dataset()
    return recipe, trained(recipe, data), data


def test_convolutional_players_map_noise_to_images_and_these_to_scores():
    for shape in ((1, 8, 8), (3, 12, 20)):
        net = ConvGAN(5, 4, shape).eval()
        images = net.generator(torch.randn(6, 5))
        assert images.shape == (6, *shape)
        assert 0 <= images.min() < images.max() <= 1
        torch.testing.assert_close(net.score(images), net(torch.randn(6, 5)).new_tensor(
            [net.score(image[None]).item() for image in images]
        ))  # fmt: skip


def test_the_penalty_of_images_is_that_of_their_pixels_as_rows():
    x = torch.randn(4, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    slope = torch.randn(18, dtype=torch.float64)
    found = gradient_penalty(x.flatten(1) @ slope, x, 0.5)
    assert found.item() == pytest.approx(0.25 * slope.square().sum().item())


@pytest.mark.covers("G12")
@pytest.mark.parametrize("player", ["generator", "discriminator"])
def test_the_gradient_of_images_reaches_the_player_whose_turn_it_is(player):
    data, state = begun(IMAGES)
    before = {n: p.clone() for n, p in state.model.named_parameters()}
    score = state.model(torch.randn(8, IMAGES.latent_size))
    real = state.model.score(data.train(0)[0])
    loss = generator_loss(score) if player == "generator" else discriminator_loss(real, score)
    state.descend(loss, player)
    for name, parameter in state.model.named_parameters():
        mine = name.startswith(player)
        assert torch.equal(parameter, before[name]) != mine, name
        assert (parameter.grad is None) != mine, name


def test_noise_between_two_draws_is_standard_normal():
    z, other = torch.randn(2, 100_000, 2, generator=torch.Generator().manual_seed(0))
    for angle in (0.3, 0.8, 2.0):
        found = between(z, other, angle)
        assert (found.mean(0).abs() < 0.02).all()
        assert (found.var(0) - 1).abs().max() < 0.03
    torch.testing.assert_close(between(z, other, 0.0), z)
    torch.testing.assert_close(between(z, other, math.pi / 2), other)


def test_the_gallery_keeps_the_last_images_up_to_each_of_its_steps():
    net = ConvGAN(2, 2, (1, 4, 4))
    for step in range(12):
        images = torch.full((SHOWN + 3, 1, 4, 4), float(step + 1))
        net.keep(images, torch.tensor(step))
    rows = net.gallery.view(-1, SHOWN, 16)
    assert rows[:4, :, 0].unique(dim=1).flatten().tolist() == [SHOTS[0], SHOTS[1], SHOTS[2], 12.0]
    assert (rows[4:] == 0).all()
    net.keep(torch.ones(2, 1, 4, 4), torch.tensor(12))  # of a smaller batch
    assert net.gallery.view(-1, SHOWN, 16)[3, :3, 0].tolist() == [1.0, 1.0, 12.0]


def test_weights_are_averaged_and_the_average_is_deployed(drawn):
    data, state = begun(IMAGES)
    assert IMAGES.deployed(state) is state.extra.average
    assert isinstance(replace(IMAGES, ema=0.0).extra(state.model), torch.nn.Module)
    for _ in train(IMAGES, state, data):
        pass
    torch.testing.assert_close(IMAGES.deployed(state).gallery, state.model.gallery)
    assert state.model.gallery[:SHOWN].abs().sum() > 0


def test_samples_walks_and_films_of_images(drawn):
    recipe, model, data = drawn
    draw = lambda: torch.Generator().manual_seed(1)  # noqa: E731
    with torch.no_grad():
        made = recipe.sample(model, data.spec, draw(), n=5)
        assert torch.equal(recipe.sample(model, data.spec, draw(), n=5), made)
        walk = recipe.sample(model, data.spec, draw(), n=7, walk=True)
        steps = (walk[1:] - walk[:-1]).abs().amax((1, 2, 3))
        film = recipe.sample(model, data.spec, draw(), n=4, film=True)
    assert made.shape == (5, 1, 8, 8)
    assert 0 < steps.max() < (walk[-1] - walk[0]).abs().max()  # never the whole way at once
    assert isinstance(film, Film)
    apart = [abs(film.frames[a].astype(int) - film.frames[b]).sum() for a, b in ((0, -1), (0, 36))]
    assert apart[0] < apart[1]  # a circle: the last frame is next to the first


def test_how_often_players_are_told_apart(drawn):
    recipe, model, data = drawn
    x = data.splits["test"][0][:50]
    with torch.no_grad():
        torch.manual_seed(0)
        found = recipe.metrics(model, (x,))["discriminator_accuracy"]
        torch.manual_seed(0)
        z = torch.randn(50, recipe.latent_size)
        torch.testing.assert_close(found * 2, (model.score(x) > 0).float() + (model(z) < 0))
        final = recipe.final(model, data, torch.Generator(), samples=30)
    assert final.keys() == recipe.meanings.keys() - {"discriminator_accuracy"}


def test_refusals_of_images(drawn):
    recipe, model, data = drawn
    with pytest.raises(UserError, match=r"n \(0\) must be from 1 to 1,000,000, because they are"):
        recipe.sample(model, data.spec, torch.Generator(), n=0)
    with pytest.raises(UserError, match=r"n \(401\) must be at most 400 of a film"):
        recipe.sample(model, data.spec, torch.Generator(), n=401, film=True)
    with pytest.raises(UserError, match=r"samples \(1\) must be from 2 to 1,000,000; 0 is as"):
        recipe.final(model, data, torch.Generator(), samples=1)
    with pytest.raises(UserError, match=r"images \(10 x 8\) must have sides that 4 divides"):
        recipe.model(Data.described({"shape": [1, 10, 8]}))
    with pytest.raises(UserError, match=r"batch_size \(1\) must be at least 2, for batch norm"):
        replace(IMAGES, batch_size=1)
    with pytest.raises(UserError, match=r"ema \(1.0\) must be at least 0 and below 1"):
        replace(IMAGES, ema=1.0)

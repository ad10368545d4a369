"""Images by diffusion: levels, completion, labels and guidance, verbs, and what is refused."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.distributions import Normal

import everynet
from everynet import runs
from everynet.data.dataset import Data
from everynet.data.images.keep import keep_mask
from everynet.plot import Film
from everynet.recipes.catalog import find
from everynet.recipes.settings import override
from everynet.system.errors import UserError
from everynet.system.seeds import generator, seeded_by
from everynet.training.device import choose
from everynet.training.loop import begin, train
from everynet.zoo.generative.diffusion import (
    Diffusion,
    ExactNoise,
    NoiseSchedule,
    linear_betas,
)
from everynet.zoo.generative.diffusion_image import (
    RECIPES,
    classes_of,
    complete,
    level_log_likelihood,
)

SMALL = replace(RECIPES["diffusion"].tiny(), name="diffusion")


@pytest.fixture(scope="module")
def learned():
    """A small network, trained a little, and its data."""
    recipe = replace(SMALL, noise_steps=8)
    data = recipe.dataset()
    state = begin(recipe, data)
    for _ in train(recipe, state, data, setup=choose("cpu")):
        pass
    model = recipe.deployed(state).eval()
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():  # as if it had learned for longer: no weight is 0
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn(weight.shape, generator=draw))
    return recipe, model, data


# ----------------------------------------------------------------------------------------- levels


@pytest.mark.parametrize("levels", [2, 17, 256])
def test_the_probabilities_of_all_levels_add_up_to_one(levels):
    x = torch.linspace(-1, 1, levels).double()
    for mean, std in torch.tensor([[0.3, 0.2], [-1.0, 0.01], [0.9, 2.0]]).double():
        each = level_log_likelihood(x, mean.expand(levels), std, levels)
        assert each.exp().sum().item() == pytest.approx(1.0, abs=1e-6)


def test_a_level_has_the_mass_of_the_density_around_it():
    x, mean, std = torch.tensor([[0.25]]).double(), torch.tensor([[0.1]]), torch.tensor(0.3)
    found = level_log_likelihood(x, mean.double(), std.double(), 17)
    q = Normal(0.1, 0.3)
    mass = q.cdf(torch.tensor(0.25 + 1 / 16)) - q.cdf(torch.tensor(0.25 - 1 / 16))
    assert found.exp().item() == pytest.approx(mass.item(), rel=1e-5)


def test_pixels_are_from_minus_one_to_one_and_come_back():
    data = SMALL.dataset()
    x = data.splits["train"][0]
    assert (x.min().item(), x.max().item()) == (-1.0, 1.0)
    assert ((x + 1) * 8 - ((x + 1) * 8).round()).abs().max() < 1e-5  # the 17 levels of digits
    kind = everynet.data.kinds.named("image")
    torch.testing.assert_close(kind.to_data_units(x[:3], data.spec), (x[:3] + 1) / 2)


def test_the_bound_of_an_image_counts_its_levels_and_its_class(learned):
    recipe, model, data = learned
    x, y = data.some("test", torch.arange(2))
    with torch.no_grad():
        terms = recipe.bound_by_term(model, x, y, data.spec, generator(3))
        (alone, _), (named, _) = (
            recipe.predict(model, x, data.spec, **given)
            for given in ({}, {"label": data.spec["classes"][int(y[0])]})
        )
        other = recipe.predict(model, x[1:], data.spec)
        found = recipe.final(model, data, generator(1))
    assert terms.shape == (2, 9)
    assert (terms[:, 0] > 0).all()  # a probability, not a density
    assert alone["bits_per_dimension"] == pytest.approx(alone["nats"] / math.log(2) / 64)
    assert named["nats"] != alone["nats"]
    again = recipe.predict(model, x, data.spec)
    assert again[1]["nats"] == pytest.approx(other[0]["nats"], rel=1e-5)  # whatever stands beside
    assert found.keys() <= recipe.meanings.keys()
    assert found["bits_per_dimension"] == pytest.approx(found["nats"] / math.log(2) / 64)


def test_the_class_adds_its_nats_to_the_bound(learned):
    recipe, model, data = learned
    x, y = data.some("test", torch.arange(1))
    label = data.spec["classes"][int(y[0])]
    with torch.no_grad():
        found = recipe.predict(model, x, data.spec, label=label)[0]["nats"]
        draw = generator(recipe.seed, 5)
        terms = recipe.bound_by_term(model, x, y, data.spec, draw)
    assert found == pytest.approx(terms.double().sum().item() + math.log(10), rel=1e-6)


# ----------------------------------------------------------------------------- labels and guidance


def test_some_labels_are_left_out_in_training(learned):
    recipe, model, data = learned
    x, y = data.some("train", torch.arange(400))
    seen = []

    class Watched(nn.Module):
        classes = 10

        def forward(self, x, t, y=None):
            seen.append(y)
            return x

    watched = Diffusion(Watched(), model.schedule)
    with pytest.MonkeyPatch.context() as patch, seeded_by(1):
        patch.setattr("everynet.zoo.generative.diffusion_image.NoiseUNet", Watched)
        terms = recipe.objective(watched, (x, y))
    left = (seen[0] == 10).double().mean().item()
    assert 0.05 < left < 0.16
    assert torch.equal(seen[0][seen[0] < 10], y[seen[0] < 10])
    assert terms["noise_mse"].item() > 0


def test_images_are_drawn_of_all_classes_in_turn_or_of_one(learned):
    recipe, model, data = learned
    with torch.no_grad():
        assert recipe.labels_for(model, data.spec, "", 12).tolist() == [*range(10), 0, 1]
        assert recipe.labels_for(model, data.spec, "7", 2).tolist() == [7, 7]
        made = {
            (label, w): recipe.sample(
                model, data.spec, generator(1), n=3, steps=4, label=label, guidance=w
            )
            for label, w in (("7", 1.0), ("7", 3.0), ("2", 1.0), ("2", 0.0), ("7", 0.0))
        }
    assert {tuple(x.shape) for x in made.values()} == {(3, 1, 8, 8)}
    assert all(x.abs().max() <= 1 + 1e-6 for x in made.values())
    assert not torch.allclose(made["7", 1.0], made["2", 1.0])
    assert not torch.allclose(made["7", 1.0], made["7", 3.0])
    torch.testing.assert_close(made["2", 0.0], made["7", 0.0])  # the class is left out


def test_many_images_are_drawn_in_pieces_as_one_by_one(learned, monkeypatch):
    recipe, model, data = learned
    labels = torch.arange(10)
    monkeypatch.setattr("everynet.zoo.generative.diffusion_image.AT_ONCE", 4)
    with torch.no_grad():
        some = recipe.draw_images(model, data.spec, labels, generator(1), n=10, steps=3)
        monkeypatch.setattr("everynet.zoo.generative.diffusion_image.AT_ONCE", 10)
        whole = recipe.draw_images(model, data.spec, labels, generator(1), n=10, steps=3)
    torch.testing.assert_close(some, whole, atol=1e-5, rtol=1e-4)
    assert labels.tolist() == [*range(10)]


def test_a_film_shows_noise_becoming_images(learned):
    recipe, model, data = learned
    with torch.no_grad():
        film = recipe.sample(model, data.spec, generator(1), n=5, steps=4, film=True)
    assert isinstance(film, Film)
    assert len(film.frames) == 5


def test_a_network_without_classes_learns_draws_and_is_bounded():
    recipe = replace(SMALL, conditional=False, mirror=True)
    data = recipe.dataset()
    model = begin(recipe, data).model.eval()
    assert classes_of(model) == 0
    with torch.no_grad():
        recipe.objective(model, data.train(0))
        made = recipe.sample(model, data.spec, generator(1), n=2, steps=2, method="ddpm", eta=1.0)
        assert made.shape == (2, 1, 8, 8)
        assert recipe.picture_guidance(model, data, []) is None
        assert "nats" in recipe.predict(model, made[:1], data.spec)[0]


# ------------------------------------------------------------------------------------- completion


def test_completed_images_keep_what_is_known(learned):
    recipe, model, data = learned
    x, _ = data.some("test", torch.arange(2))
    with torch.no_grad():
        for keep, label in (("top", ""), ("0.5", "3")):
            answers = recipe.predict(model, x, data.spec, keep=keep, label=label)
            known = keep_mask(keep, 8, 8, generator(recipe.seed, 5))
            for answer, image in zip(answers, x, strict=True):
                made = answer["completed"]
                assert torch.equal(made[0][known], image[0][known])
                assert not torch.allclose(made[0][~known], image[0][~known])


def test_completing_draws_what_is_hidden_given_what_is_known():
    """Two correlated pixels of Gaussian data: the hidden one has its conditional distribution."""
    schedule = NoiseSchedule(linear_betas(100))
    cov = torch.tensor([[0.09, 0.06], [0.06, 0.09]]).double()
    exact = ExactNoise(torch.zeros(1, 2).double(), cov, schedule)
    rows, noise = 4000, {}

    def predict(x, t):
        noise.setdefault(int(t[0]), x[:, 0, 0, 0].var().item())
        return exact(x.flatten(1), t).view(x.shape)

    x = torch.full((rows, 1, 1, 2), 0.25).double()
    known = torch.tensor([[True, False]])
    made = complete(predict, schedule, x, known, 100, generator=generator(1))
    hidden = made[:, 0, 0, 1]
    assert made[:, 0, 0, 0].eq(0.25).all()
    for t in (20, 50, 80):  # what is known has as much noise as the rest
        assert noise[t] == pytest.approx(1 - schedule.abar[t], rel=0.15)
    assert hidden.mean().item() == pytest.approx(1 / 6, abs=0.03)  # 0.06 / 0.09 of 0.25
    assert hidden.var().item() == pytest.approx(0.05, rel=0.4)  # 0.09 - 0.06^2 / 0.09


# -------------------------------------------------------------------------------------- own files


def test_own_images_are_learned_drawn_and_completed(tmp_path):
    draw = np.random.default_rng(0)
    for label in ("anna", "ben"):
        (tmp_path / "faces" / label).mkdir(parents=True)
        for number in range(12):
            pixels = draw.integers(0, 256, (20, 20, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "faces" / label / f"{number}.png")
    recipe = override(SMALL, {"data": str(tmp_path / "faces"), "size": "8"})
    data = recipe.dataset()
    model = begin(recipe, data).model.eval()
    assert data.spec["shape"] == [3, 8, 8]
    assert classes_of(model) == 2
    with torch.no_grad():
        made = recipe.sample(model, data.spec, generator(1), n=2, steps=2, label="ben")
        assert made.shape == (2, 3, 8, 8)
        assert recipe.predict(model, made, data.spec, keep="right")[0]["completed"].shape == (
            3,
            8,
            8,
        )


def test_a_folder_of_images_without_classes_is_learned_and_bounded(tmp_path):
    draw = np.random.default_rng(0)
    faces = tmp_path / "faces"
    faces.mkdir()
    for number in range(30):
        pixels = draw.integers(0, 256, (9, 9), dtype=np.uint8)
        Image.fromarray(pixels).save(faces / f"{number}.png")
    (faces / "notes.txt").write_text("no image")
    recipe = override(SMALL, {"data": str(faces), "size": "8"})
    data = recipe.dataset()
    assert data.spec["kind"] == "unlabelled"
    assert sum(map(data.rows, ("train", "valid", "test"))) == 30
    model = begin(recipe, data).model.eval()
    assert classes_of(model) == 0
    with torch.no_grad():
        found = recipe.final(model, data, generator(1))
    assert found.keys() == {"bits_per_dimension", "nats", "start"}
    again = recipe.model(Data.described(data.spec))
    assert classes_of(again) == 0
    with pytest.raises(UserError, match="must lie in a subfolder"):
        override(find("lenet"), {"data": str(faces)}).dataset()


# ----------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"label": "11"}, r"unknown label '11'"),
        ({"steps": 9}, r"steps \(9\) must be from 1 to 8, because the network learned to undo 8"),
        ({"n": 0}, r"n \(0\) must be from 1 to 100,000, because they are drawn at once"),
        ({"n": 401, "film": True}, r"n \(401\) must be at most 400 in a film; leave film out"),
        ({"method": "heun"}, r"unknown method 'heun'"),
        ({"eta": -0.1}, r"eta \(-0.1\) must be from 0 to 1"),
        ({"guidance": math.nan}, r"guidance \(nan\) must be from -100 to 100"),
    ],
)
def test_bad_settings_of_sampling_are_refused(learned, given, said):
    recipe, model, data = learned
    with pytest.raises(UserError, match=said):
        recipe.sample(model, data.spec, generator(0), **{"n": 2, "steps": 2, **given})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"guidance": 2.0}, r"guidance \(2.0\) must be 1, because the network was trained without"),
        ({"label": "7"}, r"label \(7\) must be left out, because the network was trained without"),
    ],
)
def test_classes_that_were_not_learned_are_refused(given, said):
    recipe = replace(SMALL, conditional=False)
    data = recipe.dataset()
    model = begin(recipe, data).model
    with pytest.raises(UserError, match=said):
        recipe.sample(model, data.spec, generator(0), n=2, steps=2, **given)


@pytest.mark.parametrize(
    ("keep", "said"),
    [
        ("0", r"keep \(0\) hides every pixel of 8 x 8"),
        ("1", r"keep \(1\) hides no pixel of 8 x 8"),
        ("middle", r"keep \('middle'\) must be top, bottom, left, right or the share"),
    ],
)
def test_keeping_all_or_nothing_is_refused(learned, keep, said):
    recipe, model, data = learned
    x, _ = data.some("test", torch.arange(1))
    with pytest.raises(UserError, match=said):
        recipe.predict(model, x, data.spec, keep=keep)


def test_too_many_steps_of_completing_are_refused(learned):
    recipe, model, data = learned
    x, _ = data.some("test", torch.arange(1))
    with pytest.raises(UserError, match=r"steps \(0\) must be from 1 to 8"):
        recipe.predict(model, x, data.spec, keep="top", steps=0)


def test_images_too_small_for_the_levels_are_refused():
    recipe = replace(SMALL, widths=(4, 8, 8, 8))
    with pytest.raises(UserError, match=r"images \(8 x 8\) must have sides from 16 up that 8 div"):
        recipe.model(recipe.dataset())
    with pytest.raises(UserError, match=r"widths \(3\) must be one or more numbers from 2 up"):
        replace(SMALL, widths=(3,)).model(recipe.dataset())


def test_a_single_image_is_refused(tmp_path):
    for label in ("a", "b"):
        (tmp_path / label).mkdir()
    Image.new("L", (8, 8)).save(tmp_path / "a" / "1.png")
    with pytest.raises(UserError, match="has no training image"):
        replace(SMALL, data=str(tmp_path)).dataset()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"noising": "square"}, "unknown noising 'square'"),
        ({"label_dropout": "1.2"}, r"label_dropout \(1.2\) must be a number from 0 to 1"),
        ({"share": "-1.0"}, r"share \(-1.0\) must be a number from 0 to 1"),
        ({"dropout": "1.0"}, r"dropout \(1.0\) must be at least 0 and below 1"),
        ({"decay": "0.0"}, r"decay \(0.0\) must be above 0 and below 1"),
        ({"sampling_steps": "501"}, r"sampling_steps \(501\) must be at most noise_steps \(500\)"),
        ({"samples": "1"}, r"samples \(1\) must be at least 2"),
        ({"bound_images": "0"}, r"bound_images \(0\) must be at least 1"),
    ],
)
def test_bad_settings_are_refused(given, said):
    with pytest.raises(UserError, match=said):
        override(RECIPES["diffusion"], given)


def test_a_bad_number_of_samples_at_the_end_is_refused(learned):
    recipe, model, data = learned
    with pytest.raises(
        UserError, match=r"samples \(1\) must be from 2 to 100,000; 0 is as trained"
    ):
        recipe.final(model, data, generator(0), samples=1)


# --------------------------------------------------------------------------------------- learning


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_goal(seed, tmp_path):
    recipe = replace(RECIPES["diffusion"], name="diffusion", seed=seed)
    found = runs.run(recipe, tmp_path, device="cpu").metrics
    print(found)
    assert all(goal.reached(found) for goal in recipe.goals())

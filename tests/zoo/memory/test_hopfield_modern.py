"""The modern Hopfield network: its update is attention, its energy falls."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from everynet.nn.attention import MultiHeadAttention, attend, score_scaled_dot
from everynet.plot.film import Film
from everynet.system.errors import UserError
from everynet.zoo.memory.hopfield_modern import ModernHopfield, StoredGreyImages


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_one_update_by_hand():
    x, patterns = normal(4, 6), normal(5, 6, seed=1)
    after = ModernHopfield(0.7).fit(patterns).recall_path(x)[1]
    for row, found in zip(x, after, strict=True):
        strength = [math.exp(0.7 * float(row @ pattern)) for pattern in patterns]
        mean = sum(s * pattern for s, pattern in zip(strength, patterns, strict=True))
        torch.testing.assert_close(found, mean / sum(strength))


@pytest.mark.covers("H3")
def test_an_update_is_scaled_dot_product_attention():
    x, patterns = normal(4, 16), normal(5, 16, seed=1)
    after = ModernHopfield(1 / 4).fit(patterns).recall_path(x)[1]
    expected, _ = attend(score_scaled_dot, x, patterns, patterns)
    torch.testing.assert_close(after, expected, rtol=0, atol=1e-14)
    layer = MultiHeadAttention(16, heads=1).double()
    with torch.no_grad():  # biases are 0 already
        layer.project.weight.copy_(torch.eye(16).repeat(3, 1))
        layer.output.weight.copy_(torch.eye(16))
    torch.testing.assert_close(layer(x[None], patterns[None])[0], after)


@given(beta=st.floats(0.05, 20), count=st.integers(1, 8), seed=st.integers(0, 50))
def test_updates_never_raise_the_energy_which_is_never_negative(beta, count, seed):
    net = ModernHopfield(beta).fit(normal(count, 5, seed=seed))
    path = net.recall_path(normal(3, 5, seed=seed + 100))
    energies = torch.stack([net.energy(states) for states in path])
    assert (energies.diff(dim=0) <= 1e-9).all()
    assert energies.min() >= -1e-9


def test_the_energy_by_hand_and_its_gradient():
    """Where the gradient of E is x - softmax(beta x X^T) X, a step of 1 down it is the update."""
    patterns, x, beta = normal(4, 3), normal(2, 3, seed=1), 1.5
    net = ModernHopfield(beta).fit(patterns)
    total = sum(torch.exp(beta * x @ pattern) for pattern in patterns)
    largest = max(float(pattern @ pattern) for pattern in patterns)
    expected = -total.log() / beta + (x**2).sum(1) / 2 + math.log(4) / beta + largest / 2
    torch.testing.assert_close(net.energy(x), expected)
    for axis in range(3):
        step = torch.zeros(3).double()
        step[axis] = 1e-6
        slope = (net.energy(x + step) - net.energy(x - step)) / 2e-6
        after = net.recall_path(x)[1][:, axis]
        torch.testing.assert_close(slope, x[:, axis] - after, rtol=1e-6, atol=1e-7)


def test_a_large_beta_gives_a_pattern_and_a_small_one_the_mean():
    patterns = torch.nn.functional.normalize(normal(30, 20))
    x = patterns[:3] + 0.01 * normal(3, 20, seed=1)
    torch.testing.assert_close(ModernHopfield(500.0).fit(patterns).recall(x), patterns[:3])
    mean = patterns.mean(0).expand(3, -1)
    found = ModernHopfield(1e-6).fit(patterns).recall(x)
    torch.testing.assert_close(found, mean, rtol=0, atol=1e-5)


def test_it_holds_far_more_patterns_than_neurons():
    patterns = torch.nn.functional.normalize(normal(5000, 30)) * math.sqrt(30)
    net = ModernHopfield(5.0).fit(patterns)
    cues = patterns[:200] + 0.3 * normal(200, 30, seed=1)
    assert net.overlaps(net.recall(cues)).diagonal().gt(0.999).double().mean() > 0.9


def test_wrong_settings_and_an_early_end():
    with pytest.raises(UserError, match=r"beta \(0.0\) must be a positive number"):
        ModernHopfield(0.0).fit([[1.0]])
    with pytest.raises(UserError, match=r"max_updates \(0\) must be at least 1"):
        ModernHopfield(max_updates=0).fit([[1.0]])
    net = ModernHopfield(max_updates=1).fit(normal(3, 4))
    with pytest.warns(ConvergenceWarning, match="after max_updates"):
        net.recall(normal(2, 4, seed=1))
    with pytest.raises(ValueError, match="X has 3 features, but ModernHopfield is expecting 4"):
        net.recall(normal(2, 3))


@pytest.fixture(scope="module")
def stored():
    recipe = StoredGreyImages(probes=200, stored=300)
    data = recipe.dataset()
    return recipe, data, recipe.fit(recipe.model(data), data)


def test_grey_digits_are_recalled_and_completed(stored):
    recipe, data, net = stored
    found = recipe.metrics(net, data.splits["test"])
    assert found["recalled"].mean() > 0.9
    assert found["cosine"].mean() > found["cue_cosine"].mean() + 0.05
    images = data.splits["train"][0][:20].float()
    for keep, least in (("left", 7), ("0.7", 14)):  # by chance 1 in 15 of all tries would have one
        answers = recipe.predict(net, images, data.spec, keep=keep)
        right = sum(answer["stored"] == i for i, answer in enumerate(answers))
        assert right >= least, keep
    assert {a["state"] for a in recipe.predict(net, images, data.spec)} == {"stored"}
    made = recipe.sample(net, data.spec, torch.Generator().manual_seed(0), n=3)
    assert made.shape == (3, 1, 8, 8)
    film = recipe.sample(net, data.spec, torch.Generator().manual_seed(0), n=3, film=True)
    assert isinstance(film, Film)


def test_wrong_settings_of_the_recipe():
    with pytest.raises(UserError, match=r"beta \(0.0\) must be a positive number"):
        StoredGreyImages(beta=0.0)
    with pytest.raises(UserError, match=r"noise \(-1.0\) must be a number from 0 up"):
        StoredGreyImages(noise=-1.0)
    with pytest.raises(UserError, match=r"stored \(5000\) must be at most 1,294"):
        StoredGreyImages(stored=5000).dataset()
    with pytest.raises(UserError, match=r"probes \(0\) must be at least 1"):
        StoredGreyImages(probes=0)

"""Hopfield networks: energy, Hebbian storage, recall with and without weights, images."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

import everynet
from everynet.data.dataset import Data
from everynet.plot.film import Film
from everynet.system.errors import UserError
from everynet.zoo.memory.hopfield import (
    NEGATED,
    SPURIOUS,
    Hopfield,
    StoredDigits,
    energy,
    energy_gradient,
    hebbian_weights,
    name_states,
    sign,
    sweep_by_weights,
)
from tests.nn.test_estimator import EXCEPTIONS


def signs(*shape, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(0, 2, shape, generator=draw).double() * 2 - 1


def random_nets(nets, neurons, seed=0):
    draw = torch.Generator().manual_seed(seed)
    w = torch.randn(nets, neurons, neurons, generator=draw, dtype=torch.float64)
    w = w + w.mT
    w.diagonal(dim1=-2, dim2=-1).zero_()
    b = torch.randn(nets, neurons, generator=draw, dtype=torch.float64)
    return w, b, signs(nets, neurons, seed=seed + 1)


# ---------------------------------------------------------------------------------- the equations


@pytest.mark.covers("H1")
def test_asynchronous_sweeps_never_raise_the_energy_of_10_000_random_nets():
    """Each update changes E by -2 |field| where the neuron flips, and by 0 where it does not."""
    w, b, x = random_nets(10_000, 9)
    before, states = energy(x, w, b), x
    order = torch.randperm(9, generator=torch.Generator().manual_seed(2)).repeat(2)
    for i, after in zip(order.tolist(), sweep_by_weights(x, w, b, order), strict=True):
        field = -energy_gradient(states, w, b)[:, i]
        flipped = (after[:, i] != states[:, i]).double()
        now = energy(after, w, b)
        torch.testing.assert_close(now - before, -2 * field.abs() * flipped)
        assert (now <= before + 1e-12).all()
        before, states = now, after.clone()


def test_energy_and_gradient_by_hand():
    w, b = torch.tensor([[0.0, 2], [2, 0]]), torch.tensor([1.0, -3])
    assert energy(torch.tensor([1.0, 1]), w, b) == -2 - (1 - 3)
    assert energy(torch.tensor([1.0, -1]), w, b) == 2 - (1 + 3)
    assert energy_gradient(torch.tensor([1.0, 1]), w, b).tolist() == [-2 - 1, -2 + 3]


def test_the_gradient_is_that_of_the_energy():
    w, b, x = random_nets(5, 6)
    x = (x * 0.7).requires_grad_()
    (expected,) = torch.autograd.grad(energy(x, w, b).sum(), x)
    torch.testing.assert_close(energy_gradient(x.detach(), w, b), expected)


def test_a_field_of_zero_leaves_the_neuron():
    x = torch.tensor([1.0, -1, 1, -1])
    assert sign(torch.tensor([0.0, 0, -2, 5]), x).tolist() == [1, -1, -1, 1]


@pytest.mark.covers("H1")
def test_synchronous_updates_may_alternate_for_ever_and_asynchronous_ones_end():
    """Two neurons that are stored as equal, from a state where they differ: both flip, always."""
    net = Hopfield("synchronous").fit([[1.0, 1.0]])
    with pytest.warns(ConvergenceWarning, match="1 of 1 states alternate with another for ever"):
        path = net.recall_path([[1.0, -1.0]])
    assert path[:, 0].tolist() == [[1, -1], [-1, 1], [1, -1]]
    ended = Hopfield().fit([[1.0, 1.0]]).recall([[1.0, -1.0]])
    assert abs(ended.sum()) == 2
    with pytest.warns(ConvergenceWarning, match="still changed after max_sweeps"):
        Hopfield("synchronous", max_sweeps=1).fit([[1.0, 1.0]]).recall([[1.0, -1.0]])
    with pytest.warns(ConvergenceWarning, match="still changed after max_sweeps"):
        Hopfield(max_sweeps=1).fit([[1.0, 1.0]]).recall([[1.0, -1.0]])


@pytest.mark.covers("H2")
@given(count=st.integers(1, 12), neurons=st.integers(1, 30))
def test_hebbian_weights(count, neurons):
    patterns = signs(count, neurons, seed=count)
    w = hebbian_weights(patterns)
    by_hand = sum(torch.outer(p, p) for p in patterns) / count
    off = ~torch.eye(neurons, dtype=torch.bool)
    torch.testing.assert_close(w[off], by_hand[off])
    assert w.diagonal().abs().max() < 1e-12
    torch.testing.assert_close(w, w.T)
    x, b = torch.randn(neurons).double(), torch.zeros(neurons).double()
    drop = torch.autograd.functional.jacobian(
        lambda v: sum(energy(p, v, b) for p in patterns) / count, torch.zeros_like(w)
    )
    torch.testing.assert_close((-2 * drop)[off], w[off])  # the rule descends the mean energy
    torch.testing.assert_close(x @ w, (x @ patterns.T) @ patterns / count - x)


@pytest.mark.parametrize("update", ["asynchronous", "synchronous"])
@pytest.mark.parametrize("bias", [0.0, 0.25])
def test_recall_with_and_without_weights_is_equal(update, bias):
    """M = 8 makes 1/M exact, so that even fields of 0 are the same."""
    patterns, x = signs(8, 50), signs(20, 50, seed=1)
    net = Hopfield(update, bias=bias, random_state=3).fit(patterns)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of cycles
        path = net.recall_path(x)
        assert torch.equal(path[-1], net.recall(x))
    w, b = net.weights(), torch.full((50,), bias).double()
    state, draw = x, torch.Generator().manual_seed(everynet.system.seeds.mix(3))
    for after in path[1:]:
        if update == "synchronous":
            state = sign(state @ w + b, state)
        else:
            *_, state = sweep_by_weights(
                state, w.expand(20, -1, -1), b.expand(20, -1), torch.randperm(50, generator=draw)
            )
        assert torch.equal(after, state)
    torch.testing.assert_close(net.energy(x), energy(x, w.expand(20, -1, -1), b.expand(20, -1)))
    energies = torch.stack([net.energy(states) for states in net.recall_path(patterns)])
    if update == "asynchronous":
        assert (energies.diff(dim=0) <= 1e-9).all()


@pytest.mark.covers("H2")
def test_stored_patterns_are_fixed_points_at_a_twentieth_and_negated_ones_too():
    patterns = signs(20, 400)
    for update in ("asynchronous", "synchronous"):
        net = Hopfield(update).fit(patterns)
        assert torch.equal(net.recall(patterns), patterns)
        assert torch.equal(net.recall(-patterns), -patterns)


@pytest.mark.covers("H3")
def test_ten_per_cent_of_flips_are_mended_at_a_tenth():
    patterns = signs(40, 400)
    flips = torch.rand(40, 400, generator=torch.Generator().manual_seed(1)) < 0.1
    found = Hopfield().fit(patterns).recall(torch.where(flips, -patterns, patterns))
    assert (found == patterns).double().mean() >= 0.99


def test_a_mixture_of_three_patterns_is_a_spurious_state():
    patterns = signs(3, 300, seed=4)
    net = Hopfield().fit(patterns)
    mixture = patterns.sum(0, keepdim=True).sign()
    assert torch.equal(net.recall(mixture), mixture)
    found = name_states(net.overlaps(torch.cat([patterns, -patterns[:1], mixture])))
    assert found.tolist() == [0, 1, 2, NEGATED, SPURIOUS]


def test_updates_of_single_neurons_end_where_sweeps_do():
    patterns, x = signs(5, 40), signs(7, 40, seed=2)
    net = Hopfield(random_state=1).fit(patterns)
    single = net.recall_path(x, updates=1)
    assert (single.diff(dim=0) != 0).sum(2).max() == 1
    assert torch.equal(single[-1], net.recall(x))
    assert torch.equal(single[0], x)
    assert not torch.equal(Hopfield(random_state=2).fit(patterns).recall_path(x)[1], single[40])


# --------------------------------------------------------------------------------- the estimator


@parametrize_with_checks([Hopfield(binarize=0.0)], expected_failed_checks=lambda _: EXCEPTIONS)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def test_arrays_give_arrays_and_numbers_are_binarised():
    x = np.random.default_rng(0).normal(size=(3, 20))
    net = Hopfield(binarize=0.5).fit(x)
    assert isinstance(net.patterns_, np.ndarray)
    np.testing.assert_array_equal(net.patterns_, np.where(x > 0.5, 1, -1))
    np.testing.assert_array_equal(net.recall(x), net.transform(x))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([[1.0, 0.5]], r"X \(row 0 holds 0.5\) must hold -1 and 1 alone, .*binarize=0.0"),
        ([[1.0, -1.0], [1.0, 0.0]], r"X \(row 1 holds 0\)"),
        ([[1.0, float("nan")]], "Input X contains NaN"),
    ],
)
def test_other_values_than_two_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        Hopfield().fit(given)


def test_wrong_lengths_and_settings_are_refused():
    net = Hopfield().fit([[1.0, -1.0, 1.0]])
    with pytest.raises(ValueError, match="X has 2 features, but Hopfield is expecting 3"):
        net.recall([[1.0, -1.0]])
    with pytest.raises(UserError, match=r"X \(row 0 holds 2\)"):
        net.energy([[1.0, -1.0, 2.0]])
    with pytest.raises(NotFittedError, match="fit"):
        Hopfield().recall([[1.0]])
    with pytest.raises(UserError, match="unknown update 'asynchronos'; did you mean asynchronous"):
        Hopfield("asynchronos").fit([[1.0]])
    with pytest.raises(UserError, match=r"max_sweeps \(0\) must be at least 1"):
        Hopfield(max_sweeps=0).fit([[1.0]])
    with pytest.raises(UserError, match=r"bias \(inf\) must be a finite number"):
        Hopfield(bias=float("inf")).fit([[1.0]])


def test_learned_patterns_that_are_no_signs_are_refused():
    net = Hopfield().fit(signs(2, 5))
    net.patterns_ = net.patterns_ * 0.5
    with pytest.raises(UserError, match=r"patterns_ \(row 0 holds -?0.5\)"):
        net.check_learned()


# ------------------------------------------------------------------------------------- the recipe


@pytest.fixture(scope="module")
def stored():
    recipe = StoredDigits(probes=100)
    data = recipe.dataset()
    return recipe, data, recipe.fit(recipe.model(data), data)


@pytest.mark.covers("H3")
def test_digit_images_are_recalled(stored):
    recipe, data, net = stored
    assert len(set(data.spec["stored"])) == 4  # of four classes
    found = recipe.metrics(net, data.splits["test"])
    assert found["recovered_bits"].mean() >= 0.99
    assert found["recalled"].mean() >= 0.95
    wrong = data.splits["test"][0] != data.splits["train"][0][data.splits["test"][1]]
    assert wrong.double().mean() == pytest.approx(0.1, abs=5 * (0.09 / wrong.numel()) ** 0.5)
    ends = recipe.final(net, data, torch.Generator().manual_seed(0), starts=200)
    assert ends["noise_stored"] + ends["noise_negated"] + ends["noise_spurious"] == pytest.approx(1)
    assert min(ends["noise_stored"], ends["noise_negated"]) > 0.2


def test_predict_names_the_stored_image_and_completes_what_is_hidden(stored):
    recipe, data, net = stored
    images = data.splits["train"][0].float()
    for keep in ("", "left", "0.8"):
        found = recipe.predict(net, images, data.spec, keep=keep)
        right = [answer["stored"] == i for i, answer in enumerate(found)]
        assert sum(right) >= 3, keep
    found = recipe.predict(net, torch.cat([images, -images[:1]]), data.spec)
    assert [answer["state"] for answer in found] == ["stored"] * 4 + ["negated"]
    assert [answer["overlap"] for answer in found] == [1.0] * 4 + [-1.0]
    assert torch.equal(found[2]["recalled"], images[2])
    assert found[1]["class"] == data.spec["classes"][data.spec["stored"][1]]
    with pytest.raises(UserError, match=r"keep \('middle'\) must be top"):
        recipe.predict(net, images, data.spec, keep="middle")
    with pytest.raises(UserError, match="hides no pixel"):
        recipe.predict(net, images, data.spec, keep="1")


def test_samples_are_states_at_rest_and_a_film_shows_the_way(stored):
    recipe, data, net = stored
    draw = torch.Generator().manual_seed(0)
    made = recipe.sample(net, data.spec, draw, n=5)
    assert made.shape == (5, 1, 8, 8)
    assert torch.equal(net.recall(made.flatten(1)), made.flatten(1).double())
    film = recipe.sample(net, data.spec, draw.manual_seed(0), n=5, film=True)
    assert isinstance(film, Film)
    assert len(film.frames) > 16
    assert (film.frames[-1] == film.frames[-2]).all()
    with pytest.raises(UserError, match=r"n \(0\) must be from 1 to 10,000 images"):
        recipe.sample(net, data.spec, draw, n=0)


@pytest.mark.slow
def test_from_the_command_line_a_picture_is_recalled(tmp_path, stored):
    _, data, _ = stored
    run = everynet.run(everynet.recipe("hopfield", probes=20), tmp_path / "runs")
    picture = data.splits["train"][0][0, 0].add(1).mul(127.5).to(torch.uint8).numpy()
    Image.fromarray(picture).save(tmp_path / "digit.png")
    (found,) = everynet.trained(run.folder).predict(tmp_path / "digit.png", keep="0.7")
    assert found["state"] == "stored"
    np.testing.assert_array_equal(np.asarray(found["recalled"])[0] > 0.5, picture > 127)


def test_settings_and_data_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"stored \(11\) must be at most 10, one image a class"):
        StoredDigits(stored=11).dataset()
    with pytest.raises(UserError, match=r"flips \(0.6\) must be a number from 0 to 0.5"):
        StoredDigits(flips=0.6)
    with pytest.raises(UserError, match=r"threshold \(1.0\) must be at least 0 and below 1"):
        StoredDigits(threshold=1.0)
    with pytest.raises(UserError, match="unknown update 'both'"):
        StoredDigits(update="both")
    rng = np.random.default_rng(0)
    for label in "ab":
        (tmp_path / label).mkdir()
        for i in range(12):
            pixels = rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / label / f"{i}.png")
    with pytest.raises(UserError, match="must be grey images, because a pixel is one neuron"):
        StoredDigits(data=str(tmp_path), stored=2).dataset()
    recipe = StoredDigits(probes=10)
    with pytest.raises(UserError, match=r"starts \(0\) must be at least 1"):
        recipe.final(Hopfield(), Data.none(), torch.Generator(), starts=0)


def test_a_run_folder_that_names_other_images_is_refused(stored):
    recipe, data, net = stored
    with pytest.raises(ValueError, match="must be those that the description names"):
        recipe.check_learned(net, {**data.spec, "stored": [0, 1]})


def test_chosen_images_are_less_alike_than_others(stored):
    _, data, _ = stored
    x = data.splits["train"][0].flatten(1)
    overlap = (x @ x.T / 64).fill_diagonal_(0).abs().max()
    assert overlap < 0.3

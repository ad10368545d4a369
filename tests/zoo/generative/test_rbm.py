"""The machine against the sums over all of its states, and what its recipes do with images."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import everynet
from everynet import runs
from everynet.data.images.keep import keep_mask
from everynet.plot import Film
from everynet.recipes.catalog import find
from everynet.recipes.state import State
from everynet.runs import job
from everynet.system.errors import UserError
from everynet.training.device import choose
from everynet.training.loop import begin, train
from everynet.zoo.generative.rbm import (
    BarsAndStripes,
    BoltzmannMachine,
    DivergenceImages,
    DivergenceTraining,
    PersistentChains,
    PersistentTraining,
    all_states,
    annealed_log_partition,
    bars_and_stripes,
    complete,
    contrastive_loss,
    draw_units,
    exact_gradient,
    is_valid,
    joint_distribution,
    log_partition,
    partition_of,
    reconstruction_error,
)


def source(seed=0):
    return torch.Generator().manual_seed(seed)


def machine(visible=4, hidden=3, scale=1.0, seed=3):
    """One of large weights, so that its states are far from equally likely."""
    net = BoltzmannMachine(visible, hidden).double()
    draw = source(seed)
    for parameter in net.parameters():
        parameter.data = scale * torch.randn(parameter.shape, generator=draw, dtype=torch.float64)
    return net.requires_grad_(requires_grad=True)


def numbers(rows):
    """Rows of zeros and ones as binary numbers."""
    return (rows @ 2.0 ** torch.arange(rows.shape[1] - 1, -1, -1).to(rows)).long()


# --------------------------------------------------------------------- energies and probabilities


def test_energy_of_one_state_by_hand():
    net = BoltzmannMachine(2, 2).double()
    net.weight.data = torch.tensor([[1.0, -2.0], [0.5, 3.0]]).double()
    net.visible_bias.data = torch.tensor([0.1, -0.2]).double()
    net.hidden_bias.data = torch.tensor([0.7, -0.4]).double()
    v, h = torch.tensor([[1.0, 1.0]]).double(), torch.tensor([[0.0, 1.0]]).double()
    # -(v W h^T) = -(-2 + 3), -(b v^T) = -(0.1 - 0.2), -(c h^T) = 0.4
    assert net.energy(v, h).item() == pytest.approx(-1 + 0.1 + 0.4)


def test_the_gap_is_the_difference_of_two_energies():
    net, h = machine(), all_states(3)
    gap = net.energy_gap(h)
    for i in range(4):
        v = all_states(4)[5].repeat(8, 1)
        on, off = v.clone(), v.clone()
        on[:, i], off[:, i] = 1, 0
        torch.testing.assert_close(gap[:, i], net.energy(on, h) - net.energy(off, h))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_conditionals_and_free_energy_are_those_of_the_enumerated_distribution(temperature):
    net = machine()
    q = joint_distribution(net, temperature)
    assert q.sum().item() == pytest.approx(1)
    v, h = all_states(4), all_states(3)
    given_v, given_h = q / q.sum(1, keepdim=True), q / q.sum(0, keepdim=True)
    torch.testing.assert_close(given_v @ h, net.hidden_given(v, temperature))
    torch.testing.assert_close(given_h.T @ v, net.visible_given(h, temperature))
    log_z = log_partition(net, temperature)
    log_q = -net.free_energy(v, temperature) / temperature - log_z
    torch.testing.assert_close(log_q.exp(), q.sum(1))
    weight = torch.exp(-net.energy(v.repeat_interleave(8, 0), h.repeat(16, 1)) / temperature)
    assert log_z.item() == pytest.approx(weight.sum().log().item())


def test_z_is_the_same_over_either_layer():
    net = machine(4, 6)
    turned = BoltzmannMachine(6, 4).double()
    turned.weight.data = net.weight.data.T
    turned.visible_bias.data, turned.hidden_bias.data = net.hidden_bias.data, net.visible_bias.data
    torch.testing.assert_close(log_partition(net), log_partition(turned))


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_gibbs_frequencies_are_the_enumerated_probabilities(temperature):
    """The total variation of n draws over 16 states is about sqrt(16 / (2 pi n))."""
    net = machine()
    q = joint_distribution(net, temperature).sum(1)
    start = all_states(4).repeat(6250, 1)
    v = net.gibbs(start, 20, temperature, generator=source())
    found = numbers(v).bincount(minlength=16) / len(v)
    assert (found - q).abs().sum().item() / 2 < 0.01


def test_fixed_units_stay_and_the_others_are_drawn_given_them():
    net = machine()
    fixed = torch.tensor([True, False, True, False])
    start = torch.tensor([[1.0, 0, 0, 1]]).double().repeat(50_000, 1)
    v = net.gibbs(start, 20, fixed=fixed, generator=source())
    assert (v[:, fixed] == start[:, fixed]).all()
    q = joint_distribution(net).sum(1)
    allowed = (all_states(4)[:, fixed] == start[0, fixed]).all(1)
    q = torch.where(allowed, q, 0.0) / q[allowed].sum()
    found = numbers(v).bincount(minlength=16) / len(v)
    assert (found - q).abs().sum().item() / 2 < 0.01


def test_the_mean_given_what_is_kept_is_that_of_the_enumeration():
    net = machine()
    kept = torch.tensor([True, False, True, False])
    v = torch.tensor([[1.0, 0, 0, 1]]).double().repeat(2000, 1)
    made = complete(net, v, kept, 100, source())
    assert (made[:, kept] == v[:, kept]).all()
    states, q = all_states(4), joint_distribution(net).sum(1)
    allowed = (states[:, kept] == v[0, kept]).all(1)
    exact = (q[allowed, None] * states[allowed]).sum(0) / q[allowed].sum()
    torch.testing.assert_close(made.mean(0), exact, atol=0.01, rtol=0)


# --------------------------------------------------------------------------------------- learning


def likelihood(net, v):
    """The mean of -log q(v), over all states."""
    return net(v).mean() + log_partition(net)


def test_the_exact_gradient_is_that_of_finite_differences():
    net, v = machine(), all_states(4)[[3, 5, 5, 9, 14]]
    found = exact_gradient(net, v)
    for name, parameter in net.named_parameters():
        flat = parameter.data.view(-1)
        for at in range(len(flat)):
            value, steps = flat[at].item(), []
            for side in (1e-5, -1e-5):
                flat[at] = value + side
                steps.append(likelihood(net, v).item())
            flat[at] = value
            difference = (steps[0] - steps[1]) / 2e-5
            assert found[name].view(-1)[at].item() == pytest.approx(difference, abs=1e-6)


def test_the_exact_gradient_is_two_means_of_the_gradient_of_the_energy():
    """E_q(h|v)[grad E] - E_q(v,h)[grad E], with grad E by W = -v_i h_j, state by state."""
    net, v = machine(), all_states(4)[[3, 9]]
    q = joint_distribution(net).detach()
    outer = -all_states(4)[:, None, :, None] * all_states(3)[None, :, None, :]
    model = (q[..., None, None] * outer).sum((0, 1))
    given = (q / q.sum(1, keepdim=True))[numbers(v)]
    data = (given[..., None, None] * outer[numbers(v)]).sum(1).mean(0)
    torch.testing.assert_close(exact_gradient(net, v)["weight"], data - model)


def divergence_gradient(net, v, k):
    """That of C with v' drawn by k Gibbs steps, over so many chains that noise is small."""
    v_model = net.gibbs(v.repeat(30_000, 1), k, generator=source(k))
    loss = contrastive_loss(net, v, v_model)
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, [*net.parameters()])])


def test_contrastive_divergence_nears_the_exact_gradient_as_k_grows():
    """All units on and all off are two modes: chains from the first reach the second in time."""
    net, v = machine(), torch.ones(2, 4).double()
    net.weight.data.fill_(1.5)
    net.visible_bias.data.fill_(-1.5 * 3 / 2)
    net.hidden_bias.data.fill_(-1.5 * 4 / 2)
    exact = torch.cat([g.flatten() for g in exact_gradient(net, v).values()])
    away = [(divergence_gradient(net, v, k) - exact).norm().item() for k in (1, 4, 40)]
    assert away[0] > 1.5 * away[1] > 5 * away[2]
    assert away[2] < 0.02 * exact.norm()


def test_one_update_is_the_rule_of_contrastive_divergence():
    """W += lr (v^T P(h|v) - v'^T P(h|v')), and b and c alike: means over the rows."""
    recipe = find("rbm").tiny()
    recipe = replace(recipe, optimizer="sgd", schedule="constant", lr=0.3)
    net, v = machine(6, 3), draw_units(torch.full((5, 6), 0.4).double(), source())
    chains = draw_units(torch.full((4, 6), 0.6).double(), source(1))
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    h, h_model = net.hidden_given(v).detach(), net.hidden_given(chains).detach()
    state = State(net, torch.nn.Module(), {"main": torch.optim.SGD(net.parameters(), lr=0.3)})
    fixed = DivergenceTraining.chains_after
    try:
        DivergenceTraining.chains_after = lambda *_: chains
        terms = recipe.step(state, (v.view(5, 1, 2, 3),))
    finally:
        DivergenceTraining.chains_after = fixed
    assert not terms["_contrast"].isnan()
    rise = {name: (p.detach() - before[name]) / 0.3 for name, p in net.named_parameters()}
    torch.testing.assert_close(rise["weight"], v.T @ h / 5 - chains.T @ h_model / 4)
    torch.testing.assert_close(rise["visible_bias"], v.mean(0) - chains.mean(0))
    torch.testing.assert_close(rise["hidden_bias"], h.mean(0) - h_model.mean(0))


def test_pseudo_likelihood_is_that_of_each_unit_given_the_others():
    net, v = machine(), all_states(4)
    q = joint_distribution(net).sum(1).log()
    expected = torch.zeros(16).double()
    for i in range(4):
        flipped = v.clone()
        flipped[:, i] = 1 - v[:, i]
        expected += q - torch.logaddexp(q, q[numbers(flipped)])
    found = [net.pseudo_likelihood(v, torch.full((16,), i)) for i in range(4)]
    torch.testing.assert_close(torch.stack(found).mean(0), expected)


def test_the_error_of_reconstruction_is_the_cross_entropy_with_the_mean_code():
    net, v = machine(), all_states(4)
    p = net.visible_given(net.hidden_given(v))
    expected = -(v * p.log() + (1 - v) * (1 - p).log()).sum(1)
    torch.testing.assert_close(reconstruction_error(net, v), expected, rtol=1e-5, atol=1e-5)


# ------------------------------------------------------------------------------ partition function


def test_annealed_importance_sampling_finds_z_within_a_hundredth():
    net = machine(scale=1.5)
    found = annealed_log_partition(net, chains=1000, steps=500, generator=source())
    assert math.exp(found.value - log_partition(net).item()) == pytest.approx(1, abs=0.01)
    assert 0 < found.error < 0.01


def test_its_error_says_how_far_off_it_is():
    """Over thirty estimates: squares of (found - exact) / error are about 1 on average."""
    net = machine(8, 6, scale=1.2)
    exact = log_partition(net).item()
    found = [
        annealed_log_partition(net, chains=50, steps=20, generator=source(s)) for s in range(30)
    ]
    ratio = np.mean([((one.value - exact) / one.error) ** 2 for one in found])
    assert 0.4 < ratio < 2.5


def test_z_is_summed_where_it_can_be():
    net = machine(30, 3)
    assert partition_of(net, 10, 10, source()) == (log_partition(net).item(), 0.0)
    assert partition_of(machine(24, 22), 10, 10, source()).error > 0


def test_one_too_large_to_enumerate_is_refused():
    with pytest.raises(ValueError, match=r"units \(25\) must be at most 20 .* annealed_log_partit"):
        log_partition(BoltzmannMachine(25, 30))
    with pytest.raises(ValueError, match="2\\^30 states"):
        exact_gradient(BoltzmannMachine(30, 2), torch.zeros(1, 30))


# ---------------------------------------------------------------------------------------- recipes


def test_bars_and_stripes_are_whole_columns_or_rows():
    rows = bars_and_stripes(3)
    assert rows.shape == (16, 9)
    assert len(rows.unique(dim=0)) == 14
    for image in rows.view(-1, 3, 3):
        assert (image == image[0]).all() or (image == image[:, :1]).all()
    images = all_states(9).float()
    assert is_valid(images, rows).sum() == 14
    with pytest.raises(UserError, match=r"side \(5\) must be from 2 to 4"):
        BarsAndStripes(side=5)


def test_chains_go_on_from_update_to_update_in_the_same_memory():
    recipe = find("rbm-bars").tiny()
    setup = choose("cpu")
    data = recipe.dataset().to(setup.device, setup.dtype)
    state = begin(recipe, data, setup)
    assert isinstance(state.extra, PersistentChains)
    place, before = state.extra.v.data_ptr(), state.extra.v.clone()
    weights = {name: p.detach().clone() for name, p in state.model.named_parameters()}
    next(iter(train(recipe, state, data, setup=setup)))
    assert state.extra.v.data_ptr() == place
    assert not torch.equal(state.extra.v, before)
    assert any(not torch.equal(p, weights[n]) for n, p in state.model.named_parameters())
    assert recipe.captured
    assert recipe.per_rank
    assert not find("rbm").per_rank


def test_persistent_chains_begin_where_the_last_ones_ended():
    recipe = PersistentTraining(chains=200, gibbs_steps=1)
    net = machine(4, 3)
    chains = PersistentChains(draw_units(torch.full((200, 4), 0.5).double(), source()))
    state = State(net, chains, {})
    start = chains.v.clone()
    torch.manual_seed(5)
    found = recipe.chains_after(state, torch.zeros(2, 4).double())
    torch.manual_seed(5)
    torch.testing.assert_close(found, net.gibbs(start, 1))
    assert torch.equal(found, chains.v)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A run of a few seconds."""
    recipe = replace(find("rbm"), steps=60, gibbs_steps=1, hidden_size=32, eval_every=60)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job.Job, "draw", lambda *_: ())
        patch.setattr(DivergenceImages.final, "__kwdefaults__", {"annealing": 5, "chains": 5})
        return everynet.trained(
            runs.run(recipe, tmp_path_factory.mktemp("rbm"), device="cpu").folder
        )


def test_predict_gives_code_reconstruction_and_likelihood(digits, tmp_path):
    image = np.zeros((8, 8), np.uint8)
    image[:, 3:5] = 255
    Image.fromarray(image).save(tmp_path / "one.png")
    (answer,) = digits.predict([tmp_path / "one.png"], annealing=50)
    assert len(answer["hidden"]) == 32
    assert tuple(answer["reconstruction"].shape) == (1, 8, 8)
    assert answer["log_likelihood"] < 0 < answer["log_partition_error"]

    (plain,) = digits.predict([tmp_path / "one.png"], annealing=0)
    assert "log_likelihood" not in plain
    assert plain["free_energy"] == answer["free_energy"]


def test_keep_completes_what_is_hidden(digits, tmp_path):
    image = np.zeros((8, 8), np.uint8)
    image[:, 3:5] = 255
    Image.fromarray(image).save(tmp_path / "one.png")
    for keep in ("top", "left", "0.5"):
        (answer,) = digits.predict([tmp_path / "one.png"], keep=keep, steps=20)
        made = answer["completed"]
        assert tuple(made.shape) == (1, 8, 8)
        assert 0 <= float(made.min()) <= float(made.max()) <= 1
        if keep != "0.5":
            kept = keep_mask(keep, 8, 8)
            torch.testing.assert_close(made[0][kept], torch.tensor(image / 255.0).float()[kept])


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"keep": "1.0"}, "hides no pixel"),
        ({"keep": "0"}, "hides every pixel"),
        ({"keep": "tp"}, "did you mean top"),
        ({"keep": "top", "steps": 1}, r"steps \(1\) must be from 2"),
        ({"annealing": -1}, r"annealing \(-1\) must be from 0"),
    ],
)
def test_settings_of_predict_that_are_refused(digits, settings, line):
    with pytest.raises(UserError, match=line):
        digits.predict(np.eye(8)[None] * 16, **settings)


def test_pixels_outside_of_zero_to_one_are_refused(digits):
    recipe, model = find("rbm"), BoltzmannMachine(64, 3)
    with pytest.raises(UserError, match=r"must hold pixels from 0 to 1"):
        recipe.predict(model, torch.full((1, 1, 8, 8), 1.5), {"shape": [1, 8, 8]})


def test_colour_is_refused(tmp_path):
    for label in "ab":
        (tmp_path / label).mkdir()
        for number in range(20):
            pixels = np.random.default_rng(number).integers(0, 256, (8, 8, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / label / f"{number}.png")
    with pytest.raises(UserError, match=r"must be grey images.* 3 channels"):
        replace(find("rbm"), data=str(tmp_path), batch_size=4).dataset()


def test_samples_are_binary_images_or_a_film_of_their_chains(digits):
    made = digits.sample(n=5, steps=3)
    assert made.shape == (5, 1, 8, 8)
    assert set(made.unique().tolist()) == {0, 1}
    film = digits.sample(n=5, steps=4, film=True)
    assert isinstance(film, Film)
    assert len(film.frames) == 5
    hot = digits.sample(n=200, steps=30, temperature=50.0)
    assert hot.mean().item() == pytest.approx(0.5, abs=0.03)  # of noise alone


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"n": 0}, r"n \(0\) must be from 1"),
        ({"steps": -2}, r"steps \(-2\) must be from 1"),
        ({"temperature": 0.0}, r"temperature \(0.0\) must be above 0"),
    ],
)
def test_settings_of_sample_that_are_refused(digits, settings, line):
    with pytest.raises(UserError, match=line):
        digits.sample(**settings)


@pytest.mark.slow
def test_bars_are_valid():
    """The goal of the recipe: nine of ten samples, and every pattern among them."""
    found = runs_of(find("rbm-bars"))
    assert found["valid_samples"] >= 0.9
    assert found["patterns"] == 30


def runs_of(recipe):
    setup = choose("cpu")
    data = recipe.dataset().to(setup.device, setup.dtype)
    state = begin(recipe, data, setup)
    for _ in train(recipe, state, data, setup=setup):
        pass
    with torch.no_grad():
        return recipe.final(state.model, data, source())


@pytest.mark.slow
def test_an_occluded_digit_is_completed_better_than_by_the_mean_digit():
    recipe = find("rbm")
    setup = choose("cpu")
    data = recipe.dataset().to(setup.device, setup.dtype)
    state = begin(recipe, data, setup)
    for _ in train(recipe, state, data, setup=setup):
        pass
    v, train_mean = data.splits["test"][0].flatten(1), data.splits["train"][0].flatten(1).mean(0)
    kept = keep_mask("top", 8, 8).flatten()
    made = complete(state.model, v, kept, 200, source())
    mean = train_mean.expand_as(v)
    error, baseline = ((x - v)[:, ~kept].square().mean(1) for x in (made, mean))
    gain = baseline - error  # image by image; pixels are drawn, so that no error can be 0
    assert gain.mean() > 4 * gain.std() / len(gain) ** 0.5

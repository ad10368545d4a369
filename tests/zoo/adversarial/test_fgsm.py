"""The fast gradient sign method against closed forms, and on networks that were trained."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

import everynet
from everynet import runs
from everynet.recipes.catalog import find
from everynet.recipes.settings import override
from everynet.recipes.trained import Trained
from everynet.runs.job import Job
from everynet.system.errors import UserError
from everynet.zoo.adversarial.fgsm import (
    fgsm,
    input_gradient,
    linear_margin,
    linear_rise,
    logits,
    sign_step,
)


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Dropout(0.5), nn.Flatten(), nn.Linear(12, 4)
    ).double()


# ------------------------------------------------------------------------------------ equations


def test_a_step_by_hand():
    """Two inputs, two classes: grad J = (p - 1) (w_1 - w_0) for the class 1."""
    model = nn.Linear(2, 2, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 0.0], [3.0, -0.5]]))
    x, y = torch.tensor([[0.5, 0.5]]).double(), torch.tensor([1])
    p = 1 / (1 + torch.exp(torch.tensor(-(2 * 0.5 - 0.5 * 0.5)).double()))
    expected = (p - 1) * torch.tensor([[2.0, -0.5]]).double()
    torch.testing.assert_close(input_gradient(model, x, y), expected, atol=1e-15, rtol=0)
    moved = fgsm(model, x, y, 0.1)
    torch.testing.assert_close(
        moved, torch.tensor([[0.4, 0.6]], dtype=torch.float64), atol=1e-15, rtol=0
    )


def test_the_gradient_is_that_of_each_sample_alone(network):
    x, y = numbers(5, 2, 4, 4), torch.tensor([0, 1, 2, 3, 1])
    found = input_gradient(network, x, y)
    network.eval()
    for row in range(5):
        one = x[row : row + 1].clone().requires_grad_()
        cross_entropy(network(one), y[row : row + 1]).backward()
        torch.testing.assert_close(found[row], one.grad[0], atol=1e-14, rtol=0)


def test_no_value_moves_further_or_leaves_its_range(network):
    x, y = numbers(6, 2, 4, 4).sigmoid(), torch.arange(6) % 4
    moved = fgsm(network, x, y, 0.3)
    assert float((moved - x).abs().max()) <= 0.3 + 1e-15
    assert 0 <= float(moved.min()) <= float(moved.max()) <= 1
    free = fgsm(network, x, y, 0.3, -10.0, 10.0)
    torch.testing.assert_close((free - x).abs(), torch.full_like(x, 0.3), atol=1e-15, rtol=0)
    torch.testing.assert_close(moved, free.clamp(0, 1), atol=0, rtol=0)


def test_a_range_and_a_step_for_each_channel(network):
    """As of images that were standardised channel by channel."""
    x, y = numbers(3, 2, 4, 4), torch.tensor([0, 1, 2])
    eps, low, high = (torch.tensor(v).double()[:, None, None] for v in ([1, 2], [-9, 0], [9, 0.5]))
    moved = fgsm(network, x, y, eps, low, high)
    torch.testing.assert_close((moved - x)[:, 0].abs(), torch.ones(3, 4, 4).double())
    assert set(moved[:, 1].unique().tolist()) <= {0.0, 0.5}


@pytest.mark.covers("X3")
@given(st.integers(0, 50), st.sampled_from([0.0, 0.01, 0.3, 2.0]))
def test_a_linear_model_changes_by_eps_times_the_sum_of_its_weights(seed, eps):
    """With the logistic loss: exactly, for any step, and always to the wrong side."""
    model = nn.Linear(20, 1).double()
    with torch.no_grad():
        model.weight.copy_(numbers(1, 20, seed=seed))
        model.bias.fill_(0.3)
    x, y = numbers(8, 20, seed=seed + 1), torch.arange(8) % 2
    s, w = 2 * y - 1, model.weight[0].detach()
    before, after = (s * model(v)[:, 0].detach() for v in (x, fgsm(model, x, y, eps, -99, 99)))
    torch.testing.assert_close(before - after, (eps * w.abs().sum()).expand(8), atol=1e-12, rtol=0)
    torch.testing.assert_close(linear_margin(w, 0.3, x, y, eps), after, atol=1e-12, rtol=0)


def test_one_output_is_the_logistic_loss():
    model, x = nn.Linear(3, 1).double(), numbers(4, 3)
    y = torch.tensor([0, 1, 1, 0])
    here = cross_entropy(logits(model, x), y)
    torch.testing.assert_close(here, binary_cross_entropy_with_logits(model(x)[:, 0], y.double()))


@given(st.integers(0, 200))
def test_no_step_of_that_size_raises_a_linear_loss_more(seed):
    g = numbers(4, 7, seed=seed)
    best = linear_rise(g, 0.2)
    draw = torch.Generator().manual_seed(seed)
    d = (torch.rand(4, 7, generator=draw, dtype=torch.float64) * 2 - 1) * 0.2
    assert bool(((g * d).sum(1) <= best + 1e-15).all())
    step = sign_step(torch.zeros_like(g), g, 0.2, -1.0, 1.0)
    torch.testing.assert_close((g * step).sum(1), best, atol=1e-15, rtol=0)


def test_the_loss_rises_as_its_gradient_says(network):
    """To first order: halving the step quarters what is left."""
    network = nn.Sequential(*[network[k] for k in (0, 1, 3)], nn.Tanh(), network[4]).eval()
    x, y = numbers(4, 2, 4, 4), torch.tensor([0, 1, 2, 3])
    g = input_gradient(network, x, y)

    def left(eps):
        with torch.no_grad():
            before, after = (
                cross_entropy(network(v), y, reduction="none")
                for v in (x, fgsm(network, x, y, eps, -99, 99))
            )
        return after - before - linear_rise(g, eps)

    ratio = left(1e-4) / left(5e-5)
    torch.testing.assert_close(ratio, torch.full_like(ratio, 4.0), rtol=0.02, atol=0)


# ------------------------------------------------------------------------------ leaves no traces


def test_the_network_and_the_images_are_left_as_they_were(network):
    network.train()
    x, y = numbers(4, 2, 4, 4), torch.tensor([0, 1, 2, 3])
    kept, state = x.clone(), {n: v.clone() for n, v in network.state_dict().items()}
    moved = fgsm(network, x, y, 0.1)
    assert network.training
    assert network[1].training
    assert all(p.grad is None and p.requires_grad for p in network.parameters())
    assert torch.equal(x, kept)
    assert not x.requires_grad
    assert not moved.requires_grad
    for name, value in network.state_dict().items():
        assert torch.equal(value, state[name]), name  # the running means of batch norm
    assert torch.equal(fgsm(network.eval(), x, y, 0.1), moved)  # without dropout, both times


def test_it_works_where_gradients_are_off(network):
    x, y = numbers(2, 2, 4, 4), torch.tensor([0, 1])
    expected = fgsm(network, x, y, 0.1)
    with torch.no_grad():
        assert torch.equal(fgsm(network.requires_grad_(False), x, y, 0.1), expected)


# --------------------------------------------------------------------------------------- recipe


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Runs without pictures: an MLP on images, a perceptron on a table, a simulation."""
    out = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "draw", lambda self, model: ())
        names = {"image": "mlp", "table": "mlp-xor"}
        made = {kind: runs.run(override(find(name), {"steps": 60}), out).folder
                for kind, name in names.items()}  # fmt: skip
        made["simulation"] = runs.run(find("activations").tiny(), out).folder
    return made


def test_a_run_is_attacked_in_the_units_of_its_pixels(digits):
    recipe = replace(find("fgsm"), of=everynet.trained(digits["image"]), samples=100,
                     epsilons=(0.0, 0.05, 0.2))  # fmt: skip
    result = recipe.simulate(torch.Generator().manual_seed(0))
    change = result["changed"] - result["images"]
    eps = float(result["shown_epsilon"])
    assert eps in recipe.epsilons[1:]
    assert float(change.abs().max()) == pytest.approx(eps, abs=1e-6)
    assert -1e-6 <= float(result["changed"].min()) <= float(result["changed"].max()) <= 1 + 1e-6
    source, model = recipe.of.recipe, recipe.of.model
    x, y = next(iter(source.dataset().test))
    with torch.no_grad():
        right = (model(x[:100]).argmax(1) == y[:100]).double().mean()
    figures = recipe.metrics(result)
    assert figures["accuracy"] == pytest.approx(float(right))
    assert figures["fgsm_accuracy"] < 0.3
    assert figures["random_accuracy"] > 0.7
    assert figures["linear_gap"] < 1e-12
    assert 0 < figures["random_rise"] < 0.5
    torch.testing.assert_close(result["linear_accuracy"], result["linear_law"])
    assert list(recipe.draw(result)) == ["examples", "accuracy", "directions"]


def test_the_images_shown_were_right_and_are_wrong(digits):
    recipe = replace(find("fgsm"), of=everynet.trained(digits["image"]), samples=100,
                     epsilons=(0.0, 0.2))  # fmt: skip
    result = recipe.simulate(torch.Generator().manual_seed(0))
    assert torch.equal(result["before"].argmax(1), result["true"])
    assert bool((result["after"].argmax(1) != result["true"]).all())
    assert len(result["true"].unique()) == len(result["true"]) == 5
    ends = result["loss_fgsm"][:, -1], result["loss_random"][:, -1]
    assert bool((ends[0] > ends[1]).all())
    torch.testing.assert_close(result["loss_fgsm"][:, 0], result["loss_random"][:, 0])


@pytest.mark.parametrize("kind", ["table", "simulation"])
def test_a_run_that_tells_no_images_apart_is_refused_before_a_folder_is_made(
    kind, digits, tmp_path
):
    recipe = override(find("fgsm"), {"of": str(digits[kind])})
    with pytest.raises(UserError, match=r"of \(.*\) must be the run of a network that tells imag"):
        runs.run(recipe, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_data_that_has_changed_is_refused(digits, monkeypatch):
    recipe = replace(find("fgsm"), of=everynet.trained(digits["image"]))
    spec = recipe.of.spec
    monkeypatch.setattr(Trained, "spec", property(lambda self: {**spec, "mean": [0.0]}))
    with pytest.raises(UserError, match=r"of \(.*\) must find its data as it was, but that has"):
        recipe.victim()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"epsilons": (0.0,)}, r"epsilons \(\(0.0,\)\) must be two or more numbers that rise"),
        ({"epsilons": (0.1, 0.2)}, r"epsilons .* must be two or more numbers that rise from 0"),
        ({"epsilons": (0.0, 0.2, 0.1)}, r"epsilons .* must be two or more numbers that rise"),
        ({"epsilons": (0.0, 1.5)}, r"epsilons .* must be two or more numbers .* to at most 1"),
        ({"samples": 0}, r"samples \(0\) must be at least 1"),
        ({"steps": 0}, r"steps \(0\) must be at least 1"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        replace(find("fgsm"), **fields)


# ------------------------------------------------------------------------------------- learning


@pytest.mark.slow
@pytest.mark.covers("X3")
def test_the_goal_is_reached(tmp_path):
    assert all(runs.run(replace(find("fgsm"), seed=s), tmp_path).reached for s in range(3))


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.covers("X3")
def test_a_network_of_mnist_falls_from_99_to_less_than_30_percent(tmp_path):
    trained = runs.run(override(find("cnn-mnist"), {"steps": 1000}), tmp_path).folder
    figures = runs.run(override(find("fgsm"), {"of": str(trained)}), tmp_path).metrics
    assert figures["accuracy"] >= 0.985
    assert figures["fgsm_accuracy"] <= 0.3

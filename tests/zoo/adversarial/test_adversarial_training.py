"""Training on adversarial examples: how they are made, what is learned, and what is reported."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import everynet
from everynet import runs
from everynet.recipes.catalog import find
from everynet.recipes.recipe import Goal
from everynet.training.loop import trained as train
from everynet.zoo.adversarial.adversarial_training import (
    one_step_examples,
    pgd_examples,
    pixel_images,
    under_attack,
)
from everynet.zoo.adversarial.attacks import answers, fgsm, pgd


@pytest.fixture
def network():
    torch.manual_seed(0)
    layers = nn.Flatten(), nn.Linear(16, 12), nn.BatchNorm1d(12), nn.Tanh(), nn.Linear(12, 3)
    return nn.Sequential(*layers)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    recipe = replace(find("adversarial"), steps=60, widths=(8, 16), inner=2)
    return recipe, runs.run(recipe, tmp_path_factory.mktemp("runs"))


def images(count=8):
    draw = torch.Generator().manual_seed(1)
    return torch.rand(count, 1, 4, 4, generator=draw), torch.arange(count) % 3


def test_one_step_examples_are_those_of_fgsm(network):
    """In evaluation mode, with the network left in training and its running means untouched."""
    (x, y), means = images(), network[2].running_mean.clone()
    made = one_step_examples(network.train(), x, y, 0.1)
    assert network.training
    assert torch.equal(network[2].running_mean, means)
    torch.testing.assert_close(made, fgsm(network, x, y, 0.1))


def test_pgd_examples_raise_the_loss_and_stay_in_the_ball(network):
    x, y = images()
    torch.manual_seed(3)
    made = pgd_examples(network, x, y, 0.2, 5)
    again = pgd_examples(network, x, y, 0.2, 5)
    assert float((made - x).abs().max()) <= 0.2 + 1e-6
    assert 0 <= float(made.min()) <= float(made.max()) <= 1
    assert not torch.equal(made, again), "from noise of torch's generator"
    network.eval()
    with torch.no_grad():
        assert float(cross_entropy(network(made), y)) > float(cross_entropy(network(x), y))
    assert not made.requires_grad
    assert all(p.grad is None for p in network.parameters())


@pytest.mark.covers("X5")
def test_the_objective_weighs_images_and_examples_by_their_share():
    recipe = replace(find("adversarial"), share=0.25, attack="fgsm", widths=(4, 8))
    data = recipe.dataset()
    model = recipe.model(data).eval()  # so that a batch norm sees no batch
    x, y = data.train(0)
    terms = recipe.objective(model, (x, y))
    changed = fgsm(model, x, y, recipe.eps)
    for name, share, seen in (("cross_entropy", 0.75, x), ("adversarial", 0.25, changed)):
        expected = share * cross_entropy(model(seen), y)
        torch.testing.assert_close(terms[name], expected, atol=1e-5, rtol=1e-5)
    assert [*replace(recipe, share=0.0).objective(model, (x, y))] == ["cross_entropy"]


def test_no_gradient_goes_through_the_making_of_examples():
    """The gradient of the loss by the weights is that at fixed examples."""
    recipe = replace(find("adversarial"), share=1.0, attack="fgsm", widths=(4, 8))
    data = recipe.dataset()
    model = recipe.model(data).eval()
    x, y = data.train(0)
    sum(recipe.objective(model, (x, y)).values()).backward()
    found = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    cross_entropy(model(fgsm(model, x, y, recipe.eps)), y).backward()
    for grad, parameter in zip(found, model.parameters(), strict=True):
        torch.testing.assert_close(grad, parameter.grad, atol=1e-6, rtol=1e-4)


def test_pixels_of_a_large_set_are_not_standardised_either():
    data = find("adversarial").dataset()
    whole = replace(data, prepare=lambda batch: batch)
    assert pixel_images(whole).splits["train"][0] is whole.splits["train"][0]


def test_what_is_reported_under_attack():
    recipe = replace(find("adversarial"), steps=30, widths=(4, 8), share=0.0)
    data = recipe.dataset()
    model, draw = train(recipe, data), torch.Generator().manual_seed(0)
    found = under_attack(model, data, 0.1, draw, restarts=3, steps=5)
    x, y = (torch.cat(parts) for parts in zip(*data.test, strict=True))
    clean = (answers(model, x) == y).double().mean()
    step = (answers(model, fgsm(model, x, y, 0.1)) == y).double().mean()
    assert found["clean"] == pytest.approx(float(clean))
    assert found["fgsm_accuracy"] == pytest.approx(float(step))
    draw = torch.Generator().manual_seed(0)
    once = pgd(model, x, y, 0.1, steps=5, step_size=4 / 3 * 0.1 / 5, generator=draw)
    assert found["pgd_accuracy"] == pytest.approx(
        float((answers(model, once) == y).double().mean())
    )
    assert found["pgd_restarts_accuracy"] <= found["pgd_accuracy"] <= found["clean"]
    nothing = under_attack(model, data, 0.0, draw, restarts=3)
    assert set(nothing.values()) == {found["clean"]}


def test_a_run_reports_itself_beside_its_twin(trained):
    _, result = trained
    metrics = result.metrics
    robust = ("fgsm_accuracy", "pgd_accuracy")
    assert {*robust, *(f"undefended_{n}" for n in (*robust, "accuracy"))} <= metrics.keys()
    drop = metrics["undefended_accuracy"] - metrics["accuracy"]
    assert metrics["clean_drop"] == pytest.approx(drop, abs=1e-6)
    assert {p.stem for p in result.pictures} >= {"examples", "robustness", "learning-curve"}


def test_evaluate_takes_restarts_and_steps(trained):
    _, result = trained
    found = everynet.trained(result.folder).evaluate(restarts=2, attack_steps=5)
    assert found["pgd_restarts_accuracy"] <= found["pgd_accuracy"]
    assert found["fgsm_accuracy"] == pytest.approx(result.metrics["fgsm_accuracy"], abs=1e-6)


# ------------------------------------------------------------------------------------- learning


@pytest.mark.slow
@pytest.mark.covers("X5")
def test_the_goal_is_reached(tmp_path):
    result = runs.run(find("adversarial"), tmp_path)
    assert all(goal.reached(result.metrics) for goal in Goal.parse(find("adversarial").goal))


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.covers("X5")
def test_the_goal_of_mnist_is_reached(tmp_path):
    result = runs.run(find("adversarial-mnist"), tmp_path)
    assert result.reached

"""Attacks against closed forms of linear models, and on networks that were trained."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import nn
from torch.nn.functional import cross_entropy

import everynet
from everynet import runs
from everynet.plot.style import OURS
from everynet.recipes.catalog import find
from everynet.recipes.settings import override
from everynet.runs.job import Job
from everynet.system.errors import UserError
from everynet.zoo.adversarial.attacks import (
    OnPixels,
    answers,
    ascend,
    bisect,
    deepfool,
    fgsm,
    gradient_step,
    input_gradient,
    onto_nearest,
    onto_plane,
    pgd,
    pgd_step,
    project,
    random_start,
    risk,
    shorten,
    size,
    smallest_step,
    steepest,
)

NORMS = ("linf", "l2")
FREE = {"low": -math.inf, "high": math.inf}


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def linear(seed=0, classes=4, inputs=12):
    model = nn.Linear(inputs, classes).double()
    with torch.no_grad():
        model.weight.copy_(numbers(classes, inputs, seed=seed))
        model.bias.copy_(numbers(classes, seed=seed + 1))
    return model


@pytest.fixture
def network():
    """Steep enough for changes of a tenth, and of all classes among samples around 1/2."""
    net = nn.Sequential(linear(0, 16), nn.Tanh(), nn.Dropout(0.5), linear(2, 4, 16))
    with torch.no_grad():
        net[0].bias.copy_(-net[0].weight.sum(1) / 2)
        net[3].bias.zero_()
    return net


# ------------------------------------------------------------------------------ risk and balls


@pytest.mark.covers("X1")
def test_the_risk_is_one_less_the_accuracy():
    model, x = linear(), numbers(50, 12)
    y = torch.arange(50) % 4
    right = sum(int(model(x[i]).argmax()) == int(y[i]) for i in range(50))
    assert risk(model, x, y).item() == pytest.approx(1 - right / 50, abs=1e-15)


@pytest.mark.covers("X1")
@given(st.integers(0, 300), st.sampled_from(NORMS), st.floats(0.01, 3.0))
def test_the_projection_is_the_nearest_point_of_the_ball(seed, norm, eps):
    """p is it if and only if (d - p) (q - p) <= 0 for every q of the ball; inside, p is d."""
    d = numbers(5, 3, 4, seed=seed)
    p = project(d, eps, norm)
    assert bool((size(p, norm) <= eps * (1 + 1e-12)).all())
    q = random_start(torch.zeros_like(d), eps, norm, torch.Generator().manual_seed(seed))
    assert bool((size(q, norm) <= eps * (1 + 1e-12)).all())
    assert bool((((d - p) * (q - p)).flatten(1).sum(1) <= 1e-12).all())
    assert torch.equal(project(q * 0.99, eps, norm), q * 0.99)
    torch.testing.assert_close(project(p, eps, norm), p, atol=1e-14, rtol=0)


def test_a_radius_may_be_a_tensor():
    d, eps = numbers(3, 5), torch.tensor(0.3, dtype=torch.float64)
    for norm in NORMS:
        torch.testing.assert_close(project(d, eps, norm), project(d, 0.3, norm))


@given(st.integers(0, 300), st.sampled_from(NORMS))
def test_no_change_of_size_1_raises_a_linear_loss_more(seed, norm):
    g = numbers(4, 9, seed=seed)
    dual = {"linf": g.abs().sum(1), "l2": g.square().sum(1).sqrt()}[norm]
    torch.testing.assert_close((g * steepest(g, norm)).sum(1), dual, atol=1e-13, rtol=0)
    d = random_start(torch.zeros_like(g), 1.0, norm, torch.Generator().manual_seed(seed))
    assert bool(((g * d).sum(1) <= dual + 1e-13).all())


# -------------------------------------------------------------------------------- gradient steps


@pytest.mark.covers("X2")
def test_a_step_away_from_a_class_and_towards_another_by_hand():
    """For logits W x: grad J(x, y) = W^T (p - e_y)."""
    model, x, y = linear(), numbers(6, 12, seed=3), torch.arange(6) % 4
    g = (model(x).softmax(1) - nn.functional.one_hot(y, 4)) @ model.weight
    torch.testing.assert_close(gradient_step(model, x, y, 0.1), (x + 0.1 * g).detach())
    torch.testing.assert_close(
        gradient_step(model, x, y, 0.1, targeted=True), (x - 0.1 * g).detach()
    )


@pytest.mark.covers("X2")
def test_the_input_gradient_is_that_of_differences(network):
    x, y = numbers(2, 12), torch.tensor([0, 3])
    network.eval()
    found, h = input_gradient(network, x, y), 1e-6
    for i in range(12):
        step = torch.zeros_like(x)
        step[:, i] = h
        with torch.no_grad():
            high, low = (cross_entropy(network(x + s * step), y, reduction="none") for s in (1, -1))
        torch.testing.assert_close(found[:, i], (high - low) / (2 * h), atol=1e-8, rtol=1e-6)


# ------------------------------------------------------------------------------------------ PGD


@pytest.mark.parametrize("norm", NORMS)
def test_a_step_of_pgd_stays_in_the_ball_and_in_the_range(norm):
    x = numbers(6, 12).sigmoid()
    at = random_start(x, 0.3, norm, torch.Generator().manual_seed(1)).clamp(0, 1)
    moved = pgd_step(x, at, numbers(6, 12, seed=2), 0.2, 0.3, norm)
    assert bool((size(moved - x, norm) <= 0.3 + 1e-12).all())
    assert 0 <= float(moved.min()) <= float(moved.max()) <= 1


@pytest.mark.parametrize("norm", NORMS)
def test_ascent_reaches_the_maximum_of_a_linear_loss(norm):
    """max over the ball of w x' = w x + eps ||w||_*, from any start in it."""
    w, x = numbers(12, seed=5), numbers(8, 12)
    start = random_start(x, 0.5, norm, torch.Generator().manual_seed(0))
    how = {"eps": 0.5, "step_size": 0.1, "steps": 60, "norm": norm, **FREE}
    top = ascend(lambda v: (v @ w).sum(), x, start, **how)
    dual = w.abs().sum() if norm == "linf" else w.norm()
    torch.testing.assert_close((top - x) @ w, (0.5 * dual).expand(8), atol=1e-6, rtol=0)


def test_one_step_from_the_sample_is_fgsm(network):
    x, y = numbers(9, 12).sigmoid(), torch.arange(9) % 4
    x = x[answers(network, x) == y]
    y = answers(network, x)
    moved = pgd(network, x, y, 0.05, steps=1, step_size=0.05, from_sample=True)
    torch.testing.assert_close(moved, fgsm(network, x, y, 0.05))


@pytest.mark.parametrize("norm", NORMS)
def test_pgd_fools_exactly_those_that_a_linear_model_of_two_classes_lets_it(norm):
    """A sample falls within eps if and only if |z| < eps ||w||_*: the ball meets the plane."""
    model, x = linear(seed=7, classes=1), numbers(200, 12, seed=8)
    z, w = model(x)[:, 0].detach(), model.weight[0].detach()
    y, eps = (z > 0).long(), 0.3
    reach = eps * (w.abs().sum() if norm == "linf" else w.norm())
    clear = (z.abs() - reach).abs() > 1e-3
    moved = pgd(model, x, y, eps, norm=norm, steps=60, **FREE)
    assert bool((size(moved - x, norm) <= eps + 1e-12).all())
    fell = answers(model, moved) != y
    assert torch.equal(fell[clear], (z.abs() < reach)[clear])
    assert 20 < int(fell.sum()) < 180


def test_restarts_leave_those_alone_that_fell(network):
    x = numbers(60, 12).sigmoid()
    y = answers(network, x)
    once, often = (
        pgd(network, x, y, 0.1, restarts=n, generator=torch.Generator().manual_seed(3))
        for n in (1, 5)
    )
    fell = answers(network, once) != y
    assert torch.equal(once[fell], often[fell])
    assert int((answers(network, often) != y).sum()) >= int(fell.sum()) > 0


def test_what_is_wrong_already_is_left_as_it_is_and_targets_are_reached(network):
    x = numbers(40, 12).sigmoid()
    says = answers(network, x)
    assert torch.equal(pgd(network, x, (says + 1) % 4, 0.5), x)
    assert torch.equal(pgd(network, x, says, 0.5, targeted=True), x)
    wanted = (says + 1) % 4
    draw = torch.Generator().manual_seed(0)
    moved = pgd(network, x, wanted, 0.5, targeted=True, generator=draw)
    assert float((answers(network, moved) == wanted).double().mean()) > 0.8


def test_the_network_is_left_as_it_was(network):
    network.train()
    x, y = numbers(4, 12).sigmoid(), torch.tensor([0, 1, 2, 3])
    for attack in (lambda: pgd(network, x, y, 0.1), lambda: deepfool(network, x, y)):
        attack()
        assert network.training
        assert network[2].training
        assert all(p.grad is None and p.requires_grad for p in network.parameters())


# ---------------------------------------------------------------------------- smallest changes


@pytest.mark.covers("X4")
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("seed", range(4))
def test_the_smallest_change_of_a_linear_model(norm, seed):
    """Of two classes |z| / ||w||_*; of more, the nearest of the planes between y and the others."""
    for classes in (1, 4):
        model, x = linear(seed, classes), numbers(10, 12, seed=seed + 2)
        y = answers(model, x)
        z, w = model(x).detach(), model.weight.detach()
        if classes == 1:  # logits 0 and z
            z, w = nn.functional.pad(z, (1, 0)), nn.functional.pad(w, (0, 0, 1, 0))
        gap = z.gather(1, y[:, None]) - z
        dual = torch.linalg.vector_norm(w[y][:, None] - w, 1 if norm == "linf" else 2, dim=2)
        law = (gap / dual).masked_fill(nn.functional.one_hot(y, len(w)).bool(), math.inf).amin(1)
        moved = deepfool(model, x, y, norm=norm, halvings=40, **FREE)
        assert bool((answers(model, moved) != y).all())
        torch.testing.assert_close(size(moved - x, norm), law, atol=0, rtol=1e-6)


@pytest.mark.covers("X4")
@pytest.mark.parametrize("norm", NORMS)
def test_the_smallest_gradient_step_of_a_linear_model(norm):
    model, x = linear(1, 1), numbers(10, 12)
    y, z = answers(model, x), model(x)[:, 0].detach()
    w = model.weight[0].detach()
    law = z.abs() / (w.abs().sum() if norm == "linf" else w.norm())
    found = smallest_step(model, x, y, norm=norm, largest=4.0, halvings=40, **FREE)
    torch.testing.assert_close(found, law, atol=0, rtol=1e-6)
    none = smallest_step(model, x, y, norm=norm, largest=float(law.min()) / 2, **FREE)
    assert bool(none.isinf().all())


def test_the_nearest_point_of_a_plane():
    """w (d' - d) + f = 0 holds for it, and its size is |w d - f| / ||w||_*."""
    f, w, d = numbers(6), numbers(6, 5, seed=1), numbers(6, 5, seed=2)
    for norm in NORMS:
        found = onto_plane(f, w, d, norm)
        torch.testing.assert_close((w * (found - d)).sum(1), -f, atol=1e-13, rtol=0)
        dual = torch.linalg.vector_norm(w, 1 if norm == "linf" else 2, dim=1)
        expected = ((w * d).sum(1) - f).abs() / dual
        torch.testing.assert_close(size(found, norm), expected, atol=1e-13, rtol=0)


def test_the_nearest_of_several_planes():
    """w_k d = |f_k| for one k, and no plane is nearer."""
    f, w = numbers(3, 6), numbers(3, 6, 5, seed=1)
    for norm in NORMS:
        d = onto_nearest(f, w, norm)
        far = f.abs() / torch.linalg.vector_norm(w, 1 if norm == "linf" else 2, dim=2)
        torch.testing.assert_close(size(d, norm), far.amin(0), atol=1e-13, rtol=0)
        k = far.argmin(0)
        reached = (w[k, range(6)] * d).sum(1)
        torch.testing.assert_close(reached, f.abs()[k, range(6)], atol=1e-13, rtol=0)


def test_bisection_finds_where_something_begins():
    edge = torch.tensor([0.1, 0.5, 0.77], dtype=torch.float64)
    found = bisect(lambda s: s >= edge, torch.zeros_like(edge), torch.ones_like(edge), 40)
    torch.testing.assert_close(found, edge, atol=1e-12, rtol=0)


def test_shortening_keeps_what_fell_fallen(network):
    x = numbers(30, 12).sigmoid()
    y = answers(network, x)
    far = pgd(network, x, y, 0.5, generator=torch.Generator().manual_seed(0))
    near = shorten(network, x, far, y)
    fell = answers(network, far) != y
    assert torch.equal(answers(network, near) != y, fell)
    assert bool((size(near - x, "l2") <= size(far - x, "l2") + 1e-12).all())
    assert torch.equal(near[~fell], far[~fell])


@pytest.mark.covers("X4")
@pytest.mark.parametrize("norm", NORMS)
def test_deepfool_needs_less_than_a_gradient_step_within_the_range(norm, network):
    x = numbers(100, 12).sigmoid()
    y = answers(network.eval(), x)
    moved = deepfool(network, x, y, norm=norm)
    step = smallest_step(network, x, y, norm=norm, largest=2.0, grid=40)
    fell = (answers(network, moved) != y) & step.isfinite()
    assert 0 <= float(moved.min()) <= float(moved.max()) <= 1
    assert float(fell.double().mean()) > 0.5
    assert float(size(moved - x, norm)[fell].mean()) < float(step[fell].mean())


def test_pixels_are_standardised_before_the_network():
    network = nn.Sequential(nn.Flatten(), linear(inputs=8))
    x = numbers(3, 2, 2, 2).sigmoid()
    model = OnPixels(network, [0.3, 0.5], [0.2, 0.4])
    by_hand = torch.stack([(x[:, 0] - 0.3) / 0.2, (x[:, 1] - 0.5) / 0.4], 1)
    torch.testing.assert_close(model(x), network(by_hand))


# -------------------------------------------------------------------------------------- recipes


@pytest.fixture(scope="module")
def of(tmp_path_factory):
    """Runs without pictures: a network on images and one on a table."""
    out = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "draw", lambda self, model: ())
        image = override(find("cnn-cifar"), {"data": "digits", "widths": "8,16", "steps": 150})
        return {
            "image": runs.run(image, out).folder,
            "table": runs.run(find("mlp-xor").tiny(), out).folder,
            "simulation": runs.run(find("activations").tiny(), out).folder,
        }


def recipe_of(of, name="pgd", **fields):
    return replace(find(name), of=everynet.trained(of["image"]), samples=80, **fields)


def simulate(recipe):
    recipe.ready()
    return recipe.simulate(torch.Generator().manual_seed(0))


@pytest.mark.covers("X1", "X2")
@pytest.mark.parametrize(("norm", "eps"), [("linf", 0.15), ("l2", 1.0)])
def test_a_run_is_attacked_in_pixels(of, norm, eps):
    recipe = recipe_of(of, norm=norm, eps=eps)
    result = simulate(recipe)
    change, metrics = result["changed"] - result["images"], recipe.metrics(result)
    assert bool((size(change, norm) <= eps + 1e-6).all())
    assert 0 <= float(result["changed"].min()) <= float(result["changed"].max()) <= 1
    x, y = next(iter(recipe.of.recipe.dataset().test))
    with torch.no_grad():
        right = (recipe.of.model(x[:80]).argmax(1) == y[:80]).double().mean()
    assert metrics["accuracy"] == pytest.approx(float(right))
    assert metrics["pgd_accuracy"] <= metrics["step_accuracy"] <= metrics["random_accuracy"]
    assert metrics["pgd_accuracy"] < metrics["accuracy"] - 0.3
    assert 0 < metrics["pgd_size"] <= eps + 1e-9
    assert [*recipe.draw(result)] == ["examples", "accuracy"]


def test_a_target_is_reached(of):
    recipe = recipe_of(of, eps=0.5, target="3")
    result = simulate(recipe)
    found = recipe.metrics(result)["success"]
    assert found == pytest.approx(float(result["fell"][result["attacked"]].double().mean()))
    assert found > 0.5
    assert int(result["attacked"].sum()) < 80, "those taken for the target already are left out"


@pytest.mark.covers("X4")
def test_deepfool_of_a_run_needs_less_than_a_step(of):
    recipe = recipe_of(of, "deepfool")
    result = simulate(recipe)
    metrics = recipe.metrics(result)
    assert metrics["share_of_step"] < 1
    assert metrics["deepfool_size"] == pytest.approx(
        float(result["deepfool_sizes"][result["deepfool_sizes"].isfinite()].mean())
    )
    far = result["deepfool_sizes"] > 1.0
    assert [*recipe.draw(result)] == ["sizes", "examples", "accuracy"]
    lines = recipe.picture_accuracy(result)[0].axes[0].lines
    first = next(line for line in lines if line.get_color() == OURS)
    assert first.get_label() == "DeepFool"  # the subject is blue
    assert float((far & result["right"]).double().mean()) == pytest.approx(
        float(result["deepfool_accuracy"][result["epsilons"] == 1.0])
    )


def test_all_attacks_are_in_one_table(of):
    recipe = recipe_of(of, "attacks", steps=5)
    metrics = recipe.metrics(simulate(recipe))
    for way in ("random", "step", "pgd", "deepfool"):
        assert {f"{way}_accuracy", f"{way}_size"} <= metrics.keys()


def test_images_of_ones_own_are_attacked_and_kept(of, tmp_path):
    (tmp_path / "mine").mkdir()
    pixels = (find("lenet").dataset().splits["test"][0][:3, 0, ::4, ::4] * 60 + 100).clamp(0, 255)
    for number, image in enumerate(pixels):
        path = tmp_path / "mine" / f"{number}.png"
        Image.fromarray(image.byte().numpy()).save(path)
    recipe = recipe_of(of, images=tmp_path / "mine", eps=0.5, save=True)
    result = runs.run(recipe, tmp_path / "runs")
    assert result.metrics["accuracy"] == 1.0, "its own answers are what is attacked"
    kept = sorted((result.folder / "images").iterdir())
    assert len(kept) == 3
    assert kept[0].name.startswith("0000-")
    before, after = kept[0].stem.split("-as-")
    first = np.asarray(Image.open(kept[0]))
    assert first.shape == (8, 8)
    assert before.partition("-")[2] != after


def test_labelled_data_of_ones_own_is_attacked(of, tmp_path):
    source = everynet.trained(of["image"]).recipe.dataset()
    x, y = source.splits["test"]
    mean, std = source.spec["mean"][0], source.spec["std"][0]
    grey = ((x[:40, 0] * std + mean) * 16).round().numpy()
    np.savez(tmp_path / "mine.npz", x=grey, y=y[:40].numpy().astype(str))
    recipe = recipe_of(of, data=str(tmp_path / "mine.npz"))
    victim = recipe.victim()
    assert len(victim.x) == 40
    assert torch.equal(victim.y, y[:40])


@pytest.mark.parametrize("kind", ["table", "simulation"])
def test_a_run_that_tells_no_images_apart_is_refused(kind, of, tmp_path):
    for name in ("pgd", "deepfool", "attacks"):
        recipe = override(find(name), {"of": str(of[kind])})
        with pytest.raises(UserError, match=r"of \(.*\) must be the run of a network that tells"):
            runs.run(recipe, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"eps": -0.1}, r"eps \(-0.1\) must be a positive number"),
        ({"eps": 1.5}, r"eps \(1.5\) must be at most 1, because 1 makes a black pixel white"),
        ({"norm": "l1"}, r"norm"),
        ({"samples": 0}, r"samples \(0\) must be at least 1"),
        ({"steps": 0}, r"steps \(0\) must be at least 1"),
        ({"restarts": 0}, r"restarts \(0\) must be at least 1"),
        ({"data": "digits"}, r"data \(digits\) must be left out without of=RUN"),
        ({"images": Path("mine")}, r"images \(mine\) must be left out without of=RUN"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        replace(find("pgd"), **fields)


def test_what_does_not_fit_the_run_is_refused_before_a_folder_is_made(of, tmp_path):
    Image.new("L", (5, 7)).save(tmp_path / "small.png")
    for fields, message in (
        ({"eps": 9.0, "norm": "l2"}, r"eps \(9.0\) must be at most 8, the length from black to"),
        ({"target": "cat"}, r"unknown target 'cat'"),
        ({"images": tmp_path / "small.png"}, r"small.png \(1, 7, 5\) must have the shape \(1, 8"),
        ({"images": tmp_path / "none.png"}, r"none.png"),
    ):
        with pytest.raises(UserError, match=message):
            runs.run(recipe_of(of, **fields), tmp_path / "runs")
    both = {"images": tmp_path, "data": "digits"}
    with pytest.raises(UserError, match=r"images .* must be left out with data="):
        recipe_of(of, **both)
    assert not (tmp_path / "runs").exists()


# ------------------------------------------------------------------------------------- learning


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pgd", "deepfool", "attacks"])
def test_the_goal_is_reached(name, tmp_path):
    assert runs.run(find(name), tmp_path).reached


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.covers("X2")
def test_targets_are_reached_on_mnist_by_a_modest_change(tmp_path):
    trained = runs.run(override(find("cnn-mnist"), {"steps": 1000}), tmp_path).folder
    fields = {"of": str(trained), "norm": "l2", "eps": 3.0, "target": "3", "samples": 200}
    assert runs.run(override(find("pgd"), fields), tmp_path).metrics["success"] >= 0.8

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.func import functional_call
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from everynet.recipes.experiment import Table
from everynet.runs.verbs import load, run
from everynet.system.errors import UserError
from everynet.zoo.feedforward.mlp import MLP
from everynet.zoo.theory.flatness import (
    REACH,
    RECIPES,
    WAYS,
    Flatness,
    hessian_product,
    lanczos,
    parabola,
    rescaled,
    top_curvature,
)
from tests.zoo.cells import cell


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)


def random(seed=0):
    return torch.Generator().manual_seed(seed)


def small_network(activation="relu"):
    """A network of 4 inputs, 5 hidden units and 3 classes, its samples and its full Hessian."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(3)
        model = MLP((4, 5, 3), activation).double()
    x = torch.randn(20, 4, generator=random(), dtype=torch.float64)
    y = torch.randint(3, (20,), generator=random(1))
    names, shapes = zip(*((n, p.shape) for n, p in model.named_parameters()), strict=True)

    def loss(flat):
        parts = flat.split([shape.numel() for shape in shapes])
        named = {n: p.view(s) for n, p, s in zip(names, parts, shapes, strict=True)}
        return cross_entropy(functional_call(model, named, (x,)), y)

    flat = parameters_to_vector(model.parameters()).detach()
    hessian = torch.autograd.functional.hessian(loss, flat)
    return model, (lambda net: cross_entropy(net(x), y)), hessian


# --------------------------------------------------------------------------------------- equations


@pytest.mark.covers("Y5")
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_products_and_the_top_eigenvalue_are_those_of_the_full_hessian(activation):
    model, loss, hessian = small_network(activation)
    gradient, multiply = hessian_product(lambda: loss(model), list(model.parameters()))
    v = torch.randn(len(hessian), generator=random(2), dtype=torch.float64)
    torch.testing.assert_close(multiply(v), hessian @ v)
    loss(model).backward()
    torch.testing.assert_close(gradient, torch.cat([p.grad.flatten() for p in model.parameters()]))
    values, vectors = torch.linalg.eigh(hessian)
    top, again = top_curvature(model, loss, random(4), 43)
    assert top.value == pytest.approx(values[-1].item(), rel=1e-9)
    assert abs(top.vector @ vectors[:, -1]).item() == pytest.approx(1, abs=1e-6)
    torch.testing.assert_close(again, gradient)


@pytest.mark.covers("Y5")
@given(size=st.integers(1, 40), steps=st.integers(1, 45), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_an_eigenvalue_lies_within_the_bound(size, steps, seed):
    """However few the steps; with as many as rows it is the largest, also of negative ones."""
    a = torch.randn(size, size, generator=random(seed), dtype=torch.float64)
    matrix = a + a.T - size * (seed % 2)
    values = torch.linalg.eigvalsh(matrix)
    top = lanczos(lambda v: matrix @ v, size, steps, random(seed + 1))
    rounding = 1e-9 * (1 + values.abs().max().item())
    assert (values - top.value).abs().min().item() <= top.bound + rounding
    residual = matrix @ top.vector - top.value * top.vector
    assert residual.norm().item() == pytest.approx(top.bound, abs=rounding)
    if steps >= size:
        assert top.value == pytest.approx(values[-1].item(), abs=rounding)
        assert top.bound <= rounding


def test_the_bound_is_not_idle():
    """After three steps on fifty rows the eigenvalue is still far off, and the bound says so."""
    matrix = torch.linspace(0, 1, 50, dtype=torch.float64).diag()
    few, many = (lanczos(lambda v: matrix @ v, 50, steps, random()) for steps in (3, 40))
    assert few.bound > 0.01
    assert abs(few.value - 1) > 0.01
    assert many.bound < 1e-5
    assert many.value == pytest.approx(1, abs=1e-8)


def test_a_start_that_products_do_not_leave():
    """All rows of the identity are eigenvectors: one step finds it all."""
    top = lanczos(lambda v: 2 * v, 30, 10, random())
    assert top.value == pytest.approx(2)
    assert top.bound < 1e-12


def test_the_parabola_is_the_loss_close_by():
    """Along the eigenvector; the error is of third order: an eighth at half the distance."""
    model, loss, _ = small_network("tanh")
    top, gradient = top_curvature(model, loss, random(), 43)
    here = parameters_to_vector(model.parameters()).detach()
    errors = []
    for t in (0.02, 0.01):
        vector_to_parameters(here + t * top.vector, model.parameters())
        there = loss(model).item()
        vector_to_parameters(here, model.parameters())
        slope = float(gradient @ top.vector)
        expected = parabola(loss(model).item(), slope, top.value, torch.tensor(t).double())
        errors.append(abs(there - expected.item()))
    assert errors[0] < 1e-5
    assert errors[0] / errors[1] == pytest.approx(8, rel=0.1)
    assert parabola(1.0, 2.0, 6.0, f64(3.0)).item() == 1 + 6 + 27


@pytest.mark.covers("Y5")
@pytest.mark.parametrize("a", [0.3, 5.0])
def test_rescaling_changes_the_curvature_and_not_the_function(a):
    """By the Hessian's own rule: each row and column is divided by the factor of its weight."""
    model, loss, hessian = small_network()
    twin, x = rescaled(model, a), torch.randn(9, 4, generator=random(5), dtype=torch.float64)
    torch.testing.assert_close(twin(x), model(x))
    assert not torch.equal(twin.layers[0].weight, model.layers[0].weight)
    factor = torch.cat([f64(a).expand(25), 1 / f64(a).expand(15), f64(1.0).expand(3)])
    expected = torch.linalg.eigvalsh(hessian / factor[:, None] / factor)[-1].item()
    top, _ = top_curvature(twin, loss, random(), 43)
    assert top.value == pytest.approx(expected, rel=1e-8)
    assert top.value > 1.5 * torch.linalg.eigvalsh(hessian)[-1].item()


# -------------------------------------------------------------------------------------- the recipe


def test_cells_see_as_many_samples_or_make_as_many_updates():
    cells = Flatness(rows=100, batch_sizes=(5, 10, 50), epochs=4, lr=0.2, repeats=1).cells()
    seen = {n: (c.batch_size, c.steps, c.lr) for n, c in cells.items()}
    assert seen == {
        "epochs-5-0": (5, 80, 0.2), "epochs-10-0": (10, 40, 0.2), "epochs-50-0": (50, 8, 0.2),
        "updates-5-0": (5, 40, 0.2), "updates-10-0": (10, 40, 0.2), "updates-50-0": (50, 40, 0.2),
        "rate-5-0": (5, 80, 0.1), "rate-10-0": (10, 40, 0.2), "rate-50-0": (50, 8, 1.0),
    }  # fmt: skip
    assert {c.optimizer for c in cells.values()} == {"sgd"}


@pytest.mark.covers("Y5")
def test_what_is_measured_is_of_the_network_that_is_kept(tmp_path):
    recipe = replace(
        RECIPES["flatness"].tiny(), rows=32, batch_sizes=(8, 32), epochs=6, iterations=20
    )
    table = load(recipe, run(recipe, tmp_path).folder)
    assert list(table.cells) == [f"{way}-{size}-0" for way in WAYS for size in (8, 32)]
    one = table.cells["epochs-8-0"]
    (x, y), net = one.recipe.dataset().whole, one.network().double()
    names = {name: float(values[-1]) for name, values in one.measured.items() if values.dim() == 1}
    assert names["train"] == pytest.approx(cross_entropy(net(x.double()), y).item(), rel=1e-5)
    top, _ = top_curvature(net, lambda n: cross_entropy(n(x.double()), y), random(9), 40)
    assert names["top"] == pytest.approx(top.value, rel=1e-3)  # float32 is what is kept
    assert names["bound"] < 1e-3 * names["top"]
    assert names["change"] < 1e-12
    middle = one.measured["along"][-1][len(REACH) // 2].item()
    assert middle == pytest.approx(names["train"], rel=1e-9)
    start, end = one.measured["top"][0].item(), names["top"]
    assert start != end


def test_metrics_by_hand():
    def ended(top, test=1.0, *, bound=0.0, twin=1.0, change=0.0, **more):
        names = {"top": top, "bound": bound, "rescaled": twin * top, "change": change}
        return cell(
            measured={n: [9, v] for n, v in names.items()}, test={"cross_entropy": test}, **more
        )

    recipe = Flatness(batch_sizes=(8, 16), repeats=2)
    cells = {
        "epochs-8-0": ended(1), "epochs-16-0": ended(8, twin=4),
        "epochs-8-1": ended(3), "epochs-16-1": ended(2, twin=4),
        "updates-8-0": ended(2, bound=0.5), "updates-16-0": ended(3, twin=2),
        "updates-8-1": ended(2, change=0.25), "updates-16-1": ended(3, twin=2),
        "rate-8-0": ended(1, twin=2), "rate-16-0": ended(2),
        "rate-8-1": ended(1, twin=2), "rate-16-1": ended(2, twin=2),
    }  # fmt: skip
    assert recipe.metrics(Table(cells, {})) == pytest.approx(
        {"ratio_epochs": 2.5, "flatter": 0.5, "ratio_updates": 1.5, "ratio_rate": 2,
         "spread": 0.6, "residual": 0.25, "rescaled_ratio": 2, "rescaled_change": 0.25}
    )  # fmt: skip
    lost = cells | {"rate-16-1": ended(9, diverged=3)}
    assert math.isnan(recipe.metrics(Table(lost, {}))["ratio_rate"])


@pytest.mark.slow
@pytest.mark.covers("Y5")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_small_batches_end_flatter_at_equal_epochs(seed, tmp_path):
    assert run(replace(RECIPES["flatness"], seed=seed), tmp_path, device="cpu").reached


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"batch_sizes": (8,)}, r"batch_sizes \(.*\) must be two or more rising positive numbers"),
        ({"batch_sizes": (8, 8)}, r"batch_sizes \(.*\) must be two or more rising"),
        ({"batch_sizes": (0, 8)}, r"batch_sizes \(.*\) must be two or more rising positive"),
        ({"rows": 100}, r"rows \(100\) must be at least the largest of batch_sizes"),
        ({"epochs": 0}, r"epochs \(0\) must be at least 1"),
        ({"lr": 0.0}, r"lr \(0.0\) must be a positive number"),
        ({"scale": -1.0}, r"scale \(-1.0\) must be a positive number"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        Flatness(**fields)

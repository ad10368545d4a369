import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from torch.nn.functional import one_hot

from everynet.recipes.experiment import Table
from everynet.runs.verbs import load, run
from everynet.system.errors import UserError
from everynet.training.loop import begin
from everynet.zoo.feedforward.mlp import MLP
from everynet.zoo.optimisation.few_images import OneHiddenLayer
from everynet.zoo.theory.double_descent import (
    RECIPES,
    Decomposed,
    DoubleDescent,
    DoubleDescentNetwork,
    NoisyLabels,
    expected_error,
    measured_error,
    parameters,
    random_features,
    squared_error,
)
from tests.zoo.cells import cell


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)


def drawn(seed, *size):
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --------------------------------------------------------------------------------------- equations


def test_features_and_error_by_hand():
    x, w = f64([3.0, 4.0, 0.0, 0.0]), f64([1.0, 1.0, 9.0, 9.0], [1.0, -1.0, 0.0, 0.0])
    phi = random_features(x, w)
    assert phi.tolist() == [[3.5, 0.0]]
    a, y = f64([2.0, 0.0], [7.0, 7.0]), f64([5.0, 3.0])
    assert squared_error(phi, a, y).item() == (7 - 5) ** 2 + 3**2
    both = torch.cat([phi, 0 * phi])  # a mean over samples, a sum over outputs
    assert squared_error(both, a, y.expand(2, 2)).item() == (13 + 34) / 2


@given(rows=st.integers(2, 15), features=st.integers(1, 30), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_solutions_are_numpys_and_scikit_learns(rows, features, seed):
    phi, y = drawn(seed, rows, features), drawn(seed + 1, rows, 3)
    solved = Decomposed.of(phi)
    a = solved.shortest(y)
    torch.testing.assert_close(a, torch.linalg.lstsq(phi, y, driver="gelsd").solution)
    if features >= rows:  # every sample is fitted, and a longer solution fits as well
        torch.testing.assert_close(phi @ a, y)
        null = drawn(seed + 2, features, 3)
        null -= torch.linalg.pinv(phi) @ (phi @ null)
        torch.testing.assert_close(phi @ (a + null), y)
        assert (a + null).norm() >= a.norm() - 1e-9
    theirs = Ridge(alpha=0.7, fit_intercept=False, solver="cholesky").fit(phi.numpy(), y.numpy())
    torch.testing.assert_close(solved.ridge(y, 0.7).T, torch.from_numpy(theirs.coef_))


def test_a_feature_that_is_there_twice_is_no_division_by_zero():
    phi = f64([1.0, 1.0], [2.0, 2.0])
    assert Decomposed.of(phi).shortest(f64([4.0], [8.0])).flatten().tolist() == pytest.approx(
        [2, 2]
    )


@pytest.mark.covers("Y4")
@pytest.mark.parametrize("features", [1, 3, 8, 20, 30, 60])
def test_the_expected_error_is_that_of_many_regressions(features):
    """12 samples, 60 inputs; within five standard errors of 3,000 regressions."""
    b = torch.arange(1.0, 61, dtype=torch.float64).rsqrt()
    generator = torch.Generator().manual_seed(features)
    errors = measured_error(b, 0.5, 12, features, trials=3000, generator=generator)
    exact = expected_error(b, 0.5, 12, torch.tensor([features])).item()
    assert abs(errors.mean().item() - exact) < 5 * errors.std().item() / math.sqrt(3000)
    assert errors.std().item() / math.sqrt(3000) < 0.03 * exact  # the test can tell


def test_the_measured_error_is_that_on_test_samples():
    """One regression of three rows on the first input, by hand: b = (2, 1)."""
    b, generator = f64(2.0, 1.0), torch.Generator().manual_seed(0)
    error = measured_error(b, 0.5, 3, 1, trials=1, generator=generator)
    generator.manual_seed(0)
    x = torch.randn(1, 3, 2, generator=generator, dtype=torch.float64)[0]
    y = x @ b + 0.5 * torch.randn(1, 3, generator=generator, dtype=torch.float64)[0]
    a = (x[:, 0] @ y) / (x[:, 0] @ x[:, 0])
    assert error.item() == pytest.approx(((a - 2) ** 2 + 1 + 0.25).item())


@pytest.mark.covers("Y4")
def test_the_expected_error_at_its_ends():
    b, counts = f64(1.0, 2.0, 2.0), torch.tensor([0, 1, 2, 3])
    error = expected_error(b, 0.5, 100, counts)
    assert error[0].item() == 9.25  # nothing is fitted: |b|^2 + s^2
    assert error[3].item() == pytest.approx(0.25 * (1 + 3 / 96))
    long = expected_error(torch.ones(9).double(), 0.0, 4, torch.tensor([3, 4, 5, 6]))
    assert long.isinf().tolist() == [True, True, True, False]
    assert long[3].item() == pytest.approx(6 * (1 - 4 / 6) + 3 * (1 + 4 / 1))


@pytest.mark.covers("Y4")
def test_the_test_error_peaks_where_features_are_as_many_as_samples():
    """On digits, at least three times both minima, and a penalty takes the peak away."""
    recipe = DoubleDescent(rows=80, shares=(0.1, 0.4, 0.9, 1.0, 1.2, 2.0, 8.0), repeats=3, trials=9)
    result = recipe.simulate(torch.Generator().manual_seed(0))
    found = recipe.metrics(result)
    assert found["peak_at"] == 1
    assert min(found["peak_ratio_under"], found["peak_ratio_over"]) >= 3
    assert found["peak_ratio_ridge"] < 3
    assert (result["train"][:, :3] > 1e-3).all()
    assert (result["train"][:, 4:] < 1e-20).all()
    assert result["length"].median(0).values.argmax() == 3


def test_parameters_of_a_network():
    assert parameters(64, 20, 10) == sum(p.numel() for p in MLP((64, 20, 10)).parameters())


# ---------------------------------------------------------------------------------- the networks


def test_labels_are_noisy_in_training_alone_and_the_same_share_of_each_width():
    first, wide = (NoisyLabels(rows=500, hidden_size=h, noise=0.3) for h in (3, 50))
    clean = OneHiddenLayer(rows=500).dataset()
    data = first.dataset()
    x, y = data.whole
    torch.testing.assert_close(x, clean.whole[0])
    assert 0.25 < (y != clean.whole[1]).double().mean() < 0.35
    assert y.min() >= 0
    assert y.max() <= 9
    assert torch.equal(y, wide.dataset().whole[1])
    for split in ("valid", "test"):
        assert torch.equal(data.splits[split][1], clean.splits[split][1])


def test_descent_is_down_the_squared_error():
    recipe = NoisyLabels(hidden_size=4, rows=20, batch_size=20, activation="tanh")
    data = recipe.dataset()
    model, (x, label) = begin(recipe, data).model, data.whole
    error = (model(x) - one_hot(label, 10)).square().sum(1)
    terms = recipe.objective(model, (x, label))
    torch.testing.assert_close(terms["error"], error.mean())
    found = recipe.metrics(model, (x, label))
    torch.testing.assert_close(found["error"], error)
    torch.testing.assert_close(found["accuracy"], (model(x).argmax(1) == label).float())


def test_cells_differ_in_width_and_repeats_in_samples(tmp_path):
    recipe = replace(RECIPES["double-descent-network"].tiny(), repeats=2)
    table = load(recipe, run(recipe, tmp_path).folder)
    assert list(table.cells)[:3] == ["width-2-0", "width-2-1", "width-4-0"]
    narrow, wide = (table.cells[f"width-{width}-0"] for width in (2, 8))
    other = table.cells["width-2-1"]
    assert torch.equal(narrow.recipe.dataset().whole[1], wide.recipe.dataset().whole[1])
    assert not torch.equal(narrow.recipe.dataset().whole[1], other.recipe.dataset().whole[1])
    size = wide.measured["parameters"][0].item()
    assert size == pytest.approx(parameters(64, 8, 10) / (20 * 10))
    data, net = wide.recipe.dataset(), wide.network()
    x, label = data.whole
    error = (net(x) - one_hot(label, 10)).square().sum(1).mean().item()
    assert wide.measured["train"][-1].item() == pytest.approx(error, rel=1e-5)


def test_metrics_of_networks_by_hand():
    def ended(size, train, test, right):
        return cell(
            measured={"parameters": [size, size], "train": [9, train]},
            test={"error": test, "accuracy": right},
        )

    recipe = DoubleDescentNetwork(widths=(2, 4, 8, 16), repeats=2)
    tests = {"width-2": (2, 4), "width-4": (1, 1), "width-8": (5, 7), "width-16": (2, 2)}
    cells = {
        f"{name}-{repeat}": ended(number / 2, 0.1 * repeat, values[repeat], 0.5 + repeat / 10)
        for number, (name, values) in enumerate(tests.items())
        for repeat in range(2)
    }
    assert recipe.metrics(Table(cells, {})) == pytest.approx(
        {"peak_at": 1.0, "peak_ratio_under": 6, "peak_ratio_over": 3, "peak_accuracy": 0.55,
         "widest_accuracy": 0.55, "widest_fit": 0.05}
    )  # fmt: skip
    lost = cells | {"width-16-1": cell(measured={"parameters": [1.5], "train": [9]}, diverged=3)}
    assert math.isnan(recipe.metrics(Table(lost, {}))["peak_ratio_over"])


def test_data_without_classes_is_refused_before_a_folder_is_made(tmp_path):
    with pytest.raises(UserError, match=r"data \(diabetes\) must have classes"):
        run(DoubleDescent(data="diabetes", rows=40), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.covers("Y4")
@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_recipes_reach_their_goals(name, seed, tmp_path):
    assert run(replace(RECIPES[name], seed=seed), tmp_path, device="cpu").reached


@pytest.mark.parametrize(
    ("recipe", "fields", "message"),
    [
        (DoubleDescent, {"rows": 3}, r"rows \(3\) must be at least 4"),
        (DoubleDescent, {"shares": (0.5, 2.0)}, r"shares \(.*\) must be rising, with 1 neither"),
        (DoubleDescent, {"shares": (1.0, 2.0)}, r"shares \(.*\) must be rising, with 1 neither"),
        (DoubleDescent, {"shares": (-1.0, 1.0, 2.0)}, r"shares \(.*\) must be positive"),
        (DoubleDescent, {"alpha": 0.0}, r"alpha \(0.0\) must be a positive number"),
        (DoubleDescent, {"repeats": 0}, r"repeats \(0\) must be at least 1"),
        (DoubleDescentNetwork, {"widths": (4, 8)}, r"widths \(.*\) must be three or more rising"),
        (DoubleDescentNetwork, {"widths": (0, 4, 8)}, r"widths \(.*\) must be positive"),
        (DoubleDescentNetwork, {"noise": 1.0}, r"noise \(1.0\) must be from 0 up and below 1"),
        (DoubleDescentNetwork, {"lr": 0.0}, r"lr \(0.0\) must be a positive number"),
        (DoubleDescentNetwork, {"rows": 0}, r"rows \(0\) must be at least 1"),
        (NoisyLabels, {"noise": -0.1}, r"noise \(-0.1\) must be from 0 up and below 1"),
    ],
)
def test_settings_are_refused_by_name(recipe, fields, message):
    with pytest.raises(UserError, match=message):
        recipe(**fields)

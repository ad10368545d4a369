"""Baselines beside a run on a table: what is fitted, how it is compared, and what is said."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import average_precision_score, r2_score, roc_auc_score

from everynet import runs
from everynet.cli.run import summarize
from everynet.data.dataset import Data
from everynet.metrics.summary import classified, regressed, summarise_outputs
from everynet.recipes.catalog import find
from everynet.recipes.settings import override
from everynet.runs import baselines
from everynet.runs.baselines import Baselines, compare, deciding_metric, measure_baselines
from everynet.runs.job import Job
from everynet.runs.loading import resume

FAST = {"steps": 40, "hidden": (4,), "eval_every": 20}


@pytest.fixture(autouse=True, scope="module")
def without_pictures():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "draw", lambda self, model: ())
        yield


def recipe(data, name="mlp", **given):
    return override(find(name), {"data": data, **(FAST if name == "mlp" else {}), **given})


@pytest.fixture(scope="module")
def crossed(tmp_path_factory):
    """A class that two columns decide together: no line can, trees can."""
    path, random = tmp_path_factory.mktemp("data") / "crossed.csv", np.random.default_rng(0)
    x = random.normal(size=(500, 3))
    label = np.where(x[:, 0] * x[:, 1] > 0, "same", "other")
    rows = [f"{a:.4f},{b:.4f},{c:.4f},{k}" for (a, b, c), k in zip(x, label, strict=True)]
    path.write_text("a,b,c,label\n" + "\n".join(rows) + "\n")
    return str(path)


@pytest.fixture(scope="module")
def beaten(crossed, tmp_path_factory):
    """A run on it of a network without a hidden layer."""
    one_layer = recipe(crossed, target="label", hidden=())
    return one_layer, runs.run(one_layer, tmp_path_factory.mktemp("runs"))


# ------------------------------------------------------------------------- what is fitted to what


def numpy_splits(recipe):
    data = recipe.dataset()
    return [t.double().numpy() if t.is_floating_point() else t.numpy()
            for split in ("train", "test") for t in data.splits[split]]  # fmt: skip


def test_classifiers_are_those_of_scikit_learn_on_the_same_rows(crossed, beaten):
    _, result = beaten
    x, t, asked, right = numpy_splits(recipe(crossed, target="label"))
    wanted = {
        "LogisticRegression": LogisticRegression(max_iter=1000),
        "HistGradientBoosting": HistGradientBoostingClassifier(random_state=0),
    }
    for name, model in wanted.items():
        score = model.fit(x, t).predict_proba(asked)[:, 1]
        rare = int(2 * right.sum() <= len(right))
        found = result.baselines.metrics[name]
        assert found["accuracy"] == pytest.approx(model.score(asked, right), abs=1e-12)
        assert found["auc"] == pytest.approx(roc_auc_score(right, score), abs=1e-9)
        precision = average_precision_score(right == rare, score if rare else -score)
        assert found["average_precision"] == pytest.approx(precision, abs=1e-9)
    most = result.baselines.metrics["the commonest class"]
    assert most["accuracy"] == pytest.approx(max(right.mean(), 1 - right.mean()))
    assert most["auc"] == 0.5
    assert next(iter(result.baselines.metrics)) == "mlp"


@pytest.mark.parametrize("name", ["mlp", "least-squares"])
def test_regressors_are_measured_in_the_units_of_the_target(tmp_path, name):
    """mlp learns standardised targets, least squares those of the file."""
    result = runs.run(recipe("diabetes", name), tmp_path)
    x, t, asked, right = numpy_splits(find("least-squares"))
    for label, model in {
        "the mean": None, "Ridge": Ridge(),
        "HistGradientBoosting": HistGradientBoostingRegressor(random_state=0),
    }.items():  # fmt: skip
        predicted = model.fit(x, t).predict(asked) if model else np.full(len(right), t.mean())
        found = result.baselines.metrics[label]
        close = 1e-6 if model is None or label == "Ridge" else 0.02  # trees bin what they are given
        assert found["r2"] == pytest.approx(r2_score(right, predicted), abs=close)
        error = np.sqrt(np.mean((right - predicted) ** 2))
        assert found["rmse"] == pytest.approx(error, rel=max(close, 1e-5))
    assert {"r2", "rmse", "mae"} <= result.baselines.metrics[name].keys()


def test_a_known_table_of_several_classes(tmp_path):
    found = runs.run(recipe("iris", "softmax-regression"), tmp_path).baselines
    assert list(found.metrics) == [
        "softmax-regression", "the commonest class", "LogisticRegression", "HistGradientBoosting",
    ]  # fmt: skip
    assert found.metric == "accuracy"
    assert "auc" not in found.metrics["LogisticRegression"]


def test_classes_weigh_as_they_do_for_the_network():
    balanced = recipe("breast-cancer", class_weight="balanced")
    models = baselines.make_models(balanced, "classification")
    assert models["LogisticRegression"].class_weight == "balanced"
    assert models["HistGradientBoosting"].class_weight == "balanced"
    plain = baselines.make_models(recipe("breast-cancer", seed=2**40), "classification")
    assert plain["LogisticRegression"].class_weight is None
    assert plain["HistGradientBoosting"].random_state == 2**40 % 2**32


# ---------------------------------------------------------------------------------- the comparison


def test_the_difference_of_accuracies_and_its_error_by_hand():
    """d is 1, 0, 1, 0: a mean of 1/2, and a variance of 1/3 over 4."""
    t = torch.tensor([0, 1, 0, 1])
    ours = classified(torch.tensor([[1.0], [1], [1], [1]]), t)
    theirs = classified(torch.tensor([[-1.0], [1], [-1], [1]]), t)
    difference, error = compare("accuracy", theirs, ours)
    assert (difference, error) == (0.5, pytest.approx((1 / 12) ** 0.5))


def test_where_classes_count_alike_each_has_its_own_error():
    """In the first class d is 1, 0 (mean 1/2, variance 1/2), in the second 0, 0, 0, -1."""
    t = torch.tensor([0, 0, 1, 1, 1, 1])
    ours = classified(torch.tensor([1.0, -1, 1, 1, 1, 1])[:, None], t)
    theirs = classified(torch.tensor([-1.0, -1, 1, 1, 1, -1])[:, None], t)
    difference, error = compare("balanced_accuracy", theirs, ours)
    both = [summarise_outputs(one)["balanced_accuracy"] for one in (theirs, ours)]
    assert difference == pytest.approx(both[0] - both[1])
    assert error == pytest.approx(np.sqrt((0.5 / 2 + 0.25 / 4) / 4))


def test_the_error_of_areas_is_the_spread_over_samples():
    """Many samples of 400 rows: their differences spread by what one of them says of its error."""
    draw = torch.Generator().manual_seed(0)
    found = []
    for _ in range(150):
        t = (torch.rand(400, generator=draw) < 0.2).long()
        shared = torch.randn(400, generator=draw) + t
        a, b = (shared + torch.randn(400, generator=draw) * s for s in (0.5, 1.5))
        found.append(compare("auc", classified(a[:, None], t), classified(b[:, None], t)))
    differences, errors = torch.tensor(found).T
    assert float(errors.mean()) == pytest.approx(float(differences.std()), rel=0.15)


def test_the_difference_of_numbers_is_that_of_r2():
    draw = torch.Generator().manual_seed(1)
    t, a, b = torch.randn(3, 50, generator=draw, dtype=torch.float64)
    theirs, ours = regressed(t + 0.1 * a, t), regressed(t + 0.3 * b, t)
    difference, error = compare("r2", theirs, ours)
    both = [summarise_outputs(one)["r2"] for one in (theirs, ours)]
    assert difference == pytest.approx(both[0] - both[1])
    d = ((0.3 * b) ** 2 - (0.1 * a) ** 2) / t.var(correction=0)
    assert error == pytest.approx(float(d.std()) / 50**0.5)


def test_of_one_sample_of_a_class_nothing_is_known():
    t = torch.tensor([0, 0, 1])
    ours, theirs = (classified(torch.tensor(z)[:, None], t)
                    for z in ([1.0, 1, -1], [-1.0, -1, 1]))  # fmt: skip
    assert compare("balanced_accuracy", theirs, ours) == (1, np.inf)


@pytest.mark.parametrize(
    ("given", "share", "metric"),
    [
        ({}, 0.5, "accuracy"),
        ({}, 0.19, "auc"),
        ({}, 0.21, "accuracy"),
        ({"class_weight": "balanced"}, 0.1, "balanced_accuracy"),
        ({"metric": "auc"}, 0.5, "auc"),
        ({"metric": "loss"}, 0.5, "accuracy"),
    ],
)
def test_what_models_are_compared_by(given, share, metric):
    t = torch.arange(100) < 100 * share
    outputs = classified(torch.arange(100.0)[:, None] - 50, t.long())
    found = deciding_metric(recipe("moons", **given), outputs, summarise_outputs(outputs))
    assert found == metric


# ------------------------------------------------------------------------------------ what is said


def test_the_better_one_is_named_first(beaten):
    one_layer, result = beaten
    found = result.baselines
    assert found.better == "HistGradientBoosting"
    ours, theirs = (found.metrics[n]["accuracy"] for n in ("mlp", "HistGradientBoosting"))
    assert theirs - ours > 0.2
    first = f"HistGradientBoosting does better: accuracy {theirs:.3f} against {ours:.3f} on the t"
    lines = list(summarize(one_layer, result, "mlp"))
    assert lines[0].startswith(first)
    assert lines[1].startswith("mlp: accuracy")
    page = (result.folder / "card.md").read_text().splitlines()
    assert page[0] == "# mlp"
    assert page[2].startswith(f"**{first}")
    begin = page.index("## Beside it")
    assert page[begin + 2].startswith("| model | accuracy | balanced_accuracy |")
    assert [row.split(" | ")[0] for row in page[begin + 4 : begin + 8]] == [
        "| mlp", "| the commonest class", "| LogisticRegression", "| HistGradientBoosting",
    ]  # fmt: skip


def test_what_is_no_better_than_chance_explains_is_not_named():
    both = {"mlp": {"accuracy": 0.8}, "Ridge": {"accuracy": 0.85}}
    found = Baselines("mlp", both, "accuracy", "Ridge", difference=0.05, error=0.06)
    assert found.better == ""
    assert not [*found.headline()]
    said = "no baseline does better by more than the standard error (accuracy)"
    assert [*found.notes()] == [said]
    assert replace(found, error=0.04).better == "Ridge"
    assert replace(found, difference=0.0, error=0.0).better == ""


def test_one_sample_more_is_not_better():
    t = torch.zeros(30).long()
    right, once = -torch.ones(30, 1), -torch.ones(30, 1)
    once[7] = 1
    found = compare("accuracy", classified(right, t), classified(once, t))
    assert found[0] == pytest.approx(found[1], rel=1e-12)
    both = {"mlp": {"accuracy": 29 / 30}, "Ridge": {"accuracy": 1.0}}
    for error in (found[1], np.nextafter(found[0], 0)):
        assert not Baselines("mlp", both, "accuracy", "Ridge", found[0], error).better


def test_the_log_holds_them_beside_the_test_split(beaten):
    _, result = beaten
    row = json.loads((result.folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert list(row) == [
        "step", "test", "baseline_commonest", "baseline_linear", "baseline_boosted",
    ]  # fmt: skip
    assert row["baseline_boosted"] == result.baselines.metrics["HistGradientBoosting"]
    assert result.history["baseline_linear_auc"][-1] == row["baseline_linear"]["auc"]


def test_a_resumed_run_says_the_same_to_the_bit(beaten):
    _, result = beaten
    log = (result.folder / "metrics.jsonl").read_bytes()
    again = resume(result.folder)
    assert again.baselines == result.baselines
    assert (result.folder / "metrics.jsonl").read_bytes() == log


# ---------------------------------------------------------------------------- what is not measured


def test_left_out_where_they_are_not_wanted_and_the_goal_stays(tmp_path):
    result = runs.run(recipe("breast-cancer", "logistic", baselines=False), tmp_path)
    assert result.baselines is None
    assert result.reached is not None
    page = (result.folder / "card.md").read_text()
    assert "Beside it" not in page
    assert "everynet run logistic baselines=false" in page  # to repeat it as it was
    assert "baseline" not in (result.folder / "metrics.jsonl").read_text()


def test_tiny_runs_have_none():
    for name in ("mlp", "logistic", "least-squares", "perceptron", "svm", "bayesian-regression"):
        assert find(name).baselines
        assert not find(name).tiny().baselines


def test_images_and_densities_have_none(tmp_path):
    few = recipe("digits", steps=2)
    assert runs.run(few, tmp_path).baselines is None
    assert runs.run(find("pca").tiny(), tmp_path).baselines is None


def outputs_of(data):
    _, t = data.splits["test"]
    return classified(torch.zeros(len(t), 1), t)


def plain_table(rows, columns, classes=2):
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(0))
    t = torch.arange(rows) % classes
    spec = {"kind": "table", "task": "classification", "classes": [*map(str, range(classes))]}
    return Data({"train": (x, t), "valid": (x, t), "test": (x, t)}, spec, 8)


def test_at_most_so_many_rows_are_fitted_the_same_of_each_class(monkeypatch):
    monkeypatch.setattr(baselines, "MOST_ROWS", 50)
    data, seen, fit = plain_table(400, 2), [], baselines.fit
    monkeypatch.setattr(baselines, "fit", lambda *given: seen.append(given[1:]) or fit(*given))
    found = measure_baselines(recipe("moons"), data, outputs_of(data), {"accuracy": 0.5})
    assert found.rows == (50, 400)
    assert "fitted to 50 of 400 training rows" in [*found.notes()]
    for x, t in seen:
        assert x.shape == (50, 2)
        assert t.sum() == 25
        assert not np.array_equal(x, data.splits["train"][0][:50])  # but by hash
    monkeypatch.setattr(baselines, "MOST_VALUES", 60)
    again = measure_baselines(recipe("moons"), data, outputs_of(data), {"accuracy": 0.5})
    assert again.rows == (30, 400)


def test_boosting_that_would_take_long_is_left_out_and_says_why(monkeypatch):
    monkeypatch.setattr(baselines, "MOST_SECONDS", 0.05)
    data = plain_table(60, 4, classes=3)
    t = data.splits["test"][1]
    said = classified(torch.nn.functional.one_hot(t).double(), t)
    found = measure_baselines(recipe("moons"), data, said, summarise_outputs(said))
    assert "HistGradientBoosting" not in found.metrics
    assert [*found.notes()][1:] == [
        "HistGradientBoosting is left out: 4 columns and 3 classes would take it about 0 s, more "
        "than 0.05"
    ]
    assert found.logged().keys() == {"baseline_commonest", "baseline_linear"}


def test_small_tables_always_have_all_three():
    assert baselines.boosting_seconds(10_000, 100, 1) < baselines.MOST_SECONDS
    assert baselines.boosting_seconds(baselines.MOST_ROWS, 30, 1) < baselines.MOST_SECONDS
    assert baselines.boosting_seconds(2_000, 64, 10) < baselines.MOST_SECONDS
    assert baselines.boosting_seconds(20_000, 5_000, 1) > baselines.MOST_SECONDS


def test_what_scikit_learn_refuses_is_left_out_and_the_run_is_whole(monkeypatch):
    class Refusing:
        def fit(self, x, t):
            raise ValueError("no\nsuch rows")

    made = baselines.make_models
    monkeypatch.setattr(
        baselines, "make_models",
        lambda *given: {**made(*given), "LogisticRegression": Refusing()},
    )  # fmt: skip
    data = plain_table(60, 4)
    found = measure_baselines(recipe("moons"), data, outputs_of(data), {"accuracy": 0.5})
    assert found.left_out == {"LogisticRegression": "scikit-learn refuses the rows (no such rows)"}

"""A threshold for the rarer of two classes: chosen on validation, kept, and used by every verb."""

import json
import math

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, precision_score, recall_score

import everynet
from everynet import runs
from everynet.data.dataset import Data
from everynet.recipes.catalog import find
from everynet.recipes.settings import override
from everynet.runs.job import Job
from everynet.runs.loading import resume
from everynet.runs.threshold import check_threshold
from everynet.system.errors import UserError
from tests.runs.sealed import reseal


@pytest.fixture(autouse=True, scope="module")
def without_pictures():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "draw", lambda self, model: ())
        yield


def write(path, rows, seed):
    """One in eight goes; `gone` is before `stays` in the order of classes."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 3))
    gone = x[:, 0] + random.normal(size=rows) > 1.6
    lines = [f"{a:.4f},{b:.4f},{c:.4f},{'gone' if g else 'stays'}"
             for (a, b, c), g in zip(x, gone, strict=True)]  # fmt: skip
    path.write_text("a,b,c,churn\n" + "\n".join(lines) + "\n")
    return str(path)


@pytest.fixture(scope="module")
def churn(tmp_path_factory):
    return write(tmp_path_factory.mktemp("data") / "churn.csv", 700, 0)


def recipe(churn, name="mlp", **given):
    small = {"steps": 60, "hidden": (4,), "eval_every": 30} if name == "mlp" else {}
    given = {"data": churn, "target": "churn", "baselines": False, **small, **given}
    return override(find(name), given)


def answers(folder, recipe, split):
    """The probability of the rarer class of each sample of a split, and which are of it."""
    x, t = recipe.dataset().splits[split]
    spec = everynet.trained(folder).spec
    given = x.numpy() * np.array(spec["std"]) + np.array(spec["mean"])
    found = everynet.trained(folder).predict(given)
    return np.array([a["probabilities"]["gone"] for a in found]), (t == 0).numpy(), found


@pytest.mark.parametrize("name", ["mlp", "logistic", "softmax-regression"])
def test_f1_is_the_best_that_validation_knows(churn, tmp_path, name):
    chosen = recipe(churn, name, threshold="f1")
    result = runs.run(chosen, tmp_path)
    spec = json.loads((result.folder / "spec.json").read_text())["spec"]
    assert spec["threshold"]["class"] == "gone"
    threshold = spec["threshold"]["value"]
    p, there, _ = answers(result.folder, chosen, "valid")
    best = max(f1_score(there, p >= other) for other in p)
    assert f1_score(there, p >= threshold - 1e-7) == pytest.approx(best)
    assert f1_score(there, p >= 0.5) < best  # so that there was something to choose
    p, there, found = answers(result.folder, chosen, "test")
    said = p >= threshold
    assert [a["class"] == "gone" for a in found] == said.tolist()
    assert {a["threshold"] for a in found} == {threshold}
    for metric, of in (("f1", f1_score), ("precision", precision_score), ("recall", recall_score)):
        assert result.metrics[metric] == pytest.approx(of(there, said))
    assert result.metrics["accuracy"] == pytest.approx((said == there).mean())
    assert result.metrics["threshold"] == threshold


def test_a_recall_is_met_on_validation(churn, tmp_path):
    chosen = recipe(churn, recall=0.9)
    result = runs.run(chosen, tmp_path)
    p, there, _ = answers(result.folder, chosen, "valid")
    threshold = result.metrics["threshold"]
    assert recall_score(there, p >= threshold - 1e-7) >= 0.9
    assert recall_score(there, p >= threshold + 1e-6) < 0.9
    assert sum(p[there] >= threshold - 1e-7) == math.ceil(0.9 * there.sum())
    note = f"the answer is gone from probability {threshold:.4g} on (the largest with recall 0.9 on"
    assert note in (result.folder / "card.md").read_text()


def test_a_number_is_the_threshold_of_the_rarer_class(churn, tmp_path):
    result = runs.run(recipe(churn, "logistic", threshold="0.2"), tmp_path)
    (answer,) = everynet.trained(result.folder).predict([[0.0, 0.0, 0.0]])
    assert (answer["threshold"], answer["positive"]) == (0.2, "gone")
    assert "0.2 on (as given)" in (result.folder / "card.md").read_text()


def test_without_a_threshold_nothing_is_as_it_was_not(churn, tmp_path):
    result = runs.run(recipe(churn, "logistic"), tmp_path)
    assert not {"threshold", "precision", "recall", "f1"} & result.metrics.keys()
    assert "threshold" not in json.loads((result.folder / "spec.json").read_text())["spec"]
    (answer,) = everynet.trained(result.folder).predict([[0.0, 0.0, 0.0]])
    assert answer.keys() == {"input", "class", "probability", "probabilities"}


def test_evaluate_decides_as_predict_does(churn, tmp_path):
    result = runs.run(recipe(churn, threshold="f1"), tmp_path / "runs")
    trained = everynet.trained(result.folder)
    own = trained.evaluate()
    assert own == pytest.approx(result.metrics)
    path = write(tmp_path / "new.csv", 300, 1)
    found = trained.evaluate(path)
    rows = [line.split(",") for line in (tmp_path / "new.csv").read_text().split()[1:]]
    said = [a["class"] for a in trained.predict([path])]
    right = [row[3] == one for row, one in zip(rows, said, strict=True)]
    assert found["accuracy"] == pytest.approx(np.mean(right))
    assert found["threshold"] == result.metrics["threshold"]
    assert found["recall"] > 0


def test_a_resumed_run_keeps_its_threshold(churn, tmp_path):
    result = runs.run(recipe(churn, threshold="f1"), tmp_path)
    before = (result.folder / "spec.json").read_bytes()
    again = resume(result.folder)
    assert again.metrics == result.metrics
    assert (result.folder / "spec.json").read_bytes() == before
    longer = resume(result.folder, steps=90)
    spec = json.loads((result.folder / "spec.json").read_text())["spec"]
    assert longer.metrics["threshold"] == spec["threshold"]["value"]


def test_baselines_choose_a_threshold_of_their_own(churn, tmp_path):
    result = runs.run(recipe(churn, "logistic", threshold="f1", baselines=True), tmp_path)
    ours, theirs = (result.baselines.metrics[n] for n in ("logistic", "LogisticRegression"))
    assert theirs["threshold"] == pytest.approx(ours["threshold"], rel=1e-2)
    assert theirs["f1"] == pytest.approx(ours["f1"])  # the same model
    assert result.baselines.metrics["the commonest class"]["recall"] == 1


# ---------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"threshold": "F1"}, r"threshold \(F1\) must be f1 or a number between 0 and 1"),
        ({"threshold": "1.5"}, r"threshold \(1.5\) must be f1 or a number between 0 and 1"),
        ({"threshold": "nan"}, r"threshold \(nan\) must be f1 or a number between 0 and 1"),
        ({"recall": 1.1}, r"recall \(1.1\) must be from 0 to 1"),
        ({"threshold": "f1", "recall": 0.9}, r"threshold \(f1\) must be left out with recall"),
        ({"threshold": "0.3", "recall": 0.9}, r"recall \(0.9\) must be left out with threshold="),
    ],
)
def test_settings_that_mean_nothing(given, said):
    with pytest.raises(UserError, match=said):
        override(find("mlp"), given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"data": "iris"}, r"threshold \(f1\) must be left out.* two classes and iris has 3 class"),
        ({"data": "diabetes"}, r"threshold \(f1\) must be left out, .*diabetes has a number to le"),
    ],
)
def test_data_that_cannot_choose(tmp_path, given, said):
    set_ = {"data": "moons", "sizes": (), "threshold": "f1"}
    with pytest.raises(UserError, match=said):
        runs.run(override(find("mlp"), {**set_, **given}), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def two_classes(valid, **options):
    x, t = torch.zeros(len(valid), 2), torch.tensor(valid)
    spec = {"name": "mine.csv", "classes": ["a", "b"]}
    return Data({"train": (x, t), "valid": (x, t), "test": (x, t)}, spec, **options)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (two_classes([0, 1], chooses=False), "where no rows are held out .* such as threshold=0.3"),
        (two_classes([1, 1]), "because the 2 validation rows are all of one class"),
    ],
)
@pytest.mark.parametrize("given", [{"threshold": "f1"}, {"recall": 0.5}])
def test_validation_that_cannot_choose(data, said, given):
    name = next(iter(given))
    with pytest.raises(UserError, match=rf"{name} \({given[name]}\) must be left out.*{said}"):
        check_threshold(override(find("mlp"), given), data)
    check_threshold(override(find("mlp"), {"threshold": "0.3"}), data)  # which nothing chooses


@pytest.mark.parametrize("held", [{"class": "unknown", "value": 0.5}, {"value": 0.5}, "half"])
def test_a_folder_with_a_threshold_that_means_nothing_is_refused_in_a_line(churn, tmp_path, held):
    folder = runs.run(recipe(churn, "logistic"), tmp_path).folder
    known = json.loads((folder / "spec.json").read_text())
    known["spec"]["threshold"] = held
    (folder / "spec.json").write_text(json.dumps(known))
    reseal(folder)
    for use in (lambda run: run.predict([[0.0, 0.0, 0.0]]), lambda run: run.evaluate()):
        with pytest.raises(UserError, match="does not fit logistic"):
            use(everynet.trained(folder))

"""The multilayer perceptron on tables of one's own: weights of classes, steps, and what is said."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch.nn.functional import cross_entropy

from everynet import runs
from everynet.data import check
from everynet.recipes.catalog import find
from everynet.recipes.settings import override
from everynet.recipes.stored import of_run
from everynet.runs import job
from everynet.system.errors import UserError
from everynet.zoo.feedforward.mlp import MOST_STEPS, RECIPES


def table(path, rows, label):
    random = np.random.default_rng(0)
    values = random.normal(size=(rows, 2))
    lines = [f"{a:.4f},{b:.4f},{label(n)}" for n, (a, b) in enumerate(values)]
    path.write_text("a,b,label\n" + "\n".join(lines) + "\n")
    return str(path)


@pytest.fixture
def uneven(tmp_path):
    return table(tmp_path / "uneven.csv", 400, lambda n: "few" if n % 40 == 0 else "xy"[n % 2])


def recipe(path, **given):
    return override(find("mlp"), {"data": path, "target": "label", **given})


# ----------------------------------------------------------------------------- weights of classes


def test_balanced_weights_are_those_of_scikit_learn(uneven):
    balanced = recipe(uneven, class_weight="balanced")
    data = balanced.dataset()
    y = data.splits["train"][1].numpy()
    theirs = compute_class_weight("balanced", classes=np.arange(3), y=y)
    assert data.spec["classes"] == ["few", "x", "y"]
    assert balanced.suited(data)["class_weights"] == pytest.approx(theirs.tolist())
    assert "class_weights" not in recipe(uneven).suited(data)


@pytest.mark.parametrize("classes", [2, 3])
def test_only_the_loss_in_training_is_weighted(tmp_path, classes):
    path = table(tmp_path / "a.csv", 200, lambda n: "pqr"[n % 9 % classes])
    weighted = recipe(path, class_weight="balanced")
    data = weighted.dataset()
    weighted = replace(weighted, **weighted.suited(data))
    net = weighted.model(data).double()
    x, t = data.splits["train"]
    z = net(x)
    logits = torch.cat([torch.zeros_like(z), z], 1) if classes == 2 else z
    weights = torch.tensor(weighted.class_weights, dtype=torch.float64)
    # Over all training rows the weights sum to their number, so that both means are the same.
    wanted = cross_entropy(logits, t, weight=weights)
    torch.testing.assert_close(weighted.objective(net, (x, t))["loss"], wanted, rtol=1e-6, atol=0)
    plain = cross_entropy(logits, t, reduction="none")
    torch.testing.assert_close(weighted.metrics(net, (x, t))["loss"], plain)
    assert not torch.allclose(wanted, plain.mean())


def test_where_classes_count_alike_the_best_weights_are_by_what_they_do_on_each(uneven, tmp_path):
    balanced = recipe(uneven, class_weight="balanced", steps=40, hidden=(4,), eval_every=4)
    assert recipe(uneven).monitored().metric == "loss"
    assert recipe(uneven, class_weight="balanced", metric="auc").monitored().metric == "auc"
    result = runs.run(balanced, tmp_path / "runs")
    valid = [v for v in result.history["valid_balanced_accuracy"] if not math.isnan(v)]
    assert f"best valid balanced_accuracy {max(valid):.4g}" in result.weights
    assert max(valid) > min(valid)  # so that there was something to choose


def test_a_run_with_weights_is_read_again(uneven, tmp_path):
    given = override(recipe(uneven, class_weight="balanced"), {"steps": 3, "hidden": (4,)})
    result = runs.run(given, tmp_path / "runs")
    again = of_run(result.folder)
    assert again.class_weight == "balanced"
    assert again.class_weights == given.suited(given.dataset())["class_weights"]


def test_weights_are_asked_of_the_recipe_and_not_of_the_network(uneven):
    weighted = recipe(uneven, class_weights=(1.0, 2.0, 4.0))
    data, net = weighted.dataset(), torch.nn.Linear(2, 3).double()
    x, t = data.splits["train"]
    each = torch.tensor([1.0, 2.0, 4.0])[t] * cross_entropy(net(x), t, reduction="none")
    torch.testing.assert_close(weighted.objective(net, (x, t))["loss"], each.mean())


def test_weights_that_mean_nothing(tmp_path):
    with pytest.raises(UserError, match=r"class_weight \(even\) must be empty or balanced"):
        replace(RECIPES["mlp"], class_weight="even")
    with pytest.raises(UserError, match=r"class_weights \(\(0.0, 1.0\)\) must be numbers above 0"):
        replace(RECIPES["mlp"], class_weights=(0.0, 1.0))
    few = replace(RECIPES["mlp-xor"], class_weight="balanced")
    with pytest.raises(UserError, match=r"class_weights \(\(\)\) must be a number for each class"):
        few.objective(torch.nn.Linear(2, 1), (torch.zeros(1, 2), torch.zeros(1).long()))
    path = table(tmp_path / "a.csv", 100, lambda n: f"{n}.5")
    said = r"class_weight \(balanced\) must be empty, because a number is learned"
    with pytest.raises(UserError, match=said):
        recipe(path, class_weight="balanced").dataset()


# ------------------------------------------------------------------------- what follows from data


def test_steps_follow_from_the_rows_of_ones_own_table(tmp_path):
    path = table(tmp_path / "a.csv", 1500, lambda n: "xy"[n % 2])
    given = recipe(path)
    data = given.dataset()
    assert data.steps_per_epoch == 16
    assert given.suited(data) == {"steps": 3200, "eval_every": 32}
    assert override(given, {"batch_size": 8}).suited(replace(data, batch_size=8)) == {
        "steps": MOST_STEPS
    }
    assert override(given, {"passes": 0}).suited(data) == {"eval_every": 20}
    assert override(given, {"steps": 1000, "eval_every": 7}).suited(data) == {}
    assert override(given, {"steps": given.steps, "eval_every": 0}).suited(data) == {}


def test_known_sets_are_trained_as_ever():
    for name in RECIPES:
        known = replace(RECIPES[name], data="wine", sizes=())
        assert known.suited(known.dataset()) == {}


def test_passes_must_be_a_count():
    with pytest.raises(UserError, match=r"passes \(-1\) must be at least 0"):
        replace(RECIPES["mlp"], passes=-1)


def test_what_was_taken_from_the_data_is_said_and_kept(uneven, tmp_path, capsys):
    given = replace(recipe(uneven, hidden=(4,)), steps=30, passes=10)
    result = runs.run(given, tmp_path / "runs", show=True)
    about = json.loads((result.folder / "recipe.json").read_text())
    taken = "taken from the data: steps=40"
    assert about["settings"]["steps"] == 40
    assert "steps" in about["changed"]
    assert taken in capsys.readouterr().err
    page = (result.folder / "card.md").read_text()
    assert f"| note | {taken} |" in page
    assert "steps=40" in page[page.index("| repeat with") :].partition("\n")[0]
    rare = "rare among 288 training samples: few (7); accuracy says little of them"
    assert rare in page
    assert of_run(result.folder).suited(given.dataset()) == {}


def test_data_check_says_which_class_is_rare(uneven):
    report = check(uneven, target="label")
    assert report.good
    assert any(line.startswith("rare among 288 training samples: few (7)")
               for line in report.remarks)  # fmt: skip


class Plain(type(RECIPES["mlp"])):
    """The recipe of mlp with another network."""

    def model(self, data):
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2, 2))


def test_another_network_learns_classes_with_weights_and_is_evaluated(tmp_path, monkeypatch):
    monkeypatch.setattr(job.Job, "draw", lambda *_: ())
    path = table(tmp_path / "a.csv", 100, lambda n: "few" if n % 10 == 0 else "many")
    given = {"data": str(path), "target": "label", "class_weight": "balanced", "steps": 2}
    result = runs.run(Plain(name="plain", **given), tmp_path / "runs", device="cpu")
    assert {"accuracy", "auc"} <= result.metrics.keys()


def test_another_network_that_learns_numbers_must_know_their_unit(tmp_path):
    path = table(tmp_path / "a.csv", 100, lambda n: f"{n}.5")
    plain = Plain(data=str(path), target="label", task="regression")
    data = plain.dataset()
    net, batch = plain.model(data).double(), data.splits["valid"]
    with pytest.raises(
        UserError, match=r"model \(Sequential\) must have a buffer `unit`, the stan"
    ):
        plain.metrics(net, batch)
    net.register_buffer("unit", torch.tensor(2.0, dtype=torch.float64))
    found = plain.metrics(net, batch)
    torch.testing.assert_close(found["_target"], batch[1] * 2)

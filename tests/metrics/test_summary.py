"""The figures that all recipes of classes and numbers print, beside scikit-learn's."""

import pytest
import torch
from sklearn import metrics as sk

from everynet.metrics import class_report, classified, regressed, summarise_outputs
from everynet.metrics.summary import decided


def drawn(classes, outputs, rows=200):
    draw = torch.Generator().manual_seed(classes)
    logits = torch.randn(rows, outputs, generator=draw, dtype=torch.float64)
    return logits, torch.randint(classes, (rows,), generator=draw)


@pytest.mark.parametrize(("classes", "outputs"), [(2, 1), (2, 2), (5, 5)])
def test_figures_of_classes_are_those_of_scikit_learn(classes, outputs):
    logits, y = drawn(classes, outputs)
    found = summarise_outputs({**classified(logits, y), "loss": torch.arange(200.0)})
    said = (logits[:, 0] > 0).long() if outputs == 1 else logits.argmax(1)
    wanted = {
        "accuracy": sk.accuracy_score(y, said),
        "balanced_accuracy": sk.balanced_accuracy_score(y, said),
        "macro_f1": sk.f1_score(y, said, average="macro"),
        "majority": y.bincount().max().item() / 200,
        "loss": 99.5,
    }
    if classes == 2:
        score = logits[:, -1] - (logits[:, 0] if outputs == 2 else 0)
        rare = int(2 * y.sum() <= len(y))
        wanted["auc"] = sk.roc_auc_score(y, score)
        wanted["average_precision"] = sk.average_precision_score(
            y == rare, score if rare else -score
        )
    assert found == pytest.approx(wanted)


def test_figures_of_numbers_are_those_of_scikit_learn():
    p, t = torch.randn(2, 50, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert summarise_outputs(regressed(p, t)) == pytest.approx(
        {
            "r2": sk.r2_score(t.numpy(), p.numpy()),
            "rmse": sk.root_mean_squared_error(t.numpy(), p.numpy()),
            "mae": sk.mean_absolute_error(t.numpy(), p.numpy()),
        }
    )


def test_one_class_alone_has_no_curve():
    logits, y = drawn(2, 2)
    assert "auc" not in summarise_outputs(classified(logits, torch.ones_like(y)))
    assert summarise_outputs({"loss": torch.ones(3)}) == {"loss": 1.0}


def test_each_class_has_its_precision_and_recall():
    logits, y = drawn(3, 3)
    header, *rows = class_report(classified(logits, y), ["a", "b", "c"])
    assert header == ("class", "precision", "recall", "f1", "samples")
    wanted = sk.precision_recall_fscore_support(y, logits.argmax(1))
    for k, row in enumerate(rows):
        assert row[0] == "abc"[k]
        assert [float(cell) for cell in row[1:]] == pytest.approx(
            [column[k] for column in wanted], rel=1e-3
        )
    never = class_report(classified(logits[:1], y[:1]), ["a", "b", "c", "d"])
    assert len(never) == 5, "a class that is not there has a row"
    assert class_report({"loss": torch.ones(3)}, ["a", "b"]) == []


# ------------------------------------------------------------------------------------- thresholds


@pytest.mark.parametrize("rare", [0, 1])
def test_average_precision_is_of_the_rarer_class(rare):
    draw = torch.Generator().manual_seed(7)
    y = (torch.rand(300, generator=draw) < 0.1).long()
    y = y if rare else 1 - y
    z = torch.randn(300, 1, generator=draw, dtype=torch.float64) + y[:, None]
    found = summarise_outputs(classified(z, y))["average_precision"]
    wanted = sk.average_precision_score(y == rare, z[:, 0] if rare else -z[:, 0])
    assert found == pytest.approx(wanted, abs=1e-10)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("positive", [0, 1])
def test_figures_at_a_threshold_are_those_of_scikit_learn(positive, outputs):
    logits, y = drawn(2, outputs)
    p = torch.cat([-logits, logits], 1).sigmoid() if outputs == 1 else logits.softmax(1)
    spec = {"classes": ["a", "b"], "threshold": {"class": "ab"[positive], "value": 0.2}}
    outputs = decided(classified(logits, y), spec)
    said = p[:, positive] >= 0.2
    truth = y == positive
    found = summarise_outputs(outputs)
    assert 0.5 < said.double().mean() < 1
    assert found["threshold"] == 0.2
    assert found["accuracy"] == pytest.approx(sk.accuracy_score(truth, said))
    assert found["balanced_accuracy"] == pytest.approx(sk.balanced_accuracy_score(truth, said))
    assert found["precision"] == pytest.approx(sk.precision_score(truth, said))
    assert found["recall"] == pytest.approx(sk.recall_score(truth, said))
    assert found["f1"] == pytest.approx(sk.f1_score(truth, said))
    row = class_report(outputs, "ab")[1 + positive]
    assert float(row[2]) == pytest.approx(found["recall"], rel=1e-3)


def test_a_threshold_is_for_two_classes_and_changes_nothing_else():
    logits, y = drawn(3, 3)
    spec = {"classes": ["a", "b"], "threshold": {"class": "b", "value": 0.2}}
    assert decided(classified(logits, y), spec).keys() == classified(logits, y).keys()
    assert decided(classified(logits, y), {"classes": ["a"]}).keys() == classified(logits, y).keys()
    z = torch.tensor([[-9.0], [-9.0]])  # no sample is called b
    found = summarise_outputs(decided(classified(z, torch.tensor([0, 0])), spec))
    assert (found["precision"], found["recall"], found["f1"]) == (0, 0, 0)

"""The figures that all recipes of classes and numbers print, beside scikit-learn's."""

import pytest
import torch
from sklearn import metrics as sk

from everynet.metrics import class_report, classified, regressed, summarise_outputs


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
        wanted["auc"] = sk.roc_auc_score(y, logits[:, -1] - (logits[:, 0] if outputs == 2 else 0))
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

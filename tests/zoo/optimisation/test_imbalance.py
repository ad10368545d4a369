from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy

from everynet.recipes.experiment import Table
from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.optimisation.imbalance import (
    RECIPES,
    Imbalance,
    SkewedImages,
    class_weights,
    loss_by_class,
    recall,
    thin_out,
    weighted_loss,
)
from tests.zoo.cells import cell

# --------------------------------------------------------------------------------------- equations


def test_weights_by_hand():
    assert class_weights(torch.tensor([0, 0, 0, 1]), 2).tolist() == pytest.approx([2 / 3, 2])


@pytest.mark.covers("D1")
def test_the_weighted_loss_is_the_mean_over_classes():
    draw = torch.Generator().manual_seed(3)
    y = torch.cat([torch.arange(4), torch.randint(0, 4, (60,), generator=draw).clamp(max=2)])
    logits = torch.randn(len(y), 4, generator=draw, dtype=torch.float64)
    losses = cross_entropy(logits, y, reduction="none")
    weights = class_weights(y, 4).double()
    found = weighted_loss(losses, weights[y])
    torch.testing.assert_close(found, loss_by_class(losses, y))
    torch.testing.assert_close(found, cross_entropy(logits, y, weights.to(logits)))
    by_hand = torch.stack([losses[y == k].sum() / (y == k).sum() for k in range(4)]).sum() / 4
    torch.testing.assert_close(found, by_hand)


def test_recall_by_hand():
    y, predicted = torch.tensor([0, 0, 0, 0, 1, 1, 2]), torch.tensor([0, 0, 0, 1, 1, 0, 0])
    assert recall(predicted, y, 3).tolist() == pytest.approx([0.75, 0.5, 0.0])


def test_the_last_classes_are_thinned_out_and_others_kept():
    y = torch.arange(50) % 5
    rows = thin_out(y, 2, 3, seed=1)
    assert y[rows].bincount().tolist() == [10, 10, 10, 3, 3]
    assert torch.equal(rows, rows.unique())
    assert not torch.equal(rows, thin_out(y, 2, 3, seed=2))


# ------------------------------------------------------------------------------------ the recipe


def test_only_training_is_skewed_and_each_image_counts_as_its_class():
    plain = SkewedImages(batch_size=32, rare_images=4)
    data, weighted = plain.dataset(), replace(plain, class_weight="balanced").dataset()
    y, w = weighted.splits["train"][1:]
    assert y.bincount()[-3:].tolist() == [4, 4, 4]
    assert (data.splits["train"][2] == 1).all()
    torch.testing.assert_close(w, class_weights(y, 10).float()[y])
    for part in ("valid", "test"):
        assert (weighted.splits[part][2] == 1).all()
    assert weighted.splits["test"][1].bincount()[-3:].min() > 30
    model, batch = plain.model(data), weighted.train(0)
    losses = cross_entropy(model(batch[0]), batch[1], reduction="none")
    found = plain.objective(model, batch)["cross_entropy"]
    torch.testing.assert_close(found, (batch[2] * losses).mean())
    assert not torch.isclose(found, losses.mean())


@pytest.mark.covers("D1")
def test_weights_of_classes_balance_recall_on_skewed_digits(tmp_path):
    result = run(replace(RECIPES["imbalance"], repeats=1, steps=150), tmp_path)
    found = result.metrics
    assert found["recall_spread"] > 0.25
    assert found["recall_spread_weighted"] < 0.5 * found["recall_spread"]
    assert found["rare_recall_weighted"] > found["rare_recall"] + 0.2


def test_metrics_by_hand():
    recipe = Imbalance(rare=1, repeats=2)
    seen = {"plain": ([0.9, 0.7, 0.1], [0.9, 0.9, 0.3]), "weighted": ([0.8, 0.6, 0.6],) * 2}
    cells = {f"{n}-{i}": cell(measured={"recall": [[0.0] * 3, v]}) for n, vs in seen.items()
             for i, v in enumerate(vs)}  # fmt: skip
    assert recipe.metrics(Table(cells, {})) == pytest.approx(
        {"rare_recall": 0.2, "rare_recall_weighted": 0.6, "common_recall": 0.85,
         "common_recall_weighted": 0.7, "recall_spread": 0.65, "recall_spread_weighted": 0.1}
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_reaches_its_goal(seed, tmp_path):
    assert run(replace(RECIPES["imbalance"], seed=seed), tmp_path, device="cpu").reached


@pytest.mark.parametrize(
    ("recipe", "fields", "message"),
    [
        (SkewedImages, {"class_weight": "balance"}, "balanced"),
        (SkewedImages, {"rare_images": 0}, r"rare_images \(0\) must be at least 1"),
        (Imbalance, {"rare": 0}, r"rare \(0\) must be at least 1"),
        (Imbalance, {"lr": 0.0}, r"lr \(0.0\) must be a positive number"),
        (Imbalance, {"weight_decay": -1.0}, "weight_decay"),
    ],
)
def test_settings_are_refused_by_name(recipe, fields, message):
    with pytest.raises(UserError, match=message):
        recipe(**fields)


def test_a_class_must_be_common():
    with pytest.raises(UserError, match=r"rare \(10\) must be below the 10 classes there are"):
        SkewedImages(rare=10).dataset()

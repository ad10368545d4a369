from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy

from everynet.data import load
from everynet.system.errors import UserError
from everynet.training.loop import begin, evaluate, train
from everynet.zoo.optimisation.few_images import FewImages, OneHiddenLayer

SMALL = OneHiddenLayer(rows=60, hidden_size=4, batch_size=30, steps=4, optimizer="sgd", lr=0.1)


def test_the_seed_chooses_the_rows_and_the_other_splits_stay_whole():
    whole = load("digits", kind="image", batch_size=1)
    chosen, again, other = (replace(SMALL, seed=s).dataset() for s in (5, 5, 6))
    x, y = chosen.splits["train"]
    assert x.shape == (60, 1, 8, 8)
    assert len(x.unique(dim=0)) == 60
    known = {bytes(image.numpy()): label for image, label in zip(*whole.whole, strict=True)}
    assert [known[bytes(image.numpy())] for image in x] == list(y)
    assert all(torch.equal(a, b) for a, b in zip(chosen.whole, again.whole, strict=True))
    assert not torch.equal(x, other.splits["train"][0])
    for split in ("valid", "test"):
        assert torch.equal(chosen.splits[split][0], whole.splits[split][0])
    assert torch.equal(
        replace(SMALL, rows=0).dataset().splits["train"][0], whole.splits["train"][0]
    )


def test_two_settings_of_a_seed_begin_alike_and_see_the_same_images():
    """The first losses are equal; a step of another length makes the second ones differ."""
    losses = []
    for lr in (0.1, 0.2):
        recipe = replace(SMALL, lr=lr, seed=3)
        data = recipe.dataset()
        state = begin(recipe, data)
        losses.append([r.terms["cross_entropy"].item() for r in train(recipe, state, data)])
    assert losses[0][0] == losses[1][0]
    assert losses[0][1] != losses[1][1]


def test_the_metrics_are_those_of_the_samples():
    data = SMALL.dataset()
    model = begin(SMALL, data).model
    x, y = data.splits["valid"]
    found = evaluate(SMALL, model, data.valid)
    assert found["cross_entropy"] == pytest.approx(cross_entropy(model(x), y).item(), rel=1e-5)
    assert found["accuracy"] == pytest.approx((model(x).argmax(1) == y).double().mean().item())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rows": 2000}, r"rows \(2000\) must be at most the 1294 training images there are"),
        ({"data": "diabetes"}, r"data \(diabetes\) must have classes, because accuracy is"),
    ],
)
def test_data_that_cannot_be_used_is_refused(fields, message):
    with pytest.raises(UserError, match=message):
        FewImages(**fields).dataset()

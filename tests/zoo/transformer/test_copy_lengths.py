"""The machine and an LSTM by length: what is made of the errors that were measured."""

import pytest
import torch

from everynet.recipes.catalog import find
from everynet.recipes.experiment import Cell, Table
from everynet.system.errors import UserError
from everynet.zoo.transformer.copy_lengths import LEAST, CopyLengths


def cell(recipe, wrong):
    seen = torch.stack([torch.full((len(wrong),), 0.5), torch.tensor(wrong)]).double()
    return Cell(recipe, 1, torch.tensor([0, 1]), {"wrong": seen}, {}, {}, None, {}, lambda: None)


def test_a_bit_counts_the_same_in_short_and_long_sequences():
    recipe = CopyLengths(longest=2, steps=1)
    cells = recipe.cells()
    turing = cell(cells["turing"], [0.0, 0.3, 0.01, 0.08])
    lstm = cell(cells["lstm"], [0.3, 0.0, 0.2, 0.4])
    found = recipe.metrics(Table({"turing": turing, "lstm": lstm}, {}))
    assert found["turing"] == pytest.approx(2 * 0.3 / 3)
    assert found["turing_longer"] == pytest.approx((3 * 0.01 + 4 * 0.08) / 7)
    assert found["lstm"] == pytest.approx(0.1)
    assert found["lstm_longer"] == pytest.approx((3 * 0.2 + 4 * 0.4) / 7)
    assert found["ratio"] == pytest.approx(found["lstm_longer"] / found["turing_longer"])


def test_a_machine_without_errors_gives_a_ratio_that_is_finite():
    recipe = CopyLengths(longest=1, steps=1)
    cells = recipe.cells()
    given = {"turing": cell(cells["turing"], [0.0, 0.0]), "lstm": cell(cells["lstm"], [0.1, 0.2])}
    assert recipe.metrics(Table(given, {}))["ratio"] == pytest.approx(0.2 / LEAST)


def test_both_networks_learn_from_the_same_sequences():
    batches = []
    for one in find("copy-lengths").cells().values():
        batches.append(one.dataset().train(3))
    assert all(torch.equal(a, b) for a, b in zip(*batches, strict=True))


def test_settings_that_are_refused():
    with pytest.raises(UserError, match=r"^steps \(0\) must be at least 1$"):
        CopyLengths(steps=0)
    with pytest.raises(UserError, match=r"^longest \(0\) must be at least 1$"):
        CopyLengths(longest=0)

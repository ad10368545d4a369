"""Transfer: which classes and labels are seen, what is carried over, and what stays frozen."""

from dataclasses import replace

import pytest
import torch

from everynet import runs
from everynet.data import load
from everynet.data.dataset import Data
from everynet.recipes.catalog import find
from everynet.recipes.experiment import Table
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.system.seeds import generator
from everynet.training.loop import begin, train
from everynet.zoo.vision.cnn import CNN
from everynet.zoo.vision.group_cnn import rotate
from everynet.zoo.vision.transfer import (
    TURNS,
    FineTunedCNN,
    FrozenCNN,
    SourceTask,
    TargetTask,
    choose_rows,
    pretrained_blocks,
)
from tests.zoo.cells import cell

TARGET = TargetTask(data="digits", half="second", labels=3, widths=(2, 3), lesson=2, steps=4,
              batch_size=6, lr=0.1)  # fmt: skip


def test_halves_have_other_classes_and_no_image_in_common():
    whole = load("digits", kind="image", batch_size=8)
    first, second = (SourceTask(data="digits", half=half).dataset() for half in ("first", "second"))
    assert first.spec["classes"] == list("01234")
    assert second.spec["classes"] == list("56789")
    for part in ("train", "valid", "test"):
        x, y = whole.splits[part]
        for data, low in ((first, 0), (second, 5)):
            mine = (y >= low) & (y < low + 5)
            assert torch.equal(data.splits[part][0], x[mine])
            assert torch.equal(data.splits[part][1], y[mine] - low)


def test_a_few_labels_of_each_class_are_chosen_by_the_seed():
    data, other = TARGET.dataset(), replace(TARGET, seed=1).dataset()
    x, y = data.splits["train"]
    assert torch.bincount(y).tolist() == [3] * 5
    assert not torch.equal(x, other.splits["train"][0])
    assert torch.equal(x, TARGET.dataset().splits["train"][0])
    assert torch.equal(data.splits["test"][0], other.splits["test"][0])


def test_images_are_turned_once_each_by_its_own_angle():
    still, spun = (
        SourceTask(data="digits").dataset(),
        SourceTask(data="digits", spin=90.0).dataset(),
    )
    again = SourceTask(data="digits", spin=90.0, seed=5).dataset()
    for part in ("train", "valid", "test"):
        assert not torch.equal(still.splits[part][0], spun.splits[part][0])
        assert torch.equal(spun.splits[part][0], again.splits[part][0])
    share = 2 * torch.rand(len(spun.splits["test"][0]), generator=generator(TURNS, 2)) - 1
    assert share.min() < -0.9, "both ways"
    assert share.max() > 0.9
    for row in (0, 1, 2):
        one = still.splits["test"][0][row : row + 1].float()
        expected = rotate(one, 90 * share[row : row + 1])[0]
        found = spun.splits["test"][0][row].float()
        torch.testing.assert_close(found, expected, rtol=0, atol=0.5001)  # whole levels


def test_more_labels_than_there_are_is_refused():
    with pytest.raises(UserError, match=r"labels \(3\) must be at most 1, because a class has no"):
        choose_rows(torch.tensor([0, 0, 0, 1]), 3, 2, torch.Generator())


def learned(recipe):
    """The state before and after training, by name."""
    data = recipe.dataset()
    state = begin(recipe, data)
    before = {n: t.clone() for n, t in state.model.state_dict().items()}
    for _ in train(recipe, state, data):
        pass
    return before, state.model


def test_the_blocks_of_the_source_task_are_carried_over_and_the_logits_are_new():
    pretrained = pretrained_blocks(TARGET.source_task())
    begun, _ = learned(replace(TARGET, steps=1))
    for name, tensor in pretrained.items():
        assert torch.equal(begun[f"blocks.{name}"], tensor), name
    scratch, _ = learned(replace(TARGET, steps=1, lesson=0))
    assert not torch.equal(scratch["blocks.0.conv.weight"], pretrained["0.conv.weight"])
    source = TARGET.source_task()
    assert (source.half, source.labels, source.steps) == ("first", 0, 2)
    assert replace(TARGET, source="digits").source_task().half == "all"


def test_frozen_blocks_and_their_norms_stay_and_logits_learn():
    before, model = learned(replace(TARGET, freeze=True))
    assert isinstance(model, FrozenCNN)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]) == name.startswith("blocks"), name


def test_fine_tuning_moves_all_weights_slowly_and_no_statistics():
    before, model = learned(TARGET)
    assert type(model) is FineTunedCNN
    now = model.state_dict()
    for name, tensor in now.items():
        kept = any(part in name for part in ("running", "num_batches"))
        assert torch.equal(tensor, before[name]) == kept, name
    moved = {n: float((now[n] - before[n]).abs().max()) for n in now}
    assert moved["blocks.0.conv.weight"] < 0.1 * moved["output.weight"]
    state = begin(TARGET, TARGET.dataset())
    rates = [group["initial_lr"] for group in state.optimizers["main"].param_groups]
    assert rates == pytest.approx([0.02 * 0.1, 0.1])


def test_from_scratch_everything_moves():
    before, model = learned(replace(TARGET, lesson=0))
    assert type(model) is CNN
    now = model.state_dict()
    assert all(not torch.equal(now[n], before[n]) for n in now)


def test_a_description_alone_needs_no_pretraining(monkeypatch):
    monkeypatch.setattr(
        "everynet.zoo.vision.transfer.pretrained_blocks", lambda _: pytest.fail("trained")
    )
    data = Data.described({"shape": [1, 8, 8], "classes": ["a", "b"]})
    assert TARGET.model(data).output.out_features == 2


def test_cells_are_three_ways_for_each_number_of_labels():
    cells = find("transfer").cells()
    assert len(cells) == 27
    assert all(isinstance(cell, Training) for cell in cells.values())
    same = [cells[f"{kind}-10-1"] for kind in ("scratch", "freeze", "tune")]
    assert len({cell.seed for cell in same}) == 1
    assert [cell.lesson for cell in same] == [0, 700, 700]
    assert [cell.freeze for cell in same] == [False, True, False]


def test_no_cell_is_trained_on_the_classes_of_its_source_task():
    """The new classes are the other half; of another set all classes are new."""
    for recipe, halves in (
        (find("transfer"), ("second", "first")),
        (replace(find("transfer"), source="digits"), ("all", "all")),
    ):
        for each in recipe.cells().values():
            source = replace(each, lesson=1).source_task()
            assert (each.half, source.half) == halves
            assert source.data == (recipe.source or recipe.data)


def test_metrics_are_means_over_repeats_of_test_accuracy_and_gains_in_points():
    recipe = replace(find("transfer"), labels=(3, 10), repeats=2)
    accuracy = {"scratch": 0.2, "freeze": 0.5, "tune": 0.7}
    cells = {
        f"{kind}-{labels}-{repeat}": cell(
            valid={"accuracy": [0.99]}, test={"accuracy": base + labels / 100 + repeat / 10}
        )
        for kind, base in accuracy.items()
        for labels in (3, 10)
        for repeat in range(2)
    }
    found = recipe.metrics(Table(cells, {}))
    expected = {}
    for labels in (3, 10):
        more = labels / 100 + 0.05
        expected |= {f"{kind}_{labels}": base + more for kind, base in accuracy.items()}
        expected |= {f"gain_{labels}": 50.0, f"gain_frozen_{labels}": 30.0}
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"labels": ()}, r"labels \(\(\)\) must be one or more numbers that rise"),
        ({"labels": (5, 3)}, r"labels \(\(5, 3\)\) must be one or more numbers that rise"),
        ({"lesson": 0}, r"lesson \(0\) must be at least 1"),
        ({"steps": 0}, r"steps \(0\) must be at least 1"),
        ({"repeats": 0}, r"repeats \(0\) must be at least 1"),
        ({"share": 0.0}, r"share \(0.0\) must be above 0 and at most 1"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        replace(find("transfer"), **fields)


def test_halves_that_are_not_there_are_refused():
    with pytest.raises(UserError, match=r"half \(third\) must be all, first or second"):
        SourceTask(half="third")
    with pytest.raises(UserError, match=r"labels \(-1\) must be at least 0"):
        SourceTask(labels=-1)


@pytest.mark.slow
@pytest.mark.covers("C28")
def test_the_goal_is_reached(tmp_path):
    assert runs.run(find("transfer"), tmp_path).reached

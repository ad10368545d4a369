"""What a person should know of a run on files of their own."""

from dataclasses import replace

import pytest
import torch

from everynet.data.dataset import Data
from everynet.data.report import rare
from everynet.recipes.catalog import find
from everynet.recipes.settings import override
from everynet.runs import notes


def data(counts, **options):
    y = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    spec = {"name": "mine.csv", "classes": [f"c{n}" for n in range(len(counts))]}
    return Data({"train": (torch.zeros(len(y), 2), y)}, spec, 8, own=True, **options)


RECIPE = find("mlp")


def test_a_class_rarer_than_one_in_twenty_is_named():
    (line,) = notes.on_data(data([190, 9]), override(RECIPE, {"steps": 1000}))
    assert line.startswith("mine.csv: rare among 199 training samples: c1 (9); accuracy says")
    assert "class_weight=balanced" in line
    assert not [*notes.on_data(data([190, 10]), RECIPE)]
    assert not [*notes.on_data(replace(data([190, 9]), own=False), RECIPE)]


def test_of_many_classes_none_need_be_common():
    assert rare({str(n): 10 for n in range(40)}) == ""
    assert "0 (4), 1 (4), 2 (4) and 2 more;" in rare(
        {str(n): 4 if n < 5 else 10 for n in range(40)}
    )
    assert rare({}) == ""


def test_numbers_and_pixels_have_no_classes_to_count():
    numbers = replace(data([30, 1]), splits={"train": (torch.zeros(31, 2), torch.zeros(31))})
    pixels = replace(
        data([30, 1]), splits={"train": (torch.zeros(31, 2), torch.zeros(31, 4).long())}
    )
    assert not [*notes.on_data(numbers, RECIPE), *notes.on_data(pixels, RECIPE)]


def test_fewer_steps_than_an_epoch():
    given = override(RECIPE, {"steps": 10, "batch_size": 8})
    (line,) = notes.on_data(data([100, 100]), given)
    assert line == (
        "steps (10) see 80 of 200 training samples, less than one epoch; epochs=1 sees them all"
    )
    assert not [*notes.on_data(data([100, 100]), override(given, {"steps": 25}))]


def test_notes_of_the_data_come_first():
    lines = [*notes.on_data(data([50, 50], notes=("column a is empty",)), RECIPE)]
    assert lines == ["mine.csv: column a is empty"]


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ({"accuracy": 0.9, "majority": 0.9}, r"accuracy (0.9) is no better than that of always"),
        ({"accuracy": 0.91, "majority": 0.9}, ""),
        ({"r2": 0.0}, "r2 (0) is no better than that of always saying the mean"),
        ({"r2": 0.01}, ""),
        ({"loss": 1.0}, ""),
    ],
)
def test_metrics_that_are_no_better_than_none(metrics, said):
    lines = [*notes.on_metrics(metrics)]
    assert len(lines) == bool(said)
    assert all(line.startswith(said) for line in lines)


RARE = {"accuracy": 0.8, "majority": 0.9, "balanced_accuracy": 0.5, "auc": 0.5}


@pytest.mark.parametrize(
    ("metrics", "classes", "said"),
    [
        (RARE, 2, "nothing was learned that shows in it"),
        ({**RARE, "balanced_accuracy": 0.7}, 2, ""),  # a run with balanced weights
        ({**RARE, "balanced_accuracy": 0.4}, 3, ""),
        ({**RARE, "balanced_accuracy": 0.34}, 3, "nothing was learned that shows in it"),
        ({**RARE, "auc": 0.7}, 2, "the rarer class is ranked higher (auc 0.7); threshold=f1 or "),
        ({**RARE, "auc": 0.7, "threshold": 0.1}, 2, ""),
    ],
)
def test_accuracy_does_not_hide_that_a_rare_class_was_learned(metrics, classes, said):
    lines = [*notes.on_metrics(metrics, RECIPE, classes)]
    assert len(lines) == bool(said)
    assert all(said in line for line in lines)


def test_only_settings_of_the_recipe_are_offered():
    ranked = {**RARE, "auc": 0.7}
    (line,) = notes.on_metrics(ranked, find("cnn-cifar"), 2)
    assert line.endswith("(auc 0.7); class_weight=balanced finds more of it")
    (line,) = notes.on_metrics(ranked, find("perceptron"), 2)
    assert line.endswith("is ranked higher (auc 0.7)")

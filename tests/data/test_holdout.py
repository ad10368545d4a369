"""`holdout=false`: all rows but those of a published test are trained on, and nothing chooses."""

from dataclasses import replace

import pytest
import torch

import everynet
from everynet import data, runs
from everynet.data.loading import load
from everynet.data.samples import Samples
from everynet.data.sets import Known
from everynet.recipes.catalog import find
from everynet.recipes.settings import override
from everynet.runs.job import Job
from everynet.system.errors import UserError
from everynet.system.seeds import generator
from tests.data.images.test_folder import fill

from .either import ADDED

SPLIT = "as published"


def samples(published):
    """Images of one level each: of training 0, of validation 100, of the test 200."""
    levels, rows = {"train": 0, "valid": 100, "test": 200}, {"train": 30, "valid": 10, "test": 20}
    draw = generator(1)
    parts = {
        part: (
            torch.full((rows[part], 1, 4, 4), level, dtype=torch.uint8)
            + torch.randint(2, (rows[part], 1, 4, 4), generator=draw).to(torch.uint8),
            torch.arange(rows[part]) % 2,
        )
        for part, level in levels.items()
    }
    return Samples(name="levels", parts=parts, digest="0" * 64, split=SPLIT, classes=("a", "b"),
                   published=published)  # fmt: skip


@pytest.fixture
def levels(monkeypatch):
    """A set of one's own, with the part that tests published or not."""
    monkeypatch.setattr(Job, "draw", lambda self, model: ())
    monkeypatch.setitem(ADDED, "levels", None)  # taken out again afterwards

    def make(published):
        known = Known("levels", "image", "grey", "none", make=lambda _count: samples(published))
        data.register(known)

    make(True)
    return make


@pytest.mark.usefixtures("levels")
def test_the_rows_of_validation_are_trained_on_too():
    kept = load("levels", kind="image", batch_size=8)
    whole = load("levels", kind="image", batch_size=8, holdout=False)
    assert [kept.rows(part) for part in ("train", "valid", "test")] == [30, 10, 20]
    assert [whole.rows(part) for part in ("train", "valid", "test")] == [40, 10, 20]
    assert (kept.chooses, whole.chooses) == (True, False)
    x, y = whole.splits["train"]
    assert torch.equal(x[30:], whole.splits["valid"][0])
    assert torch.equal(y[30:], whole.splits["valid"][1])
    mean = torch.cat([samples(True).parts[p][0] for p in ("train", "valid")]).double().mean() / 255
    assert whole.spec["mean"] == pytest.approx([mean.item()])  # of all that is trained on
    assert kept.spec["split"] == SPLIT
    assert whole.spec["split"] == (
        "as published; holdout=false: the rows for validation are trained on as well, and the "
        "last weights are kept"
    )


@pytest.mark.usefixtures("levels")
def test_the_last_weights_are_kept_and_the_card_says_so(tmp_path):
    recipe = override(find("mlp"), {"data": "levels", "hidden": "4", "steps": "20",
                                    "batch_size": "8", "schedule": "constant"})  # fmt: skip
    chosen = runs.run(recipe, tmp_path).folder
    folder = runs.run(replace(recipe, holdout=False), tmp_path).folder
    assert " of 20: best valid loss " in (chosen / "card.md").read_text()
    card = (folder / "card.md").read_text()
    assert "| weights | of step 20, the last, because holdout=false leaves no rows that" in card
    assert "holdout=false: the rows for validation are trained on as well" in card
    assert not list((folder / "checkpoints").glob("best-*"))
    assert everynet.trained(folder).spec["split"].startswith("as published; holdout=false")


def test_a_test_part_of_our_own_choice_is_refused(levels):
    levels(False)
    with pytest.raises(UserError, match=r"holdout \(false\) must be true for levels, because its"):
        load("levels", kind="image", batch_size=8, holdout=False)
    with pytest.raises(UserError, match=r"holdout \(false\) must be true for digits, because its"):
        find("lenet").dataset() and replace(find("lenet"), holdout=False).dataset()


@pytest.mark.usefixtures("levels")
def test_a_plateau_cannot_be_seen_without_rows_held_out(tmp_path):
    recipe = override(find("mlp"), {"data": "levels", "hidden": "4", "batch_size": "8",
                                    "schedule": "plateau", "holdout": "false"})  # fmt: skip
    with pytest.raises(UserError, match=r"schedule \(plateau\) must be another where holdout is f"):
        runs.run(recipe, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_on_ones_own_files_validation_chooses_whatever_the_schedule(tmp_path):
    """A falling rate ends at its best on sets that were tried; on others nobody knows."""
    fill(tmp_path / "photos", shape=(12, 12))
    small = {"steps": "6", "batch_size": "8", "eval_every": "2", "schedule": "one-cycle"}
    known = override(find("lenet").tiny(), small)
    own = override(known, {"data": str(tmp_path / "photos"), "size": "32"})
    cards = [(runs.run(each, tmp_path).folder / "card.md").read_text() for each in (known, own)]
    assert "| weights | of step 6, the last, because the rate falls to its end (sch" in cards[0]
    assert " of 6: best valid accuracy " in cards[1]


def test_images_laid_in_clutter_are_still_ones_own(tmp_path):
    fill(tmp_path / "photos", shape=(12, 12))
    recipe = replace(find("localise").tiny(), size=32)
    assert not recipe.dataset().own
    assert replace(recipe, data=str(tmp_path / "photos")).dataset().own

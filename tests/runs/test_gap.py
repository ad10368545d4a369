"""Overfitting: the gap between training and validation samples, in a card and in the summary."""

import math
from dataclasses import replace

import pytest
import torch

from everynet.cli.run import summarize
from everynet.data import load
from everynet.data.dataset import Data
from everynet.data.samplers import Buckets, Clips, Lanes, Made, Windows, flattened
from everynet.recipes.recipe import Goal
from everynet.runs import notes
from everynet.runs.gap import Gap
from everynet.runs.training_job import TrainingJob
from everynet.runs.verbs import resume, run
from everynet.zoo.optimisation.few_images import OneHiddenLayer
from tests.cli.mine import Flowers

FEW = OneHiddenLayer(rows=100, steps=60, batch_size=50, lr=1e-2, goal="accuracy >= 0.5")


# --------------------------------------------------------------------------------------- equations


def test_gap_and_its_error_by_hand():
    """Means 1 and 0.5; variances 0 and 1/3, so the error is sqrt(1/3 / 4)."""
    train, valid = {"accuracy": torch.ones(4)}, {"accuracy": torch.tensor([0.0, 1, 0, 1])}
    gap = Gap.of(train, valid, Goal("accuracy", ">=", 0.9))
    assert (gap.train, gap.valid, gap.size, gap.samples) == (1, 0.5, 0.5, (4, 4))
    assert gap.error == pytest.approx(math.sqrt(1 / 12))
    assert not gap.overfits  # 0.5 < 3 x 0.289
    both = Gap.of(valid, {"accuracy": torch.tensor([1.0, 0, 0])}, Goal("accuracy", ">", 0.9))
    assert both.error == pytest.approx(math.sqrt(1 / 3 / 4 + 1 / 3 / 3))


@pytest.mark.parametrize(("times", "overfits"), [(2.9, False), (3.1, True)])
def test_three_standard_errors_are_the_limit(times, overfits):
    valid = torch.tensor([1.0, 3.0] * 8)
    error = float(valid.std()) / 4
    train = torch.full((16,), 2 - times * error)
    gap = Gap.of({"loss": train}, {"loss": valid}, Goal("loss", "<=", 0.0))
    assert gap.size == pytest.approx(times * error, rel=1e-5)
    assert gap.overfits is overfits
    worse = Gap.of({"loss": valid}, {"loss": train}, Goal("loss", "<=", 0.0))
    assert worse.size == pytest.approx(-gap.size)  # training samples are no better
    assert not worse.overfits


def test_a_metric_of_all_samples_is_stood_in_for_by_one_of_each():
    values = {"cross_entropy": torch.tensor([1.0, 2.0])}
    assert Gap.of(values, values, Goal("perplexity", "<=", 9.0)).metric == "cross_entropy"
    numbers = {"_predicted": torch.tensor([1.0, 4.0]), "_target": torch.tensor([1.0, 2.0])}
    gap = Gap.of(numbers, numbers, Goal("r2", ">=", 0.5))
    assert (gap.metric, gap.train) == ("mse", 2)
    assert Gap.of({"real": torch.ones(4)}, {"real": torch.ones(4)}) is None  # better: unknown
    assert Gap.of({}, values, Goal("loss", "<=", 0.0)) is None
    one = {"accuracy": torch.ones(1)}
    assert Gap.of(one, one, Goal("accuracy", ">=", 0.5)) is None  # of one there is no spread


# ------------------------------------------------------------------------------------ the sampling


def test_a_sample_of_rows_is_of_different_ones_and_not_augmented():
    rows = torch.arange(40)
    data = Data(
        {"train": (rows,)}, batch_size=8, eval_batch_size=10,
        prepare=lambda batch: (batch[0] * 2,), augment=lambda batch, draw: (batch[0] * 0,),
    )  # fmt: skip
    batches = [batch for (batch,) in data.sample("train", 25)]
    assert [len(batch) for batch in batches] == [10, 10, 5]
    found = torch.cat(batches)
    assert len(found.unique()) == 25
    assert set(found.tolist()) <= set((2 * rows).tolist())
    assert found.max() > 50  # not the first 25
    assert torch.equal(found, torch.cat([batch for (batch,) in data.sample("train", 25)]))
    assert sum(len(batch) for (batch,) in data.sample("train", 99)) == 40


@pytest.mark.parametrize("sampler", [Lanes(5), Windows(5)])
def test_a_sample_of_a_text_is_a_stretch_of_it(sampler):
    data = Data({"train": (torch.arange(200),)}, batch_size=4, sampler=sampler)
    parts = [(x, y) for x, y, *_ in data.sample("train", 40)]
    x, y = (torch.cat([part[n].flatten() for part in parts]) for n in (0, 1))
    assert len(x) == 40
    assert torch.equal(x, torch.arange(int(x[0]), int(x[0]) + 40))
    assert torch.equal(y, x + 1)


def test_a_sample_of_unequal_sequences():
    clips = [torch.full((n,), n) for n in range(1, 9)]
    split = (*flattened(clips), torch.arange(1, 9))
    ragged = Data({"train": split}, batch_size=2, sampler=Buckets(("ragged", "plain")))
    ((x, lengths, plain),) = ragged.sample("train", 5)
    assert torch.equal(lengths, plain)
    assert torch.equal((x > 0).sum(1), plain)
    assert x.shape == (5, plain.max())
    ((x, lengths, labels),) = Data({"train": split}, batch_size=2, sampler=Clips(4)).sample(
        "train", 5
    )
    assert torch.equal(lengths, labels.clamp(max=4))
    assert torch.equal(x.amax(1), labels)


# ----------------------------------------------------------------------------------------- the runs


@pytest.mark.covers("D2")
def test_a_hundred_images_are_overfitted_and_all_are_not(tmp_path):
    few, many = run(FEW, tmp_path / "few"), run(replace(FEW, rows=0), tmp_path / "many")
    assert few.gap.metric == "accuracy"
    assert few.gap.samples == (100, 100)  # as many of validation
    assert few.gap.train == 1
    assert few.gap.overfits
    assert many.gap.samples == (144, 144)
    assert not many.gap.overfits
    for result, words in ((few, "overfitting: accuracy 1 on 100"), (many, "no overfitting seen: ")):
        (line,) = notes.on_gap(result.gap)
        assert line.startswith(words)
        assert f"| note | {line} |" in (result.folder / "card.md").read_text()
        assert line in list(summarize(FEW, result, "few"))


@pytest.mark.covers("D2")
def test_the_parts_have_no_row_in_common_and_the_test_set_has_all_classes_as_often():
    data = load("digits", kind="image", batch_size=64, seed=3)
    rows = {part: {x.numpy().tobytes() for x in data.splits[part][0]} for part in data.splits}
    assert not rows["train"] & rows["valid"]
    assert not (rows["train"] | rows["valid"]) & rows["test"]
    counts = data.splits["test"][1].bincount(minlength=10) / data.rows("test")
    every = torch.cat([y for _, y in data.splits.values()]).bincount()
    torch.testing.assert_close(counts, every / every.sum(), atol=1 / data.rows("test"), rtol=0)


def test_nothing_but_the_note_changes_and_a_resumed_run_says_the_same(tmp_path, monkeypatch):
    short = replace(FEW, steps=6, rows=60)
    first = run(short, tmp_path / "first")
    monkeypatch.setattr("everynet.runs.training_job.TrainingJob.measure_gap", lambda job: None)
    silent = run(short, tmp_path / "silent")
    monkeypatch.undo()
    assert first.gap is not None
    assert silent.metrics == first.metrics
    assert silent.history == first.history
    assert "overfitting" not in (silent.folder / "card.md").read_text()
    for name in ("metrics.jsonl", "model.safetensors", "*.png"):
        files = (sorted(result.folder.glob(f"**/{name}")) for result in (first, silent))
        for one, other in zip(*files, strict=True):
            assert one.read_bytes() == other.read_bytes()
    assert resume(short, first.folder).gap == first.gap


@pytest.mark.parametrize("changed", [{"sampler": Made(lambda step: ())}, {"chooses": False}])
def test_silent_where_nothing_can_be_overfitted_or_nothing_was_held_out(
    changed, tmp_path, monkeypatch
):
    def measured(job):
        job.data = replace(job.data, **changed)
        return was(job)

    was = TrainingJob.measure_gap
    monkeypatch.setattr(TrainingJob, "measure_gap", measured)
    result = run(replace(FEW, steps=2), tmp_path)
    assert result.gap is None
    assert "overfitting" not in (result.folder / "card.md").read_text()


def test_silent_where_metrics_are_of_whole_batches(tmp_path):
    assert run(replace(Flowers(), steps=2), tmp_path).gap is None

"""Datasets and loaders of torch: read into memory, or fed batch by batch."""

import math
import os
import random
import signal
from dataclasses import dataclass, replace
from itertools import pairwise
from multiprocessing import active_children

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    get_worker_info,
)

import everynet
from everynet.data import loader as reading
from everynet.data import loading
from everynet.data.draws import Share
from everynet.data.in_memory import given, holding
from everynet.data.kinds import image_kind
from everynet.data.loader import ONCE, Stream, read_dataset, read_loader
from everynet.runs import checkpoint
from everynet.system.errors import Stopped, UserError
from everynet.zoo.vision.classifier import ImageClassification

RANDOM = np.random.default_rng(8)
X = RANDOM.normal(size=(60, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64)
PIXELS = RANDOM.integers(0, 256, (60, 3, 8, 8), dtype=np.uint8)


def tensors(rows=slice(0, 60), y=Y):
    return TensorDataset(torch.from_numpy(X[rows]), torch.from_numpy(y[rows]))


class Items(Dataset):
    """Whatever a function makes of a number."""

    def __init__(self, make, count=60):
        self.make, self.count = make, count

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        return self.make(number)


def image(number):
    return torch.from_numpy(PIXELS[number]), int(number % 2)


def mirrored(number):
    x, y = image(number)
    return (x.flip(2) if torch.rand(()) < 0.5 else x), y


class Numbers(IterableDataset):
    def __iter__(self):
        return iter([(X[n], int(Y[n])) for n in range(60)])


# ------------------------------------------------------------------------------ read into memory


def test_a_dataset_is_its_items_in_their_order():
    assert given(tensors()).digest == given((X, Y)).digest
    (x, y), notes = read_dataset(Items(image))
    assert (x.dtype, x.shape, y.tolist(), notes) == (np.uint8, (60, 3, 8, 8), [0, 1] * 30, ())
    assert np.array_equal(x, PIXELS)
    assert given(Subset(tensors(), [3, 1])).x.tolist() == X[[3, 1]].tolist()


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (3, np.int64(3)),
        (2.5, np.float64(2.5)),
        (np.float32(2), np.float32(2)),
        (torch.tensor(True), np.bool_(True)),
        (torch.ones(2, dtype=torch.bfloat16, requires_grad=True), np.ones(2, np.float32)),
        (Image.fromarray(PIXELS[0, 0]), PIXELS[0, 0]),
        (Image.fromarray(PIXELS[0].transpose(1, 2, 0)), PIXELS[0].transpose(1, 2, 0)),
        (Image.fromarray(PIXELS[0, 0]).convert("P"), np.stack([PIXELS[0, 0]] * 3, 2)),
    ],
)
def test_what_items_may_hold(value, wanted):
    (x, y), _ = read_dataset(Items(lambda number: (value, "a"), 2))
    assert y == ["a", "a"]
    assert (x.dtype, x[1].tolist()) == (wanted.dtype, wanted.tolist())


def test_texts_alone_and_with_classes():
    assert given(Items(lambda n: f"text {n}", 3)).x == ["text 0", "text 1", "text 2"]
    assert given(Items(lambda n: [f"text {n}", n % 2], 4)).y.tolist() == [0, 1, 0, 1]


def test_random_changes_are_drawn_once_and_the_same_each_time():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first, again = given(Items(mirrored)), given(Items(mirrored))
    assert first.digest == again.digest
    assert first.notes == (ONCE,)
    assert torch.equal(torch.get_rng_state(), before)
    shaken = Items(lambda n: (PIXELS[n] * (random.random() > 0.5), 0))
    assert given(shaken).digest == given(shaken).digest
    assert given({"train": Items(mirrored), "test": (PIXELS, Y)}).notes == (f"train: {ONCE}",)


def test_a_loader_is_read_to_its_end():
    x, y = read_loader(DataLoader(tensors(), batch_size=7))
    assert np.array_equal(x, X)
    assert np.array_equal(y, Y)
    shuffled = DataLoader(tensors(), batch_size=7, shuffle=True)
    assert given(shuffled).digest == given(shuffled).digest
    words = DataLoader(Items(lambda n: (f"text {n}", n % 2), 5), batch_size=2)
    assert given(words).x == [f"text {n}" for n in range(5)]


def unequal(number):
    return (PIXELS[number, :, : 8 - (number == 5)], 0)


def broken(number):
    if number == 7:
        raise ValueError("no such picture\nanywhere")
    return image(number)


def endless():
    while True:
        yield X[0]


class Endless(IterableDataset):
    def __iter__(self):
        return endless()


class Unsized(Dataset):
    def __getitem__(self, number):
        return number


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (
            Items(unequal),
            r"^item 5 of Items \(uint8 of shape \(3, 7, 8\)\) must be as item 0 \(uint8",
        ),
        (
            Items(lambda n: (X[n], 1.5 if n == 9 else 1)),
            r"^item 9 of Items \(float64 of shape \(\)\)",
        ),
        (
            Items(lambda n: (X[n],) if n == 2 else (X[n], 1)),
            r"^item 2 of Items must be \(x, y\) or x",
        ),
        (Items(broken), r"^item 7 of Items cannot be read: ValueError: no such picture$"),
        (Items(lambda n: (1, 2, 3)), r"^item 0 of Items \(3 values\) must be \(x, y\) or x alone"),
        (
            Items(lambda n: {"image": 1}),
            r"^item 0 of Items \(of type dict\) must hold tensors, arr",
        ),
        (Items(lambda n: (X[n], None)), r"^item 0 of Items \(of type NoneType\) must hold tensors"),
        (Items(image, 0), r"^data \(Items\) must have items, and has none$"),
        (Unsized(), r"^data \(Unsized\) must have a length: give it a __len__$"),
        (Numbers(), r"^data \(Numbers, an IterableDataset\) must be given through a DataLoader$"),
        (
            DataLoader(Items(broken), 4),
            r"^batch 1 of the DataLoader cannot be read: ValueError: no ",
        ),
        (DataLoader(Items(image, 0)), r"^the DataLoader gives no batch; give it a dataset with it"),
        (
            DataLoader(Items(lambda n: (1, 2, 3))),
            r"^batch 0 of the DataLoader \(3 values\) must be",
        ),
        (
            DataLoader(Items(unequal), batch_size=5),
            r"^batch 1 of the DataLoader cannot be read: RuntimeError: stack expects each",
        ),
        (
            DataLoader(Items(unequal), batch_size=1),
            r"^batch 5 of the DataLoader \(rows of uint8 of shape \(3, 7, 8\)\) must be as batch 0",
        ),
        (
            DataLoader(Items(image), 4, collate_fn=lambda items: [item[0] for item in items]),
            r"^batch 0 of the DataLoader \(4 values\) must be \(x, y\) or x alone$",
        ),
        (
            DataLoader(Items(image), 4, collate_fn=lambda items: (torch.ones(4), torch.ones(3))),
            r"^batch 0 of the DataLoader must hold as many targets as inputs$",
        ),
        (
            DataLoader(Items(image), 4, collate_fn=lambda items: torch.tensor(4)),
            r"^batch 0 of the DataLoader must hold a row for each sample; let collate_fn",
        ),
    ],
)
def test_what_cannot_be_read(data, line):
    with pytest.raises(UserError, match=line) as caught:
        given(data)
    assert "\n" not in str(caught.value)


def test_a_worker_that_fails_is_one_line():
    data = DataLoader(Items(broken), batch_size=4, num_workers=1)
    with pytest.raises(
        UserError, match=r"^batch 1 of the DataLoader .*: ValueError: no such picture$"
    ):
        given(data)


def test_what_does_not_fit_is_refused(monkeypatch):
    monkeypatch.setattr(reading, "free", lambda: 1000)
    line = r"^data \(60 items of Items\) must fit into memory, and would take .* give a DataLoader"
    with pytest.raises(UserError, match=line):
        given(Items(image))
    with pytest.raises(UserError, match=r"after 42 batches\) must fit into memory twice"):
        given(DataLoader(Endless(), batch_size=1))


# ----------------------------------------------------------------------------- batch by batch


def rows_of(batches, count):
    return [next(batches) for _ in range(count)]


@pytest.mark.parametrize("ahead", [2**28, 100, 1])
def test_every_epoch_has_the_samples_in_the_order_of_the_loader(ahead, monkeypatch):
    monkeypatch.setattr(reading, "AHEAD", ahead)
    stream = Stream(DataLoader(tensors(), batch_size=16))
    assert stream.steps == 3
    found = rows_of(stream.batches(), 9)
    assert np.array_equal(np.concatenate([x for x, _ in found]), np.concatenate([X[:48]] * 3))
    assert np.array_equal(np.concatenate([y for _, y in found]), np.concatenate([Y[:48]] * 3))
    again = rows_of(stream.batches(), 9)  # of another training
    assert all(np.array_equal(*pair) for pair in zip(found[0], again[0], strict=True))


def test_random_changes_are_drawn_anew_each_epoch():
    stream = Stream(DataLoader(Items(mirrored), batch_size=20))
    batches = rows_of(stream.batches(), 9)
    epochs = [np.concatenate([x for x, _ in batches[n : n + 3]]) for n in (0, 3, 6)]
    same = [[np.array_equal(a[n], b[n]) for n in range(60)] for a, b in pairwise(epochs)]
    assert all(10 < sum(one) < 50 for one in same)


@pytest.mark.parametrize(
    ("made", "steps"),
    [
        (lambda: DataLoader(tensors(), batch_size=25), 2),
        (lambda: DataLoader(tensors(), batch_size=20, drop_last=True), 3),
        (lambda: DataLoader(tensors(), batch_sampler=[[0, 1], [2, 3], [4, 5]]), 3),
        (lambda: DataLoader(Numbers(), batch_size=25), 0),
    ],
)
def test_how_long_an_epoch_is(made, steps, monkeypatch):
    monkeypatch.setattr(reading, "AHEAD", 1)
    stream = Stream(made())
    assert stream.steps == steps
    assert len(rows_of(stream.batches(), 7)) == 7


def test_an_epoch_that_was_read_whole_is_known():
    assert Stream(DataLoader(Numbers(), batch_size=25)).steps == 2


@pytest.mark.parametrize(
    ("loader", "ahead", "line"),
    [
        (
            DataLoader(tensors(), batch_size=61),
            2**28,
            r"gives 60 samples, which fill no batch of 6",
        ),
        (
            DataLoader(tensors(), batch_sampler=[[0, 1], [2, 3, 4]]),
            1,
            r"batch 1 .* \(3 samples\) m",
        ),
        (DataLoader(Items(broken), 4), 1, r"^batch 1 of the DataLoader cannot be read: ValueError"),
        (DataLoader(Items(unequal), 1), 1, r"^batch 5 of the DataLoader \(rows of uint8 of shape"),
    ],
)
def test_loaders_that_cannot_be_fed(loader, ahead, line, monkeypatch):
    monkeypatch.setattr(reading, "AHEAD", ahead)
    with pytest.raises(UserError, match=line):
        rows_of(Stream(loader).batches(), 9)


# ---------------------------------------------------------------------------------------- data


def loaded(data, kind, batch_size=10, **options):
    found = given(data)
    with holding(found):
        return loading.load(found.name, kind=kind, batch_size=batch_size, **options)


def parts(make=image, workers=0, **options):
    """Images, the first 40 of them through a loader."""
    data = Items(make)
    train = DataLoader(Subset(data, range(40)), batch_size=10, num_workers=workers, **options)
    return {
        "train": train,
        "valid": Subset(data, range(40, 50)),
        "test": Subset(data, range(50, 60)),
    }


def test_several_processes_cannot_share_the_batches_of_a_loader():
    line = r"^data \(a DataLoader\) must be its dataset, because each of several processes"
    with pytest.raises(UserError, match=line):
        loaded(parts(), "image").train(0, Share(1, 2))


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("size", [0, 12])
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_those_of_the_same_images_in_memory(large, size, workers, monkeypatch):
    if large:
        monkeypatch.setattr(image_kind, "LARGE", 1)  # so that they are prepared batch by batch
    rows = {"train": slice(0, 40), "valid": slice(40, 50), "test": slice(50, 60)}
    arrays = {part: (PIXELS[its], np.arange(60)[its] % 2) for part, its in rows.items()}
    memory = loaded(arrays, "image", size=size)
    fed = loaded(parts(workers=workers), "image", size=size)
    assert fed.spec == memory.spec | {"name": fed.spec["name"]}
    assert (fed.steps_per_epoch, fed.prepare is None) == (4, not large)
    with fed.feed() as stored:
        for step in range(8):
            x, y = fed.changed(stored(step), torch.Generator())
            rows = torch.arange(10) + step % 4 * 10
            wanted = memory.some("train", rows)
            assert torch.equal(x, wanted[0])
            assert torch.equal(y, wanted[1])
    assert torch.equal(next(fed.valid)[0], next(memory.valid)[0])


def test_tables_have_the_columns_and_classes_that_were_learned():
    x, y = X.astype(np.float64), np.where(Y, 7, 3)
    x[:, 2] = 5.0  # a column that tells nothing
    x[::4, 1] = np.nan
    arrays = {"train": (x[:40], y[:40]), "valid": (x[40:50], y[40:50]), "test": (x[50:], y[50:])}
    memory = loaded(arrays, "table")
    train = TensorDataset(torch.from_numpy(x[:40]), torch.from_numpy(y[:40]))
    fed = loaded({**arrays, "train": DataLoader(train, batch_size=10)}, "table")
    assert (fed.spec["features"], fed.spec["classes"]) == (memory.spec["features"], ["3", "7"])
    assert len(fed.spec["features"]) == 4  # one says where x1 is missing
    with fed.feed() as stored:
        found = [stored(step) for step in range(8)]
    for column in (0, 1):
        rows = torch.cat([batch[column] for batch in found])
        assert torch.equal(rows, memory.splits["train"][column].repeat(2, *[1] * (rows.dim() - 1)))


def test_workers_end_with_the_feed(monkeypatch):
    monkeypatch.setattr(reading, "AHEAD", 1)
    before = {*active_children()}
    fed = loaded(parts(workers=2), "image")
    with fed.feed() as stored:
        for step in range(6):
            stored(step)
            assert len({*active_children()} - before) == 2
    assert {*active_children()} <= before


def test_a_class_that_comes_later_is_one_line(monkeypatch):
    monkeypatch.setattr(reading, "AHEAD", 1)
    data = parts(lambda n: (PIXELS[n], 2 if n == 35 else n % 2))
    fed = loaded(data, "image")
    with (
        fed.feed() as stored,
        pytest.raises(UserError, match=r"^the DataLoader: class 2 is none th"),
    ):
        [stored(step) for step in range(4)]


def test_of_other_kinds_of_data_it_is_refused():
    words = Items(lambda n: (f"word {n}", n % 2))
    data = {"train": DataLoader(words, batch_size=9), "valid": words, "test": words}
    found = {**data, "valid": (["a", "b"], ["0", "1"]), "test": (["c", "d"], ["0", "1"])}
    with pytest.raises(UserError, match="must be a Dataset or lists, because labelled data has no"):
        loaded(
            {**found, "valid": (["a", "b"], [0, 1]), "test": (["c", "d"], [0, 1])}, "labelled", 9
        )


# ---------------------------------------------------------------------------------------- runs


@dataclass(frozen=True, kw_only=True)
class Small(ImageClassification[nn.Sequential]):
    """A small network on images."""

    steps: int = 14
    lr: float = 0.01
    goal: str = "accuracy >= 0"

    def model(self, data):
        return nn.Sequential(
            *(nn.Conv2d(data.spec["shape"][0], 4, 3), nn.ReLU(), nn.Dropout(0.2)),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)),
        )


@dataclass(frozen=True, kw_only=True)
class Inverted(Small):
    """Changes its training set after it was read."""

    def dataset(self):
        data = super().dataset()
        splits = {part: (-x, y) for part, (x, y) in data.splits.items()}
        return replace(data, splits=splits)


@pytest.fixture
def unseen(monkeypatch):
    monkeypatch.setattr("everynet.runs.job.Job.draw", lambda self, model: ())


def test_a_run_takes_the_batches_of_the_loader_and_says_so(tmp_path, unseen):
    recipe = Small(name="small")
    done = everynet.run(recipe, tmp_path, data=parts(mirrored, shuffle=True), device="cpu")
    assert set(done.metrics) >= {"accuracy", "cross_entropy"}
    stored = everynet.runs.folder.read_json(done.folder / "recipe.json")["settings"]
    assert stored["batch_size"] == 10
    card = (done.folder / "card.md").read_text()
    assert "batches of 10 come from the DataLoader: their order and random changes are its" in card
    history = zip(done.history["step"], done.history["valid_accuracy"], strict=True)
    evaluations = [step for step, accuracy in history if not math.isnan(accuracy)]
    assert evaluations == [4, 8, 12, 14]  # an epoch of 40 images, ten at a time


def shaken(number):
    x, y = image(number)
    return (x.flip(2) if random.random() < 0.5 else x), y


@pytest.mark.parametrize("make", [mirrored, shaken])
def test_without_workers_a_run_is_the_same_each_time(make, tmp_path, unseen):
    def weights(name):
        data = parts(make, shuffle=True)
        done = everynet.run(Small(name="small"), tmp_path / name, data=data, device="cpu")
        return checkpoint.weights_in(done.folder, checkpoint.kept_weights(done.folder))

    first, again = weights("a"), weights("b")
    assert all(torch.equal(tensor, again[name]) for name, tensor in first.items())


def test_a_signal_to_a_run_and_its_workers_saves_it(tmp_path, unseen):
    flag, runs = tmp_path / "flag", tmp_path / "runs"

    def deadly(number):
        if flag.exists():  # as a terminal or a scheduler does, to the whole group
            os.kill(os.getppid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGKILL)
        return image(number)

    recipe = Small(name="small", steps=10**6, save_every=10**5)
    line = r"^(stopped at step \d+ and saved; |a worker .* was lost in update ).*go on with: everyn"
    with pytest.raises(Stopped, match=line):
        everynet.run(
            recipe, runs, data=parts(deadly, workers=1), device="cpu",
            watch=lambda record: flag.touch() if record["step"] == 8 else None,
        )  # fmt: skip
    (folder,) = runs.iterdir()
    assert checkpoint.steps(folder)


def test_a_worker_that_is_lost_is_one_line(tmp_path, unseen):
    def deadly(number):
        if get_worker_info() and number == 33:
            os.kill(os.getpid(), signal.SIGKILL)
        return image(number)

    with pytest.raises(UserError, match=r"^train: .*the DataLoader cannot be read: \w+Error"):
        everynet.run(Small(name="small"), tmp_path, data=parts(deadly, workers=1), device="cpu")


def test_a_table_is_learned_goes_on_and_is_evaluated(tmp_path, unseen):
    def data():
        train = DataLoader(tensors(slice(0, 40)), batch_size=8, shuffle=True)
        return {"train": train, "valid": tensors(slice(40, 50)), "test": tensors(slice(50, 60))}

    done = everynet.run("mlp", tmp_path, data=data(), epochs=2, device="cpu")
    assert everynet.trained(done.folder).recipe.steps == 10
    more = everynet.resume(done.folder, data=data(), steps=20)
    assert everynet.evaluate(done.folder, tensors(slice(50, 60))) == pytest.approx(more.metrics)
    loader = DataLoader(tensors(slice(50, 60)), batch_size=3)
    assert everynet.evaluate(done.folder, loader) == pytest.approx(more.metrics)
    other = {**data(), "test": tensors(slice(50, 59))}
    with pytest.raises(UserError, match="must be what the run was made with, but its SHA-256 is"):
        everynet.resume(done.folder, data=other, steps=30)
    other = {**data(), "train": DataLoader(tensors(slice(0, 39)), batch_size=8)}
    with pytest.raises(UserError, match="must be what the run was made with, but its SHA-256 is"):
        everynet.resume(done.folder, data=other, steps=30)


def test_numbers_are_learned_in_the_same_units(tmp_path, unseen):
    y = X[:, 1].astype(np.float64) * 50 + 1000
    data = {
        "train": DataLoader(tensors(slice(0, 40), y), batch_size=20, shuffle=True),
        "valid": tensors(slice(40, 50), y),
        "test": tensors(slice(50, 60), y),
    }
    done = everynet.run("mlp", tmp_path, data=data, steps=150, lr=0.05, device="cpu")
    assert done.metrics["r2"] > 0.9


def test_a_sweep_begins_anew_in_every_cell(tmp_path, unseen):
    data = parts(shuffle=True)
    done = everynet.sweep("mlp", data=data, lr=[0.1, 0.01], steps=9, out=tmp_path, device="cpu")
    assert done.metrics["diverged"] == 0


@pytest.mark.parametrize(
    ("recipe", "data", "fields", "line"),
    [
        ("mlp", lambda: parts()["train"], {}, r"^a DataLoader must be given with parts of its own"),
        ("mlp", lambda: {"train": parts()["train"]}, {}, r"^a DataLoader must be given with parts"),
        (
            "mlp",
            parts,
            {"batch_size": 64},
            r"^batch_size \(64\) must be 10, that of the DataLoader; l",
        ),
        (
            "least-squares",
            parts,
            {},
            r"^data \(a DataLoader\) must be its Dataset, or arrays, becau",
        ),
        (
            Inverted(name="inverted"),
            parts,
            {},
            r"^data \(a DataLoader\) must be a Dataset or arrays",
        ),
    ],
)
def test_runs_that_cannot_be_fed(recipe, data, fields, line, tmp_path):
    with pytest.raises(UserError, match=line):
        everynet.run(recipe, tmp_path, data=data(), device="cpu", **fields)
    assert not list(tmp_path.iterdir())

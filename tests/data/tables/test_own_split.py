"""Parts of a table by a column of train, valid and test, by groups, and by time."""

import csv
import math
from dataclasses import replace

import numpy as np
import pytest

import everynet
from everynet.data import check, loading
from everynet.data.in_memory import given, holding
from everynet.data.split import PARTS
from everynet.system.errors import UserError
from tests.data.frame import Frame

RANDOM = np.random.default_rng(3)
ROWS = 200
COLUMNS = {
    "x": RANDOM.normal(size=ROWS).round(3),
    "fold": np.array(["train", "Train ", "val", "test"], object)[np.arange(ROWS) % 4],
    "patient": np.array([f"p{n // 5}" for n in range(ROWS)], object),
    "site": np.arange(ROWS) // 20,
    "seen": np.datetime64("2023-01-01T00:00:00")
    + RANDOM.permutation(ROWS) * np.timedelta64(48, "h"),
    "year": 1900 + np.arange(ROWS),
    "y": np.arange(ROWS) % 2,
}
DAYS = COLUMNS["seen"].astype(np.int64)


def table(**changed):
    columns = {**COLUMNS, **changed}
    return {name: cells for name, cells in columns.items() if cells is not None}


def written(folder, columns):
    path = folder / "a.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*(map(str, cells) for cells in columns.values()), strict=True))
    return path


@pytest.fixture(params=["file", "frame"])
def samples(request, tmp_path):
    """Of a csv file, and of the same table in memory."""

    def of(columns=None, **options):
        columns = columns or table()
        options = {"target": "y", **options}
        if request.param == "file":
            return loading.samples(written(tmp_path, columns), kind="table", **options)
        found = given(Frame(columns))
        with holding(found):
            return loading.samples(found.name, kind="table", **options)

    return of


def names(found):
    return {treatment["name"] for treatment in found.columns}


# ------------------------------------------------------------------------------------- a column


def test_a_column_says_the_part_of_each_row(samples):
    found = samples(split="fold")
    rows = np.arange(ROWS)
    wanted = {"train": rows[rows % 4 < 2], "valid": rows[2::4], "test": rows[3::4]}
    assert {part: its.tolist() for part, its in found.rows.items()} == {
        part: its.tolist() for part, its in wanted.items()
    }
    assert found.split == "as column fold says, which is not learned from"
    assert "fold" not in names(found)
    assert "patient" in names(found)


def test_a_part_that_it_does_not_name_is_taken_from_train(samples):
    fold = np.where(np.arange(ROWS) % 4 == 3, "test", "train").astype(object)
    found = samples(table(fold=fold), split="fold")
    assert found.rows["test"].tolist() == list(range(3, ROWS, 4))
    assert 0 < len(found.rows["valid"]) < 30
    assert found.split.endswith("by hash of their number, a tenth of the rest is valid")
    whole = {row for part in PARTS for row in found.rows[part].tolist()}
    assert len(whole) == sum(map(len, found.rows.values())) == ROWS


# --------------------------------------------------------------------------------------- groups


@pytest.mark.parametrize("group", ["patient", "site"])
def test_a_group_lies_in_one_part(samples, group):
    found = samples(group=group)
    parts = [{*COLUMNS[group][found.rows[part].numpy()].tolist()} for part in PARTS]
    assert sum(map(len, parts)) == len({*COLUMNS[group].tolist()})
    assert all(parts)
    assert sum(map(len, found.rows.values())) == ROWS
    assert found.split.startswith(f"no {group} is in two parts, and it is not learned from; by its")
    assert group not in names(found)


def test_the_part_of_a_group_follows_from_its_value_alone(samples):
    first = samples(group="patient")
    order = np.r_[100:ROWS, 0:100]
    second = samples({name: cells[order] for name, cells in table().items()}, group="patient")
    for part in PARTS:
        both = (COLUMNS["patient"][first.rows[part].numpy()],
                COLUMNS["patient"][order][second.rows[part].numpy()])  # fmt: skip
        assert {*both[0]} == {*both[1]}


def test_groups_of_parts_that_a_caller_made():
    def some(rows):
        return Frame({name: cells[rows] for name, cells in table().items()})

    def samples(parts):
        found = given(parts)
        with holding(found):
            return loading.samples(found.name, kind="table", target="y", group="patient")

    found = samples({"train": some(slice(0, 150)), "test": some(slice(150, ROWS))})
    valid = {*COLUMNS["patient"][found.rows["valid"].numpy()]}
    assert valid
    assert not valid & {*COLUMNS["patient"][found.rows["train"].numpy()]}
    assert found.split.startswith("train, valid and test are as they were given; no patient is in")
    with pytest.raises(UserError, match="column patient: p30 has rows in train and in test, and a"):
        samples({"train": some(slice(0, 151)), "test": some(slice(151, ROWS))})


# ----------------------------------------------------------------------------------------- time


@pytest.mark.parametrize("time", ["", "seen"])
def test_what_is_later_is_test(samples, time):
    found = samples(until="2023-12-01", time=time)
    limit = np.datetime64("2023-12-01T00:00:00").astype(np.int64)
    train, valid, test = (DAYS[found.rows[part].numpy()] for part in PARTS)
    assert train.max() <= valid.min() <= valid.max() < limit <= test.min()
    assert len(valid) == round(0.1 * (len(train) + len(valid)))
    assert len(train) + len(valid) + len(test) == ROWS
    assert "seen" not in names(found)
    assert found.split == (
        "rows before 2023-12-01 by seen are train, the last tenth of them valid, and later ones "
        "test; seen is not learned from"
    )


def test_numbers_are_times_too(samples):
    found = samples(until="2050", time="year")
    assert found.rows["test"].tolist() == list(range(150, ROWS))
    assert found.rows["valid"].tolist() == list(range(135, 150))


# ------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("changed", "options", "line"),
    [
        ({}, {"split": "flod"}, r"has no column flod for split=; did you mean fold"),
        ({}, {"split": "y"}, r"^split \(y\) must not name the target$"),
        ({}, {"split": "patient"}, r"column patient \(p0\) must hold train, valid and test, becau"),
        ({}, {"split": "site"}, r"column site \(0.0\) must hold train, valid and test, because"),
        ({}, {"split": "fold", "group": "patient"}, r"^split and group must not both be given: ea"),
        ({}, {"group": "patient", "until": "2023-12-01"}, r"^group and until must not both be giv"),
        ({}, {"time": "seen"}, r"^time \(seen\) must be left out without until=, a date$"),
        ({}, {"until": "1.12.2023"}, r"^until \(1.12.2023\) must be a date, such as 2024-01-01$"),
        ({}, {"until": "soon", "time": "year"}, r"^until \(soon\) must be a number, as those of i"),
        ({}, {"until": "2030-01-01"}, r"^until .* leaves too few rows from it on: .* goes from 20"),
        ({}, {"until": "2000-01-01"}, r"^until \(2000-01-01\) leaves too few rows before it: .* t"),
        ({}, {"until": "5", "time": "fold"}, r"column fold must hold dates or numbers, because un"),
        ({"seen": None}, {"until": "2024-01-01"}, r"^time must name the column .* 0 columns of da"),
        (
            {"born": COLUMNS["seen"]},
            {"until": "2024-01-01"},
            r"^time must name the column .* has 2 columns of dates \(seen, born\)$",
        ),
        (
            {"fold": np.array(["train", "test"] * 99 + ["", "test"], object)},
            {"split": "fold"},
            r"column fold is empty in (row 198|line 200), and split= asks it for the part",
        ),
        (
            {"fold": np.array(["valid", "test"] * 100, object)},
            {"split": "fold"},
            r"column fold must name some rows train, because of these is learned$",
        ),
        (
            {"site": np.arange(ROWS) // 100},
            {"group": "site"},
            r"column site holds 2 groups, which are too few for train, valid and test; give more$",
        ),
        (
            {"fold": np.where(np.arange(ROWS) < 100, "train", "test").astype(object),
             "y": np.where(np.arange(ROWS) < 100, "a", "b").astype(object)},
            {"split": "fold"},
            r"class b has no training sample",
        ),
    ],
)  # fmt: skip
def test_splits_that_cannot_be(samples, changed, options, line):
    with pytest.raises(UserError, match=line):
        samples(table(**changed), **options)


def test_of_parts_that_were_given_only_groups_can_be_asked_for():
    parts = {"train": Frame(table()), "test": Frame({n: c[:5] for n, c in table().items()})}
    found = given(parts)
    for options, word in (({"split": "fold"}, "split"), ({"until": "2023-12-01"}, "until")):
        with (
            holding(found),
            pytest.raises(UserError, match=f"^{word} must be left out, because the"),
        ):
            loading.samples(found.name, kind="table", target="y", **options)


def test_arrays_in_files_and_images_have_no_such_columns(tmp_path):
    np.save(tmp_path / "a.npy", RANDOM.normal(size=(40, 3)))
    with pytest.raises(
        UserError, match=r"^group \(x\) must be left out, because .* is of numbers al"
    ):
        loading.samples(tmp_path / "a.npy", kind="table", target="1", group="x")
    with pytest.raises(
        UserError, match=r"^group \(x\) must be left out, because data \(digits\) is"
    ):
        everynet.recipe("mlp", group="x").dataset()


def test_parts_that_the_caller_made_may_share_rows():
    """Train is whole, also to learn of; whoever is in it twice is the same in both."""
    rows = range(40)
    columns = {
        "a": [n % 7 for n in rows],
        "b": [math.nan if n == 31 else 1 + n % 3 for n in rows],
        "y": [n / 4 for n in rows],
    }
    parts = {"train": rows, "valid": range(30, 33), "test": range(31, 36)}
    found = replace(given(Frame(columns)), parts=parts)
    with holding(found):
        made = loading.samples(found.name, kind="table", target="y", task="regression")
    assert made.features[2:], "b lacks a value in a row that valid and test have too"
    for part, its in parts.items():
        x, y = made.parts[part]
        assert x[:, 0].tolist() == [n % 7 for n in its]
        assert x[:, 2].tolist() == [n == 31 for n in its]
        assert y.tolist() == [n / 4 for n in its]
        assert made.rows[part].tolist() == [*its]


# ---------------------------------------------------------------------------------------- runs


@pytest.mark.parametrize(
    ("name", "target"),
    [
        *(("bayesian-regression", "x"), ("least-squares", "x"), ("logistic", "y")),
        *(("perceptron", "y"), ("softmax-regression", "y"), ("svm", "y")),
        *(("factor-analysis", ""), ("ica", "y"), ("mixture", ""), ("pca", "y")),
    ],
)
def test_every_recipe_of_tables_reads_such_columns(tmp_path, name, target):
    path = written(tmp_path, table())
    options = {"target": target, "split": "fold", "drop": ("site", "patient"), "missing": ("-",)}
    options |= {"positive": "1"} if name == "perceptron" else {}
    data = everynet.recipe(name, data=str(path), **options).dataset()
    assert [data.rows(part) for part in ("train", "valid", "test")] == [100, 50, 50]
    assert not {"site", "patient", "fold"} & {*data.spec["features"]}


def test_the_digest_tells_of_it_and_a_report_shows_it(tmp_path):
    path = written(tmp_path, table())
    ways = [{}, {"split": "fold"}, {"group": "patient"}, {"group": "site"}]
    ways += [{"until": "2023-12-01"}, {"until": "2023-12-02"}]
    found = [loading.samples(path, kind="table", target="y", **way).digest for way in ways]
    assert len({*found}) == len(found)
    report = str(check(path, target="y", split="fold"))
    assert "100 train, 50 valid, 50 test" in report
    assert "split      as column fold says, which is not learned from" in report


def test_a_run_splits_by_it_and_predicts_without_it(tmp_path, monkeypatch):
    monkeypatch.setattr("everynet.runs.job.Job.draw", lambda self, model: ())
    path = written(tmp_path, table())
    done = everynet.run("mlp", tmp_path / "runs", data=path, target="y", group="patient", steps=3,
                        device="cpu")  # fmt: skip
    assert "no patient is in two parts" in (done.folder / "card.md").read_text()
    rows = Frame({name: cells[:3] for name, cells in table(patient=None, y=None).items()})
    assert len(everynet.trained(done.folder).predict(rows)) == 3
    assert everynet.resume(done.folder, steps=5).metrics

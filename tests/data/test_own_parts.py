"""Parts that a caller made in Python: train, valid and test, each as data in memory is given."""

import numpy as np
import pytest
import torch

import everynet
from everynet.data import kinds, loading
from everynet.data.in_memory import Columns, given, holding
from everynet.data.overlap import check_apart
from everynet.data.split import PARTS, OwnSplit
from everynet.system.errors import UserError

from .frame import Frame, objects

RANDOM = np.random.default_rng(6)
X = RANDOM.normal(size=(120, 3))
Y = np.arange(120) % 3
TRAIN, VALID, TEST = slice(0, 80), slice(80, 100), slice(100, 120)
IMAGES = RANDOM.integers(0, 256, (120, 6, 6), dtype=np.uint8)
WORDS = [f"word{n % 7} of {n}" for n in range(120)]


def pair(rows, x=X, y=Y):
    return x[rows], y[rows]


def samples(data, kind=("table", "image"), **options):
    found = given(data)
    with holding(found):
        return loading.samples(found.name, kind=kind, **options)


# ------------------------------------------------------------------------------- where rows go


@pytest.mark.parametrize(
    ("x", "y", "kind"),
    [
        (X, Y, "table"),
        (IMAGES, Y, "image"),
        (IMAGES[:, None], IMAGES[:, None], "map"),
        (WORDS, [str(n) for n in Y], "labelled"),
        (WORDS, WORDS[::-1], "pairs"),
    ],
)
def test_each_part_is_as_it_was_given(x, y, kind):
    whole = {"train": pair(TRAIN, x, y), "valid": pair(VALID, x, y), "test": pair(TEST, x, y)}
    found = samples(whole, kind)
    assert [len(found.parts[part][0]) for part in PARTS] == [80, 20, 20]
    assert found.split.startswith("train, valid and test are")
    for part, rows in (("train", TRAIN), ("valid", VALID), ("test", TEST)):
        mine = found.parts[part][0]
        same = mine if isinstance(mine, list) else mine.reshape(len(mine), -1).tolist()
        wanted = x[rows] if isinstance(x, list) else x[rows].reshape(len(mine), -1).tolist()
        assert same == wanted


def test_clips_notes_and_long_texts():
    clips = [RANDOM.integers(-9, 9, 40 + n % 5).astype(np.int16) for n in range(30)]
    rows = {"train": slice(0, 20), "valid": slice(20, 25), "test": slice(25, 30)}
    data = {part: (clips[cut], [*"ab"] * (len(clips[cut]) // 2) + ["a"] * (len(clips[cut]) % 2))
            for part, cut in rows.items()}  # fmt: skip
    found = samples(data, "sound", rate=100)
    assert [len(found.parts[part]) for part in PARTS] == [20, 5, 5]
    grids = RANDOM.integers(40, 80, (12, 8))
    found = samples({"train": grids[:6], "valid": grids[6:9], "test": grids[9:]}, "notes")
    assert [len(found.parts[part]) for part in PARTS] == [6, 3, 3]
    found = samples({"train": ["a b", "c"], "val": ["d"], "test": ["e", "f"]}, "text")
    assert found.parts == {"train": "a b\nc", "valid": "d", "test": "e\nf"}


def test_what_is_left_out_is_taken_from_train_as_ever():
    alone = samples({"train": pair(slice(0, 120))})
    whole = samples((X, Y))
    assert alone.digest == whole.digest
    assert all(torch.equal(alone.parts[part][0], whole.parts[part][0]) for part in PARTS)
    for kind, x in (("table", X), ("image", IMAGES)):
        found = samples({"train": pair(TRAIN, x), "test": pair(TEST, x)}, kind)
        train, valid = (len(found.parts[part][0]) for part in ("train", "valid"))
        assert (train + valid, 0 < valid < 20) == (80, True)
        assert "of the rows of train, by hash of their number, a tenth" in found.split
        found = samples({"train": pair(TRAIN, x), "validation": pair(TEST, x)}, kind)
        assert len(found.parts["valid"][0]) == 20
        assert "a fifth is test" in found.split


def test_classes_have_their_share_in_what_is_taken():
    rare = np.where(np.arange(120) % 20 == 0, 1, 0)
    found = samples({"train": pair(slice(0, 100), X, rare), "valid": pair(TEST, X, rare)})
    assert found.parts["test"][1].bincount().tolist() == [19, 1]


def test_columns_are_learned_of_train_alone():
    x = X.copy()
    x[100:] += 1000
    data = given({"train": pair(TRAIN, x), "valid": pair(VALID, x), "test": pair(TEST, x)})
    with holding(data):
        made = loading.load(data.name, kind="table", batch_size=4)
    assert np.allclose(made.spec["mean"], x[:80].mean(0))
    assert len(given({"train": pair(TRAIN), "test": pair(TEST)}).digest) == 64


def test_the_digest_covers_every_part():
    ways = [
        {"train": pair(TRAIN), "test": pair(TEST)},
        {"train": pair(TRAIN), "valid": pair(TEST)},
        {"train": pair(slice(0, 79)), "test": pair(slice(79, 120))},
        {"train": pair(slice(0, 80)), "test": pair(slice(80, 120))},
        {"train": pair(slice(0, 120))},
        {"train": pair(TRAIN), "test": (X[TEST] + 1, Y[TEST])},
    ]
    assert len({given(way).digest for way in ways}) == len(ways)
    assert given(ways[0]).digest == given(dict(reversed(ways[0].items()))).digest


@pytest.mark.parametrize("kind", ["labelled", "pairs", "text"])
def test_the_same_texts_in_other_parts_have_another_digest(kind):
    y = None if kind == "text" else [str(n) for n in Y] if kind == "labelled" else WORDS[::-1]
    cut = [{"train": slice(0, n), "test": slice(n, 120)} for n in (80, 90)]
    ways = [
        {p: WORDS[r] if y is None else pair(r, WORDS, y) for p, r in one.items()} for one in cut
    ]
    assert len({samples(way, kind).digest for way in ways}) == 2


def test_another_target_of_the_same_parts_has_another_digest():
    frames = {"train": frame(TRAIN, b=Y[TRAIN]), "test": frame(TEST, b=Y[TEST])}
    assert samples(frames, target="y").digest != samples(frames, target="b").digest


# ---------------------------------------------------------------------------------- columns


def frame(rows, **columns):
    return Frame({"a": X[rows, 0], "kind": objects(*WORDS)[rows], "y": Y[rows], **columns})


def test_columns_of_frames_are_found_by_their_names():
    test = Frame({"y": Y[TEST], "kind": objects(*WORDS)[TEST], "a": X[TEST, 0]})
    found = given({"train": frame(TRAIN), "test": test})
    whole = given(frame(np.r_[0:80, 100:120]))
    assert isinstance(found.x, Columns)
    assert all(map(np.array_equal, found.x.cells, whole.x.cells))


def test_a_column_that_is_empty_in_one_part_has_the_type_of_the_others():
    empty = np.full(20, np.nan)
    found = given({"train": frame(TRAIN), "test": frame(TEST, kind=empty)})
    assert found.x.cells[1][80:].tolist() == [""] * 20
    found = given({"train": frame(TRAIN, a=objects(*[None] * 80)), "test": frame(TEST)})
    assert found.x.cells[0].dtype == np.float64
    days = np.datetime64("2024-01-01") + np.arange(120)
    found = given({"train": frame(TRAIN, a=days[TRAIN]), "test": frame(TEST, a=empty)})
    assert np.isnat(found.x.cells[0][80:]).all()


# ------------------------------------------------------------------------------- in two parts


def own(*sizes):
    ends = np.cumsum([0, *sizes])
    rows = {part: torch.arange(*ends[n : n + 2]) for n, part in enumerate(PARTS)}
    return OwnSplit({part: its for part, its in rows.items() if len(its)})


def parts(x, y, *sizes):
    return dict(zip(PARTS, zip(x.split(sizes), y.split(sizes), strict=True), strict=True))


WHOLE = torch.zeros(100)


def test_one_row_that_cannot_be_equal_by_chance_is_enough():
    x = torch.from_numpy(X[:100].copy())
    check_apart("mine", parts(x, WHOLE, 60, 20, 20), own(60, 20, 20))
    for row in (99, 65):
        again = x.clone()
        again[row] = x[3]
        name = "test" if row == 99 else "valid"
        line = rf"^mine: 1 of the 20 rows of {name} are rows of train too, and a network must be"
        with pytest.raises(UserError, match=line):
            check_apart("mine", parts(again, WHOLE, 60, 20, 20), own(60, 20, 20))
    between = x.clone()
    between[85] = x[65]
    with pytest.raises(UserError, match="1 of the 20 rows of test are rows of valid too"):
        check_apart("mine", parts(between, WHOLE, 60, 20, 20), own(60, 20, 20))


def test_another_target_makes_another_row():
    x = torch.from_numpy(X[:100].copy())
    x[99], y = x[3], torch.arange(100.0)
    check_apart("mine", parts(x, y, 60, 20, 20), own(60, 20, 20))


def test_short_rows_are_equal_by_chance():
    """Of rows of two dice nearly all of a test occur in train, as those of train do."""
    dice = torch.from_numpy(RANDOM.integers(1, 7, (1000, 2)).astype(float))
    y = torch.zeros(1000)
    check_apart("dice", parts(dice, y, 600, 200, 200), own(600, 200, 200))


@pytest.mark.parametrize(("shared", "refused"), [(0, False), (2, False), (3, True), (200, True)])
def test_rows_that_occur_once_in_train_are_not_in_test_by_chance(shared, refused):
    """Whole numbers, none twice: two of 200 are said, three are refused."""
    x = torch.arange(2000.0).view(1000, 2).double()
    x[1000 - shared :] = x[:shared]
    y = torch.zeros(1000)
    if refused:
        with pytest.raises(UserError, match=rf"{shared} of the 200 rows of test are rows of train"):
            check_apart("mine", parts(x, y, 600, 200, 200), own(600, 200, 200))
    else:
        check_apart("mine", parts(x, y, 600, 200, 200), own(600, 200, 200))


def test_one_image_is_enough_where_no_two_are_equal():
    x = torch.from_numpy(IMAGES[:100, None].copy())
    check_apart("mine", parts(x, WHOLE, 60, 20, 20), own(60, 20, 20))
    x[99] = x[3]
    with pytest.raises(UserError, match="1 of the 20 rows of test are rows of train too"):
        check_apart("mine", parts(x, WHOLE, 60, 20, 20), own(60, 20, 20))
    x[4] = x[5]  # train has equal ones itself
    check_apart("mine", parts(x, WHOLE, 60, 20, 20), own(60, 20, 20))


def test_known_sets_may_be_given_in_parts():
    """Iris has a row twice, and it may fall on both sides."""
    iris = loading.samples("iris", kind="table")
    x, y = (torch.cat([iris.parts[part][n] for part in PARTS]).numpy() for n in (0, 1))
    _, twin = np.unique(x, axis=0, return_index=True)
    (again,) = {*range(150)} - {*twin.tolist()}
    first = next(row for row in range(150) if row != again and (x[row] == x[again]).all())
    order = [first, *(row for row in range(150) if row not in (first, again)), again]
    x, y = x[order], y[order]
    mixed = RANDOM.permutation(np.arange(1, 149))
    order = [0, *mixed.tolist(), 149]
    data = {"train": (x[order[:120]], y[order[:120]]), "test": (x[order[120:]], y[order[120:]])}
    assert len(samples(data).parts["test"][0]) == 30


@pytest.mark.parametrize(
    ("x", "y", "kind"), [(X, Y, "table"), (IMAGES, Y, "image"), (WORDS, WORDS[::-1], "pairs")]
)
def test_overlapping_parts_are_refused(x, y, kind):
    data = {"train": pair(slice(0, 90), x, y), "test": pair(slice(80, 120), x, y)}
    with pytest.raises(UserError, match=r"^memory:\w{12}: 10 of the 40 rows of test are rows of t"):
        samples(data, kind)


# ----------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ({}, r"^data \(no parts\) must have a part train$"),
        ({"test": (X, Y)}, r"^data \(test\) must have a part train$"),
        ({"train": (X, Y), "tset": (X, Y)}, r"^data holds tset, but parts are train, .* mean test"),
        (
            {"a": [1, 2]},
            r"^data holds a, but parts are train, valid and test; a table by columns m",
        ),
        (
            {"train": (X, Y), "val": (X, Y), "valid": (X, Y)},
            r"^data must hold valid under one name",
        ),
        (
            {"train": {"train": (X, Y)}},
            r"^train of data must be \(X, y\), a frame or texts, not pa",
        ),
        ({"train": (X, Y), "test": None}, r"^test: data \(of type NoneType\) must be arrays"),
        (
            {"train": (X, Y), "test": (X, Y[:3])},
            r"^test: y \(int64 of shape \(3,\)\) must hold one",
        ),
        ({"train": (X, Y), "test": X}, r"^test of data .* must have a y if train .* has$"),
        ({"train": (X, Y), "test": (X[:0], Y[:0])}, r"^test of data .* must have rows$"),
        (
            {"train": (X, Y), "test": (X[:, :2], Y)},
            r"^X of test \(.*\(120, 2\)\) must be as that of",
        ),
        (
            {"train": (X, Y), "test": (X, Y * 1.0)},
            r"^y of test \(float64 .*\) must be as that of tr",
        ),
        (
            {"train": (X, Y), "test": (X, WORDS)},
            r"^y of test \(120 texts\) must be as that of train",
        ),
        (
            {"train": (IMAGES, Y), "test": (IMAGES / 255, Y)},
            r"^X of test \(float64 of shape \(120, 6, 6\)\) must be as that of train \(uint8",
        ),
        (
            {"train": frame(TRAIN), "test": Frame({"a": X[:, 0], "y": Y})},
            r"^test of data has no column kind, which train has$",
        ),
        (
            {"train": frame(TRAIN), "test": frame(TEST, more=Y[TEST])},
            r"^train of data has no column more, which test has$",
        ),
        (
            {"train": frame(TRAIN), "test": frame(TEST, a=objects(*WORDS)[TEST])},
            r"^column a of test \(object\) must be as that of train \(float64\); change its type$",
        ),
    ],
)
def test_parts_that_do_not_fit(data, line):
    with pytest.raises(UserError, match=line):
        given(data)


def test_a_kind_that_makes_its_own_parts_is_not_given_others(monkeypatch):
    table = kinds.named("table")

    class Deaf(type(table)):
        name, own_parts = "deaf", False

    monkeypatch.setitem(kinds._added, "deaf", Deaf())
    line = r"must be in one part, because deaf data makes its own$"
    with pytest.raises(UserError, match=line):
        samples({"train": pair(TRAIN), "test": pair(slice(80, 120))}, "deaf")


# --------------------------------------------------------------------------------------- runs


def test_a_run_on_parts_of_ones_own_goes_on_and_is_evaluated_on_them(tmp_path, monkeypatch):
    monkeypatch.setattr("everynet.runs.job.Job.draw", lambda self, model: ())
    data = {"train": pair(TRAIN), "valid": pair(VALID), "test": pair(TEST)}
    done = everynet.run("mlp", tmp_path, data=data, steps=2, batch_size=16, device="cpu")
    card = (done.folder / "card.md").read_text()
    assert "| split | train, valid and test are as they were given |" in card
    again = everynet.resume(done.folder, data=data, steps=4)
    assert everynet.evaluate(done.folder, data) == pytest.approx(again.metrics)
    assert everynet.evaluate(done.folder, data["test"]) == pytest.approx(again.metrics)
    other = {**data, "test": pair(VALID)}
    assert everynet.evaluate(done.folder, {"train": pair(TRAIN), "test": pair(VALID)}) == (
        everynet.evaluate(done.folder, pair(VALID))
    )
    with pytest.raises(UserError, match="must be what the run was made with, but its SHA-256 is"):
        everynet.resume(done.folder, data=other, steps=6)

"""Data in memory: what is taken, what it is worth, and what becomes of it."""

import csv
from dataclasses import replace

import numpy as np
import pytest
import torch

from everynet.data import kinds, loading
from everynet.data.in_memory import Columns, given, holding, part
from everynet.system.errors import UserError

from .frame import Frame, Series, objects

RANDOM = np.random.default_rng(2)
X = RANDOM.normal(size=(60, 3)).round(2)
Y = np.arange(60) % 3
IMAGES = RANDOM.integers(0, 256, (40, 6, 6), dtype=np.uint8)


def held(data, kind=("table", "image"), **options):
    """The samples of what is held."""
    found = given(data)
    with holding(found):
        return loading.samples(found.name, kind=kind, **options)


def loaded(data, kind, **options):
    found = given(data)
    with holding(found):
        return loading.load(found.name, kind=kind, batch_size=4, **options)


# ---------------------------------------------------------------------------- what it is worth


def test_the_same_values_have_the_same_digest_whatever_holds_them():
    single = X.astype(np.float32)
    same = [
        (single, Y),
        (single.astype(np.float64), Y.astype(np.uint8)),
        (torch.from_numpy(single), torch.from_numpy(Y)),
        (single.tolist(), Y.tolist()),
        (np.asfortranarray(single), Y[:, None]),
        (Frame({f"x{n}": single[:, n] for n in range(3)}), Series(Y, None)),
    ]
    assert len({given(data).name for data in same}) == 1
    assert given(same[0]).name.startswith("memory:")
    assert len(given(same[0]).digest) == 64


def test_other_values_names_orders_and_sorts_have_another():
    frame = Frame({"a": X[:, 0], "b": X[:, 1]})
    numbers = Frame({"a": Y, "b": Y})
    moved = X.copy()
    moved[7, 1] += 1e-9
    others = [
        (X, Y), (X[::-1], Y), (X, Y[::-1]), (X[:, ::-1], Y), (moved, Y), (X, Y.astype(float)),
        (X, list(map(str, Y))), X, frame, Frame({"a": X[:, 0], "c": X[:, 1]}), numbers,
        (frame, Y), (frame, Series(Y, "kind")), Frame({"a": Y, "b": Y}, categories=("b",)),
        (IMAGES, Y[:40]), (IMAGES / 1.0, Y[:40]), ["ab", "c"], ["a", "bc"], ["abc"],
        (["ab", "c"], ["x", "y"]),
    ]  # fmt: skip
    assert len({given(data).digest for data in others}) == len(others)


# ------------------------------------------------------------------------------------- tables


def table():
    """Columns of every form, with holes in them, and what a csv file has in their place."""
    size = np.round(RANDOM.normal(size=60), 3)
    size[[4, 40]] = np.nan
    colour = np.array(["red", "green", None], object)[RANDOM.integers(0, 3, 60)]
    seen = np.datetime64("2024-01-30T07:30") + np.arange(60) * np.timedelta64(40, "h")
    seen[9] = np.datetime64("NaT")
    code = RANDOM.integers(10, 13, 60)
    label = np.array(["yes", "no"], object)[(code > 11) * 1]
    frame = {"size": size, "colour": colour, "seen": seen, "code": code, "label": label}
    text = {
        "size": ["" if np.isnan(s) else repr(float(s)) for s in size],
        "colour": ["" if c is None else c for c in colour],
        "seen": ["" if np.isnat(s) else str(s) for s in seen],
        "code": [str(c) for c in code],
        "label": list(label),
    }
    return frame, text


def test_a_frame_becomes_what_a_csv_of_it_becomes(tmp_path):
    frame, text = table()
    with (tmp_path / "a.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(text)
        writer.writerows(zip(*text.values(), strict=True))
    wanted = loading.samples(tmp_path / "a.csv", kind="table", target="label")
    for data, target in (
        (Frame(frame), "label"),
        ((Frame({n: c for n, c in frame.items() if n != "label"}), frame["label"]), ""),
    ):
        found = held(data, target=target)
        assert found.columns == wanted.columns
        assert found.features == wanted.features
        assert (found.classes, found.split) == (wanted.classes, wanted.split)
        for name, (x, y) in wanted.parts.items():
            assert torch.equal(found.parts[name][0], x)
            assert torch.equal(found.parts[name][1], y)


def test_what_is_asked_later_becomes_what_was_learned(tmp_path):
    frame, _ = table()
    data = loaded(Frame(frame), "table", target="label")
    kind = kinds.named("table")
    asked = kind.convert(part(Frame(dict(reversed(frame.items())))), data.spec)
    rows = held(Frame(frame), target="label").rows
    for name in ("train", "valid", "test"):
        assert torch.equal(asked[rows[name]], data.splits[name][0])
    new = {**frame, "colour": np.array(["blue"] * 60, object)}  # one that nobody saw
    assert kind.convert(part(Frame(new)), data.spec).shape == asked.shape


def test_a_category_is_one_though_it_looks_like_numbers():
    code = Y + 7
    (plain,) = held((Frame({"code": code}), Y)).columns
    (told,) = held((Frame({"code": code}, categories=("code",)), Y)).columns
    assert plain["form"] == "number"
    assert (told["form"], told["values"]) == ("category", ["7", "8", "9"])


def test_what_is_learned_follows_from_the_type_of_y():
    assert held((X, Y)).classes == ("0", "1", "2")
    assert held((X, Y > 0)).classes == ("False", "True")
    assert held((X, [f"k{n}" for n in Y])).classes == ("k0", "k1", "k2")
    assert held((X, Y.astype(float))).task == "regression"
    assert held((X, Y.astype(float)), task="classification").classes == ("0", "1", "2")
    assert held((X, Y), task="regression").task == "regression"


def test_missing_numbers_are_filled_and_flagged():
    x = X.copy()
    x[::5, 0] = np.nan
    found = held((x, Y))
    assert found.features == ("x0", "x0 is missing", "x1", "x2")


def test_columns_can_be_dropped():
    frame = Frame({"a": X[:, 0], "id": np.arange(60)})
    assert held((frame, Y), drop=("id",)).features == ("a",)


# ------------------------------------------------------------------------------ other kinds


def test_images_are_what_an_npz_of_them_is(tmp_path):
    for x in (IMAGES, IMAGES[..., None].repeat(3, 3), IMAGES / 255):
        np.savez(tmp_path / "a.npz", x=x, y=Y[:40])
        wanted = loading.samples(tmp_path / "a.npz", kind="image")
        found = held((x, Y[:40]))
        assert (found.classes, found.peak, found.split) == (
            wanted.classes,
            wanted.peak,
            wanted.split,
        )
        for name, (pixels, y) in wanted.parts.items():
            assert torch.equal(found.parts[name][0], pixels)
            assert torch.equal(found.parts[name][1], y)
    assert held((IMAGES, ["cat", "dog"] * 20)).classes == ("cat", "dog")
    data = loaded((IMAGES, Y[:40]), "image", size=12)
    asked = kinds.named("image").convert(IMAGES, data.spec)
    rows = held((IMAGES, Y[:40])).rows
    assert torch.equal(asked[rows["test"]], data.splits["test"][0])


def test_texts(tmp_path):
    words = [f"word{n % 7} of {n % 5}" for n in range(120)]
    text = loaded(words, "text")
    (tmp_path / "a.txt").write_text("\n".join(words))
    file = loading.load(tmp_path / "a.txt", kind="text", batch_size=4)
    assert torch.equal(text.splits["train"][0], file.splits["train"][0])
    assert text.spec["tokens"] == file.spec["tokens"]
    classes = [n % 2 for n in range(120)]
    found = loaded((words, classes), "labelled")
    assert found.spec["classes"] == ["0", "1"]
    (tmp_path / "a.tsv").write_text("".join(f"{c}\t{w}\n" for c, w in zip(classes, words)))  # noqa: B905
    wanted = loading.load(tmp_path / "a.tsv", kind="labelled", batch_size=4)
    assert all(map(torch.equal, found.splits["test"], wanted.splits["test"]))
    pairs = loaded((words, words[::-1]), "pairs")
    assert pairs.spec["task"] == "translation"
    for data, kind in ((text, "text"), (found, "labelled"), (pairs, "pairs")):
        (tmp_path / "b.txt").write_text("\n".join(words[:3]))
        read = kinds.named(kind).read([tmp_path / "b.txt"], data.spec)[1]
        assert all(map(torch.equal, kinds.named(kind).convert(words[:3], data.spec), read))
    assert kinds.named("lines").convert([" a b "], {}) == ["a b"]


def test_images_that_become_images():
    x, y = IMAGES[:, None], IMAGES[:, None] / 255.0
    data = loaded((x, y), "map")
    assert data.spec["target_shape"] == [1, 6, 6]
    kind = kinds.named("map")
    made = data.splits["test"][1]
    rows = held((x, y), "map").rows["test"]
    assert torch.allclose(kind.to_data_units(made, data.spec), torch.from_numpy(y)[rows], atol=1e-6)
    assert torch.equal(kind.convert(x, data.spec)[rows], data.splits["test"][0])


def test_what_is_made_comes_back_in_the_units_of_the_data():
    table = loaded((X, Y), "table")
    rows = held((X, Y)).rows["test"]
    undone = kinds.named("table").to_data_units(table.splits["test"][0], table.spec)
    assert torch.allclose(undone, torch.from_numpy(X)[rows])
    images = loaded((IMAGES, Y[:40]), "image")
    undone = kinds.named("image").to_data_units(images.splits["test"][0], images.spec)
    pixels = torch.from_numpy(IMAGES)[held((IMAGES, Y[:40])).rows["test"], None]
    assert torch.equal((undone * 255).round(), pixels.float())


# ----------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ((X, Y, Y), r"data \(a tuple of 3\) must be \(X, y\), or X alone"),
        ((X, Y[:5]), r"y \(int64 of shape \(5,\)\) must hold one value for each row of X \(fl"),
        (
            (X, 3),
            r"data \(of type int\) must be arrays of numpy or torch, a frame \(pandas, polars",
        ),
        ((np.float64(3), Y), r"X \(float64 of shape \(\)\) must hold a value for each row"),
        ([{"a": 1}, {"a": 2}], r"^data \(a list of records\) must be a frame, such as DataFrame"),
        ((x for x in X), r"^data \(of type generator\) must be arrays of numpy or torch, a frame"),
        (np.array(3), r"^X \(int64 of shape \(\)\) must hold a value for each row$"),
        (None, r"^data \(of type NoneType\) must be arrays of numpy or torch, a frame"),
        ({1, 2}, r"^data \(of type set\) must be arrays of numpy or torch, a frame"),
        ([[1, 2], [3]], r"data \(rows of unequal length\) must be a table or images; \(X, y\) "),
        (
            X.astype(complex),
            r"data \(complex128\) must hold numbers, words or dates; change its ty",
        ),
        (
            np.array([[["a"]]]),
            r"data \(<U1 of shape \(1, 1, 1\)\) must be arrays of numpy or torch",
        ),
        (Frame({"a": X[:, 0] * 1j}), r"a \(complex128\) must hold numbers, words or dates"),
        (Frame({}), r"data \(a frame without columns\) must have some"),
        (Frame({"1": X[:, 0], 1: X[:, 1]}), "data names column 1 twice; give each its own name"),
    ],
)
def test_what_cannot_be_taken(data, line):
    with pytest.raises(UserError, match=line):
        given(data)


def spoilt(value):
    x = X.copy()
    x[7, 1] = value
    return x


HOLED = np.where(np.arange(60) == 7, np.nan, np.arange(60) * 0.5)


@pytest.mark.parametrize(
    ("data", "options", "line"),
    [
        ((spoilt(np.inf), Y), {}, r"^memory:\w{12}: row 7, column x1 \(inf\) must be a finite num"),
        ((X, HOLED * np.nan), {}, r"^memory:\w{12}: column y is empty in every row, and it is to"),
        ((X, Y), {"target": "x1"}, r"target \(x1\) must be left out, because y was given beside X"),
        (Frame({"a": Y, "b": Y}), {}, r"target must name the column of memory:\w+ that is to be"),
        (Frame({"a": Y, "b": Y}), {"target": "c"}, r"has no column c; did you mean b or a\?"),
        ((X, X), {}, r"y \(float64 of shape \(60, 3\)\) must hold one value for each row of X"),
        ((X[:0], Y[:0]), {}, r"data \(float64 of shape \(0, 3\)\) must have rows"),
        ((X[:, :0], Y), {}, r"data \(float64 of shape \(60, 0\)\) must be a table, with a row for"),
        ((X[:, 0], Y), {}, r"data \(float64 of shape \(60,\)\) must be a table, with a row for"),
        ((["a"] * 60, Y), {}, r"data \(60 texts\) must be a table, with a row for each sample"),
        ((IMAGES, Y[:40]), {"target": "a"}, r"target \(a\) must be left out, because data \(mem"),
        (IMAGES, {}, r"data \(uint8 of shape \(40, 6, 6\)\) must be \(X, y\) with a table X, or"),
        (
            (Frame({"a": objects(*["1"] * 40, *["x"] * 20)}), Y),
            {},
            r"row 40, column a \(x\) must be a number, as others of its column are",
        ),
    ],
)
def test_tables_and_images_that_cannot_be_learned_from(data, options, line):
    with pytest.raises(UserError, match=line):
        held(data, **options)


@pytest.mark.parametrize(
    ("data", "kind", "line"),
    [
        ((X, Y), "text", r"must be a list of texts, which are joined by line ends"),
        (["a b"] * 9, "labelled", r"data \(9 texts\) must be \(texts, classes\), two lists of as"),
        ((["a", " "], ["b", "c"]), "pairs", "text 1 is empty; fill it in or leave it out"),
        ((X, Y), "pairs", r"must be \(sources, targets\), two lists of as many texts"),
        ((X, Y), "map", r"must be \(X, Y\) with as many images Y, N x channels x H x W"),
        ((IMAGES, IMAGES), "mask", r"must be in files: images with a class for each pixel"),
    ],
)
def test_other_kinds_say_what_they_take(data, kind, line):
    with pytest.raises(UserError, match=line):
        held(data, kind)


def test_what_is_asked_must_fit():
    frame, _ = table()
    spec = loaded(Frame(frame), "table", target="label").spec
    ask = kinds.named("table").convert
    with pytest.raises(UserError, match=r"inputs has no column seen; did you mean"):
        ask(part(Frame({"size": X[:, 0], "colour": X[:, 0], "code": Y})), spec)
    with pytest.raises(UserError, match=r"inputs: row 0, column size \(big\) must be a number"):
        ask(part(Frame({**frame, "size": np.array(["big"] * 60, object)})), spec)
    with pytest.raises(UserError, match=r"must be rows of 4 columns: size, colour, seen, code"):
        ask(X, spec)
    with pytest.raises(
        UserError, match=r"inputs \(1 texts\) must be rows of 4 columns: size, colo"
    ):
        ask(["a"], spec)
    mixed = part([[1.5, "red", "2024-01-30 07:30", 11]] * 2)  # by their places
    assert torch.equal(*ask(mixed, spec))
    with pytest.raises(UserError, match=r"inputs \(0 rows of 4 columns\) must have rows"):
        ask(Columns(("size", "colour", "seen", "code"), (X[:0, 0],) * 4), spec)
    known = {"features": [*"abcd"], "mean": [0.0] * 4, "std": [1.0] * 4}  # no holes in these
    with pytest.raises(UserError, match=r"inputs: row 0, column .* \(nan\) must be a finite numb"):
        ask(np.full((1, 4), np.nan), known)
    images = loaded((IMAGES, Y[:40]), "image").spec
    with pytest.raises(UserError, match=r"inputs \(2 texts\) must be images, or the names of fil"):
        kinds.named("image").convert(["a", "b"], images)
    with pytest.raises(UserError, match=r"inputs \(float64 of shape \(60, 3\)\) must be texts"):
        kinds.named("lines").convert(X, {})


def test_it_is_there_while_it_is_held_and_no_longer():
    found, other = given((X, Y)), given((X + 1, Y))
    with holding(found):
        assert loading.samples(found.name, kind="table").digest
        sums = rf"its SHA-256 is {found.digest[:12]}\.\.\., not {other.digest[:12]}"
        with pytest.raises(UserError, match=sums):
            loading.samples(other.name, kind="table")
    with pytest.raises(UserError, match=r"data \(memory:\w{12}...\) was given in memory, which no"):
        loading.samples(found.name, kind="table")


def test_it_is_the_users_own_and_its_description_is_plain():
    data = loaded((X, Y), "table")
    assert data.own
    assert data.spec["name"] == given((X, Y)).short
    assert replace(data, batch_size=8).digest == data.digest

"""Labelled files that a network is evaluated on: treated as its description says."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from everynet.data import kinds, load
from everynet.data.dataset import Data
from everynet.data.images import decoded_cache
from everynet.data.kinds import Kind
from everynet.data.loading import Like
from everynet.data.samplers import Made
from everynet.data.split import PARTS
from everynet.system.errors import UserError

NUMBERS = np.random.default_rng(0)


def picture(path, *shape, levels=256):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = NUMBERS.integers(0, levels, shape or (6, 8), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def images(root, classes="ab", count=12, shape=(6, 8)):
    for label in classes:
        for number in range(count):
            picture(root / label / f"{number}.png", *shape)
    return root


def masks(root, levels=3, count=20):
    for number in range(count):
        picture(root / "images" / f"{number}.png")
        picture(root / "masks" / f"{number}.png", levels=levels)
    return root


def maps(root, count=20):
    for number in range(count):
        picture(root / "inputs" / f"{number}.png")
        picture(root / "targets" / f"{number}.png")
    return root


def boxes(root, classes="ab", count=20):
    for number in range(count):
        picture(root / f"{number}.png")
    rows = [f"{n}.png,{classes[n % len(classes)]},1,1,5,4" for n in range(count)]
    (root / "boxes.csv").write_text("\n".join(["image,class,left,top,right,bottom", *rows]) + "\n")
    return root


def table(path, target="ab", count=30, header="x,colour,y"):
    rows = [f"{n / 7},{['red', 'blue'][n % 2]},{target[n % len(target)]}" for n in range(count)]
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def lines(path, text, count=30):
    path.write_text("".join(f"{text(n)}\n" for n in range(count)))
    return path


KINDS = {
    "table": lambda p: table(p / "t.csv"),
    "image": lambda p: images(p / "i"),
    "mask": lambda p: masks(p / "m"),
    "map": lambda p: maps(p / "f"),
    "boxes": lambda p: boxes(p / "b"),
    "labelled": lambda p: lines(p / "l.tsv", lambda n: f"{'ab'[n % 2]}\tword{n % 5} here"),
    "pairs": lambda p: lines(p / "p.tsv", lambda n: f"one {n}\teins {n}"),
    "text": lambda p: lines(p / "t.txt", lambda n: f"line {n} of text that is long enough"),
}


def load_like(path, kind, spec, digest="", **options):
    """What `load` gives to evaluate a network on whose data `spec` describes."""
    data = Like(str(path), json.loads(json.dumps(spec)), digest)
    return load(data, kind=kind, batch_size=64, **options)


def options(kind):
    return {"target": "y"} if kind == "table" else {}


def rows(batch, data):
    """The samples of a split, each as text, in any order."""
    (whole,) = data.sampler.evaluation(batch, 1, 10_000)
    return sorted(str([part[n].flatten().tolist() for part in whole]) for n in range(len(whole[0])))


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind not in ("text", "labelled", "pairs")]
)
def test_all_samples_are_treated_as_training_treats_them(kind, large, tmp_path, monkeypatch):
    monkeypatch.setattr(decoded_cache, "LARGE", 100 if large else 2**30)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = KINDS[kind](tmp_path)
    learned = load(path, kind=kind, batch_size=1, **options(kind))
    found = load_like(path, kind, learned.spec, **options(kind))
    every = [torch.cat(each) for each in zip(*(learned.splits[p] for p in PARTS), strict=True)]
    assert rows(found.splits["test"], found) == rows(tuple(every), found)
    assert found.test_only
    assert found.mapped == learned.mapped == (large and kind != "table")
    assert found.spec == learned.spec | {"split": found.spec["split"]}


@pytest.mark.parametrize("kind", ["mask", "map"])
def test_where_one_of_two_files_cannot_be_read_both_are_left_out(kind, tmp_path):
    path = KINDS[kind](tmp_path)
    learned = load(path, kind=kind, batch_size=1)
    broken = path / {"mask": "masks", "map": "targets"}[kind] / "3.png"
    broken.write_bytes(broken.read_bytes()[:60])
    found = load_like(path, kind, learned.spec)
    assert found.rows("test") == 19


@pytest.mark.parametrize("kind", ["labelled", "pairs"])
def test_texts_are_cut_by_the_words_of_then(kind, tmp_path):
    learned = load(KINDS[kind](tmp_path), kind=kind, batch_size=1)
    line = {"labelled": "b\tword1 new", "pairs": "one new\teins neu"}[kind]
    few = lines(tmp_path / "few.tsv", lambda _: line, 1)
    found = load_like(few, kind, learned.spec)
    (batch,) = found.test
    words = learned.spec["tokens"]["vocabulary"]
    said = [words[n] for n in batch[0][0].tolist()]
    assert said == (["word1", "<unknown>"] if kind == "labelled" else ["one", "<unknown>"])
    if kind == "labelled":
        assert batch[2].tolist() == [learned.spec["classes"].index("b")]
    assert found.spec["tokens"] == learned.spec["tokens"]


def test_a_text_is_one_stream_of_the_characters_of_then(tmp_path):
    learned = load(KINDS["text"](tmp_path), kind="text", batch_size=1)
    other = tmp_path / "other.txt"
    other.write_text("line Z " * 20)
    found = load_like(other, "text", learned.spec)
    (stream,) = found.splits["test"]
    words = learned.spec["tokens"]["vocabulary"]
    assert "".join(words[n] for n in stream[:7].tolist()) == "line <unknown> "
    assert len(stream) == 140
    other.write_text("short")
    with pytest.raises(UserError, match=r"\(5 tokens\) must have more than 64, a window"):
        load_like(other, "text", learned.spec)


def test_one_class_and_one_row_are_enough_to_evaluate_on(tmp_path):
    learned = load(table(tmp_path / "t.csv"), kind="table", batch_size=1, target="y")
    few = tmp_path / "few.csv"
    few.write_text("y;colour;x\nb;green;3\n")
    found = load_like(few, "table", learned.spec, target="y")
    (x, y), spec = found.splits["test"], learned.spec
    value = (3 - spec["mean"][0]) / spec["std"][0]
    assert (len(x), y.tolist(), x[0, 0].item()) == (1, [1], pytest.approx(value))
    one = images(tmp_path / "one", "b", 1)
    known = load(images(tmp_path / "i"), kind="image", batch_size=1)
    assert load_like(one, "image", known.spec).splits["test"][1].tolist() == [1]


def test_of_what_was_learned_from_the_test_part_is_taken(tmp_path):
    for kind, make in KINDS.items():
        path = make(tmp_path)
        learned = load(path, kind=kind, batch_size=1, **options(kind))
        data = Like(str(path), learned.spec, learned.digest)
        again = load(data, kind=kind, batch_size=1, **options(kind))
        assert not again.test_only, kind
        assert again.digest == learned.digest, kind
        assert again.rows("test") == learned.rows("test") < learned.rows("train"), kind


def test_of_parts_that_the_user_made_the_test_is_taken(tmp_path):
    known = load(images(tmp_path / "i"), kind="image", batch_size=1)
    for part, count in (("train", 12), ("test", 2)):
        images(tmp_path / "own" / part, count=count)
    found = load_like(tmp_path / "own", "image", known.spec)
    assert found.rows("test") == 4
    x = NUMBERS.integers(0, 256, (5, 6, 8), dtype=np.uint8)
    names = np.array(["b", "a"])
    arrays = {"x_train": x, "y_train": [0, 1, 0, 1, 0], "x_test": x[:2], "y_test": [0, 1]}
    np.savez(tmp_path / "own.npz", classes=names, **arrays)
    found = load_like(tmp_path / "own.npz", "image", known.spec)
    assert found.splits["test"][1].tolist() == [1, 0], "numbered as the run has them"


def test_of_a_known_dataset_the_test_is_taken_in_the_colours_of_the_run():
    learned = load("digits", kind="image", batch_size=1)
    spec = learned.spec | {"mean": [0.0], "std": [2.0]}
    found = load_like("digits", "image", spec)
    assert found.rows("test") == learned.rows("test")
    undone = learned.splits["test"][0] * learned.spec["std"][0] + learned.spec["mean"][0]
    assert torch.allclose(found.splits["test"][0], undone / 2, atol=1e-6)


def strange_level(path):
    masks(path, levels=3, count=1)
    Image.fromarray(np.full((6, 8), 9, np.uint8)).save(path / "masks" / "0.png")


REFUSED = {
    "class": ("image", lambda p: images(p, "ac", 2), "class c is none that the network learned"),
    "shape": ("image", lambda p: images(p, shape=(5, 5)), r"as the images that were learned \(8x6"),
    "level": ("mask", strange_level, "has the level 9, which no training mask has: 0, 1, 2"),
    "box": ("boxes", lambda p: (p.mkdir(), boxes(p, "c", 3)), "class c is none that the network"),
    "unlabelled": ("image", lambda p: (p.mkdir(), picture(p / "1.png")), "must lie in a subfolder"),
    "empty": ("image", lambda p: p.mkdir(), "must hold one subfolder for each class, but is empty"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_files_that_do_not_fit_are_refused(case, tmp_path):
    kind, spoil, message = REFUSED[case]
    learned = load(KINDS[kind](tmp_path), kind=kind, batch_size=1)
    spoil(tmp_path / "bad")
    with pytest.raises(UserError, match=message):
        load_like(tmp_path / "bad", kind, learned.spec)


def test_tables_and_texts_that_do_not_fit_are_refused(tmp_path):
    spec = load(table(tmp_path / "t.csv"), kind="table", batch_size=1, target="y").spec
    other = table(tmp_path / "o.csv", "ac")
    with pytest.raises(UserError, match="class c is none that the network learned; did you mean"):
        load_like(other, "table", spec, target="y")
    with pytest.raises(UserError, match=r"has no column z; did you mean"):
        load_like(other, "table", spec, target="z")
    table(other, "ab", header="w,colour,y")
    with pytest.raises(UserError, match="has no column x"):
        load_like(other, "table", spec, target="y")
    with pytest.raises(UserError, match="it looks like image data"):
        load_like(images(tmp_path / "i"), ("table", "image"), spec, target="y")
    with pytest.raises(UserError, match=r"gone\.csv.* is not there"):
        load_like(tmp_path / "gone.csv", "table", spec, target="y")
    np.savez(tmp_path / "x.npz", x=np.zeros((3, 5)), y=np.array([0, 0, 1]))
    with pytest.raises(UserError, match=r"samples of 5\) must have the shape 3 of"):
        load_like(tmp_path / "x.npz", "table", spec)
    np.savez(tmp_path / "x.npz", x=np.zeros((3, 3)))
    with pytest.raises(UserError, match="holds x, but must hold x and y, or x_test"):
        load_like(tmp_path / "x.npz", "table", spec)
    np.savez(tmp_path / "x.npz", x=np.zeros((3, 3)), y=np.zeros(2))
    with pytest.raises(UserError, match="one value for each row of x"):
        load_like(tmp_path / "x.npz", "table", spec)
    said = load(KINDS["labelled"](tmp_path), kind="labelled", batch_size=1).spec
    with pytest.raises(UserError, match="class c is none that the network learned"):
        load_like(lines(tmp_path / "c.tsv", lambda n: f"c\t{n}", 2), "labelled", said)


def test_a_number_is_no_class(tmp_path):
    spec = load(table(tmp_path / "t.csv"), kind="table", batch_size=1, target="y").spec
    np.savez(tmp_path / "x.npz", x=np.zeros((3, spec["shape"][0])), y=np.zeros(3))
    with pytest.raises(UserError, match="has targets for regression, and the network learned clas"):
        load_like(tmp_path / "x.npz", "table", spec)
    np.savez(tmp_path / "x.npz", x=np.zeros((3, spec["shape"][0])), y=np.array([0, -1, 1]))
    with pytest.raises(UserError, match="label -1 in y of test is out of range; labels must count"):
        load_like(tmp_path / "x.npz", "table", spec)


class Tone(Kind):
    """A kind of one's own that says nothing of `like`."""

    name = "tone"
    about = "tones"

    def matches(self, path):
        return path.suffix == ".tone"

    def find(self, path):
        return SimpleNamespace(name="tones", digest="of the file")

    def data(self, samples, *, batch_size, seed=0):
        return Data({}, {"kind": "tone"}, sampler=Made())


def test_a_kind_of_ones_own_may_have_no_way_to_be_evaluated_on(tmp_path, monkeypatch):
    monkeypatch.setitem(kinds._added, "tone", Tone())
    (tmp_path / "a.tone").write_text("la")
    assert load(tmp_path / "a.tone", kind="tone", batch_size=1).spec == {"kind": "tone"}
    with pytest.raises(UserError, match="tone data has no way to be treated like that of a run"):
        load_like(tmp_path / "a.tone", "tone", {"kind": "tone"})

"""`everynet list data=PATH`: the recipes that learn from somebody's files, and nothing else."""

import os
import random
import re
import shlex

import numpy as np
import pytest
from PIL import Image

from everynet.data import loading
from everynet.data.loading import recognise
from everynet.data.sounds.wav import encode
from everynet.recipes.catalog import entries, find
from everynet.recipes.search import suited
from everynet.recipes.settings import override
from everynet.system.errors import UserError

WORDS = ("the", "cat", "sat", "on", "a", "red", "mat", "and", "saw", "that", "it", "was", "good")
LEARNERS = [
    entry
    for entry in entries()[0]
    if "data" in entry.settings and entry.kind in ("training", "fitting")
]
BY_FLIPS = ("coin",)
"""Takes a table of flips alone, so that it is named for no table."""


class Asked(Exception):
    pass


@pytest.mark.parametrize("entry", LEARNERS, ids=lambda entry: entry.name)
def test_the_kinds_read_as_text_are_those_that_the_recipe_asks_for(entry, monkeypatch, tmp_path):
    """Whatever `dataset` gives to `load` first, the catalogue has read it from the file."""
    asked = []

    def found(data, kind, options):
        asked.extend((kind,) if isinstance(kind, str) else kind)
        raise Asked

    monkeypatch.setattr(loading, "_found", found)
    recipe = override(find(entry.name), {"data": str(tmp_path / "none.csv")})
    with pytest.raises(Asked):
        recipe.dataset()
    assert entry.takes == (() if entry.name in BY_FLIPS else tuple(asked))


def sentence(draw):
    return " ".join(draw.choice(WORDS) for _ in range(6))


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Files of every sort that recipes take, as people have them."""
    draw, pixels = random.Random(0), np.random.default_rng(0)

    def image(name, levels=256):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        x = pixels.integers(0, levels, (16, 16), dtype=np.uint8) * (255 // (levels - 1))
        Image.fromarray(x).save(tmp_path / name)

    for n in range(12):
        image(f"photos/{'ab'[n % 2]}/{n}.png")
        image(f"flat/{n}.png")
        image(f"scans/images/{n}.png")
        image(f"scans/masks/{n}.png", 2)
        image(f"street/{n}.png")
        (tmp_path / "clips" / "ab"[n % 2]).mkdir(parents=True, exist_ok=True)
        clip = encode(np.zeros((800, 1), np.int16), 8000)
        (tmp_path / "clips" / "ab"[n % 2] / f"{n}.wav").write_bytes(clip)
    rows = "".join(f"{n}.png,car,1,2,9,8\n" for n in range(12))
    (tmp_path / "street" / "boxes.csv").write_text("image,class,left,top,right,bottom\n" + rows)
    lines = [sentence(draw) for _ in range(60)]
    made = {
        "rows.csv": "a,b,three,two,price\n"
        + "".join(
            f"{draw.random()},{draw.random()},{'xyz'[n % 3]},{'xy'[n % 2]},{draw.random()}\n"
            for n in range(200)
        ),
        "pairs.tsv": "".join(f"{line}\t{sentence(draw)}\n" for line in lines),
        "reviews.tsv": "".join(f"{'ab'[n % 2]}\t{line}\n" for n, line in enumerate(lines)),
        "book.txt": "\n".join(lines),
        "talk.jsonl": "".join(
            f'{{"turns": [["a", "{line}"], ["b", "{line}"]]}}\n' for line in lines
        ),
        "a.en": "\n".join(lines),
        "a.de": "\n".join(lines),
    }
    for name, text in made.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "best", "none"),
    [
        (["data=photos"], ["photos", "photos-vgg"], ["unet", "least-squares", "augmentation"]),
        (["data=flat"], ["diffusion"], ["photos", "autoencoder"]),
        (["data=scans"], ["unet"], ["photos"]),
        (["data=street"], ["localise"], ["photos"]),
        (["data=clips"], ["sound-cnn"], ["music", "photos"]),
        (["data=pairs.tsv"], ["seq2seq", "transformer"], ["sentiment"]),
        (["data=a.en,a.de"], ["seq2seq", "transformer"], ["mlp", "gpt"]),
        (["data=talk.jsonl"], ["conversation", "dual-encoder"], ["photos"]),
        (["data=reviews.tsv"], ["sentiment", "bag-of-words"], ["gpt"]),
        (["data=book.txt"], ["gpt", "char-lstm"], ["mlp"]),
        (["data=rows.csv"], ["mlp"], ["photos", "gpt", "coin"]),
        (["data=rows.csv", "target=two"], ["mlp", "logistic"], ["least-squares"]),
        (["data=rows.csv", "target=three"], ["mlp", "softmax-regression", "svm"], ["logistic"]),
        (["data=rows.csv", "target=price"], ["mlp", "bayesian-regression"], ["svm", "logistic"]),
        (["data=rows.csv", "classic"], ["bayesian-regression"], ["mlp"]),
        (["data=pairs.tsv", "kind=labelled"], ["sentiment"], ["seq2seq"]),
        (["data=digits"], ["photos"], ["sentiment"]),
        (["data=diabetes"], ["mlp", "bayesian-regression"], ["svm"]),
    ],
)  # fmt: skip
def test_the_best_come_first(call, files, words, best, none):
    code, out, error = call("list", *words)
    assert (code, error) == (0, "")
    head, *rows = out.splitlines()
    assert head.split() == ["command", "data", "what", "it", "is"]
    commands = [re.split(r" {2,}", row)[0] for row in rows]
    named = [command.split()[2] for command in commands]
    assert named[: len(best)] == best
    assert not {*none} & {*named}
    given = [word for word in words if word.startswith(("data=", "target="))]
    assert set(given) <= set(shlex.split(commands[0]))


@pytest.mark.parametrize("target", ["two", "three", "price"])
def test_whoever_is_named_for_a_table_takes_it_and_nobody_else(files, target):
    look = recognise(str(files / "rows.csv"), target=target)
    named = {entry.name for entry, _ in suited(entries()[0], look.kinds, look.task, look.classes)}
    given, wrong = {"data": str(files / "rows.csv"), "target": target}, []
    firsts = {(entry.file, entry.cls): entry for entry in reversed(LEARNERS)}
    for entry in firsts.values():
        if "table" not in entry.takes or entry.name == "perceptron":  # which is told a class
            continue
        try:
            override(find(entry.name), given).dataset()
            takes = True
        except UserError:
            takes = False
        if takes != (entry.name in named):
            wrong.append(entry.name)
    assert wrong == []


def test_a_table_needs_a_target_and_a_density_none(call, files):
    out = call("list", "data=rows.csv")[1]
    assert "everynet run mlp data=rows.csv target=COLUMN  " in out
    assert re.search(r"everynet run mixture data=rows.csv +table", out)
    (files / "my rows.csv").write_text((files / "rows.csv").read_text())
    assert (
        "everynet run mlp 'data=my rows.csv' target=two "
        in call("list", "data=my rows.csv", "target=two")[1]
    )


def test_marks_and_columns_that_a_table_is_read_without(call, files):
    rows = (files / "rows.csv").read_text().splitlines()
    (files / "marked.csv").write_text("\n".join([f"{rows[0]},v", *(f"{r},-" for r in rows[1:3]),
                                                 *(f"{r},7" for r in rows[3:])]))  # fmt: skip
    assert "missing=-" in call("list", "data=marked.csv", "target=two")[2]
    out = call("list", "data=marked.csv", "target=two", "missing=-", "drop=v")[1]
    assert "everynet run mlp data=marked.csv target=two missing=- drop=v  " in out
    assert out.index("everynet run logistic") < out.index("everynet run mlp-xor")


def test_on_a_terminal_the_kind_is_said(call, files, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    out = call("list", "data=rows.csv", "target=two")[1].splitlines()
    assert out[0] == "rows.csv looks like table data, for classification; the best come first:"
    assert out[1].startswith("  everynet run mlp data=rows.csv target=two")
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_: os.terminal_size((400, 20)))
    out = call("list", "data=reviews.tsv")[1]
    assert "looks like labelled or table data, for classification;" in out
    assert re.search(r"run mlp data=reviews.tsv target=COLUMN .* \(as table\)\n", out)
    assert re.search(r"run sentiment data=reviews.tsv .*(?<!\))\n", out)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["data=rows.csv", "target=pirce"], "rows.csv has no column pirce; did you mean price"),
        (["data=rows.csv", "kind=tabel"], "unknown kind 'tabel'; did you mean table"),
        (
            ["data=scans", "theory"],
            "scans looks like mask data, and no recipe that is about 'theory'",
        ),
        (
            ["data=minst"],
            "data (minst) must be a known name or a path that is there; did you mean mnist",
        ),
        (["./photos"], "./photos is a path; write everynet list data=./photos"),
        (["data="], "data () must be a known name or a path that is there"),
    ],
)
def test_what_cannot_be_told_is_one_line(refused, files, words, line):
    assert line in refused("list", *words)

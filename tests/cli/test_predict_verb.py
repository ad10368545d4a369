"""`everynet predict`: one line of JSON for each input, or a table."""

import csv
import io
import json
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from everynet.recipes.catalog import find
from everynet.recipes.settings import override
from everynet.runs.answer_table import write_table
from everynet.runs.job import Job
from everynet.runs.predict import NonFiniteAnswer, _check_finite
from everynet.runs.verbs import run

MINE = Path(__file__).parent / "mine.py"
COLUMNS = "sepal_length,sepal_width,petal_length,petal_width"
ROWS = ("5.1,3.5,1.4,0.2", "7.0,3.2,4.7,1.4", "6.3,3.3,6.0,2.5")


@pytest.fixture(scope="module", autouse=True)
def unseen():
    """Runs without pictures, which take longer than the rest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "draw", lambda self, model: ())
        yield


@pytest.fixture(scope="module")
def flowers(tmp_path_factory):
    """A run on a table, and the names of its columns."""
    recipe = override(find(f"{MINE}:flowers"), {"steps": 200})
    folder = run(recipe, tmp_path_factory.mktemp("runs")).folder
    features = json.loads((folder / "spec.json").read_text())["spec"]["features"]
    return folder, ",".join(features)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A run on images of 8 x 8."""
    recipe = override(find("mlp"), {"steps": 300})
    return run(recipe, tmp_path_factory.mktemp("runs")).folder


@pytest.fixture
def pictures(tmp_path):
    from sklearn.datasets import load_digits

    folder = tmp_path / "pictures"
    folder.mkdir()
    set_ = load_digits()
    for k in range(3):
        pixels = (set_.images[k] * 255 / 16).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{set_.target[k]}.png")
    return folder


def answers(out):
    return [json.loads(line) for line in out.splitlines()]


def typed(monkeypatch, content):
    """Standard input with this content."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def table(flowers, path, rows=ROWS):
    path.write_text("\n".join([flowers[1], *rows]) + "\n")
    return str(path)


def test_rows_of_a_table(call, flowers, tmp_path):
    path = table(flowers, tmp_path / "a.csv")
    code, out, error = call("predict", str(flowers[0]), path, "--file", str(MINE))
    assert (code, error) == (0, "")
    found = answers(out)
    assert [row["input"] for row in found] == [f"{path}:{k}" for k in range(3)]
    assert [row["class"] for row in found] == ["setosa", "versicolor", "virginica"]


def test_more_rows_than_are_asked_at_once(call, flowers, tmp_path):
    path = table(flowers, tmp_path / "a.csv", ROWS * 200)
    _, out, _ = call("predict", str(flowers[0]), path, "--file", str(MINE))
    assert [row["class"] for row in answers(out)] == ["setosa", "versicolor", "virginica"] * 200


def test_a_table_on_standard_input(call, flowers, monkeypatch):
    typed(monkeypatch, "\n".join([flowers[1], *ROWS]).encode())
    _, out, _ = call("predict", str(flowers[0]), "-", "--file", str(MINE))
    assert [row["input"] for row in answers(out)] == ["-:0", "-:1", "-:2"]
    assert [row["class"] for row in answers(out)] == ["setosa", "versicolor", "virginica"]


def test_images_and_folders(call, digits, pictures):
    one = str(pictures / "2.png")
    code, out, error = call("predict", str(digits), one, str(pictures))
    assert (code, error) == (0, "")
    found = answers(out)
    assert [Path(row["input"]).stem for row in found] == ["2", "0", "1", "2"]
    assert [row["class"] for row in found] == ["2", "0", "1", "2"]


@pytest.mark.parametrize("form", ["PNG", "JPEG", "npy", "npz"])
def test_an_image_on_standard_input(call, digits, pictures, monkeypatch, form):
    image, buffer = Image.open(pictures / "0.png"), io.BytesIO()
    pixels = np.asarray(image)[None, None] / 255 * 16
    if form == "npy":
        np.save(buffer, pixels.astype(np.float32))
    elif form == "npz":
        np.savez(buffer, x=pixels.astype(np.float32))
    else:
        image.save(buffer, form, quality=100)
    typed(monkeypatch, buffer.getvalue())
    code, out, error = call("predict", str(digits), "-")
    assert code == 0, error
    (row,) = answers(out)
    assert row["class"] == "0"
    assert row["input"].startswith("-")


def test_inputs_that_cannot_be_read(refused, digits, pictures, tmp_path, monkeypatch):
    folder = str(digits)
    assert "none.png must be a file" in refused("predict", folder, "none.png")
    line = refused("predict", folder, "a.png", f"words={'9' * 300}")
    assert line == "predict has no setting words; it takes none"
    line = refused("predict", folder, "-", str(pictures), "-")
    assert line == "- must stand for standard input once: it can be read only once"
    (tmp_path / "text.png").write_text("no image")
    assert "text.png is not an image" in refused("predict", folder, str(tmp_path / "text.png"))
    typed(monkeypatch, b"no image")
    line = refused("predict", folder, "-")
    assert line.startswith("standard input is not an image")
    assert "/" not in line
    typed(monkeypatch, b"")
    assert refused("predict", folder, "-") == "standard input is empty"


def test_the_good_files_are_answered_and_the_bad_ones_named(call, digits, pictures):
    """Cut short, no image, a folder of that name, and one that is not there."""
    (pictures / "1a.png").write_bytes((pictures / "1.png").read_bytes()[:-20])
    (pictures / "notes.txt").write_text("hello")
    (pictures / "x.png").mkdir()
    (pictures / "round").symlink_to(pictures)
    code, out, error = call("predict", str(digits), "none.png", str(pictures))
    found = answers(out)
    assert code == 2
    assert [Path(row["input"]).name for row in found] == [
        "none.png", "0.png", "1.png", "1a.png", "2.png", "notes.txt", "round", "x.png",
    ]  # fmt: skip
    assert [row.get("class") for row in found] == [None, "0", "1", None, "2", None, None, None]
    said = [row["error"].removeprefix(row["input"]) for row in found if "error" in row]
    assert [line[:23] for line in said] == [
        " must be a file, but is", " cannot be read: Trunca", " must be an image, its ",
        " must be a file, but is", " must be a file, but is",
    ]  # fmt: skip
    assert all(row.keys() == {"input", "error"} for row in found if "error" in row)
    assert error == (
        "everynet: 5 of 8 inputs cannot be read; the first: none.png must be a file, but is not "
        "there\n"
    )


def test_an_empty_folder_beside_a_good_file(call, digits, pictures, tmp_path):
    (tmp_path / "empty").mkdir()
    code, out, _ = call("predict", str(digits), str(tmp_path / "empty"), str(pictures / "1.png"))
    first, second = answers(out)
    assert (code, second["class"]) == (2, "1")
    assert first == {"input": f"{tmp_path}/empty", "error": f"{tmp_path}/empty holds no file"}


def test_more_images_than_are_asked_at_once_with_bad_ones_between(call, digits, pictures, tmp_path):
    good = (pictures / "0.png").read_bytes()
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(300):
        (folder / f"{number:03}.png").write_bytes(good[:50] if number % 50 == 7 else good)
    code, out, _ = call("predict", str(digits), str(folder))
    found = answers(out)
    assert code == 2
    assert [Path(row["input"]).stem for row in found] == [f"{number:03}" for number in range(300)]
    assert [n for n, row in enumerate(found) if "error" in row] == [7, 57, 107, 157, 207, 257]
    assert {row["class"] for row in found if "error" not in row} == {"0"}


def test_a_bad_table_between_good_ones(call, flowers, tmp_path):
    """Files of other kinds are read together, and in halves until the bad one is found."""
    paths = [table(flowers, tmp_path / f"{name}.csv") for name in "abcde"]
    Path(paths[3]).write_text("a,b\n1,2\n")
    code, out, error = call("predict", str(flowers[0]), *paths, "--file", str(MINE))
    found = answers(out)
    assert code == 2
    assert [row["input"].rpartition("/")[2] for row in found] == [
        *(f"{name}.csv:{k}" for name in "abc" for k in range(3)), "d.csv",
        *(f"e.csv:{k}" for k in range(3)),
    ]  # fmt: skip
    assert "d.csv has no column" in found[9]["error"]
    assert error.startswith("everynet: 1 of 13 inputs cannot be read; the first: ")


def read_table(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def test_a_table_of_all_answers(call, flowers, tmp_path):
    """With ids, of which one is a formula, every probability, and what cannot be read."""
    ids = ("=cmd|'/c calc'!A1", "-7", "a b")
    path = tmp_path / "a.csv"
    rows = [f"{one},{row}" for one, row in zip(ids, ROWS, strict=True)]
    path.write_text("\n".join([f"flower_id,{flowers[1]}", *rows]) + "\n")
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    given = (str(flowers[0]), str(path), str(tmp_path / "bad.csv"), "--file", str(MINE))
    _, out, _ = call("predict", *given)
    lines = answers(out)
    assert [line.get("id") for line in lines] == [*ids, None]
    for end in (".csv", ".jsonl"):
        code, out, error = call("predict", *given, "--out", f"made/preds{end}")
        assert (code, out) == (2, f"made/preds{end}\n")
        assert error.startswith("everynet: 1 of 4 inputs cannot be read; the first: ")
    table = read_table(tmp_path / "made/preds.csv")
    classes = ["setosa", "versicolor", "virginica"]
    parts = [f"probabilities.{name}" for name in classes]
    assert list(table[0]) == [
        "row",
        "id",
        "input",
        "class",
        "probability",
        *parts,
        "warning",
        "error",
    ]
    assert [row["row"] for row in table] == ["0", "1", "2", "3"]
    assert [row["id"] for row in table] == ["'" + ids[0], "-7", "a b", "bad.csv"]
    assert [row["class"] for row in table] == [*classes, ""]
    for line, row in zip(lines[:3], table, strict=False):
        found = [float(row[part]) for part in parts]
        assert found == [line["probabilities"][name] for name in classes]
        assert float(row["probability"]) == max(found)
        assert row["error"] == ""
    assert "bad.csv has no column" in table[3]["error"]
    plain = answers((tmp_path / "made/preds.jsonl").read_text())
    assert plain[:3] == [{"row": row, **line} for row, line in enumerate(lines[:3])]
    assert plain[3] == {"row": 3, "id": "bad.csv", **lines[3]}


def test_parts_that_differ_from_input_to_input_are_json_in_a_table(tmp_path):
    lines = [{"input": "a.txt:1", "words": {"good": 1.5}}, {"input": "a.txt:2", "rank": [1, 2]}]
    write_table(lines, tmp_path / "a.csv")
    table = read_table(tmp_path / "a.csv")
    assert list(table[0]) == ["row", "id", "input", "words", "rank", "warning", "error"]
    assert [row["words"] for row in table] == ['{"good": 1.5}', ""]
    assert [row["rank"] for row in table] == ["", "[1, 2]"]
    assert table[1]["id"] == "a.txt:2"


def test_an_out_that_could_hold_nothing_is_refused(refused, flowers, digits, pictures, tmp_path):
    path = table(flowers, tmp_path / "a.csv")
    given = ("predict", str(flowers[0]), path, "--file", str(MINE), "--out")
    before = Path(path).read_bytes()
    assert refused(*given, path) == (
        f"--out ({path}) must not be there yet, because it would be overwritten; name another file"
    )
    assert Path(path).read_bytes() == before
    assert refused(*given, "preds") == (
        "--out (preds) must end in .csv or .jsonl, because flowers answers in words and numbers; "
        "name a table, or leave --out away and take the lines"
    )
    one = str(pictures / "0.png")
    line = refused("predict", str(digits), one, "--out", one)
    assert line == (
        f"--out ({one}) must not be there yet, because it would be overwritten; name another file"
    )
    line = refused("predict", str(digits), one, "--out", "preds.png")
    assert line.startswith("--out (preds.png) must end in .csv or .jsonl, because mlp answers in")
    assert not (tmp_path / "preds").exists()
    assert not (tmp_path / "preds.png").exists()


def test_a_warning_where_black_and_white_are_swapped(call, digits, pictures):
    pixels = 255 - np.asarray(Image.open(pictures / "0.png"))
    Image.fromarray(pixels).save(pictures / "swapped.png")
    code, out, error = call("predict", str(digits), str(pictures))
    *good, swapped = answers(out)
    assert code == 0
    assert not any("warning" in row for row in good)
    assert re.fullmatch(
        r"its edge brightness \(0\.\d+, black being 0 and white 1\) is far from that of the images "
        r"learned \(0\.\d+ to 0\.\d+\); light and dark seem to be swapped",
        swapped["warning"],
    )
    assert error == (
        "everynet: warning: 1 of 4 inputs is unlike what was learned; the first: "
        f"{swapped['input']}: {swapped['warning']}\n"
    )


def test_an_answer_that_is_not_finite_is_named_in_its_place(call, flowers, tmp_path):
    """The other inputs are answered, in lines and in a table."""
    path = table(flowers, tmp_path / "a.csv", (ROWS[0], "3e38,3e38,-3e38,-3e38", ROWS[2]))
    given = ("predict", str(flowers[0]), path, "--file", str(MINE), "--precision", "fp32")
    code, out, error = call(*given)
    first, wild, last = answers(out)
    assert (first["class"], last["class"]) == ("setosa", "virginica")
    assert wild == {"input": f"{path}:1", "error": wild["error"]}
    assert wild["error"].startswith(
        f"{path}:1: probability (nan) must be finite; the input or the weights are too large:"
    )
    assert code == 3
    assert error == f"everynet: 1 of 3 answers are not finite; the first: {wild['error']}\n"
    for end in ("csv", "jsonl"):
        assert call(*given, "--out", f"preds.{end}")[0] == 3
    assert [row["error"] for row in read_table(tmp_path / "preds.csv")] == ["", wild["error"], ""]
    assert answers((tmp_path / "preds.jsonl").read_text())[1]["error"] == wild["error"]


def test_numbers_within_an_answer_are_looked_at_too():
    for value in (math.inf, [1.0, -math.inf], {"a": {"b": (1, math.nan)}}):
        line = _check_finite({"input": "x", "a": True, "b": [1, 2.5, "inf"], "found": value})
        assert isinstance(line, NonFiniteAnswer)
        assert line["error"].startswith("x: found (")
    fine = {"input": "x", "a": [1, 2.5, "nan", None, {"b": 1e308}]}
    assert _check_finite(fine) is fine


def test_runs_that_do_not_predict(refused, call):
    _, out, _ = call("run", f"{MINE}:double", "--quiet")
    line = refused("predict", out.strip(), "a.csv", "--file", str(MINE))
    assert line == "double is a simulation: it neither predicts nor samples"
    _, out, _ = call("run", f"{MINE}:average", "--quiet")
    Path("a.csv").write_text("a\n1\n")
    line = refused("predict", out.strip(), "a.csv", "--file", str(MINE))
    assert line == "a.csv has no column age; did you mean a?"
    Path("a.csv").write_text("age,sex,bmi,bp,s1,s2,s3,s4,s5,s6\n" + "1," * 9 + "1\n")
    line = refused("predict", out.strip(), "a.csv", "--file", str(MINE))
    assert line == "average does not predict from files"
    assert refused("predict", "none", "a.csv").startswith("there is no run folder none")


def test_bad_rows_between_good_ones(call, flowers, tmp_path):
    """Each gets its error in its place, with its line; the others their answers."""
    names = flowers[1].split(",")
    rows = [*ROWS, *ROWS]
    for row, cell in ((1, "big"), (4, "1e400")):
        rows[row] = ",".join([cell, *rows[row].split(",")[1:]])
    path = tmp_path / "a.csv"
    lines = [f"row_id,{flowers[1]}", *(f"r{k},{row}" for k, row in enumerate(rows))]
    path.write_text("\n".join(lines) + "\n")
    code, out, error = call("predict", str(flowers[0]), str(path), "--file", str(MINE))
    found = answers(out)
    assert code == 2
    assert [row["id"] for row in found] == [f"r{k}" for k in range(6)]
    assert [row.get("class") for row in found] == [
        "setosa", None, "virginica", "setosa", None, "virginica",
    ]  # fmt: skip
    column = f"column {names[0]}"
    said = "must be a number, as others of its column are; leave it empty where none is known"
    assert found[1]["error"] == f"{path}: line 3, {column} (big) {said}"
    assert found[4]["error"] == f"{path}: line 6, {column} (1e400) must be a finite number"
    assert error == (f"everynet: 2 of 6 inputs cannot be read; the first: {found[1]['error']}\n")


def test_python_refuses_a_file_with_a_bad_row(flowers, tmp_path):
    import everynet
    from everynet.system.errors import UserError

    path = tmp_path / "a.csv"
    path.write_text(f"{flowers[1]}\n{ROWS[0]}\nbig,{ROWS[0].partition(',')[2]}\n")
    with pytest.raises(UserError, match=r"line 3, column .* \(big\) must be a number"):
        everynet.trained(flowers[0], MINE).predict([str(path)])

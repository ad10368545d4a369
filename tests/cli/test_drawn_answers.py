"""`predict draw=true`: a picture in an answer is written to a file, and the line names that."""

import csv
import json
import re
from pathlib import Path

import pytest
from matplotlib.figure import Figure

import everynet
from everynet.recipes.catalog import find
from everynet.runs.job import Job
from everynet.runs.predict import Out
from tests.plot.legible import faults


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "draw", lambda self, model: ())
        made = everynet.run(find("sentiment").tiny(), tmp_path_factory.mktemp("runs"))
        return str(made.folder)


@pytest.fixture(autouse=True)
def lines():
    Path("a.txt").write_text("not a good film at all\na clever story\n")


def answers(out):
    return [json.loads(line) for line in out.splitlines()]


def test_pictures_go_to_a_folder_and_lines_name_them(call, run):
    code, out, error = call("predict", run, "a.txt", "draw=true", "--out", "drawn")
    assert (code, error) == (0, "")
    assert [row["picture"] for row in answers(out)] == [f"drawn/a-{n}-picture.png" for n in (1, 2)]
    first, second = (Path(row["picture"]).read_bytes() for row in answers(out))
    assert first.startswith(b"\x89PNG")
    assert first != second
    _, plain, _ = call("predict", run, "a.txt")
    for row in (drawn := answers(out)):
        del row["picture"]
    assert drawn == answers(plain)
    Path("a.txt").write_text("not a good film at all\n")
    _, out, _ = call("predict", run, "a.txt", "draw=true")
    folder = Path(answers(out)[0]["picture"]).parent
    assert re.fullmatch(r"sentiment-[0-9a-f]{6}", str(folder))
    assert (folder / "a-1-picture.png").read_bytes() == first


def test_the_name_of_the_file_chooses_its_format(call, refused, run):
    for end, start in ((".svg", b"<?xml"), (".pdf", b"%PDF")):
        code, out, error = call("predict", run, "a.txt", "draw=true", "--out", f"b/one{end}")
        assert code == 0, error
        names = [row["picture"] for row in answers(out)]
        assert names == [f"b/one{end}", f"b/a-2-picture{end}"]
        assert all(Path(name).read_bytes().startswith(start) for name in names)
    Path("a.txt").write_text("not a good film at all\n")
    call("predict", run, "a.txt", "draw=true", "--out", "again.svg")
    assert Path("again.svg").read_bytes() == Path("b/one.svg").read_bytes()  # as all of ours are
    assert refused("predict", run, "a.txt", "draw=true", "--out", "a.jpg") == (
        "--out (a.jpg) must be a folder or end in .png, .svg or .pdf, because picture is a picture"
    )
    assert refused("predict", run, "a.txt", "draw=true", "--out", "b/one.svg") == (
        "--out (b/one.svg) must not be there yet, because it would be overwritten; name another "
        "file"
    )
    assert refused("predict", run, "a.txt", "draw=maybe") == "draw (maybe) must be true or false"


def test_a_table_names_the_pictures(call, run):
    code, out, error = call("predict", run, "a.txt", "draw=true", "--out", "preds.csv")
    assert (code, out, error) == (0, "preds.csv\n", "")
    cells = [row["picture"] for row in csv.DictReader(Path("preds.csv").read_text().splitlines())]
    assert cells == ["preds/a-1-picture.png", "preds/a-2-picture.png"]
    assert all(Path(cell).is_file() for cell in cells)


def test_from_python_the_figure_itself_is_given(run):
    """Its words are the text and its colours the effects; text is large enough to be read."""
    texts = ["not a good film at all", "a clever story"]
    found = everynet.trained(run).predict(texts, draw=True, words=9)
    for text, row in zip(texts, found, strict=True):
        assert isinstance(row["picture"], Figure)
        assert not faults(row["picture"])
        axes, shade = row["picture"].axes
        *words, name = axes.texts
        known = everynet.trained(run).spec["tokens"]["vocabulary"]
        spelled = [word if word in known else "<unknown>" for word in text.split()]
        assert [word.get_text() for word in words] == spelled
        assert name.get_text() == f"{row['class']} {row['probability']:.0%}"
        assert row["class"] in shade.get_xlabel()
        for word in words:
            red, _, blue, _ = word.get_bbox_patch().get_facecolor()
            assert red > blue if word.get_text() in row["words"] else red < blue + 0.01
    assert "picture" not in everynet.trained(run).predict(texts)[0]


def test_files_are_called_after_their_input_and_never_begin_with_a_dash():
    out = Out("drawn", "sentiment")
    names = ("-:1", "-", "a.txt:12", "x/b.png", "y/b.png", "c")
    assert [out.stem(name) for name in names] == ["stdin-1", "stdin", "a-12", "b", "b-2", "c"]

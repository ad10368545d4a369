"""What a notebook shows: HTML that parses, with pictures inside, of a bounded size, escaped."""

from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path

import pytest

from everynet.recipes.trained import Trained
from everynet.runs.job import Result
from everynet.system import html as notebook
from everynet.system.html import page, pictures_of, table

PNG = notebook.PNG + b"pixels"


class Reader(HTMLParser):
    """The texts and images of a page; every tag must be closed in its turn."""

    def __init__(self, text):
        super().__init__()
        self.texts, self.images, self.open = [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag == "img"
        self.images.append(dict(attrs))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "pictures").mkdir()
    for name in ("learning-curve.png", "maps.png"):
        (tmp_path / "pictures" / name).write_bytes(PNG + name.encode())
    return tmp_path


def result(folder, reached=True, metrics=None):
    given = {"accuracy": 0.98765} if metrics is None else metrics
    return Result(folder, given, reached, tuple(pictures_of(folder)))


def test_a_result_shows_figures_and_pictures(folder):
    found = Reader(result(folder)._repr_html_())
    assert found.texts[0] == folder.name
    assert found.texts[1:] == ["accuracy", "0.9877", "goal", "reached", "folder", str(folder)]
    assert [image["alt"] for image in found.images] == ["maps", "learning-curve"]
    head, _, data = found.images[0]["src"].partition(",")
    assert head == "data:image/png;base64"
    assert b64decode(data) == PNG + b"maps.png"


@pytest.mark.parametrize(("reached", "word"), [(False, "not reached"), (None, None)])
def test_a_goal_that_is_not_reached_or_not_claimed(folder, reached, word):
    texts = Reader(result(folder, reached)._repr_html_()).texts
    assert ("goal" in texts) == (word is not None)
    assert word is None or word in texts


def test_a_run_that_is_given_shows_itself(folder):
    found = Reader(Trained(str(folder), "ab" * 32, "lenet")._repr_html_())
    assert {"lenet", str(folder), "ab" * 32} <= {*found.texts}
    assert len(found.images) == 2
    assert Reader(Trained()._repr_html_()).images == []
    assert Reader(Trained("/nowhere/at/all")._repr_html_()).images == []


def test_text_is_escaped(tmp_path):
    found = Reader(page("<script>x</script>", {"<b>": '"&\x1b[2J'}))
    assert found.texts == ["<script>x</script>", "<b>", '"&?[2J']
    assert "<script>" not in page("<script>", {})
    assert "<td" in table(("a",), [("<td>",)])
    assert "<td>" not in table((), [("<td>",)])
    (tmp_path / 'a" onload="b.png').write_bytes(PNG)
    (image,) = Reader(page("t", {}, tmp_path.iterdir())).images
    assert image["alt"] == 'a" onload="b'
    assert "onload" not in image


def test_sizes_are_bounded(tmp_path, monkeypatch):
    paths = [tmp_path / f"{i}.png" for i in range(9)]
    for path in paths:
        path.write_bytes(PNG)
    found = Reader(page("t", {}, paths))
    assert len(found.images) == notebook.PICTURES == 6
    assert found.texts[-1] == "and 3 more in the folder"
    monkeypatch.setattr(notebook, "BYTES", 2 * len(PNG) + 1)
    found = Reader(page("t", {}, paths))
    assert len(found.images) == 2
    assert found.texts[-1] == "and 7 more in the folder"
    assert len(page("t" * 10_000, {"a": "b" * 10_000})) < 2_000


def test_what_cannot_be_read_or_is_no_picture_is_left_out(folder):
    (folder / "recipe.json").write_text("{}")  # now it is a run folder, where links are refused
    (folder / "pictures" / "a.png").symlink_to("/etc/hostname")
    (folder / "pictures" / "b.png").write_text("<svg onload='x'/>")
    (folder / "pictures" / "c.svg").write_text("<svg/>")
    paths = [*pictures_of(folder), Path("/nowhere.png")]
    assert [path.name for path in paths[:2]] == ["a.png", "b.png"]
    found = Reader(page("t", {}, paths))
    assert [image["alt"] for image in found.images] == ["maps", "learning-curve"]
    assert found.texts[-1] == "and 3 more in the folder"

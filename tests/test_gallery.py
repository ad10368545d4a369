"""docs/make_gallery.py, on a small run: pictures, films, captions, and what code drew them."""

import importlib.util
import io
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from everynet import runs
from everynet.plot.film import Film
from everynet.recipes.catalog import entries, find

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def maker():
    """The script, which lies beside the pages and is no part of the package."""
    if str(ROOT / "docs") not in sys.path:
        sys.path.insert(0, str(ROOT / "docs"))
    spec = importlib.util.spec_from_file_location("gallery", ROOT / "docs" / "make_gallery.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    recipe = replace(find("activations"), points=61)
    return recipe, runs.run(recipe, tmp_path_factory.mktemp("runs"), device="cpu").folder


def test_a_picture_keeps_its_colours_and_is_made_narrow(maker, tmp_path):
    steps = torch.arange(1600, dtype=torch.float64) / 1599
    across = (255 * steps).round().to(torch.uint8).expand(400, -1)
    wide = Image.fromarray(torch.stack([across, 255 - across, across], 2).numpy())
    maker.shrink(wide, tmp_path / "gallery" / "b.webp")
    with Image.open(tmp_path / "gallery" / "b.webp") as small:
        assert (small.format, small.size) == ("WEBP", (975, 244))
        assert 200 < len(small.convert("RGB").getcolors(1000)) <= 256
    few = Image.linear_gradient("L").resize((700, 256))
    maker.shrink(few, tmp_path / "gallery" / "b.webp")
    with Image.open(tmp_path / "gallery" / "b.webp") as same:
        assert same.convert("RGB").tobytes() == few.convert("RGB").tobytes()


def test_a_picture_that_would_be_a_large_file_is_made_narrower(maker, tmp_path, monkeypatch):
    noise = torch.randint(256, (90, 120, 3), dtype=torch.uint8, generator=torch.Generator())
    monkeypatch.setattr(maker, "WIDTHS", (98, 80, 60))
    monkeypatch.setattr(maker, "MOST", 4_000)
    maker.shrink(Image.fromarray(noise.numpy()), tmp_path / "gallery" / "b.webp")
    with Image.open(tmp_path / "gallery" / "b.webp") as small:
        assert small.size == (60, 45)


def test_a_film_is_narrower_lossy_and_short_until_it_fits(maker, monkeypatch):
    noise = torch.randint(256, (4, 20, 30, 3), dtype=torch.uint8, generator=torch.Generator())
    film = Film(noise.numpy(), 10)
    monkeypatch.setattr(maker, "FILMS", ((30, 1, 100), (21, 2, 100), (12, 2, 50)))

    def seen():
        with Image.open(io.BytesIO(maker.encode(film))) as made:
            made.load()
            return made.size, made.n_frames, made.info["duration"]

    assert seen() == ((30, 20), 4, 100)
    monkeypatch.setattr(maker, "FILMED", 4_000)
    assert seen() == ((21, 14), 2, 200)
    monkeypatch.setattr(maker, "FILMED", 500)
    assert seen() == ((12, 8), 2, 200)


def test_a_run_is_recorded_with_its_metrics_pictures_and_captions(maker, finished, tmp_path):
    recipe, run = finished
    about = maker.record(recipe, run, tmp_path)
    assert about["metrics"]["sigmoid_slope"] == pytest.approx(0.25)
    assert about["where"].startswith("cpu")
    found = {name: each["caption"] for name, each in about["pictures"].items()}
    assert found == recipe.picture_names()
    place = maker.place_of(recipe)
    for name, each in about["pictures"].items():
        assert each["digest"] == maker.picture_digest.digest(place, f"picture_{name}")
        assert (tmp_path / f"gallery/activations-{name}.webp").stat().st_size < 200_000


def test_a_picture_older_than_its_code_or_with_another_caption_has_no_digest(
    maker, finished, monkeypatch
):
    recipe, run = finished
    changed = maker.picture_digest.newest_change
    monkeypatch.setattr(maker.picture_digest, "newest_change", lambda *_: time.time() + 9)
    assert {each["digest"] for each in maker.drawn(recipe, run).values()} == {""}
    monkeypatch.setattr(maker.picture_digest, "newest_change", changed)
    names = recipe.picture_names()
    monkeypatch.setattr(type(recipe), "picture_names", lambda _: names | {"softmax": "At {t:.2f}."})
    found = maker.drawn(recipe, run)
    assert found["softmax"] == {"caption": names["softmax"], "digest": ""}
    assert found["losses"]["digest"]


class Filmed:
    """What the gallery asks of a recipe that makes films."""

    name, writes = "filmed", ""

    def sample(self, model, *, n=3, film=False):
        """Points of a ring. With `film` it shows their way. It is short."""


def test_a_film_is_recorded_with_a_still_and_what_it_shows(maker, tmp_path, monkeypatch):
    frames = torch.arange(3, dtype=torch.uint8).mul(100)[:, None, None].expand(-1, 4, 900)
    asked = []

    class Run:
        def sample(self, **settings):
            asked.append(settings)
            return Film(frames.numpy(), 4)

    monkeypatch.setattr(maker.everynet, "trained", lambda _: Run())
    monkeypatch.setattr(maker.picture_digest, "digest", lambda _, method: f"of {method}")
    (tmp_path / "gallery").mkdir()
    about = maker.film(Filmed(), tmp_path, tmp_path)
    assert about == {"caption": "With `film` it shows their way.", "digest": "of sample"}
    with Image.open(tmp_path / "gallery" / "filmed-film.webp") as film:
        assert film.n_frames == 3
    with Image.open(tmp_path / "gallery" / "filmed-film.png") as still:
        assert still.size == (650, 3)
        assert still.convert("L").getextrema() == (200, 200), "the last frame"
    monkeypatch.setattr(Filmed, "writes", "film")
    maker.film(Filmed(), tmp_path, tmp_path)
    assert asked == [{"film": True}, {}]


def test_which_recipes_make_films(maker, monkeypatch):
    assert maker.is_filmed(Filmed())
    assert not maker.is_filmed(find("activations"))
    monkeypatch.setattr(Filmed, "sample", None)
    assert not maker.is_filmed(Filmed())
    monkeypatch.setattr(Filmed, "writes", "film")
    assert maker.is_filmed(Filmed())


def known_of(*names, digest="", pictures=("one", "two"), accuracy=0.9):
    return {
        name: {"metrics": {"accuracy": accuracy}, "where": "cpu",
               "pictures": {picture: {"caption": f"See {picture}.", "digest": digest}
                            for picture in pictures}}
        for name in names
    }  # fmt: skip


def group_of(file):
    return [entry for entry in entries()[0] if entry.file.endswith(file)]


def test_a_section_has_all_variants_one_picture_and_the_others_folded(maker):
    group = group_of("zoo/feedforward/mlp.py")
    known = known_of("mlp", digest="a", accuracy=0.97) | known_of("mlp-xor", pictures=("one", "3"))
    text = "\n".join(maker.section(group, known))
    assert text.startswith("\n### Multilayer perceptron\n")
    assert "Curriculum: F5 (MLP forward as matrix products), F6 (" in text
    assert "| `mlp` | accuracy 0.97 | accuracy >= 0.96 | cpu |" in text
    assert "| `mlp-mnist` | no whole run at hand | " in text
    before, _, folded = text.partition("<details><summary>2 more pictures</summary>")
    assert before.count("![") == 1
    assert "![See one.](gallery/mlp-one.webp)\n\n`mlp`: *See one.*" in before
    assert "`mlp`: *See two.*" in folded
    assert "`mlp-xor`: *See 3.* (An earlier drawing.)" in folded
    assert "gallery/mlp-xor-one.webp" not in text, "the same picture of another variant"
    assert "earlier" not in before


def test_a_goal_that_is_missed_says_so(maker):
    (entry,) = (entry for entry in entries()[0] if entry.name == "mlp")
    for accuracy, said in (
        (0.9599, "accuracy >= 0.96: **not reached**"),
        (0.96, "accuracy >= 0.96"),
    ):
        assert maker.judged(entry, known_of("mlp", accuracy=accuracy)["mlp"]) == said
    assert maker.judged(entry, {"metrics": {"loss": 1.0}}) == "accuracy >= 0.96"


def test_the_best_variant_stands_for_its_file_and_a_film_comes_first(maker):
    assert set(maker.BEST) <= {entry.name for entry in entries()[0]}
    group = group_of("zoo/vision/style.py")
    known = known_of("style", pictures=("one", "two")) | known_of(
        "style-vgg", pictures=("two", "film")
    )
    assert maker.chosen(group, known) == {"film": "style-vgg", "two": "style-vgg", "one": "style"}
    left = maker.only_shown(known, group)
    assert [*left["style"]["pictures"]] == ["one"]
    assert left["style"]["metrics"] == known["style"]["metrics"]


def test_what_is_to_be_drawn_again_is_listed(maker):
    group = group_of("zoo/feedforward/mlp.py")
    place = maker.picture_digest.place_of(group[0])
    today = maker.picture_digest.digest(place, "picture_surface")
    known = known_of("mlp", pictures=("surface",), digest=today)
    assert [*maker.stale(known, group)] == []
    known["mlp"]["pictures"]["surface"]["digest"] = "another"
    known["mlp"]["pictures"]["gone"] = {"caption": "", "digest": today}
    assert [*maker.stale(known, group)] == ["mlp: to be drawn again: surface, gone (no more)"]
    names = [entry.name for entry in group]
    assert [*maker.stale({}, group)] == [f"{name}: no picture" for name in names]


def test_chapters_are_those_of_the_curriculum_with_each_file_once(maker):
    listed = entries()[0]
    parts = maker.chapters(listed)
    families = [part["family"] for part in maker.curriculum()]
    assert list(parts) == [family for family in families if family in parts]
    files = [entry.file for groups in parts.values() for (entry, *_) in groups]
    assert sorted(files) == sorted({entry.file for entry in listed})
    text = maker.page(known_of(*(entry.name for entry in listed)), listed)
    for family in parts:
        assert f"- [{family}]({maker.anchor(family)}): [" in text
        assert f"\n## {family}\n" in text
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert len(set(map(maker.anchor, headings))) == len(headings), "every link has one end"


def test_a_file_without_a_picture_has_no_section(maker):
    text = maker.page(known_of("mlp") | known_of("lif", pictures=()), entries()[0])
    assert "### Multilayer perceptron\n" in text
    assert text.count("\n### ") == 1


def test_what_was_shown_before_stays_where_there_is_no_run(maker, finished, tmp_path):
    _, run = finished
    (tmp_path / "gallery").mkdir()
    old = known_of("mlp", "activations", "gone")
    (tmp_path / "gallery" / "record.json").write_text(json.dumps(old))
    assert maker.update([], tmp_path) == known_of("activations", "mlp")
    about = json.loads((run / "recipe.json").read_text())
    (tmp_path / "runs" / "a").mkdir(parents=True)
    for name in ("card.md", "metrics.jsonl", "environment.json"):
        (tmp_path / "runs" / "a" / name).write_bytes((run / name).read_bytes())
    unchanged = json.dumps({**about, "changed": []})
    (tmp_path / "runs" / "a" / "recipe.json").write_text(unchanged)
    found = maker.update([tmp_path / "runs"], tmp_path)
    assert found["mlp"] == old["mlp"]
    assert "sigmoid_slope" in found["activations"]["metrics"]


def test_the_newest_run_with_unchanged_settings_is_shown(maker, tmp_path):
    for age, (folder, changed) in enumerate({"c": ["lr"], "b": [], "a": []}.items()):
        (tmp_path / folder).mkdir()
        about = {"name": "mlp", "changed": changed}
        (tmp_path / folder / "recipe.json").write_text(json.dumps(about))
        (tmp_path / folder / "card.md").touch()
        os.utime(tmp_path / folder / "card.md", (9 - age, 9 - age))
    assert maker.newest([tmp_path]) == {"mlp": tmp_path / "b"}


def test_a_folder_that_is_not_there_is_refused(maker):
    with pytest.raises(SystemExit, match=r"RUNS \(no-such\) must be folders that hold runs"):
        maker.main(["--draw", "no-such"])


FILES = {
    "everynet.zoo.x.net": """
from everynet.zoo.x.pictures.gates import gate_map
from everynet.plot import heatmap
from everynet.data import load
LOSSES = 2
class Net:
    def gates(self, x): return x
    def forward(self, x): return x + LOSSES
class Base:
    def shown(self): return 1
    def objective(self): return LOSSES
class Gates(Base):
    def picture_gates(self, model: Net, data):
        \"""The gates.\"""
        return gate_map(model.gates(self.shown(load())), heatmap)  # drawn
    def picture_other(self): return load()
    picture_alias = picture_none = None
class Child(Gates):
    picture_first = Gates.picture_gates
""",
    "everynet.zoo.x.pictures.gates": """
SIZE = 3
def gate_map(x, draw): return draw(SIZE * x)
def unrelated(): return 1
""",
    "everynet.plot": "from everynet.plot.heatmap import heatmap as heatmap",
    "everynet.plot.heatmap": """
def heatmap(x): return _of(x)
def _of(x): return x
def away(): pass
""",
    "everynet.plot.style": "def drawing(): pass\ndef render(f): return f",
    "everynet.data": "def load(): return 1",
}


@pytest.fixture
def digest_of(maker, monkeypatch):
    """The digest of a picture with some text of the files exchanged."""
    module = maker.picture_digest

    def digest(old="", new="", method="picture_gates", cls="Gates"):
        assert old in "".join(FILES.values())
        texts = {name: text.replace(old, new) for name, text in FILES.items()}
        monkeypatch.setattr(module, "read", texts.get)
        for function in (module.module_of, module._contents, module._methods):
            function.cache_clear()
        return module.digest(module.Place("everynet.zoo.x.net", cls), method)

    yield digest
    monkeypatch.undo()
    for function in (module.module_of, module._contents, module._methods):
        function.cache_clear()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("model.gates(", "abs(model.gates("),
        ("The gates.", "All gates."),
        ("def gates(self, x): return x", "def gates(self, x): return -x"),
        ("def shown(self): return 1", "def shown(self): return 2"),
        ("SIZE * x", "SIZE + x"),
        ("SIZE = 3", "SIZE = 4"),
        ("def _of(x): return x", "def _of(x): return -x"),
        ("def render(f): return f", "def render(f): return -f"),
    ],
)
def test_a_change_of_what_draws_a_picture_changes_its_digest(digest_of, old, new):
    assert digest_of(old, new.replace("abs(model.gates(", "abs(model.gates)(")) != digest_of()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  # drawn", ""),
        ("model: Net", "model: Base"),
        ("def unrelated(): return 1", "def unrelated(): return 2"),
        ("def away(): pass", ""),
        ("LOSSES = 2", "LOSSES = 3"),
        ("def objective(self): return LOSSES", "def objective(self): return 0"),
        ("def picture_other(self): return load()", "def picture_other(self): return 0"),
        ("def load(): return 1", "def load(): return 2"),
        ("def drawing(): pass", "def drawing():\n    'Some words.'\n    pass"),
    ],
)
def test_a_change_of_anything_else_leaves_the_digest(digest_of, old, new):
    assert digest_of(old, new) == digest_of()


def test_a_picture_of_another_name_or_none_is_followed(digest_of):
    assert digest_of(method="picture_first", cls="Child") == digest_of()
    assert digest_of(cls="Child") == digest_of()
    assert digest_of(method="picture_none") == digest_of(method="picture_nothing") == ""

"""docs/make_gallery.py, on a small run: the telling pictures and captions, with a palette."""

import importlib.util
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from everynet import runs
from everynet.recipes.catalog import entries, find

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def maker():
    """The script, which lies beside the pages and is no part of the package."""
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
    Image.fromarray(torch.stack([across, 255 - across, across], 2).numpy()).save(tmp_path / "a.png")
    maker.shrink(tmp_path / "a.png", tmp_path / "gallery" / "b.png")
    with Image.open(tmp_path / "gallery" / "b.png") as small:
        assert (small.mode, small.size) == ("P", (975, 244))
        assert len(small.convert("RGB").getcolors(1000)) > 200
    Image.new("RGB", (700, 10)).save(tmp_path / "a.png")
    maker.shrink(tmp_path / "a.png", tmp_path / "gallery" / "b.png")
    with Image.open(tmp_path / "gallery" / "b.png") as same:
        assert same.size == (700, 10)


def test_a_picture_that_would_be_a_large_file_is_made_narrower(maker, tmp_path):
    noise = torch.randint(256, (900, 1200, 3), dtype=torch.uint8, generator=torch.Generator())
    Image.fromarray(noise.numpy()).save(tmp_path / "a.png")
    maker.shrink(tmp_path / "a.png", tmp_path / "gallery" / "b.png")
    with Image.open(tmp_path / "gallery" / "b.png") as small:
        assert small.size == (650, 488)


def test_a_run_is_recorded_with_its_figures_pictures_and_captions(maker, finished, tmp_path):
    recipe, run = finished
    about = maker.record(recipe, run, tmp_path)
    assert about["reached"].startswith("sigmoid_slope 0.25, ")
    assert about["where"].startswith("cpu")
    assert about["drawing"] == maker.DRAWING
    captions = recipe.picture_names()
    assert about["pictures"] == dict([*captions.items()][:3])
    for name in about["pictures"]:
        assert (tmp_path / f"gallery/activations-{name}.png").stat().st_size < 250_000


def known_of(*names, drawing, pictures=("one", "two")):
    return {
        name: {"reached": f"accuracy of {name}", "where": "cpu", "drawing": drawing,
               "pictures": {picture: f"See {picture}." for picture in pictures}}
        for name in names
    }  # fmt: skip


def test_a_section_has_all_variants_one_picture_and_the_others_folded(maker):
    group = [entry for entry in entries()[0] if entry.file.endswith("zoo/feedforward/mlp.py")]
    known = known_of("mlp", drawing=1) | known_of(
        "mlp-xor", drawing=maker.DRAWING, pictures=("one", "three")
    )
    text = "\n".join(maker.section(group, known))
    assert text.startswith("\n### Multilayer perceptron\n")
    assert "Curriculum: F5 (MLP forward as matrix products), F6 (" in text
    assert "| `mlp` | accuracy of mlp | accuracy >= 0.96 | cpu |" in text
    assert "| `mlp-mnist` | no whole run at hand | " in text
    before, _, folded = text.partition("<details><summary>2 more pictures</summary>")
    assert before.count("![") == 1
    assert "![See one.](gallery/mlp-xor-one.png)\n\n`mlp-xor`: *See one.*" in before
    assert "![See three.](gallery/mlp-xor-three.png)" in folded
    assert "`mlp`: *See two.* (An earlier drawing.)" in folded
    assert "gallery/mlp-one.png" not in text, "the same picture of another variant"
    assert "earlier" not in before


def test_chapters_are_those_of_the_curriculum_with_each_file_once(maker):
    listed = entries()[0]
    parts = maker.chapters(listed)
    families = [part["family"] for part in maker.curriculum()]
    assert list(parts) == [family for family in families if family in parts]
    files = [entry.file for groups in parts.values() for (entry, *_) in groups]
    assert sorted(files) == sorted({entry.file for entry in listed})
    text = maker.page(known_of(*(entry.name for entry in listed), drawing=1), listed)
    for family in parts:
        assert f"- [{family}]({maker.anchor(family)}): [" in text
        assert f"\n## {family}\n" in text
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert len(set(map(maker.anchor, headings))) == len(headings), "every link has one end"


def test_a_file_without_a_picture_has_no_section(maker):
    text = maker.page(known_of("mlp", drawing=1) | known_of("lif", drawing=1, pictures=()),
                      entries()[0])  # fmt: skip
    assert "### Multilayer perceptron\n" in text
    assert text.count("\n### ") == 1


def test_what_was_shown_before_stays_where_there_is_no_run(maker, finished, tmp_path):
    _, run = finished
    (tmp_path / "gallery").mkdir()
    old = known_of("mlp", "activations", "gone", drawing=1)
    (tmp_path / "gallery" / "record.json").write_text(json.dumps(old))
    assert maker.update([], tmp_path) == known_of("mlp", "activations", drawing=1)
    about = json.loads((run / "recipe.json").read_text())
    (tmp_path / "runs" / "a").mkdir(parents=True)
    for name in ("card.md", "metrics.jsonl", "environment.json"):
        (tmp_path / "runs" / "a" / name).write_bytes((run / name).read_bytes())
    unchanged = json.dumps({**about, "changed": []})
    (tmp_path / "runs" / "a" / "recipe.json").write_text(unchanged)
    found = maker.update([tmp_path / "runs"], tmp_path)
    assert found["mlp"]["drawing"] == 1
    assert found["activations"]["drawing"] == maker.DRAWING


def test_the_newest_run_with_unchanged_settings_is_shown(maker, tmp_path):
    for age, (folder, changed) in enumerate({"c": ["lr"], "b": [], "a": []}.items()):
        (tmp_path / folder).mkdir()
        about = {"name": "mlp", "changed": changed}
        (tmp_path / folder / "recipe.json").write_text(json.dumps(about))
        (tmp_path / folder / "card.md").touch()
        os.utime(tmp_path / folder / "card.md", (9 - age, 9 - age))
    assert maker.newest([tmp_path], "mlp") == tmp_path / "b"
    assert maker.newest([tmp_path], "lif") is None

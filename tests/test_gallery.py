"""docs/make_gallery.py, on a small run: the telling pictures and captions, in all colours."""

import importlib.util
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from PIL import Image

from everynet import runs
from everynet.catalog import entries, find
from everynet.recipes import Recipe, telling

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


@dataclass(frozen=True, kw_only=True)
class Five(Recipe):
    captions: ClassVar = {name: f"Look at {name}." for name in ("d", "b", "e", "a", "c")}


def test_the_telling_pictures_are_the_first_three_that_were_drawn():
    assert list(telling(Five(), ["a", "b", "c", "d", "e"])) == ["d", "b", "e"]
    assert telling(Five(), {"c", "a", "b", "learning-curve"}) == {
        "b": "Look at b.", "a": "Look at a.", "c": "Look at c.",
    }  # fmt: skip
    assert telling(Recipe(), {"a"}) == {}


def test_a_picture_keeps_its_colours_and_is_made_narrow(maker, tmp_path):
    steps = torch.arange(1600, dtype=torch.float64) / 1599
    across = (255 * steps).round().to(torch.uint8).expand(400, -1)
    Image.fromarray(torch.stack([across, 255 - across, across], 2).numpy()).save(tmp_path / "a.png")
    maker.shrink(tmp_path / "a.png", tmp_path / "gallery" / "b.png")
    with Image.open(tmp_path / "gallery" / "b.png") as small:
        assert (small.mode, small.size) == ("RGB", (800, 200))
        assert len(small.getcolors(1000)) > 200
    Image.new("RGB", (700, 10)).save(tmp_path / "a.png")
    maker.shrink(tmp_path / "a.png", tmp_path / "gallery" / "b.png")
    with Image.open(tmp_path / "gallery" / "b.png") as same:
        assert same.size == (700, 10)


def test_a_picture_that_would_be_a_large_file_is_made_narrower(maker, tmp_path):
    noise = torch.randint(256, (300, 1200, 3), dtype=torch.uint8, generator=torch.Generator())
    Image.fromarray(noise.numpy()).save(tmp_path / "a.png")
    maker.shrink(tmp_path / "a.png", tmp_path / "gallery" / "b.png")
    with Image.open(tmp_path / "gallery" / "b.png") as small:
        assert small.size == (650, 162)


def test_a_recipe_is_shown_with_its_figures_pictures_and_captions(maker, finished, tmp_path):
    recipe, run = finished
    entry = next(e for e in entries()[0] if e.name == "activations")
    page = "\n".join(maker.section(entry, run, tmp_path))
    assert page.startswith(f"\n## activations\n\n{entry.summary}\n\n`everynet run activations` ")
    assert "sigmoid_slope 0.25" in page
    for name in ("activations", "softmax"):
        file, caption = f"gallery/activations-{name}.png", recipe.captions[name]
        assert f"\n![{caption}]({file})\n\n*{caption}*" in page
        assert (tmp_path / file).stat().st_size < 250_000
    assert len(list((tmp_path / "gallery").iterdir())) == page.count("![") == 2


def test_the_newest_run_with_unchanged_settings_is_shown(maker, tmp_path):
    for age, (folder, changed) in enumerate({"c": ["lr"], "b": [], "a": []}.items()):
        (tmp_path / folder).mkdir()
        about = {"name": "mlp", "changed": changed}
        (tmp_path / folder / "recipe.json").write_text(json.dumps(about))
        (tmp_path / folder / "card.md").touch()
        os.utime(tmp_path / folder / "card.md", (9 - age, 9 - age))
    assert maker.newest(tmp_path, "mlp") == tmp_path / "b"
    assert maker.newest(tmp_path, "lif") is None

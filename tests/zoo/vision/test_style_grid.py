"""The grid of neural style: which pictures are learned, its figures and what it refuses."""

from dataclasses import replace

import pytest
import torch

from everynet.recipes.catalog import find
from everynet.recipes.experiment import Cell, Table
from everynet.recipes.settings import override
from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.vision.style import Picture
from everynet.zoo.vision.style_grid import StyleGrid


def test_a_cell_for_each_ratio_and_depth_and_one_for_each_loss_alone():
    cells = StyleGrid(ratios=(1e-2, 1e-4), layers=(1, 3), steps=7).cells()
    assert [*cells] == [
        *("content-only", "style-only", "layers=1,ratio=0.01", "layers=1,ratio=0.0001"),
        *("layers=3,ratio=0.01", "layers=3,ratio=0.0001"),
    ]
    for n in (1, 3):
        for ratio in (1e-2, 1e-4):
            one = cells[f"layers={n},ratio={ratio:g}"]
            assert one.layers == n
            assert one.alpha / one.beta == pytest.approx(ratio)
            assert (one.steps, one.noise) == (7, 0.1)
    assert (cells["content-only"].beta, cells["content-only"].noise) == (0, 1)
    assert (cells["style-only"].alpha, cells["style-only"].noise) == (0, 1)
    assert cells["style-only"].layers == 3


def table(recipe):
    """As if each picture were of one grey, with figures that name their cell."""
    cells = {}
    for number, (name, cell) in enumerate(recipe.cells().items()):
        shown = Picture(torch.full((1, 3, 4, 6), number / 10), lambda: None)
        valid = {
            "gram_fall": torch.tensor([0.0, number / 10]),
            "content_correlation": torch.tensor([0.0, number / 100]),
        }
        cells[name] = Cell(
            recipe=cell, step=2, steps=torch.tensor([0, 2]), measured={}, valid=valid, terms={},
            diverged=None, test={}, network=lambda shown=shown: shown,
        )  # fmt: skip
    white = torch.ones(3, 4, 6)
    return Table(cells, {"content": white, "style": white})


def test_figures_and_pictures_are_of_the_cells_they_name():
    recipe = StyleGrid(ratios=(1e-2, 1e-4), layers=(1, 3))
    found = recipe.metrics(table(recipe))
    assert found == pytest.approx(
        {
            "gram_fall": 0.5,
            "gram_fall_first": 0.4,
            "content_correlation": 0.0,
            "style_only_fall": 0.1,
        }
    )
    figures = {name: figure for name, (figure, _) in recipe.draw(table(recipe)).items()}
    grid = figures["grid"].axes
    assert [axes.get_title() for axes in grid] == ["0.01", "0.0001", "", ""]
    assert [axes.get_ylabel() for axes in grid] == ["1 style layer", "", "3 style layers", ""]
    greys = [axes.images[0].get_array()[0, 0, 0] for axes in grid]
    assert greys == pytest.approx([0.2, 0.3, 0.4, 0.5])
    alone = [axes.images[0].get_array()[0, 0, 0] for axes in figures["alone"].axes]
    assert alone == pytest.approx([1, 0, 1, 0.1])
    fallen = figures["trade"].axes[0].lines[0]
    assert fallen.get_xdata().tolist() == [1e-2, 1e-4]
    assert fallen.get_ydata().tolist() == pytest.approx([0.4, 0.5])


def test_the_two_pictures_are_kept_as_the_cells_see_them():
    recipe = find("style-grid").tiny()
    kept = recipe.simulate(torch.Generator())
    content, style = next(iter(recipe.cells().values())).pair()
    assert torch.equal(kept["content"], content[0])
    assert torch.equal(kept["style"], style[0])


def test_settings_that_cannot_be():
    for name, value in {"ratios": "1e-4,1e-3", "layers": "3,1"}.items():
        with pytest.raises(UserError, match=rf"{name} \(.*\) must be"):
            override(find("style-grid"), {name: value})
    for bad in ((1e-3,), (1e-3, 0.0)):
        with pytest.raises(UserError, match="two or more positive numbers that fall"):
            StyleGrid(ratios=bad)
    for bad in ((), (0, 1), (5, 6)):
        with pytest.raises(UserError, match="numbers from 1 to 5 that rise"):
            StyleGrid(layers=bad)


@pytest.mark.slow
@pytest.mark.covers("C29")
def test_reaches_its_goal(tmp_path):
    result = run(replace(find("style-grid")), tmp_path, device="cpu")
    assert result.reached
    assert result.metrics["gram_fall_first"] < result.metrics["gram_fall"]

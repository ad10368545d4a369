"""The check itself, and all pictures of all recipes on a page."""

import pytest
from matplotlib.figure import Figure

from everynet import runs
from everynet.plot.style import drawing, figure
from everynet.recipes.catalog import entries, find
from everynet.runs import job
from tests.plot.legible import collisions, faults


def test_a_wide_figure_and_small_text_are_found():
    wide = Figure(figsize=(13, 3))
    wide.text(0.5, 0.5, "ten", fontsize=10)
    assert faults(wide) == ["13.0 inches wide", "5.0 points: 'ten'"]
    with drawing():
        drawn = figure(9.0, 3.0)
        drawn.axes[0].set(title="fine", xlabel="x", ylabel="y", yscale="log")
        assert not faults(drawn)
        drawn.text(0.5, 0.5, "small", fontsize="x-small")
    assert faults(drawn) == ["5.9 points: 'small'"]


def test_texts_that_run_into_each_other_or_off_the_page_are_found():
    page = Figure(figsize=(4, 2))
    page.text(0.1, 0.5, "one and")
    page.text(0.6, 0.5, "another")
    assert not collisions(page)
    page.text(0.12, 0.52, "a third")
    page.text(0.9, 0.1, "too far to the right")
    edge, over = sorted(collisions(page), key=len, reverse=True)
    assert edge.endswith("pixels over the edge: 'too far to the right'")
    assert over == "'one and' over 'a third'"


@pytest.mark.slow
@pytest.mark.parametrize("name", [entry.name for entry in entries()[0]])
def test_the_pictures_of_a_recipe_can_be_read(name, tmp_path, monkeypatch):
    found = {}

    def check(_self, pictures):
        found.update({n: [*faults(p.figure), *collisions(p.figure)] for n, p in pictures.items()})
        return ()

    monkeypatch.setattr(job.Job, "write_pictures", check)
    runs.run(find(name).tiny(), tmp_path, device="cpu")
    assert found
    assert not {picture: wrong for picture, wrong in found.items() if wrong}

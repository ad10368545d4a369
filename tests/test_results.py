"""docs/results.md and the parts of README that are made from docs/results.toml are fresh."""

import importlib.util
import re
from pathlib import Path

import pytest

from everynet.recipes.catalog import entries
from everynet.recipes.recipe import Goal

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def maker():
    spec = importlib.util.spec_from_file_location("results", ROOT / "docs" / "make_results.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_fresh(maker):
    assert maker.PAGE.read_text(encoding="utf-8") == maker.page()


def test_readme_is_fresh_and_has_eight_results(maker):
    assert maker.README.read_text(encoding="utf-8") == maker.readme()
    assert len(maker.FEW) == 8


def test_the_table_of_families_shows_pictures_of_the_gallery(maker):
    lines = maker.families(entries()[0])[2:]
    shown = dict(re.findall(r'src="docs/gallery/(.*?)\.webp".*?\[(\w+)\]', line)[0][::-1]
                 for line in lines if "<img" in line)  # fmt: skip
    assert maker.FACES.items() <= shown.items()
    assert all((ROOT / "docs" / "gallery" / f"{name}.webp").is_file() for name in shown.values())


def says_its_seeds(measured):
    """A value for each seed; one alone where no seed changes it, or `where` says one seed."""
    values, seeds = measured.get("values", []), measured.get("seeds", [0, 1, 2])
    one = seeds == [] or ("seeds" not in measured and "one seed" in measured.get("where", ""))
    return not values or len(values) == (1 if one else len(seeds))


def test_a_measurement_names_a_metric_and_as_many_values_as_seeds(maker):
    goals = {entry.name: entry.goal for entry in entries()[0]}
    for name, measured in maker.measurements().items():
        assert says_its_seeds(measured), name
        assert not measured.get("values") or re.fullmatch(r"\w+", measured["metric"]), name
        assert measured.keys() <= {"metric", "values", "seeds", "where", "seconds", "published",
                                   "note", "missed"}, name  # fmt: skip
        assert Goal.parse(goals[name]), name


@pytest.mark.parametrize(
    ("measured", "good"),
    [
        ({"values": [1, 2, 3]}, True),
        ({"values": [1]}, False),
        ({"values": [1], "where": "CPU, one seed"}, True),
        ({"values": [1], "seeds": []}, True),
        ({"values": [1, 2], "seeds": []}, False),
        ({"values": [1, 2], "seeds": [0, 3]}, True),
        ({"values": [1], "seeds": [0, 1, 2], "where": "one seed"}, False),
        ({"note": "a sentence alone"}, True),
    ],
)
def test_a_result_without_its_seeds_does_not_pass(measured, good):
    assert says_its_seeds(measured) == good


def test_values_meet_the_goal_that_names_their_metric(maker):
    """A measured value that misses its goal says so."""
    goals = {entry.name: Goal.parse(entry.goal) for entry in entries()[0]}
    missed = [
        f"{name}: {goal.metric} {value}"
        for name, measured in maker.measurements().items()
        for goal in goals[name]
        for value in measured.get("values", ())
        if goal.metric == measured["metric"] and not goal.reached({goal.metric: value})
    ]
    said = [name for name, measured in maker.measurements().items() if measured.get("missed")]
    assert [*dict.fromkeys(text.partition(":")[0] for text in missed)] == said
    assert all(", goal not reached" in maker.reached(maker.measurements()[name]) for name in said)


def test_a_recipe_that_is_not_there_is_refused(maker, monkeypatch):
    monkeypatch.setattr(maker, "measurements", lambda: {"nonet": {}})
    with pytest.raises(SystemExit, match="there is no recipe nonet"):
        maker.page()

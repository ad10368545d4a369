import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
COUNTS = {
    **{"M": 24, "N": 9, "A": 8, "O": 32, "F": 10, "C": 29, "R": 42, "T": 13, "G": 16, "H": 3},
    **{"X": 6, "P": 8, "B": 4, "Q": 8, "Y": 7, "D": 6, "Z": 2},
}


@pytest.fixture(scope="module")
def maker():
    """docs/make_curriculum.py, which is a script beside the pages and no part of the package."""
    spec = importlib.util.spec_from_file_location("maker", ROOT / "docs" / "make_curriculum.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_curriculum_is_whole(maker):
    """227 rows in 17 families, numbered from 1 without a gap, each with a name of its own."""
    families = maker.families()
    assert {family.letter: len(family.rows) for family in families} == COUNTS
    assert sum(COUNTS.values()) == 227
    for family in families:
        assert list(family.rows) == [f"{family.letter}{n + 1}" for n in range(len(family.rows))]
    names = [name for family in families for name in family.rows.values()]
    assert len(set(names)) == 227
    assert all(name.strip() == name and "|" not in name for name in names)


def test_the_page_is_what_the_recipes_and_tests_say(maker):
    """A stale page fails here; `make docs` writes it anew. So does a recipe of an unknown row."""
    assert maker.PAGE.read_text(encoding="utf-8") == maker.made()


def test_every_row_stands_on_the_page_once(maker):
    lines = maker.PAGE.read_text(encoding="utf-8").splitlines()
    rows = [line.split("|")[1].strip() for line in lines if line.startswith("| ")]
    assert [row for row in rows if row != "row"] == [
        row for family in maker.families() for row in family.rows
    ]


@pytest.mark.parametrize("place", ["recipes", "tests"])
def test_a_row_nobody_knows_is_an_error(maker, place):
    shown = {"recipes": {}, "tests": {}} | {place: {"M25": ["`mine`"]}}
    with pytest.raises(ValueError, match=r"covers \(M25\) must be a row of .*: `mine` names it"):
        maker.page(maker.families(), **shown)


def test_a_file_of_the_zoo_that_cannot_be_read_is_an_error(maker, monkeypatch):
    monkeypatch.setattr(maker.catalog, "entries", lambda: ([], ["zoo/a/b.py: line 3: bad"]))
    with pytest.raises(ValueError, match=r"zoo/a/b\.py: line 3: bad"):
        maker.shown_by_recipes()


def test_marks_are_read_from_the_text_of_tests(maker):
    text = """
import nothing_that_exists

@pytest.mark.slow
@pytest.mark.covers("M5", "M6")
def test_moments(): ...

@pytest.mark.parametrize("M7", [1])
def test_other(M7): ...
"""
    assert list(maker.marked(text)) == [("M5", "test_moments"), ("M6", "test_moments")]


def test_a_row_shown_counts_and_one_that_is_not_gets_a_dash(maker):
    family = maker.Family("M", "Mathematics", {"M1": "Norms", "M2": "Maps", "M3": "Bases"})
    page = maker.page([family], {"M1": ["`a`", "`b`"]}, {"M1": ["`c`"], "M2": ["`d`"]})
    assert "2 of 3 rows are shown" in page
    assert "## M: Mathematics (2 of 3)" in page
    assert "| M1 | Norms | `a`, `b` | `c` |" in page
    assert "| M2 | Maps | - | `d` |" in page
    assert "| M3 | Bases | - | - |" in page

"""docs/timeline.md: dates in order, each with a source, and what notes often have wrong."""

import re
from pathlib import Path

import pytest

from everynet.recipes import catalog

DOCS = Path(__file__).parent.parent / "docs"
ROWS = [
    [cell.strip() for cell in line.strip("| \n").split(" | ")]
    for line in (DOCS / "timeline.md").read_text(encoding="utf-8").splitlines()
    if re.match(r"\| \d{4} \|", line)
]


def test_entries_are_in_order_and_each_has_a_source():
    years = [int(year) for year, _, _ in ROWS]
    assert years == sorted(years)
    assert len(ROWS) > 30
    for _, what, source in ROWS:
        assert len(what) > 10
        assert re.match(r"[A-Z][\w.,' -]+ \((19|20)\d\d\), ", source), (
            source
        )  # author (year), title
    assert "timeline" in (DOCS / "index.md").read_text(encoding="utf-8")


@pytest.mark.covers("Z2")
@pytest.mark.parametrize(
    ("words", "year", "source"),
    [
        ("Generative adversarial networks", "2014", "Goodfellow"),
        ("proposal of a summer project at Dartmouth", "1955", "McCarthy"),
        ("That workshop is held", "1956", ""),
        ("What one layer of perceptrons cannot compute", "1969", "Minsky and Papert (1969)"),
        ("Hidden layers learn by backpropagation", "1986", "Rumelhart, Hinton and Williams"),
        ("200 million positions a second", "1997", "Campbell, Hoane and Hsu (2002)"),
        ("Software 2.0", "2017", "Karpathy"),
        ("CLIP", "2021", "Radford"),
        ("DALL-E", "2021", "Ramesh"),
        ("ChatGPT is opened to the public", "2022", "OpenAI"),
    ],
)
def test_dates_and_names_that_notes_have_wrong(words, year, source):
    (found,) = (row for row in ROWS if words in row[1])
    assert found[0] == year
    assert source in found[2]


def test_nobody_is_misspelt_and_every_recipe_exists():
    text = (DOCS / "timeline.md").read_text(encoding="utf-8")
    assert "Rumelhard" not in text
    shown = {name for line in text.splitlines() if "Shown by" in line
             for name in re.findall(r"`([\w-]+)`", line)}  # fmt: skip
    assert shown <= {entry.name for entry in catalog.entries()[0]}

"""Write docs/curriculum.md: each row of the curriculum with the recipes and tests that show it.

A recipe names its rows in `covers`, a test in `@pytest.mark.covers("M5")`. Both are read as text,
so nothing of the zoo is imported. `make docs` calls this; a test fails when the page is stale.
"""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from everynet.recipes import catalog

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "curriculum.md"

HEAD = """\
# The curriculum

<!-- Made by `make docs`; do not edit. -->

Every system of the curriculum with the recipe that runs it (`everynet run NAME`) or the test that
shows it; a dash stands for what is still to come. {shown} of {total} rows are shown.
"""


class Family(NamedTuple):
    """A part of the curriculum: its letter, name, and rows by id."""

    letter: str
    name: str
    rows: dict[str, str]


def families() -> list[Family]:
    """The curriculum as the package holds it."""
    text = (catalog.PACKAGE / "curriculum.toml").read_text(encoding="utf-8")
    return [
        Family(letter, part["family"], part["rows"]) for letter, part in tomllib.loads(text).items()
    ]


def marked(text: str) -> Iterator[tuple[str, str]]:
    """Each (row, test) that the marks of one test file name."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef):
            continue
        for mark in node.decorator_list:
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.covers":
                yield from ((ast.literal_eval(row), node.name) for row in mark.args)


def shown_by_tests(folder: Path) -> dict[str, list[str]]:
    """The tests that show each row, as links from the page."""
    found = defaultdict(list)
    for path in sorted(folder.rglob("test_*.py")):
        place = path.relative_to(folder.parent).as_posix()
        for row, test in marked(path.read_text(encoding="utf-8")):
            found[row].append(f"[`{test}`](../{place})")
    return found


def shown_by_recipes() -> dict[str, list[str]]:
    """The recipes that show each row, as links from the page."""
    found = defaultdict(list)
    recipes, faults = catalog.entries()
    if faults:
        raise ValueError(faults[0])
    for recipe in recipes:
        for row in recipe.covers:
            found[row].append(f"[`{recipe.name}`](../src/everynet/{recipe.file})")
    return found


def page(
    curriculum: list[Family], recipes: Mapping[str, list[str]], tests: Mapping[str, list[str]]
) -> str:
    """The whole page; a row that nobody knows is an error, because it would be lost."""
    known = {row for family in curriculum for row in family.rows}
    for row in sorted((recipes.keys() | tests.keys()) - known):
        shower = (recipes.get(row) or tests[row])[0]
        raise ValueError(f"covers ({row}) must be a row of curriculum.toml: {shower} names it")
    parts = [HEAD.format(shown=len(recipes.keys() | tests.keys()), total=len(known))]
    for family in curriculum:
        shown = sum(row in recipes or row in tests for row in family.rows)
        parts.append(f"## {family.letter}: {family.name} ({shown} of {len(family.rows)})\n")
        parts.append("| row | what | recipes | tests |\n|---|---|---|---|")
        parts += [
            f"| {row} | {name} | {', '.join(recipes.get(row, ())) or '-'} "
            f"| {', '.join(tests.get(row, ())) or '-'} |"
            for row, name in family.rows.items()
        ]
        parts.append("")
    return "\n".join(parts)


def made() -> str:
    """The page as it must be now."""
    return page(families(), shown_by_recipes(), shown_by_tests(ROOT / "tests"))


if __name__ == "__main__":
    PAGE.write_text(made(), encoding="utf-8")

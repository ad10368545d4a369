"""Write docs/results.md: what each recipe was measured to reach, where, and what was published.

The measurements are in docs/results.toml, one table a recipe; goals come from the recipes. README
gets eight rows of them, the families with their counts, and the number of curriculum rows that are
shown. `make docs` calls this; a test fails when a page is stale, or when a recipe is named that is
not there.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
from itertools import groupby
from pathlib import Path
from typing import Any

from everynet.recipes.catalog import PACKAGE, Entry, entries

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "results.md"
README = DOCS.parent / "README.md"
FEW = (
    *("lenet-mnist", "resnet-cifar", "resnet-56-cifar", "ngram-ptb"),
    *("lstm-ptb-medium", "gpt-shakespeare", "word2vec-text8", "vae-mnist"),
)
"""The recipes that README shows, each beside what was published."""
FACES = {
    **{"classic": "mixture-film", "feedforward": "backprop-perceptron", "language": "word2vec-map"},
    **{"generative": "gan-ring-noise", "memory": "hopfield-recall", "recurrent": "min-gru-gates"},
    **{"optimisation": "gradient-descent-paths", "population": "lorenz-butterfly"},
    **{"vision": "unet-membrane-membranes"},
}
"""The picture that README shows of a family, where it is not the first of the gallery."""
HEAD = """\
# Results

<!-- Made by `make docs` from docs/results.toml; do not edit. -->

Each value is what `everynet run NAME seed=S` printed for the test split, with `EVERYNET_DATA` set
where real data is named. {measured} of {recipes} recipes have an entry here; the others state their
goal alone. Values in the first column of numbers are those of seeds 0, 1 and 2 unless it says so.
"""


def measurements() -> dict[str, dict[str, Any]]:
    """What was measured, by recipe."""
    found: dict[str, dict[str, Any]] = tomllib.loads((DOCS / "results.toml").read_text("utf-8"))
    return found


def reached(measured: dict[str, Any]) -> str:
    """The values by seed in one cell of a table."""
    numbers = [str(value) for value in measured.get("values", ())]
    places = max((len(n.partition(".")[2]) for n in numbers if "e" not in n), default=0)
    values = " ".join(n if "e" in n or "." not in n else f"{float(n):.{places}f}" for n in numbers)
    seeds = measured.get("seeds", [])
    if not values:
        return ""
    said = "" if seeds == [0, 1, 2] or not seeds else f" (seed {', '.join(map(str, seeds))})"
    missed = ", goal not reached" if measured.get("missed") else ""
    return f"{measured['metric']} {values}{said}{missed}"


def line(entry: Entry, measured: dict[str, Any]) -> str:
    """A row of the table."""
    where = ", ".join(filter(None, (measured.get("where", ""), measured.get("seconds", ""))))
    cells = (
        f"`{entry.name}`",
        entry.goal,
        reached(measured),
        where,
        measured.get("published", ""),
        measured.get("note", ""),
    )
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def page() -> str:
    """The whole page."""
    known, listed = measurements(), entries()[0]
    absent = known.keys() - {entry.name for entry in listed}
    if absent:
        raise SystemExit(f"docs/results.toml: there is no recipe {', '.join(sorted(absent))}")
    lines = [HEAD.format(measured=len(known), recipes=len(listed))]
    for family, group in groupby(listed, key=lambda entry: entry.family):
        shown = [line(entry, known[entry.name]) for entry in group if entry.name in known]
        if shown:
            lines += [
                f"\n## {family.capitalize()}\n",
                "| recipe | goal | reached, seeds 0 1 2 | where | published | note |",
                "|---|---|---|---|---|---|",
                *shown,
            ]
    return "\n".join(lines) + "\n"


def readme() -> str:
    """README with the newest of what is measured and shown."""
    known, listed = measurements(), {entry.name: entry for entry in entries()[0]}
    rows = [
        f"| `{name}` | {reached(known[name])} | {known[name]['published']} | {listed[name].goal} |"
        for name in FEW
    ]
    table = ["| recipe | reached, seeds 0 1 2 | published | goal |", "|---|---|---|---|"]
    curriculum = (DOCS / "curriculum.md").read_text(encoding="utf-8")
    shown = re.search(r"(\d+ of \d+) rows are shown", curriculum)
    assert shown is not None, "docs/curriculum.md says how many rows are shown"
    text = README.read_text(encoding="utf-8")
    text = _between(text, "results", "\n" + "\n".join([*table, *rows]) + "\n")
    text = _between(text, "families", "\n" + "\n".join(families(list(listed.values()))) + "\n")
    return _between(text, "rows", shown[1])


def families(listed: list[Entry]) -> list[str]:
    """A table of the families of the zoo: networks are files, and each has one recipe or more."""
    lines = ["| | family | networks | recipes | what is in it |", "|---|---|---|---|---|"]
    known = json.loads((DOCS / "gallery" / "record.json").read_text(encoding="utf-8"))
    for family, group in groupby(listed, key=lambda entry: entry.family):
        recipes = list(group)
        about = (PACKAGE / "zoo" / family / "__init__.py").read_text(encoding="utf-8")
        sentence = " ".join((ast.get_docstring(ast.parse(about)) or "").split())
        files = {entry.file for entry in recipes}
        link = f"[{family}](src/everynet/zoo/{family})"
        names = [e.name for e in recipes if e.name in known]
        there = [f"{name}-{picture}" for name in names for picture in known[name]["pictures"]]
        face = FACES[family] if FACES.get(family) in there else (there or [""])[0]
        image = f'<img src="docs/gallery/{face}.webp" width="150" alt="">' if face else ""
        lines.append(f"| {image} | {link} | {len(files)} | {len(recipes)} | {sentence} |")
    return lines


def _between(text: str, name: str, new: str) -> str:
    """A text with what stands between two marks replaced."""
    pattern = rf"(?s)<!-- {name} -->.*?<!-- /{name} -->"
    return re.sub(pattern, lambda _: f"<!-- {name} -->{new}<!-- /{name} -->", text)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    README.write_text(readme(), encoding="utf-8")

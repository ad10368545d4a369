"""Writes docs/gallery.md: what each network reached and how it looks, in the order it is taught.

    python docs/make_gallery.py [--draw] RUNS ...

Chapters are the families of the curriculum, and a section is a file of the zoo with all its
recipes. For each recipe the newest finished run with unchanged settings below RUNS is taken: its
figures on the test split, the device, its telling pictures; `--draw` draws them anew first. What
was shown before is kept in docs/gallery/record.json and stays where there is no such run; a
picture from before the look of pictures last changed (DRAWING) says so. One picture is seen at
once, the others unfold. A file of which no picture is at hand has no section.
"""

import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from PIL import Image
from PIL.Image import Resampling

from everynet.plot.style import save_with_palette
from everynet.recipes.catalog import PACKAGE, Entry, entries, find
from everynet.recipes.recipe import Recipe
from everynet.recipes.stored import of_run
from everynet.runs.verbs import draw
from everynet.system.errors import Failure

DOCS = Path(__file__).parent
DRAWING = 2  # raised when pictures look otherwise: 1 was before they fitted a page
WIDTHS = (975, 800, 650)  # pixels, the widest that keeps a file small
FEW = 3  # pictures of a recipe, the most telling ones
MOST = 250_000  # bytes of a picture
ALL = 30_000_000  # bytes of all pictures

Record = dict[str, Any]  # what is known of a recipe, as JSON


def newest(runs: Sequence[Path], name: str) -> Path | None:
    """The newest finished run of a recipe as the zoo has it."""
    found = []
    for card in (card for folder in runs for card in folder.glob("*/card.md")):
        about = json.loads((card.parent / "recipe.json").read_text())
        if about["name"] == name and not about["changed"]:
            found.append(card.parent)
    return max(found, key=lambda run: (run / "card.md").stat().st_mtime, default=None)


def shrink(picture: Path, path: Path) -> None:
    """A copy of a picture with a palette, narrower where it would be a large file."""
    with Image.open(picture) as opened:
        image = opened.convert("RGB")
    path.parent.mkdir(exist_ok=True)
    for width in WIDTHS:
        size = min(width, image.width)
        copy = image.resize((size, round(image.height * size / image.width)), Resampling.LANCZOS)
        save_with_palette(copy, path)
        if path.stat().st_size <= MOST:
            return


def record(recipe: Recipe, run: Path, docs: Path) -> Record:
    """What a run reached, where, and its telling pictures, which are copied beside the page."""
    metrics = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["test"]
    where = json.loads((run / "environment.json").read_text())
    page = (run / "card.md").read_text(encoding="utf-8")
    captions = re.findall(r"^!\[(.*)\]\(pictures/(.+)\.png\)$", page, re.MULTILINE)
    there = [(n, c) for c, n in captions if (run / "pictures" / f"{n}.png").exists()]
    shown = dict(there[:FEW])
    for name in shown:
        picture = run / "pictures" / f"{name}.png"
        shrink(picture, docs / "gallery" / f"{recipe.name}-{name}.png")
    return {
        "reached": ", ".join(f"{name} {value:.4g}" for name, value in metrics.items()),
        "where": f"{where['device_name']}, torch {where['versions']['torch']}",
        "drawing": DRAWING,
        "pictures": shown,
    }


# ------------------------------------------------------------------------------------ the page


def curriculum() -> list[dict[str, Any]]:
    """The parts of the curriculum, each with its family and the names of its rows."""
    return [*tomllib.loads((PACKAGE / "curriculum.toml").read_text(encoding="utf-8")).values()]


def chapters(listed: Sequence[Entry]) -> dict[str, list[list[Entry]]]:
    """The files of the zoo, each with its recipes, under the family of their first row."""
    rows = {row: part for part in curriculum() for row in part["rows"]}
    order = {row: place for place, row in enumerate(rows)}
    files = [list(group) for _, group in groupby(listed, key=lambda entry: entry.file)]
    first = {group[0].file: min(group[0].covers, key=order.__getitem__) for group in files}
    files.sort(key=lambda group: order[first[group[0].file]])
    found: dict[str, list[list[Entry]]] = {}
    for group in files:
        found.setdefault(rows[first[group[0].file]]["family"], []).append(group)
    return found


def title(entry: Entry) -> str:
    """What a network is called: its sentence up to the colon or comma, or else its name."""
    head = entry.summary.partition(":")[0].partition(",")[0]
    fits = head != entry.summary and len(head) <= 60
    return head if fits else entry.name.replace("-", " ").capitalize()


def anchor(heading: str) -> str:
    """Where a link to a heading goes."""
    kept = (letter for letter in heading.lower() if letter.isalnum() or letter in " -")
    return "#" + "".join(kept).replace(" ", "-")


def heading_anchors(text: str) -> list[str]:
    """The anchors of the headings of a page, in order."""
    outside = re.sub(r"(?ms)^```.*?^```", "", text)
    return [anchor(line.lstrip("#").strip())[1:] for line in re.findall(r"(?m)^#+ .*$", outside)]


def section(group: Sequence[Entry], known: Mapping[str, Record]) -> Iterator[str]:
    """The lines of one file of the zoo: its idea, what its recipes reached, its pictures."""
    names = {row: name for part in curriculum() for row, name in part["rows"].items()}
    rows = dict.fromkeys(row for entry in group for row in entry.covers)
    yield from ("", f"### {title(group[0])}", "", group[0].summary, "")
    yield "Curriculum: " + ", ".join(f"{row} ({names[row]})" for row in rows) + "."
    yield from ("", "| `everynet run` | reached | goal | on |", "|---|---|---|---|")
    for entry in group:
        about = known.get(entry.name, {"reached": "no whole run at hand", "where": ""})
        yield f"| `{entry.name}` | {about['reached']} | {entry.goal} | {about['where']} |"
    yield from shown(group, known)


def shown(group: Sequence[Entry], known: Mapping[str, Record]) -> Iterator[str]:
    """One picture, and folded away the others; of variants those that no other has."""
    pictures: dict[str, list[str]] = {}
    ready = [entry.name for entry in group if known.get(entry.name, {}).get("pictures")]
    for recipe in sorted(ready, key=lambda name: -known[name]["drawing"]):  # the newest look first
        old = " (An earlier drawing.)" if known[recipe]["drawing"] < DRAWING else ""
        whose = f"`{recipe}`: " if len(group) > 1 else ""
        for name, caption in known[recipe]["pictures"].items():
            image = f"![{caption}](gallery/{recipe}-{name}.png)"
            pictures.setdefault(name, ["", image, "", f"{whose}*{caption}*{old}"])
    head, *rest = pictures.values() or [[]]
    yield from head
    if rest:
        more = "picture" if len(rest) == 1 else "pictures"
        yield from ("", f"<details><summary>{len(rest)} more {more}</summary>")
        for lines in rest:
            yield from lines
        yield from ("", "</details>")


def page(known: Mapping[str, Record], listed: Sequence[Entry]) -> str:
    """The whole page: contents, then a chapter for each family."""
    lines = ["# Gallery", "", "<!-- Made by docs/make_gallery.py from runs; do not edit. -->", ""]
    lines.append("What each network reached and how it looks, in the order of")
    lines.append(
        "[the curriculum](curriculum.md). Figures are of the test split, which chose nothing."
    )
    drawn = {entry.file for entry in listed if known.get(entry.name, {}).get("pictures")}
    parts = chapters([entry for entry in listed if entry.file in drawn])
    lines.append("[results.md](results.md) has every network, also those without a picture here.")
    lines.append("")
    for family, groups in parts.items():
        links = ", ".join(f"[{title(g[0])}]({anchor(title(g[0]))})" for g in groups)
        lines.append(f"- [{family}]({anchor(family)}): {links}")
    for family, groups in parts.items():
        lines += ["", f"## {family}"]
        for group in groups:
            lines += section(group, known)
    return "\n".join(lines) + "\n"


def update(runs: Sequence[Path], docs: Path, *, again: bool = False) -> dict[str, Record]:
    """What is known of every recipe of the zoo, with what the runs add to it."""
    path = docs / "gallery" / "record.json"
    known: dict[str, Record] = json.loads(path.read_text()) if path.exists() else {}
    for entry in entries()[0]:
        run = newest(runs, entry.name)
        if run is None:
            continue
        if again:
            try:
                draw(of_run(run), run)
            except Failure as error:  # its data or its weights are not here, say
                print(f"{entry.name}: not drawn again, and not shown anew: {error}")
                continue
        known[entry.name] = record(find(entry.name), run, docs)
    listed = {entry.name for entry in entries()[0]}
    return {name: about for name, about in known.items() if name in listed}


def main(words: Sequence[str]) -> None:
    """Write the page, its record and its pictures, and remove pictures that it does not show."""
    runs = [Path(word) for word in words if word != "--draw"]
    known = update(runs, DOCS, again="--draw" in words)
    text = page(known, entries()[0])
    (DOCS / "gallery.md").write_text(text)
    (DOCS / "gallery" / "record.json").write_text(json.dumps(known, indent=1) + "\n")
    size, readme = 0, (DOCS.parent / "README.md").read_text(encoding="utf-8")
    for picture in (DOCS / "gallery").glob("*.png"):
        if f"(gallery/{picture.name})" in text or picture.name in readme:
            size += picture.stat().st_size
        else:
            picture.unlink()
    print(f"{text.count('![')} pictures, {size / 1e6:.1f} MB")
    if size > ALL:
        sys.exit(f"docs/gallery ({size:,} bytes) must be below {ALL:,}: lower MOST")


if __name__ == "__main__":
    main(sys.argv[1:])

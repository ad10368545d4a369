"""Writes docs/gallery.md from finished runs: what each recipe reached and how it looks.

    python docs/make_gallery.py RUNS

For each recipe of the zoo the newest finished run with unchanged settings below RUNS is shown:
its figures on the test split, the device it ran on, and its two most telling pictures. The page
says which recipes have no such run.
"""

import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from PIL import Image
from PIL.Image import Resampling

from everynet.catalog import Entry, entries, find
from everynet.recipes import Recipe, telling

DOCS = Path(__file__).parent
WIDTHS = (800, 650)  # pixels, the widest that keeps a file small
MOST = 250_000  # bytes


def newest(runs: Path, name: str) -> Path | None:
    """The newest finished run of a recipe as the zoo has it."""
    found = []
    for card in runs.glob("*/card.md"):
        about = json.loads((card.parent / "recipe.json").read_text())
        if about["name"] == name and not about["changed"]:
            found.append(card.parent)
    return max(found, key=lambda run: (run / "card.md").stat().st_mtime, default=None)


def shrink(picture: Path, path: Path) -> None:
    """A copy of a picture in all its colours, narrower where it would be a large file."""
    with Image.open(picture) as opened:
        image = opened.convert("RGB")
    path.parent.mkdir(exist_ok=True)
    for width in WIDTHS:
        size = min(width, image.width)
        copy = image.resize((size, round(image.height * size / image.width)), Resampling.LANCZOS)
        copy.save(path, optimize=True)
        if path.stat().st_size <= MOST:
            return


def pictures(recipe: Recipe, run: Path, docs: Path) -> Iterator[str]:
    """The lines that show the telling pictures of a run, which are copied beside the page."""
    drawn = {path.stem for path in (run / "pictures").glob("*.png")}
    for name, caption in islice(telling(recipe, drawn).items(), 2):
        copy = f"gallery/{recipe.name}-{name}.png"
        shrink(run / "pictures" / f"{name}.png", docs / copy)
        yield from ("", f"![{caption}]({copy})", "", f"*{caption}*")


def section(entry: Entry, run: Path, docs: Path) -> Iterator[str]:
    """The lines of one recipe."""
    figures = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["test"]
    where = json.loads((run / "environment.json").read_text())
    said = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
    yield from ("", f"## {entry.name}", "", entry.summary, "")
    yield f"`everynet run {entry.name}` reached {said} (goal: {entry.goal}) on"
    yield f"{where['device_name']}, torch {where['versions']['torch']}."
    yield from pictures(find(entry.name), run, docs)


def main(runs: Path) -> None:
    """Write the page and its pictures."""
    lines = ["# Gallery", "", "<!-- Made by docs/make_gallery.py from runs; do not edit. -->"]
    found = [(entry, newest(runs, entry.name)) for entry in entries()[0]]
    missing = [f"`{entry.name}`" for entry, run in found if run is None]
    if missing:
        lines += ["", f"Not shown, because no whole run of them was at hand: {', '.join(missing)}."]
    for old in (DOCS / "gallery").glob("*.png"):
        old.unlink()
    for entry, run in found:
        if run is not None:
            lines += section(entry, run, DOCS)
    (DOCS / "gallery.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

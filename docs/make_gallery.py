"""Writes docs/gallery.md from finished runs: what each recipe reached and how it looks.

    python docs/make_gallery.py RUNS

For each recipe of the zoo the newest finished run with unchanged settings below RUNS is shown:
its figures on the test split, the device it ran on, and two pictures that tell most of it.
"""

import json
import sys
from pathlib import Path

from PIL import Image

from everynet.catalog import entries

DOCS = Path(__file__).parent
LAST = ("learning-curve", "confusion")  # the same for many networks, so the least telling
WIDTH = 1000  # pixels


def newest(runs: Path, name: str) -> Path | None:
    """The newest finished run of a recipe as the zoo has it."""
    found = []
    for card in runs.glob("*/card.md"):
        about = json.loads((card.parent / "recipe.json").read_text())
        if about["name"] == name and not about["changed"]:
            found.append(card.parent)
    return max(found, key=lambda run: (run / "card.md").stat().st_mtime, default=None)


def telling(run: Path) -> list[Path]:
    """The two pictures of a run that show most of how it works."""
    pictures = sorted((run / "pictures").glob("*.png"), key=lambda p: (p.stem in LAST, p.stem))
    return pictures[:2]


def shrunk(picture: Path, name: str) -> str:
    """A smaller copy of a picture beside the page."""
    image = Image.open(picture).convert("RGB")
    if image.width > WIDTH:
        image = image.resize((WIDTH, round(image.height * WIDTH / image.width)))
    path = DOCS / "gallery" / f"{name}-{picture.stem}.png"
    path.parent.mkdir(exist_ok=True)
    image.quantize(128).save(path, optimize=True)
    return path.relative_to(DOCS).as_posix()


def main(runs: Path) -> None:
    """Write the page and its pictures."""
    lines = ["# Gallery", "", "<!-- Made by docs/make_gallery.py from runs; do not edit. -->"]
    for old in (DOCS / "gallery").glob("*.png"):
        old.unlink()
    for entry in entries()[0]:
        run = newest(runs, entry.name)
        if run is None:
            sys.exit(f"no finished run of {entry.name} below {runs}: everynet run {entry.name}")
        figures = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["test"]
        where = json.loads((run / "environment.json").read_text())
        said = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
        lines += ["", f"## {entry.name}", "", entry.summary, ""]
        lines += [f"`everynet run {entry.name}` reached {said} (goal: {entry.goal}) on"]
        lines += [f"{where['device_name']}, torch {where['versions']['torch']}."]
        lines += ["", *(f"![{p.stem}]({shrunk(p, entry.name)})" for p in telling(run))]
    (DOCS / "gallery.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

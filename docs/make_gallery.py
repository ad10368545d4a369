"""Writes docs/gallery.md: what each network reached and how it looks, in the order it is taught.

    python docs/make_gallery.py [--draw] RUNS ...
    python docs/make_gallery.py --stale

Chapters are the families of the curriculum, and a section is a file of the zoo with all its
recipes. For each recipe the newest finished run with unchanged settings below RUNS is taken: its
metrics on the test split, the device, its pictures, and a film where its `sample` makes one;
`--draw` draws those anew whose code is newer than they are. What was shown before is kept in
docs/gallery/record.json and stays where there is no such run. A picture has a digest of the code
that drew it (docs/picture_digest.py); those that today's code would draw otherwise are listed at
the end, or alone by `--stale`. One picture is seen at once, the others unfold. A file of which no
picture is at hand has no section.
"""

import inspect
import io
import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import picture_digest
from PIL import Image
from PIL.Image import Resampling

import everynet
from everynet.plot.film import Film
from everynet.recipes.catalog import PACKAGE, Entry, entries, find
from everynet.recipes.recipe import Goal, Recipe
from everynet.recipes.stored import of_run
from everynet.runs.verbs import draw
from everynet.system.errors import Failure

DOCS = Path(__file__).parent
WIDTHS = (975, 800, 650)  # pixels, the widest that keeps a file small
MOST = 200_000  # bytes of a picture
MEAN = 60_000  # bytes of a picture on average
ALL = 25_000_000  # bytes of all pictures and films
FILM = "film"
"""What a film is called among the pictures of a recipe; it comes first."""
FILMED = 300_000  # bytes of a film
FILMS = (  # width in pixels, every so manyth frame, quality (100: without loss), the first to fit
    *((975, 1, 100), (650, 1, 100), (650, 1, 80), (520, 1, 70), (520, 2, 70)),
    *((400, 2, 60), (400, 4, 60), (300, 4, 40), (200, 8, 30)),
)
BEST = ("degradation-cifar", "gpt-shakespeare", "style-vgg", "word2vec-text8")
"""Recipes that stand for their file, though they are not its first."""

Record = dict[str, Any]  # what is known of a recipe, as JSON


# ---------------------------------------------------------------------------------- from the runs


def newest(runs: Sequence[Path]) -> dict[str, Path]:
    """The newest finished run of each recipe as the zoo has it."""
    cards = [card for folder in runs for card in folder.glob("*/card.md")]
    found = {}
    for card in sorted(cards, key=lambda card: card.stat().st_mtime):
        about = json.loads((card.parent / "recipe.json").read_text())
        if not about["changed"]:
            found[about["name"]] = card.parent
    return found


def shrink(picture: Image.Image, path: Path) -> None:
    """A copy of a picture with 256 colours as lossless WebP, narrower where it would be large."""
    image = picture.convert("RGB")
    path.parent.mkdir(exist_ok=True)
    for width in WIDTHS:
        size = min(width, image.width)
        copy = image.resize((size, round(image.height * size / image.width)), Resampling.LANCZOS)
        with_palette(copy).save(path, lossless=True, quality=100, method=4)
        if path.stat().st_size <= MOST:
            return


def with_palette(image: Image.Image) -> Image.Image:
    """An image with at most 256 colours, which are fitted to it; one with fewer keeps its own."""
    fewer = image if image.getcolors(256) else image.quantize(256, kmeans=2)
    return fewer.convert("RGB")


def encode(film: Film) -> bytes:
    """A film as an animated WebP that is small enough: narrower, then lossy, with fewer frames."""
    content = b""
    for width, every, quality in FILMS:
        shown = [Image.fromarray(frame) for frame in film.frames[::every]]
        side = min(width, shown[0].width)
        size = (side, round(shown[0].height * side / shown[0].width))
        first, *others = (frame.resize(size, Resampling.LANCZOS) for frame in shown)
        target, lossless = io.BytesIO(), quality == 100
        first.save(target, "webp", save_all=True, append_images=others, loop=0, method=4,
                   duration=round(1000 * every / film.rate), lossless=lossless,
                   quality=quality)  # fmt: skip
        content = target.getvalue()
        if len(content) <= FILMED:
            break
    return content


def place_of(recipe: Recipe) -> picture_digest.Place:
    """Where the class of a recipe is defined."""
    return picture_digest.Place(type(recipe).__module__, type(recipe).__name__)


def method_of(picture: str) -> str:
    """The method that draws a picture, or makes the film."""
    return "sample" if picture == FILM else "picture_" + picture.replace("-", "_")


def is_filmed(recipe: Recipe) -> bool:
    """Whether the recipe's `sample` makes a film."""
    sample = getattr(recipe, "sample", None)
    return recipe.writes == FILM or bool(sample and FILM in inspect.signature(sample).parameters)


def film(recipe: Recipe, run: Path, docs: Path) -> Record:
    """Make the film of a run, with its last frame beside it for paper; what it shows."""
    asked = {} if recipe.writes == FILM else {FILM: True}
    made = everynet.trained(run).sample(**asked)
    path = docs / "gallery" / f"{recipe.name}-{FILM}.webp"
    path.write_bytes(encode(made))
    last = Image.fromarray(made.frames[-1])
    last.thumbnail((WIDTHS[-1], last.height), Resampling.LANCZOS)
    last.quantize(256, kmeans=2).save(path.with_suffix(".png"), optimize=True)
    doc = " ".join((inspect.getdoc(type(recipe).sample) or "").split())
    sentences = re.split(r"(?<=\.) ", doc)
    caption = next((text for text in sentences if "film" in text.lower()), sentences[0])
    return {"caption": caption, "digest": picture_digest.digest(place_of(recipe), "sample")}


def drawn(recipe: Recipe, run: Path) -> dict[str, Record]:
    """The pictures of a run, each with its caption and, where that is sure, what code drew it.

    That is the code of today where the picture is newer than every file that it depends on.
    """
    page = (run / "card.md").read_text(encoding="utf-8")
    captions = {n: c for c, n in re.findall(r"(?m)^!\[(.*)\]\(pictures/(.+)\.png\)$", page)}
    found = {}
    for name, template in recipe.picture_names().items():
        path = run / "pictures" / f"{name}.png"
        if name not in captions or not path.exists():
            continue
        caption = captions[name] if "{" in template else template
        values = re.sub(r"\\\{.*?\\\}", ".*", re.escape(template))
        place, method = place_of(recipe), method_of(name)
        sure = path.stat().st_mtime > picture_digest.newest_change(place, method)
        sure = sure and re.fullmatch(values, caption) is not None
        digest = picture_digest.digest(place, method) if sure else ""
        found[name] = {"caption": caption, "digest": digest}
    return found


def record(recipe: Recipe, run: Path, docs: Path) -> Record:
    """What a run reached, where, and its pictures, which are copied beside the page."""
    metrics = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["test"]
    where = json.loads((run / "environment.json").read_text())
    pictures = drawn(recipe, run)
    for name in pictures:
        with Image.open(run / "pictures" / f"{name}.png") as picture:
            shrink(picture, docs / "gallery" / f"{recipe.name}-{name}.webp")
    return {
        "metrics": metrics,
        "where": f"{where['device_name']}, torch {where['versions']['torch']}",
        "pictures": pictures,
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


def in_order(names: Sequence[str]) -> list[str]:
    """Recipes of a file, that which stands for it first."""
    return sorted(names, key=lambda name: name not in BEST)


def judged(entry: Entry, about: Record) -> str:
    """The goal of a recipe, marked where what is recorded does not reach it."""
    goals = [goal for goal in Goal.parse(entry.goal) if goal.metric in about["metrics"]]
    reached = all(goal.reached(about["metrics"]) for goal in goals)
    return entry.goal if reached else f"{entry.goal}: **not reached**"


def section(group: Sequence[Entry], known: Mapping[str, Record]) -> Iterator[str]:
    """The lines of one file of the zoo: its idea, what its recipes reached, its pictures."""
    names = {row: name for part in curriculum() for row, name in part["rows"].items()}
    rows = dict.fromkeys(row for entry in group for row in entry.covers)
    yield from ("", f"### {title(group[0])}", "", group[0].summary, "")
    yield "Curriculum: " + ", ".join(f"{row} ({names[row]})" for row in rows) + "."
    yield from ("", "| `everynet run` | reached | goal | on |", "|---|---|---|---|")
    for entry in group:
        about = known.get(entry.name, {"metrics": {}, "where": ""})
        values = ", ".join(f"{name} {value:.4g}" for name, value in about["metrics"].items())
        reached = values or "no whole run at hand"
        yield f"| `{entry.name}` | {reached} | {judged(entry, about)} | {about['where']} |"
    yield from shown(group, known)


def chosen(group: Sequence[Entry], known: Mapping[str, Record]) -> dict[str, str]:
    """The pictures of a file, the film first, each with the recipe that it is shown of.

    Every picture is shown once, of the recipe that stands for the file if that has it.
    """
    found: dict[str, str] = {}
    for recipe in in_order([entry.name for entry in group]):
        for name in known.get(recipe, {}).get("pictures", ()):
            found.setdefault(name, recipe)
    return dict(sorted(found.items(), key=lambda picture: picture[0] != FILM))


def shown(group: Sequence[Entry], known: Mapping[str, Record]) -> Iterator[str]:
    """One picture, or the film, and folded away the others."""
    pictures = []
    for name, recipe in chosen(group, known).items():
        caption, digest = (known[recipe]["pictures"][name][key] for key in ("caption", "digest"))
        old = "" if digest else " (An earlier drawing.)"
        whose = f"`{recipe}`: " if len(group) > 1 else ""
        image = f"![{caption}](gallery/{recipe}-{name}.webp)"
        pictures.append(["", image, "", f"{whose}*{caption}*{old}"])
    head, *rest = pictures or [[]]
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
    found, listed = newest(runs), entries()[0]
    filmed = set[str]()  # files
    order = {name: place for place, name in enumerate(in_order([e.name for e in listed]))}
    for entry in sorted(listed, key=lambda entry: order[entry.name]):
        if entry.name not in found:
            continue
        recipe, run = find(entry.name), found[entry.name]
        try:
            if again and not all(about["digest"] for about in drawn(recipe, run).values()):
                draw(of_run(run), run)
        except Failure as error:  # its data or its weights are not here, say
            print(f"{entry.name}: not drawn again, and not shown anew: {error}")
            continue
        known[entry.name] = record(recipe, run, docs)
        if is_filmed(recipe) and entry.file not in filmed:
            try:
                known[entry.name]["pictures"][FILM] = film(recipe, run, docs)
                filmed.add(entry.file)
            except Failure as error:
                print(f"{entry.name}: no film: {error}")
    names = {entry.name for entry in listed}
    return {name: about for name, about in sorted(known.items()) if name in names}


def only_shown(known: Mapping[str, Record], listed: Sequence[Entry]) -> dict[str, Record]:
    """What is known of every recipe, without the pictures that another recipe stands for."""
    left = {name: {**about, "pictures": {}} for name, about in known.items()}
    for _, group in groupby(listed, key=lambda entry: entry.file):
        for name, recipe in chosen(list(group), known).items():
            left[recipe]["pictures"][name] = known[recipe]["pictures"][name]
    return left


def stale(known: Mapping[str, Record], listed: Sequence[Entry]) -> Iterator[str]:
    """A line for each recipe with pictures that today's code draws otherwise, or without any."""
    files = {entry.file for entry in listed if known.get(entry.name, {}).get("pictures")}
    for entry in listed:
        pictures = known.get(entry.name, {}).get("pictures", {})
        place = picture_digest.place_of(entry)
        today = {n: picture_digest.digest(place, method_of(n)) if place else "" for n in pictures}
        gone = [f"{name} (no more)" for name, digest in today.items() if not digest]
        other = [n for n, digest in today.items() if digest and pictures[n]["digest"] != digest]
        if gone or other:
            yield f"{entry.name}: to be drawn again: {', '.join(other + gone)}"
        elif not pictures and (entry.name in BEST or entry.file not in files):
            yield f"{entry.name}: no picture"


def main(words: Sequence[str]) -> None:
    """Write the page, its record and its pictures, and remove pictures that it does not show."""
    folder, listed = DOCS / "gallery", entries()[0]
    if "--stale" in words:
        print(*stale(json.loads((folder / "record.json").read_text()), listed), sep="\n")
        return
    runs = [Path(word) for word in words if word != "--draw"]
    for run in runs:
        if not run.is_dir():
            sys.exit(f"RUNS ({run}) must be folders that hold runs, such as runs; it is not there")
    known = update(runs, DOCS, again="--draw" in words)
    text = page(known, listed)
    (DOCS / "gallery.md").write_text(text)
    known = only_shown(known, listed)
    (folder / "record.json").write_text(json.dumps(known, indent=1) + "\n")
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    pictures = [path for path in folder.iterdir() if path.suffix in (".png", ".webp")]
    for picture in pictures:
        name = picture.with_suffix(".webp").name  # of a still: that of the film
        if f"(gallery/{name})" not in text and name not in readme:
            picture.unlink()
    sizes = {path: path.stat().st_size for path in pictures if path.exists()}
    still = [size for path, size in sizes.items() if not path.stem.endswith(f"-{FILM}")]
    size, mean = sum(sizes.values()), sum(still) / max(len(still), 1)
    print(*stale(known, listed), sep="\n")
    print(f"{text.count('![')} pictures, {size / 1e6:.1f} MB, {mean / 1e3:.0f} kB on average")
    if size > ALL or mean > MEAN:
        sys.exit(
            f"docs/gallery ({size:,} bytes) must have at most {ALL:,}, and a picture "
            f"({mean:,.0f} on average) {MEAN:,}: lower MOST"
        )


if __name__ == "__main__":
    main(sys.argv[1:])

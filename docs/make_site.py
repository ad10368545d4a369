"""Write docs/site/: a page a network, the families, and the documents beside docs, for Sphinx.

    networks/NAME.md   idea and equations as the file has them, recipes, pictures, settings, source
    networks.md        every network by family
    gallery.md         a thumbnail of each network that has a picture, which leads to its page
    thumbnails/        those, made of docs/gallery
    ARCHITECTURE.md .. the documents of the repository's top folder

`make docs` calls this before Sphinx; nothing of it is committed, so nothing of it is ever stale.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from textwrap import dedent
from typing import Any

import make_gallery
import make_results
from PIL import Image

from everynet.recipes.catalog import PACKAGE, Entry, entries, find
from everynet.recipes.settings import setting_docs, settings
from everynet.system.wording import written

DOCS = Path(__file__).resolve().parent
SITE = DOCS / "site"
TOP = ("ARCHITECTURE", "CONTRIBUTING", "CHANGELOG")
"""Documents of the repository that the site shows as well."""
THUMBNAIL = (400, 300)  # pixels, at most
SPECIAL = re.compile(r"([\\*_<>\[\]|$#~])")
IDENTIFIERS = {
    r"\bdoi:(10\.\S+[^\s.,;)])": "https://doi.org/{}",
    r"\barXiv:(\d{4}\.\d{4,5}|[a-z-]+/\d{7})": "https://arxiv.org/abs/{}",
}
"""What names a paper, and where it stands."""


def page_name(entry: Entry) -> str:
    """The name of the page of a network: that of its file."""
    return Path(entry.file).stem.replace("_", "-")


def groups() -> list[list[Entry]]:
    """The recipes of each file of the zoo."""
    listed = entries()[0]
    return [list(group) for _, group in groupby(listed, key=lambda entry: entry.file)]


def prose(text: str) -> str:
    """A paragraph of a docstring for Markdown: letters stay letters, papers are links."""
    parts = re.split(r"(`[^`]+`)", text)
    shown = "".join(part if part.startswith("`") else SPECIAL.sub(r"\\\1", part) for part in parts)
    for pattern, address in IDENTIFIERS.items():

        def link(found: re.Match[str], address: str = address) -> str:
            return f"[{found[0]}]({address.format(found[1].replace(chr(92), ''))})"

        shown = re.sub(pattern, link, shown)
    return shown


def idea(docstring: str) -> Iterator[str]:
    """A docstring in Markdown: what is indented, equations above all, stands as it is."""
    for indented, lines in groupby(_blocks(docstring), key=lambda block: block.startswith("    ")):
        if indented:
            yield "```text\n" + dedent("\n\n".join(lines)) + "\n```"
        else:
            yield from (prose(line) for line in lines)


def _blocks(docstring: str) -> Iterator[str]:
    """The stretches of lines between empty lines that are all indented, or all are not."""
    for block in re.split(r"\n\s*\n", docstring.strip("\n")):
        for _, lines in groupby(block.splitlines(), key=lambda line: line.startswith("    ")):
            yield "\n".join(lines)


def cells(*given: str) -> str:
    """A row of a table."""
    return "| " + " | ".join(" ".join(text.split()).replace("|", "\\|") for text in given) + " |"


def recipes(group: Sequence[Entry], measured: Mapping[str, Any]) -> Iterator[str]:
    """The table of the recipes of a file: goal, what was reached, what others published."""
    rows = [("`everynet run`", "goal on the test split", "reached", "where", "published")]
    for entry in group:
        about = measured.get(entry.name, {})
        seeds = make_results.reached(about) if about else "not measured yet"
        where, published = about.get("where", ""), about.get("published", "")
        rows.append((f"`{entry.name}`", entry.goal, seeds, where, published))
    filled = [column for column in zip(*rows, strict=True) if any(column[1:])]
    head, *others = zip(*filled, strict=True)
    yield "## Recipes\n"
    yield cells(*head)
    yield "|---" * len(head) + "|"
    yield from (cells(*row) for row in others)
    for entry in group[1:]:
        yield f"\n`{entry.name}`: {prose(entry.idea)}"
    notes = [(entry.name, measured.get(entry.name, {}).get("note")) for entry in group]
    yield from (
        f"\nMeasured with `{name}`: {prose(note.rstrip('.'))}." for name, note in notes if note
    )


def settings_of(group: Sequence[Entry]) -> Iterator[str]:
    """A table of settings for each class of recipes in the file, folded away."""
    for cls, (entry, *_) in groupby(group, key=lambda entry: entry.cls):
        recipe = find(entry.name)
        known, docs = settings(recipe), setting_docs(recipe)
        yield f"\n<details><summary>Settings of {entry.name} ({cls})</summary>\n"
        yield "| setting | value | what it is |\n|---|---|---|"
        yield from (
            cells(f"`{name}`", f"`{written(value) or ' '}`", prose(docs[name]))
            for name, value in known.items()
        )
        yield "\n</details>"


def pictures(group: Sequence[Entry], known: Mapping[str, Any]) -> Iterator[str]:
    """The pictures of the gallery, each with its caption; a film has its last frame for paper."""
    shown = list(make_gallery.shown(group, known))
    if shown:
        yield "\n## Pictures"
    for line in shown:
        image = re.fullmatch(rf"!\[(.*)\]\((gallery/.*-{make_gallery.FILM})\.webp\)", line)
        for form, role in {"webp": "film", "png": "still"}.items() if image else ():
            yield f"```{{image}} ../../{image[2]}.{form}\n:class: {role}\n:alt: {image[1]}\n```"
        if not image and not line.startswith(("<details>", "</details>")):
            yield line.replace("](gallery/", "](../../gallery/")


def thumbnails(known: Mapping[str, Any]) -> dict[str, Path]:
    """The picture that stands for each network, by the name of its page; of a film its last."""
    found = {}
    for group in groups():
        for name, recipe in [*make_gallery.chosen(group, known).items()][:1]:
            form = "png" if name == make_gallery.FILM else "webp"
            found[page_name(group[0])] = DOCS / "gallery" / f"{recipe}-{name}.{form}"
    return found


def gallery(known: Mapping[str, Any]) -> str:
    """A thumbnail of each network that has a picture, by the families of the curriculum."""
    there = thumbnails(known)
    lines = ["# Gallery", "", "How each network looks inside; a picture leads to the page of its"]
    lines += ["network, which has the others, their captions and its films."]
    for family, files in make_gallery.chapters(entries()[0]).items():
        shown = {page_name(g[0]): make_gallery.title(g[0]) for g in files}
        tiles = [
            f"- [![](thumbnails/{name}.webp) {title}](networks/{name}.md)"
            for name, title in shown.items()
            if name in there
        ]
        if tiles:
            lines += ["", f"## {family}", "", "```{container} thumbnails", *tiles, "```"]
    return "\n".join(lines) + "\n"


def rows(group: Sequence[Entry]) -> str:
    """The rows of the curriculum that a file shows, as links to their families."""
    parts = tomllib.loads((PACKAGE / "curriculum.toml").read_text(encoding="utf-8"))
    headings = make_gallery.heading_anchors((DOCS / "curriculum.md").read_text(encoding="utf-8"))
    links = []
    for row in dict.fromkeys(row for entry in group for row in entry.covers):
        part = parts[re.sub(r"\d", "", row)]
        family = next(a for a in headings if a.startswith(f"{row[0].lower()}-"))
        links.append(f"[{row}](../../curriculum.md#{family}) ({prose(part['rows'][row])})")
    return ", ".join(links)


def network(
    group: Sequence[Entry], measured: Mapping[str, Any], known: Mapping[str, Any], *, whole: bool
) -> str:
    """The page of a file of the zoo; without `whole` nothing of torch is imported."""
    file = PACKAGE / group[0].file
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    lines = [f"# {make_gallery.title(group[0])}", ""]
    lines.append("\n\n".join(idea(docstring)))
    lines += ["", f"Curriculum: {rows(group)}.", "", *recipes(group, measured)]
    lines += pictures(group, known)
    lines += settings_of(group) if whole else ()
    source = f"../../../src/everynet/{group[0].file}"
    lines += ["", "## The file", "", f"`src/everynet/{group[0].file}`", ""]
    lines += [f"```{{literalinclude}} {source}", ":language: python", "```"]
    return "\n".join(lines) + "\n"


def overview(listed: Sequence[Sequence[Entry]]) -> str:
    """The page of all networks, by family."""
    lines = ["# Networks", "", "Every network by family: idea, equations, settings, results, file."]
    for family, files in groupby(listed, key=lambda group: group[0].family):
        shown = list(files)
        lines += ["", f"## {family.capitalize()}", ""]
        lines += [
            f"- [{make_gallery.title(g[0])}](networks/{page_name(g[0])}.md): "
            f"{', '.join(f'`{entry.name}`' for entry in g)}"
            for g in shown
        ]
        lines += ["", "```{toctree}", ":hidden:", ""]
        lines += [*(f"networks/{page_name(g[0])}" for g in shown), "```"]
    return "\n".join(lines) + "\n"


def document(name: str) -> str:
    """A document of the top folder, whose links lead out of docs/site instead of there."""
    text = (DOCS.parent / f"{name}.md").read_text(encoding="utf-8")
    return re.sub(r"\]\((?!https?:|#)([^)]+)\)", lambda found: f"](../../{found[1]})", text)


def pages(*, whole: bool) -> dict[str, str]:
    """All pages by their paths in docs/site."""
    measured = make_results.measurements()
    known = json.loads((DOCS / "gallery" / "record.json").read_text(encoding="utf-8"))
    listed = groups()
    made = {f"{name}.md": document(name) for name in TOP}
    made |= {"networks.md": overview(listed), "gallery.md": gallery(known)}
    for group in listed:
        made[f"networks/{page_name(group[0])}.md"] = network(group, measured, known, whole=whole)
    return made


SOURCE = re.compile(r"\]\((?:\.\./)+src/everynet/(zoo/[^)#]+\.py)\)")
GALLERY = re.compile(r"\]\((?:\.\./)*(?:docs/)?gallery\.md(?:#[^)]*)?\)")
DOCUMENT = re.compile(rf"\]\((?:\.\./)+({'|'.join(TOP)})\.md(#[^)]*)?\)")


def relink(text: str, page: str) -> str:
    """A page with links to files of the zoo and documents leading to their pages on the site."""
    up = "../" * page.count("/")
    known = {group[0].file: page_name(group[0]) for group in groups()}

    def to_page(found: re.Match[str]) -> str:
        name = known.get(found[1])
        return f"]({up}site/networks/{name}.md)" if name else found[0]

    text = GALLERY.sub(f"]({up}site/gallery.md)", SOURCE.sub(to_page, text))
    return DOCUMENT.sub(lambda found: f"]({up}site/{found[1]}.md{found[2] or ''})", text)


def main() -> None:
    """Write the pages, and nothing that is not among them stays."""
    shutil.rmtree(SITE, ignore_errors=True)
    for path, text in pages(whole=True).items():
        (SITE / path).parent.mkdir(parents=True, exist_ok=True)
        (SITE / path).write_text(text, encoding="utf-8")
    known = json.loads((DOCS / "gallery" / "record.json").read_text(encoding="utf-8"))
    (SITE / "thumbnails").mkdir()
    for name, path in thumbnails(known).items():
        with Image.open(path) as picture:
            small = picture.convert("RGB")
        small.thumbnail(THUMBNAIL, Image.Resampling.LANCZOS)
        small.save(SITE / "thumbnails" / f"{name}.webp", quality=80, method=4)


if __name__ == "__main__":
    main()

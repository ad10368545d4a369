"""The documents: no link is dead, what is generated is fresh and whole, no page asks the web."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
LINK = re.compile(r"(!?)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]*(?:\([^()]*\)[^()\s]*)*)\)")
SRC = re.compile(r"""(?:src|href)=["']([^"']+)["']""")


def load(name):
    """A script of docs, which lies beside the pages and is no part of the package."""
    if str(DOCS) not in sys.path:
        sys.path.insert(0, str(DOCS))
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def maker():
    return load("make_site")


@pytest.fixture(scope="module")
def pages(maker):
    """Every document by its path in the repository, with those that `make docs` makes."""
    there = [*ROOT.glob("*.md"), *DOCS.glob("*.md")]
    found = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in there}
    made = maker.pages(whole=False)
    return found | {f"docs/site/{path}": text for path, text in made.items()}


@pytest.fixture(scope="module")
def known():
    """What the gallery knows."""
    return json.loads((DOCS / "gallery" / "record.json").read_text("utf-8"))


def outside_code(text):
    """A page without its code, where brackets are no links."""
    return re.sub(r"`[^`\n]*`", "code", re.sub(r"(?ms)^(```+).*?^\1", "", text))


def links(text):
    """What a page shows or leads to: (whether it is an image, where)."""
    shown = [(bool(mark), target) for mark, target in LINK.findall(outside_code(text))]
    return shown + [(True, target) for target in SRC.findall(outside_code(text))]


def dead(pages, page, target, anchors):
    """What is wrong with a link of a page, if anything."""
    path, _, part = target.partition("#")
    place = resolved(f"{Path(page).parent.as_posix()}/{path}") if path else page
    if place in pages and part and part not in anchors(pages[place]):
        return f"{page}: no heading #{part} in {place}"
    if re.fullmatch(r"docs/site/thumbnails/[\w-]+\.webp", place):
        return None  # made by `make docs`; a test of its own holds that each is
    there = place in pages or (ROOT / place).exists()
    return None if there else f"{page}: {target} is not there"


def resolved(path):
    """A path without its `..`."""
    parts = []
    for part in path.split("/"):
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def faults(pages, maker):
    """Every dead link of the pages."""
    anchors = maker.make_gallery.heading_anchors
    found = [
        dead(pages, page, target, anchors)
        for page, text in pages.items()
        for _, target in links(text)
        if not re.match(r"https?:", target)
    ]
    return [fault for fault in found if fault]


def test_no_link_is_dead(pages, maker):
    assert sum(len(links(text)) for text in pages.values()) > 2000
    assert faults(pages, maker) == []


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("[a](docs/nothing.md)", "README.md: docs/nothing.md is not there"),
        ("![a](docs/gallery/no.png)", "README.md: docs/gallery/no.png is not there"),
        ("[a](docs/how-to.md#no-such)", "README.md: no heading #no-such in docs/how-to.md"),
        ('<img src="docs/no.png">', "README.md: docs/no.png is not there"),
        ("`[a](no.md)`", None),
        ("[a](docs/how-to.md#use-a-block)", None),
        ("[a [b] c](docs/../LICENSE)", None),
    ],
)
def test_a_dead_link_is_found(pages, maker, line, fault):
    found = faults(pages | {"README.md": line}, maker)
    assert found == ([fault] if fault else [])


def test_every_page_is_in_the_contents_once(pages):
    """Sphinx warns of one that is not; a file that an entry names must be there."""
    entries = []
    for page, text in pages.items():
        for block in re.findall(r"(?ms)^```\{toctree\}\n(.*?)^```", text):
            names = [line for line in block.splitlines() if line and not line.startswith(":")]
            entries += [resolved(f"{Path(page).parent.as_posix()}/{name}.md") for name in names]
    inside = {page for page in pages if page.startswith("docs/")}
    inside -= {"docs/index.md", "docs/gallery.md"}  # of the latter the site has one of its own
    assert sorted(entries) == sorted(inside)


def test_no_page_loads_anything_from_another_host(pages):
    """No image, no script and no formula: Sphinx would take the program that sets it from a CDN."""
    for page, text in pages.items():
        remote = [where for image, where in links(text) if image and "//" in where]
        assert not remote, page
        assert not re.search(r"<script|<iframe|\{math\}|^\$\$", outside_code(text), re.M), page
    for path in (DOCS / "conf.py", *(DOCS / "static").iterdir()):
        text = path.read_text("utf-8")
        assert "//" not in text, path
        assert not re.search(r"suppress_warnings|mathjax|dollarmath|intersphinx", text), path


def test_the_gallery_of_the_site_leads_from_thumbnails_to_the_pages(maker, pages, known):
    text = pages["docs/site/gallery.md"]
    tiles = re.findall(
        r"(?m)^- \[!\[\]\(thumbnails/(.*)\.webp\) (.+)\]\(networks/(.*)\.md\)$", text
    )
    assert [name for name, _, _ in tiles] == [page for _, _, page in tiles]
    there = maker.thumbnails(known)
    assert sorted(there) == sorted(name for name, _, _ in tiles)
    assert all(path.is_file() for path in there.values())
    drawn = {maker.page_name(g[0]) for g in maker.groups() if any(
        known.get(entry.name, {}).get("pictures") for entry in g)}  # fmt: skip
    assert set(there) == drawn
    assert there["mlp"].name == "mlp-spirals-film.png", "of a film its last frame"


def test_a_film_plays_on_a_page_and_its_last_frame_is_there_for_paper(maker):
    group = next(group for group in maker.groups() if group[0].name == "mixture")
    about = {"caption": "See.", "digest": "a"}
    known = {"mixture": {"metrics": {}, "where": "", "pictures": {"film": about, "em": about}}}
    lines = [*maker.pictures(group, known)]
    assert lines.count("*See.*") == 2
    film = "```{image} ../../gallery/mixture-film.webp\n:class: film\n:alt: See.\n```"
    assert film in lines
    assert film.replace("webp", "png").replace("class: film", "class: still") in lines
    assert "![See.](../../gallery/mixture-em.webp)" in lines


def test_every_picture_of_the_gallery_is_named_somewhere_and_small(known):
    files = {path.name for path in (DOCS / "gallery").iterdir()} - {"record.json"}
    names = {f"{name}-{picture}" for name in known for picture in known[name]["pictures"]}
    films = {f"{name}.png" for name in names if name.endswith("-film")}
    assert files == {f"{name}.webp" for name in names} | films
    sizes = [(DOCS / "gallery" / name).stat().st_size for name in files]
    assert sum(sizes) <= 25_000_000
    assert max(sizes) <= 300_000
    assert sum(sizes) / len(sizes) <= 60_000


def test_a_network_s_page_has_its_equations_as_the_file_has_them(maker):
    group = next(group for group in maker.groups() if group[0].name == "backprop")
    text = maker.network(group, maker.make_results.measurements(), {}, whole=True)
    assert text.startswith("# Backpropagation\n")
    equations = re.findall(r"(?ms)^```text\n(.*?)^```", text)[0]
    assert [int(n) for n in re.findall(r"\((\d)\)  ", equations)] == list(range(1, 10))
    assert "E       = (sum_k v_k tanh(w_k x + b_k) - t)^2 " in equations
    assert "[doi:10.1038/323533a0](https://doi.org/10.1038/323533a0)" in text
    assert (
        "| `backprop` | torch_difference <= 1e-13 and slope_error <= 0.1 | slope_error 0." in text
    )
    assert "| `hidden` | `16` | Hidden units of the perceptron whose derivatives" in text
    assert "```{literalinclude} ../../../src/everynet/zoo/feedforward/backprop.py" in text
    assert "[A1](../../curriculum.md#a-autodiff-and-backprop-8-of-8)" in text


def test_every_equation_of_the_zoo_is_on_its_page_as_it_stands(pages, maker):
    for group in maker.groups():
        text = pages[f"docs/site/networks/{maker.page_name(group[0])}.md"]
        docstring = (maker.PACKAGE / group[0].file).read_text("utf-8").split('"""')[1]
        shown = "\n".join(re.findall(r"(?ms)^```text\n(.*?)^```", text))
        for line in re.findall(r"(?m)^    .*\(\d+\).*$", docstring.replace("\\\\", "\\")):
            assert line.strip() in shown, f"{group[0].file}: {line}"


def test_each_network_has_a_page_of_its_own(maker):
    names = [maker.page_name(group[0]) for group in maker.groups()]
    assert len(set(names)) == len(names)


def test_letters_of_a_docstring_stay_letters(maker):
    assert maker.prose("a_b * <c> [d] `e_f`") == r"a\_b \* \<c\> \[d\] `e_f`"
    assert maker.prose("arXiv:1706.03762, ...").startswith(
        "[arXiv:1706.03762](https://arxiv.org/abs/1706.03762),"
    )
    assert maker.prose("(doi:10.1162/neco.1997.9.8.1735).") == (
        "([doi:10.1162/neco.1997.9.8.1735](https://doi.org/10.1162/neco.1997.9.8.1735))."
    )


def test_links_to_files_of_the_zoo_lead_to_their_pages(maker):
    lenet = "[a](../src/everynet/zoo/vision/lenet.py)"
    assert maker.relink(lenet, "curriculum") == "[a](site/networks/lenet.md)"
    deep = "[a](../../../src/everynet/zoo/vision/lenet.py) [b](../../../CONTRIBUTING.md#style)"
    assert maker.relink(deep, "site/networks/mlp") == (
        "[a](../../site/networks/lenet.md) [b](../../site/CONTRIBUTING.md#style)"
    )
    for page, link in {
        "index": "gallery.md",
        "site/ARCHITECTURE": "../../docs/gallery.md#a",
    }.items():
        up = "../" * page.count("/")
        assert maker.relink(f"[a]({link})", page) == f"[a]({up}site/gallery.md)"
    other = "[a](../src/everynet/zoo/optimisation/update_rules.py) [b](../tests/test_docs.py)"
    assert maker.relink(other, "curriculum") == other


def test_the_page_of_python_is_fresh():
    """Written by a process of its own: signatures here are those of checked functions."""
    code = "import make_api, sys; sys.stdout.write(make_api.page())"
    made = subprocess.run(
        [sys.executable, "-c", code], cwd=DOCS, capture_output=True, text=True, check=True
    ).stdout
    assert (DOCS / "api.md").read_text("utf-8") == made


def test_what_everynet_gives_is_on_its_page():
    import everynet

    text = (DOCS / "api.md").read_text("utf-8")
    for name in everynet.__all__:
        assert re.search(rf"^### (everynet\.)?{name}$|^- `{name}` is ", text, re.M), name


def test_the_citation_names_the_version_that_is_here():
    import everynet

    text = (ROOT / "CITATION.cff").read_text("utf-8")
    assert re.search(r"^version: (.*)$", text, re.M)[1] == everynet.__version__
    assert re.search(r"^license: MIT$", text, re.M)


def test_readme_is_read_in_a_minute():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 150

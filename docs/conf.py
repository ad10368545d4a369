"""How Sphinx builds these pages: `make docs`, after `docs/make_site.py`."""

import sys
from pathlib import Path

from docutils import nodes
from PIL import Image
from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))

import make_site

project = "everynet"
author = copyright = "the everynet authors"
extensions = ["myst_parser"]
exclude_patterns = ["_build", "gallery.md"]  # site/gallery.md stands in its place
html_theme = "alabaster"
html_theme_options = {
    "description": "Every network of the deep-learning curriculum",
    "show_powered_by": False,
    "page_width": "1240px",
    "body_max_width": "auto",
}
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_scaled_image_link = False  # an image that says its size would be a link to itself
myst_heading_anchors = 3


def setup(app: Sphinx) -> None:
    """Let links lead to pages that only the site has, and images say their size and wait."""

    def relink(app: Sphinx, page: str, source: list[str]) -> None:
        source[0] = make_site.relink(source[0], page)

    def measure(app: Sphinx, tree: nodes.document) -> None:
        for image in tree.findall(nodes.image):
            with Image.open(Path(app.srcdir) / image["uri"]) as opened:
                image["width"], image["height"] = map(str, opened.size)
            image["loading"] = "lazy"

    app.connect("source-read", relink)
    app.connect("doctree-read", measure)

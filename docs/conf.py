"""How Sphinx builds these pages: `make docs`, after `docs/make_site.py`."""

import sys
from pathlib import Path

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))

import make_site

project = "everynet"
author = copyright = "the everynet authors"
extensions = ["myst_parser"]
exclude_patterns = ["_build"]
html_theme = "alabaster"
html_theme_options = {
    "description": "Every network of the deep-learning curriculum",
    "show_powered_by": False,
    "page_width": "1100px",
}
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
myst_heading_anchors = 3


def setup(app: Sphinx) -> None:
    """Let links to files of the zoo lead to their pages, which only the site has."""

    def relink(app: Sphinx, page: str, source: list[str]) -> None:
        source[0] = make_site.relink(source[0], page)

    app.connect("source-read", relink)

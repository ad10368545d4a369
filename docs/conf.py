"""How Sphinx builds these pages: `make docs`."""

project = "everynet"
author = copyright = "the everynet authors"
extensions = ["myst_parser"]
exclude_patterns = ["_build"]
html_theme = "alabaster"
html_theme_options = {"description": "Every network of the deep-learning curriculum"}
myst_heading_anchors = 2
suppress_warnings = ["myst.xref_missing"]  # links to source files lead into the repository

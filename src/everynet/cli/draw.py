"""`everynet draw`: the pictures of a run, drawn again."""

from __future__ import annotations

import argparse

from everynet.cli import UsageError
from everynet.cli.resume import add_run

HELP = "draw the pictures of a run again"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A run, where its data is now, and what its pictures are written as."""
    add_run(parser)
    parser.add_argument("data", metavar="data=PATH", nargs="?", help="its data, if it was moved")
    parser.add_argument(
        "--format", action="append", choices=("png", "svg", "pdf"), metavar="svg|pdf",
        help="also write them as svg or pdf, beside png; may be given twice",
    )  # fmt: skip


def main(arguments: argparse.Namespace) -> int:
    """Draw, and print where the pictures are."""
    from everynet.recipes.stored import of_run
    from everynet.runs.verbs import draw

    word, moved = arguments.data or "", None
    if word:
        name, _, moved = word.partition("=")
        if name != "data" or not moved:
            raise UsageError(f"{word} must be data=PATH: where the data of the run is now")
    forms = tuple(dict.fromkeys(["png", *(arguments.format or [])]))
    recipe = of_run(arguments.run, arguments.file)
    for picture in draw(recipe, arguments.run, data=moved, forms=forms):
        print(picture)
    return 0

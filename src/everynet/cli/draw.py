"""`everynet draw`: the pictures of a run, drawn again."""

from __future__ import annotations

import argparse

from everynet.cli import UsageError, pairs
from everynet.cli.resume import add_run

HELP = "draw the pictures of a run again"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A run, and where its data is now."""
    add_run(parser)
    parser.add_argument("data", metavar="data=PATH", nargs="?", help="its data, if it was moved")


def main(arguments: argparse.Namespace) -> int:
    """Draw, and print where the pictures are."""
    from everynet.catalog import of_run
    from everynet.runs import draw

    moved = pairs([arguments.data] if arguments.data else [])
    for name in moved:
        if name != "data":
            raise UsageError(f"{name} must stay as it was in the run; only data= can be said")
    recipe = of_run(arguments.run, arguments.file)
    for picture in draw(recipe, arguments.run, data=moved.get("data")):
        print(picture)
    return 0

"""`everynet draw`: the pictures of a run, drawn again."""

from __future__ import annotations

import argparse

from everynet.cli.resume import add_run

HELP = "draw the pictures of a run again"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A run."""
    add_run(parser)


def main(arguments: argparse.Namespace) -> int:
    """Draw, and print where the pictures are."""
    from everynet.catalog import of_run
    from everynet.runs import draw

    for picture in draw(of_run(arguments.run, arguments.file), arguments.run):
        print(picture)
    return 0

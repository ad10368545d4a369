"""`everynet draw`: the pictures of a run, drawn again."""

from __future__ import annotations

import argparse

from everynet.cli.resume import add_run

HELP = "draw the pictures of a run again"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A run, and what its pictures are written as."""
    add_run(parser)
    parser.add_argument(
        "--format", action="append", choices=("png", "svg", "pdf"), metavar="svg|pdf",
        help="also write them as svg or pdf, beside png; may be given twice",
    )  # fmt: skip


def main(arguments: argparse.Namespace) -> int:
    """Draw, and print where the pictures are."""
    from everynet.catalog import of_run
    from everynet.runs import draw

    forms = tuple(dict.fromkeys(["png", *(arguments.format or [])]))
    for picture in draw(of_run(arguments.run, arguments.file), arguments.run, forms=forms):
        print(picture)
    return 0

"""`everynet sample`: what a generative network makes, written as its kind of data is."""

from __future__ import annotations

import argparse

from everynet.cli import pairs
from everynet.cli.resume import add_run

HELP = "images, text or rows from a generative network, written and named"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A run and settings."""
    from everynet.cli.trained import add_computing

    add_run(parser)
    parser.add_argument(
        "settings", metavar="key=value", nargs="*", help="settings of `everynet show`, and seed=N"
    )
    add_computing(parser, "the file or folder that is written (a new folder)")


def main(arguments: argparse.Namespace) -> int:
    """Write samples and print where they are; text is printed too."""
    from everynet.cli.trained import Out, asked

    run = asked(arguments)
    run.verb("sample")
    kind = run.kind("sample")
    made = run.made(pairs(arguments.settings))
    with run.fitting():
        paths = kind.write(made, run.spec, Out(arguments.out, run.recipe.name).place("samples"))
    if isinstance(made, list):
        for one in made:
            if isinstance(one, str):
                print(one)
    for path in paths:
        print(path)
    return 0

"""`everynet sample`: what a generative network makes, written as its kind of data is, or a film."""

from __future__ import annotations

import argparse

from everynet.cli import pairs
from everynet.cli.predict import add_computing, open_predictor
from everynet.cli.resume import add_run

HELP = "images, text, rows or a film from a generative network, written and named"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A run and settings."""
    add_run(parser)
    parser.add_argument(
        "settings", metavar="key=value", nargs="*", help="settings of `everynet show`, and seed=N"
    )
    add_computing(parser, "the file or folder that is written (a new folder)")


def main(arguments: argparse.Namespace) -> int:
    """Write samples and print where they are; text is printed too."""
    from everynet.runs.predict import Out

    predictor = open_predictor(arguments)
    out = Out(arguments.out, predictor.recipe.name)
    made, paths = predictor.write_samples(pairs(arguments.settings), out)
    if isinstance(made, list):
        for one in made:
            if isinstance(one, str):
                print(one)
    for path in paths:
        print(path)
    return 0

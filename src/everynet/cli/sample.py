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
    import torch

    from everynet.cli.trained import Asked
    from everynet.settings import convert, verb_arguments
    from everynet.types import mix

    run = Asked.of(arguments)
    words = pairs(arguments.settings)
    seed = convert("seed", words.pop("seed", str(run.recipe.seed)), int)
    given = verb_arguments(run.recipe.sample, words)
    model = run.model()
    draw = torch.Generator().manual_seed(mix(seed))
    with run.computing():
        made = run.recipe.sample(model, run.spec, draw, **given)
    paths = run.kind("sample").write(made, run.spec, run.place("samples"))
    for one in made:
        if isinstance(one, str):
            print(one)
    for path in paths:
        print(path)
    return 0

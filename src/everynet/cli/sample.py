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
    from everynet.types import UserError, mix

    run = Asked.of(arguments)
    make, kind = run.verb("sample"), run.kind("sample")
    words = pairs(arguments.settings)
    seed = convert("seed", words.pop("seed", str(run.recipe.seed)), int)
    if not 0 <= seed < 2**63:
        raise UserError(f"seed ({seed}) must be at least 0 and below 2^63")
    given = verb_arguments(make, words)
    model = run.model()
    with run.computing():
        made = make(model, run.spec, torch.Generator().manual_seed(mix(seed)), **given)
    with run.fitting():
        paths = kind.write(made, run.spec, run.place("samples"))
    if isinstance(made, list):
        for one in made:
            if isinstance(one, str):
                print(one)
    for path in paths:
        print(path)
    return 0

"""`everynet sweep`: every combination of some settings, with several seeds, in one table."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from everynet.cli import pairs, table
from everynet.cli.run import add_computing, add_jobs

if TYPE_CHECKING:
    from everynet.recipes.sweep import Sweep
    from everynet.runs.job import Result

HELP = "train every combination of some settings; one table, one picture"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A network, settings with several values, and how to compute."""
    parser.add_argument("name", metavar="NAME", help="a name of `everynet list`, or FILE.py[:NAME]")
    parser.add_argument(
        "settings",
        metavar="key=a,b,c",
        nargs="*",
        help="settings with their values between commas; one is fixed. A setting of several "
        "numbers or names takes parentheses: hidden=(4),(16) is two networks, hidden=(4,16) one. "
        "metric=NAME names the validation metric that orders the table",
    )
    parser.add_argument("--seeds", metavar="N", type=int, default=1, help="seeds of each (1)")
    parser.add_argument("--random", metavar="K", type=int, default=0, help="draw K combinations")
    parser.add_argument("--halving", action="store_true", help="stop the worse half early")
    add_jobs(parser)
    add_computing(parser)
    parser.add_argument("--quiet", action="store_true", help="print the run's folder, no more")
    parser.add_argument("--json", action="store_true", help="print the table as one JSON object")


def main(arguments: argparse.Namespace) -> int:
    """Train them and print the table."""
    from everynet.recipes.catalog import find
    from everynet.recipes.sweep import sweep_of
    from everynet.runs.epochs import turn_into_steps
    from everynet.runs.verbs import load, run

    base = find(arguments.name)
    recipe = sweep_of(
        base,
        turn_into_steps(base, pairs(arguments.settings)),
        seeds=arguments.seeds,
        random=arguments.random,
        halving=arguments.halving,
    )
    result = run(
        recipe,
        arguments.out,
        device=arguments.device,
        precision=arguments.precision,
        jobs=arguments.jobs,
        show=not arguments.quiet and not arguments.json,
    )
    if arguments.json:
        found = recipe.json(load(recipe, result.folder))
        print(json.dumps({"folder": str(result.folder), **found}))
    else:
        print(result.folder if arguments.quiet else "\n".join(report(recipe, result)))
    return 0


def report(recipe: Sweep, result: Result) -> Iterator[str]:
    """The table, what it says, and where the rest is."""
    from everynet.runs.verbs import load

    found = load(recipe, result.folder)
    yield table(recipe.table(found))
    yield recipe.verdict(found)
    best = recipe.rows(found)[0]
    if best.learned:
        pairs_of = zip(best.names, best.cells, strict=True)
        first = next(name for name, cell in pairs_of if cell.diverged is None)
        yield f"the best is in {result.folder / 'cells' / first}"
    names = ", ".join(path.name for path in result.pictures)
    yield f"pictures: {result.folder / 'pictures'} ({names})"

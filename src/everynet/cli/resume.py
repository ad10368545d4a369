"""`everynet resume`: go on with a run after a stop, a kill or a crash, or for longer."""

from __future__ import annotations

import argparse

from everynet.cli import UsageError, overridden, pairs, speaks
from everynet.cli.run import add_jobs

HELP = "go on with a run after a stop, a kill or a crash; or longer"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A run and how long."""
    add_run(parser)
    parser.add_argument(
        "settings",
        metavar="steps=N",
        nargs="*",
        help="how long in all; batch_size=N; data=PATH, if it was moved",
    )
    parser.add_argument("--device", default="", help="another than before, from here on")
    add_jobs(parser)
    parser.add_argument("--quiet", action="store_true", help="print the run's folder, no more")


def add_run(parser: argparse.ArgumentParser) -> None:
    """A run folder, and the file of its recipe where that is not in the zoo."""
    parser.add_argument("run", metavar="RUN", help="a run folder, its last letters, or latest")
    parser.add_argument("--file", metavar="FILE.py", help="the recipe's file, if not of the zoo")


def main(arguments: argparse.Namespace) -> int:
    """Go on with it and say what it reached."""
    for name in pairs(arguments.settings):
        if name not in ("steps", "epochs", "batch_size", "data"):
            raise UsageError(
                f"{name} must stay as it was in the run; only steps and batch_size can be changed"
            )
    longer = [word for word in arguments.settings if not word.startswith("data=")]
    moved = pairs(arguments.settings).get("data")
    from everynet.cli.run import summarize
    from everynet.cli.sweep import report
    from everynet.recipes.stored import of_run
    from everynet.recipes.sweep import Sweep
    from everynet.runs.folder import with_data
    from everynet.runs.verbs import resume

    show = not arguments.quiet
    recipe = of_run(arguments.run, arguments.file)
    recipe = overridden(with_data(recipe, moved) if moved else recipe, longer, show=show)
    result = resume(
        recipe, arguments.run, data=moved, device=arguments.device, jobs=arguments.jobs, show=show
    )
    named = f"{arguments.file}:{recipe.name}" if arguments.file else recipe.name
    if speaks():
        lines = summarize(recipe, result, named)
        lines = report(recipe, result) if isinstance(recipe, Sweep) else lines
        print(result.folder if arguments.quiet else "\n".join(lines))
    return 0

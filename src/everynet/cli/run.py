"""`everynet run`: train a network, fit an estimator or run a simulation, into a folder."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

from everynet.cli import overridden, pairs, speaks, table

if TYPE_CHECKING:
    from everynet.recipes.recipe import Recipe
    from everynet.runs.job import Result

HELP = "train a network (or fit, or simulate) and draw its pictures"


class Devices(tuple[str, ...]):
    """Names of devices; `cuda:1` is among them without being listed."""

    def __contains__(self, word: object) -> bool:
        return super().__contains__(re.sub(r"\Acuda:\d+\Z", "cuda", str(word)))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A network, settings and how to compute."""
    parser.add_argument("name", metavar="NAME", help="a name of `everynet list`, or FILE.py[:NAME]")
    parser.add_argument("settings", metavar="key=value", nargs="*", help="settings to change")
    add_computing(parser)
    parser.add_argument("--compile", action="store_true", help="let torch compile the objective")
    add_jobs(parser)
    parser.add_argument("--dry-run", action="store_true", help="print the settings and stop")
    parser.add_argument("--quiet", action="store_true", help="print the run's folder, no more")


def add_computing(parser: argparse.ArgumentParser) -> None:
    """Where and how to compute, and where to write."""
    devices = Devices(("auto", "cpu", "cuda", "mps"))
    parser.add_argument("--device", choices=devices, default="auto", help="cuda:1 is the second")
    precisions = ("auto", "fp32", "tf32", "bf16", "fp64")
    parser.add_argument("--precision", choices=precisions, default="auto")
    parser.add_argument("--out", metavar="DIR", default="runs", help="where run folders go (runs)")


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """How many cells of an experiment are trained at once."""
    parser.add_argument(
        "--jobs", metavar="N", type=int, default=1, help="cells of an experiment at once (1)"
    )


def main(arguments: argparse.Namespace) -> int:
    """Run it and say what it reached."""
    from everynet.recipes.catalog import find

    found = find(arguments.name)
    recipe = overridden(found, arguments.settings, show=not arguments.quiet)
    if arguments.dry_run:
        print("\n".join(list_settings(found, recipe, arguments)))
        return 0
    from everynet.runs.verbs import run

    result = run(
        recipe,
        arguments.out,
        device=arguments.device,
        precision=arguments.precision,
        compile=arguments.compile,
        jobs=arguments.jobs,
        show=not arguments.quiet,
    )
    if speaks():
        lines = summarize(recipe, result, arguments.name)
        print(result.folder if arguments.quiet else "\n".join(lines))
    return 0


def list_settings(found: Recipe, recipe: Recipe, arguments: argparse.Namespace) -> Iterator[str]:
    """Each setting, its value and where it came from; then how it would be computed."""
    from everynet.recipes.settings import settings
    from everynet.runs.verbs import setup_for
    from everynet.system.wording import written
    from everynet.training.device import describe

    given = pairs(arguments.settings)
    if "epochs" in given and "epochs" not in settings(recipe):
        given["steps"] = given["epochs"]
    rows = [("setting", "value", "from")]
    for name, value in settings(recipe).items():
        origin = "command line" if name in given else _origin(found, name, arguments.name)
        rows.append((name, written(value), origin))
    setup = setup_for(recipe, arguments.device, arguments.precision, arguments.compile)
    by = {"auto": "chosen"}
    rows += [
        ("--device", describe(setup.device), by.get(arguments.device, "command line")),
        ("--precision", setup.precision, by.get(arguments.precision, "command line")),
        ("--compile", written(arguments.compile), ""),
        ("--out", arguments.out, ""),
    ]
    yield table(rows)
    yield f"goal: {recipe.goal or 'none'}" + (" (not checked)" if recipe.changed else "")


def _origin(recipe: Recipe, name: str, named: str) -> str:
    default = next(field.default for field in fields(recipe) if field.name == name)
    if getattr(recipe, name) != default:
        return f"recipe {named}"
    classes = type(recipe).__mro__
    owner = next(cls for cls in classes if name in vars(cls).get("__annotations__", {}))
    return f"default of {owner.__name__}"


def summarize(recipe: Recipe, result: Result, named: str) -> Iterator[str]:
    """What was reached, where the pictures are and three things to try next."""
    from everynet.cli.hints import suggestions
    from everynet.runs.card import describe_goal, order_metrics
    from everynet.runs.notes import on_gap

    if result.baselines:
        yield from result.baselines.headline()
    ordered = order_metrics(recipe, result.metrics)
    metrics = ", ".join(f"{name} {value:.4g}" for name, value in ordered.items())
    yield f"{recipe.name}: {metrics}"
    if result.weights:
        yield f"weights {result.weights}"
    yield from on_gap(result.gap)
    if result.baselines:
        yield "beside it:"
        yield table([(f"  {first}", *rest) for first, *rest in result.baselines.table()])
        yield from (f"  {line}" for line in result.baselines.notes())
    goal = describe_goal(recipe, result.reached)
    yield f"goal {goal}" if goal.startswith("not checked") else f"goal: {goal}"
    names = ", ".join(path.name for path in result.pictures)
    yield f"pictures: {result.folder / 'pictures'} ({names})" if names else "pictures: none"
    yield "try next:"
    yield table([*suggestions(recipe, result, named)][:3])

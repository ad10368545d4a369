"""`everynet evaluate`: metrics of a trained network on labelled files, or on its test split."""

from __future__ import annotations

import argparse
import json

from everynet.cli import UsageError, pairs, table
from everynet.cli.resume import add_run
from everynet.system.wording import written

HELP = "metrics of a trained network on labelled files, or on its test split again"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A run, files and how to compute."""
    from everynet.cli.run import Devices

    add_run(parser)
    parser.add_argument(
        "settings",
        metavar="data=PATH or key=value",
        nargs="*",
        help="labelled files of the kind it learned from, or a known set (its own test split); "
        "target=NAME where the column has another name; settings of `everynet show`",
    )
    devices = Devices(("auto", "cpu", "cuda", "mps"))
    parser.add_argument("--device", choices=devices, default="auto", help="cuda:1 is the second")
    precisions = ("auto", "fp32", "tf32", "bf16", "fp64")
    parser.add_argument("--precision", choices=precisions, default="auto")
    parser.add_argument("--json", action="store_true", help="print the metrics as one JSON object")


def main(arguments: argparse.Namespace) -> int:
    """Print its metrics."""
    from everynet.metrics.meanings import explain_metric
    from everynet.runs.evaluate import evaluate_run
    from everynet.runs.folder import open_run

    for word in arguments.settings:
        if "=" not in word:
            raise UsageError(f"{word} must be written data={word}: the files to test it on")
    run = open_run(arguments.run, arguments.file)
    found = evaluate_run(
        run,
        device=arguments.device,
        precision=arguments.precision,
        **{"data": "", **pairs(arguments.settings)},
    )
    if arguments.json:
        print(json.dumps(found.metrics, allow_nan=False))
        return 0
    of = "its own test split: " if found.own else ""
    given = ", ".join(f"{name}={written(value)}" for name, value in found.settings.items())
    print(
        f"{run.recipe.name} evaluated on {of}{found.data} ({found.rows:,} samples)"
        + (f" with {given}" if given else "")
    )
    meanings = run.recipe.meanings
    print(
        table(
            [(f"  {n}", f"{v:.6g}", explain_metric(meanings, n)) for n, v in found.metrics.items()]
        )
    )
    if found.class_table:
        print("\n" + table([("  " + row[0], *row[1:]) for row in found.class_table]))
    return 0

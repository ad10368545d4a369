"""`everynet predict`: predictions of a trained network from files; one line of JSON an input."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everynet.cli import pairs
from everynet.cli.resume import add_run

if TYPE_CHECKING:
    from everynet.runs.predict import Predictor

HELP = "ask a trained network about files; JSON lines out"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A run and inputs."""
    add_run(parser)
    parser.add_argument(
        "inputs",
        metavar="INPUT or key=value",
        nargs="+",
        help="files, folders, or - for standard input, whose lines of text are answered as they "
        "come; settings of `everynet show`; data=PATH, if the recipe reads its data again and that "
        "was moved",
    )
    add_computing(
        parser,
        "FILE.csv or FILE.jsonl for a table of all answers, FILE.npy for vectors; or where "
        "pictures go (a new folder)",
    )


def add_computing(parser: argparse.ArgumentParser, out: str) -> None:
    """Where to compute, how, and where to write."""
    parser.add_argument("--device", choices=("auto", "cpu", "cuda", "mps"), default="auto")
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16", "fp64"), default="fp32")
    parser.add_argument("--out", metavar="FILE|DIR", help=out)


def open_predictor(arguments: argparse.Namespace, moved: str = "") -> Predictor:
    """The run that a command names, whose data may have been moved."""
    from everynet.runs.folder import open_run
    from everynet.runs.predict import Predictor

    run, recipe = open_run(arguments.run, arguments.file), None
    if moved:
        from everynet.runs.verbs import with_moved_data

        recipe = with_moved_data(run.recipe, run.path, moved)
    return Predictor.of(run, recipe, arguments.device, arguments.precision)


def main(arguments: argparse.Namespace) -> int:
    """Print one object for each input: the prediction, or what is wrong with a file."""
    from everynet.runs.answer_table import is_table, prepare_table, write_table
    from everynet.runs.predict import NonFiniteAnswer, Out, UnreadInput
    from everynet.system.errors import NonFinite, UserError

    words = [word for word in arguments.inputs if _is_setting(word)]
    paths = [word for word in arguments.inputs if word not in words]
    settings = pairs(words)
    predictor = open_predictor(arguments, moved=settings.pop("data", ""))
    table = Path(arguments.out) if is_table(arguments.out) else None
    if table:
        prepare_table(table)
    where = str(table.with_suffix("")) if table else arguments.out
    out = Out(where, predictor.recipe.name, draws=bool(where) and not table)
    counts, first, rows = Counter[object](), dict[object, Any](), []
    for line in predictor.predict_files(paths, settings, out):
        if table:
            rows.append(line)
        else:
            print(json.dumps(line, allow_nan=False), flush=True)
        sort = "warning" if "warning" in line else type(line)
        counts[sort] += 1
        first.setdefault(sort, line)
    if table:
        write_table(rows, table)
        print(table)
    total = f"{counts.total():,}"
    if odd := first.get("warning"):
        are = "is" if counts["warning"] == 1 else "are"
        print(
            f"everynet: warning: {counts['warning']:,} of {total} inputs {are} unlike what was "
            f"learned; the first: {odd['input']}: {odd['warning']}",
            file=sys.stderr,
        )
    if bad := first.get(UnreadInput):
        many = f"{counts[UnreadInput]:,} of {total} inputs"
        raise UserError(f"{many} cannot be read; the first: {bad['error']}")
    if bad := first.get(NonFiniteAnswer):
        many = f"{counts[NonFiniteAnswer]:,} of {total} answers"
        raise NonFinite(f"{many} are not finite; the first: {bad['error']}")
    return 0


def _is_setting(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isidentifier() and not os.path.exists(word)

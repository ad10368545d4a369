"""`everynet predict`: ask a trained network about files; one line of JSON for each input."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everynet.cli import pairs
from everynet.cli.inputs import gathered, joined, pieces
from everynet.cli.resume import add_run

if TYPE_CHECKING:
    from everynet.cli.trained import Out
    from everynet.data import Kind
    from everynet.runs.predict import Asked

HELP = "ask a trained network about files; JSON lines out"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A run and inputs."""
    from everynet.cli.trained import add_computing

    add_run(parser)
    parser.add_argument(
        "inputs",
        metavar="INPUT or key=value",
        nargs="+",
        help="files, folders, or - for standard input; settings of `everynet show`; data=PATH, if "
        "the recipe reads its data again and that was moved",
    )
    add_computing(parser, "where what is made is written, if it is no text (a new folder)")


def main(arguments: argparse.Namespace) -> int:
    """Print one object for each input: the answer, or what is wrong with a file."""
    from everynet.cli.trained import Out, asked
    from everynet.runs.predict import AT_ONCE
    from everynet.system.errors import UserError
    from everynet.system.values import verb_arguments

    words = [word for word in arguments.inputs if _is_setting(word)]
    settings = pairs(words)
    run = asked(arguments, moved=settings.pop("data", ""))
    out = Out(arguments.out, run.recipe.name)
    given = verb_arguments(run.recipe.predict, settings)
    kind = run.kind("predict")
    run.model()  # what is wrong with it is said before the inputs are read
    paths = [word for word in arguments.inputs if word not in words]
    if not paths:
        raise UserError("inputs must name at least one file")
    count, bad, odd = 0, [], []
    with run.fitting():
        for found in gathered(pieces(paths, run.spec, kind), AT_ONCE):
            if found[0].error and not count and len(found) == 1:  # nothing else is asked
                raise UserError(found[0].error)
            answers = run.answers(joined(found), given)
            for piece in found:
                for name in piece.names:
                    line = {"error": piece.error} if piece.error else next(answers)
                    line = _written({"input": name, **line}, name, kind, run, out)
                    print(json.dumps(line, allow_nan=False))
                    count += 1
                    bad += [piece.error] if piece.error else []
                    odd += [f"{name}: {line['warning']}"] if "warning" in line else []
    if odd:
        are = "is" if len(odd) == 1 else "are"
        print(
            f"everynet: warning: {len(odd):,} of {count:,} inputs {are} unlike what was learned; "
            f"the first: {odd[0]}",
            file=sys.stderr,
        )
    if bad:
        raise UserError(f"{len(bad):,} of {count:,} inputs cannot be read; the first: {bad[0]}")
    return 0


def _is_setting(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isidentifier() and not Path(word).exists()


def _written(
    answer: dict[str, Any], name: str, kind: Kind[Any], run: Asked, out: Out
) -> dict[str, Any]:
    """An answer with the names of files in the place of what is no plain value."""
    line: dict[str, Any] = {}
    for key, value in answer.items():
        if hasattr(value, "shape"):
            paths = kind.write(value[None], run.spec, out.place(f"{out.stem(name)}-{key}"))
            line[key] = str(paths[0])
        else:
            line[key] = value
    return line

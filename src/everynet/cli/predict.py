"""`everynet predict`: ask a trained network about files; one line of JSON for each input."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everynet.cli import pairs
from everynet.cli.inputs import gathered, joined, pieces
from everynet.cli.resume import add_run

if TYPE_CHECKING:
    from everynet.cli.trained import Asked
    from everynet.data import Kind

HELP = "ask a trained network about files; JSON lines out"
AT_ONCE = 256


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A run and inputs."""
    from everynet.cli.trained import add_computing

    add_run(parser)
    parser.add_argument(
        "inputs",
        metavar="INPUT or key=value",
        nargs="+",
        help="files, folders, or - for standard input; settings of `everynet show`",
    )
    add_computing(parser, "where what is made is written, if it is no text (a new folder)")


def main(arguments: argparse.Namespace) -> int:
    """Print one object for each input: the answer, or what is wrong with a file."""
    from everynet.cli.trained import Asked
    from everynet.settings import verb_arguments
    from everynet.types import UserError

    run = Asked.of(arguments)
    settings = [word for word in arguments.inputs if _is_setting(word)]
    given = verb_arguments(run.recipe.predict, pairs(settings))
    kind = run.kind("predict")
    model = run.model()
    words = [word for word in arguments.inputs if word not in settings]
    if not words:
        raise UserError("inputs must name at least one file")
    asked, bad, odd = 0, [], []
    with run.fitting():
        for found in gathered(pieces(words, run.spec, kind), AT_ONCE):
            if found[0].error and not asked and len(found) == 1:  # nothing else is asked
                raise UserError(found[0].error)
            answers = _answers(run, model, kind, joined(found), given)
            for piece in found:
                for name in piece.names:
                    line = {"error": piece.error} if piece.error else next(answers)
                    line = _written({"input": name, **line}, name, kind, run)
                    print(json.dumps(line, allow_nan=False))
                    asked += 1
                    bad += [piece.error] if piece.error else []
                    odd += [f"{name}: {line['warning']}"] if "warning" in line else []
    if odd:
        are = "is" if len(odd) == 1 else "are"
        print(
            f"everynet: warning: {len(odd):,} of {asked:,} inputs {are} unlike what was learned; "
            f"the first: {odd[0]}",
            file=sys.stderr,
        )
    if bad:
        raise UserError(f"{len(bad):,} of {asked:,} inputs cannot be read; the first: {bad[0]}")
    return 0


def _answers(
    run: Asked,
    model: Any,  # noqa: ANN401 -- a network or an estimator
    kind: Kind[Any],
    inputs: Any,  # noqa: ANN401 -- rows of a tensor, or a list
    given: dict[str, Any],
) -> Iterator[dict[str, Any]]:
    """What the network says of each input, with a warning where it is unlike what it learned."""
    for start in range(0, len(inputs), AT_ONCE):
        chunk = inputs[start : start + AT_ONCE]
        warnings = kind.odd(chunk, run.spec)
        with run.computing():
            answers = run.recipe.predict(model, run.placed(chunk), run.spec, **given)
        for answer, warning in zip(answers, warnings, strict=True):
            yield {**answer, "warning": warning} if warning else dict(answer)


def _is_setting(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isidentifier() and not Path(word).exists()


def _written(answer: dict[str, Any], name: str, kind: Kind[Any], run: Asked) -> dict[str, Any]:
    """An answer with the names of files in the place of what is no plain value."""
    line: dict[str, Any] = {}
    for key, value in answer.items():
        if hasattr(value, "shape"):
            paths = kind.write(value[None], run.spec, run.place(f"{run.stem(name)}-{key}"))
            line[key] = str(paths[0])
        else:
            line[key] = value
    return line

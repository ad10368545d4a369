"""`everynet predict`: ask a trained network about files; one line of JSON for each input."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everynet.cli import pairs
from everynet.cli.resume import add_run

if TYPE_CHECKING:
    from everynet.asked import Asked
    from everynet.cli.trained import Out
    from everynet.data import Kind
    from everynet.types import Spec

HELP = "ask a trained network about files; JSON lines out"
STARTS = {".npy": b"\x93NUMPY", ".npz": b"PK", ".png": b"\x89PNG", ".jpg": b"\xff\xd8"}
"""How files begin: standard input has no name that would tell what it is."""


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
    """Print one object for each input."""
    from everynet.cli.trained import Out, asked
    from everynet.settings import verb_arguments

    words = [word for word in arguments.inputs if _is_setting(word)]
    settings = pairs(words)
    run = asked(arguments, moved=settings.pop("data", ""))
    out = Out(arguments.out, run.recipe.name)
    given = verb_arguments(run.recipe.predict, settings)
    kind = run.kind("predict")
    run.model()  # what is wrong with it is said before the inputs are read
    paths = [word for word in arguments.inputs if word not in words]
    with run.fitting():
        names, inputs = read(paths, run.spec, kind)
    for name, answer in zip(names, run.answers(inputs, given), strict=True):
        with run.fitting():
            line = {"input": name, **_written(answer, name, kind, run, out)}
        print(json.dumps(line, allow_nan=False))
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


def read(inputs: Sequence[str], spec: Spec, kind: Kind[Any]) -> tuple[list[str], Any]:
    """The inputs with a name for each; `-` stands for a file on standard input."""
    import tempfile

    from everynet.types import UserError

    if "-" not in inputs:
        return kind.read(inputs, spec)
    if inputs.count("-") > 1:
        raise UserError("- must stand for standard input once: it can be read only once")
    with tempfile.TemporaryDirectory() as folder:
        content = sys.stdin.buffer.read()
        found = (end for end, start in STARTS.items() if content.startswith(start))
        path = Path(folder) / f"input{next(found, kind.suffix)}"
        path.write_bytes(content)
        try:
            names, rows = kind.read([str(path) if name == "-" else name for name in inputs], spec)
        except UserError as error:
            raise UserError(str(error).replace(str(path), "standard input")) from error
    return [name.replace(str(path), "-") for name in names], rows

"""`everynet new`: a small recipe of one's own, with comments, that runs as it is.

What is written are the files beside this one, so that they are checked as all code is.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from everynet.cli import UsageError
from everynet.system.errors import CannotWrite
from everynet.system.wording import unknown, with_article

HELP = "write a small recipe of your own, with comments, that runs"
KINDS = ("training", "fitting", "simulation", "experiment")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,59}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A file and the kind of recipe in it."""
    parser.add_argument("file", metavar="FILE.py", help="the file that is made; none is replaced")
    parser.add_argument("--kind", metavar="|".join(KINDS), default="training", help="(training)")


def main(arguments: argparse.Namespace) -> int:
    """Write it, and say how to run it."""
    path = Path(arguments.file)
    if arguments.kind not in KINDS:
        raise UsageError(unknown("--kind", arguments.kind, KINDS))
    if path.suffix != ".py" or not NAME.fullmatch(path.stem):
        raise UsageError(
            f"{path} must be the name of a Python file, letters, digits, _ and - from a letter on; "
            "write everynet new mine.py"
        )
    text = (Path(__file__).parent / f"{arguments.kind}.py").read_text(encoding="utf-8")
    try:
        with path.open("x", encoding="utf-8") as file:  # which makes a file or fails
            file.write(text.replace('"mine"', f'"{path.stem}"').replace("mine.py", path.name))
    except FileExistsError:
        raise UsageError(f"{path} is there already and is not replaced; choose another") from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise CannotWrite(f"cannot write {path}: {reason}; choose another place") from error
    named = path if path.is_absolute() or len(path.parts) > 1 else f"./{path}"
    print(f"wrote {path}, {with_article(arguments.kind)}; run it with: everynet run {named}")
    return 0

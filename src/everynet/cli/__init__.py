"""The command line: one file a verb, imported only when it is called.

A verb has `HELP`, `add_arguments(parser)` and `main(arguments)`. A mistake of the user ends in
one line and exit code 2; the other codes are those of `everynet.system.errors`. (The verb `list`
becomes `everynet.cli.list` when it is imported, so the built-in of that name is not used here.)
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from itertools import pairwise
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

import everynet
from everynet.cli.streams import doors, settle
from everynet.recipes import synonyms
from everynet.system.errors import explain
from everynet.system.matplotlibrc import check_settings
from everynet.system.signals import interruptible
from everynet.system.wording import nearest as nearest
from everynet.system.wording import shown

if TYPE_CHECKING:
    from everynet.recipes.recipe import Recipe

VERBS = (
    *("list", "show", "run", "sweep", "resume", "runs", "draw", "evaluate", "predict"),
    *("sample", "data", "new", "doctor", "completion", "help"),
)


class UsageError(ValueError):
    """A command line that cannot be understood."""


class Parser(argparse.ArgumentParser):
    """argparse whose errors are one line, and whose options cannot be shortened."""

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 -- handed on to argparse
        super().__init__(*args, **{"allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog.removeprefix('everynet ')}: {message}")


def verb(name: str) -> ModuleType:
    """The module of a verb."""
    return import_module(f"everynet.cli.{name}")


def parser_of(name: str) -> Parser:
    """The parser of a verb."""
    module = verb(name)
    parser = Parser(prog=f"everynet {name}", description=module.HELP)
    module.add_arguments(parser)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def usage() -> str:
    """What `everynet --help` prints."""
    verbs = table([(f"  {name}", verb(name).HELP) for name in VERBS])
    return (
        "everynet: every network of the deep-learning curriculum, trained by one command\n\n"
        f"usage: everynet VERB ...        (everynet help VERB says more)\n\n{verbs}\n\n"
        "options: --help, --version, --debug (show the traceback of an error)\n\n"
        "try: everynet run lenet\n     everynet list vision\n     everynet show mlp sizes=2,8,1"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code; what went wrong is one line on standard error."""
    words = [*(sys.argv[1:] if argv is None else argv)]
    os.environ["MPLBACKEND"] = "agg"  # no window is opened, whatever was chosen for others
    with interruptible(), doors():
        code = _main(words)
    settle(sys.stdout)
    settle(sys.stderr)
    return code


def _main(words: Sequence[str]) -> int:
    try:
        code = _call(words)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # whoever read our output has gone, which is no error of anyone's
        return 141
    except KeyboardInterrupt:
        print("everynet: stopped", file=sys.stderr)
        return 130
    except SystemExit as exit:  # argparse, after --help
        return exit.code if isinstance(exit.code, int) else 0
    except Exception as error:  # the one place where an error becomes a line
        if "--debug" in words:
            import traceback

            traceback.print_exc()
        code, line = explain(error, words)
        print(f"everynet: {line}", file=sys.stderr)
        return code


def _call(words: Sequence[str]) -> int:
    before = [word for word in words if word != "--debug"]
    if not before or before[0] in ("-h", "--help"):
        print(usage())
        return 0
    if before[0] == "--version":
        print(f"everynet {everynet.__version__}")
        return 0
    name, rest = before[0], before[1:]
    if name not in VERBS:
        what = "option" if name.startswith("-") else "verb"
        known = ("--help", "--version", "--debug") if name.startswith("-") else VERBS
        if alike := synonyms.meant(name, VERBS, synonyms.VERBS):
            command = shown(" ".join(("everynet", alike, *rest)))
            raise UsageError(f"unknown {what} {name}; write {command}")
        raise UsageError(f"unknown {what} {name}{nearest(name, known)}")
    arguments = parsed(parser_of(name), rest)
    if "run" in arguments:
        from everynet.recipes.run_names import run_folder

        arguments.run = str(run_folder(arguments.run))
    check_settings()
    code: int = verb(name).main(arguments)
    return code


def parsed(parser: Parser, words: Sequence[str]) -> argparse.Namespace:
    """The arguments of a verb; options and settings may stand in any order."""
    rest = (argparse.PARSER, argparse.REMAINDER)
    nested = any(action.nargs in rest for action in parser._actions)
    parse = parser.parse_known_args if nested else parser.parse_known_intermixed_args
    arguments, unknown = parse(_joined(parser, words))
    for word in unknown:
        if word.startswith("-"):
            if setting := _setting(arguments, words, word):
                parser.error(f"{word} is no option; settings have no dashes: write {setting}")
            known = [option for action in parser._actions for option in action.option_strings]
            parser.error(f"unknown option {word}{nearest(word.partition('=')[0], known)}")
        parser.error(f"unexpected argument {word}")
    return arguments


def _setting(arguments: argparse.Namespace, words: Sequence[str], option: str) -> str:
    """The setting that was written as an option, as it is to be written; empty where it is none."""
    if "settings" not in arguments:
        return ""
    from everynet.recipes.catalog import entries

    recipe = str(getattr(arguments, "name", ""))
    known = [name for e in entries()[0] if recipe in (e.name, "") for name in e.settings]
    known = known or [name for e in entries()[0] if e.kind == "training" for name in e.settings]
    word, equals, value = option.partition("=")
    name = synonyms.meant(word.lstrip("-"), [*known, "epochs"])
    after = dict(pairwise(words)).get(option, "...")
    value = value if equals else "..." if after.startswith("-") else after
    return f"{name}={shown(value)}" if name else ""


def _joined(parser: Parser, words: Sequence[str]) -> list[str]:
    """`--sort -date` as `--sort=-date`: a value may begin with a dash if no option is so called."""
    options = {o: action for action in parser._actions for o in action.option_strings}
    joined: list[str] = []
    for word in words:
        before = options.get(joined[-1]) if joined else None
        if before and before.nargs is None and word[:1] == "-" and word not in options:
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of text in aligned columns, two spaces apart."""
    rows = [[cell.replace("\n", " ") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def speaks() -> bool:
    """Whether this process prints what a run reached: of those that torchrun started, one does."""
    return "TORCHELASTIC_RUN_ID" not in os.environ or os.environ.get("RANK", "0") == "0"


def pairs(words: Iterable[str]) -> dict[str, str]:
    """Settings written `name=value`, by name."""
    given: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise UsageError(f"{word} must be a setting written name=value, such as seed=1")
        if name in given:
            raise UsageError(f"{name} is given twice; keep one of them")
        given[name] = value
    return given


def overridden(recipe: Recipe, words: Iterable[str], *, show: bool = False) -> Recipe:
    """The recipe with the settings of the command line; `epochs` is turned into steps.

    For that the data is read, which is told of where `show` is set.
    """
    from everynet.recipes.settings import override, setting_types
    from everynet.recipes.training import Training
    from everynet.runs.progress import Progress
    from everynet.system.errors import UserError
    from everynet.system.status import telling
    from everynet.system.values import convert

    given = pairs(words)
    counts = isinstance(recipe, Training) and "epochs" not in setting_types(recipe)
    if "epochs" not in given or not counts:
        return override(recipe, given)
    text = given.pop("epochs")
    if "steps" in given:
        raise UserError("epochs and steps must not both be given: each says how long; keep one")
    epochs = convert("epochs", text, float)
    if epochs <= 0:
        raise UserError(f"epochs ({text}) must be a positive number")
    recipe = override(recipe, given)
    assert isinstance(recipe, Training)
    with telling(Progress(1, shown=show and os.environ.get("RANK", "0") == "0")):
        each = recipe.dataset().steps_per_epoch
    if each == 0:
        raise UserError(f"epochs ({text}) must be steps: {recipe.name} has no set to go through")
    return override(recipe, {"steps": max(1, round(epochs * each))})

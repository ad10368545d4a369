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
from everynet.cli.streams import flush, printable_streams
from everynet.recipes.synonyms import meant
from everynet.system.errors import UserError, explain
from everynet.system.launcher import read_launch
from everynet.system.matplotlibrc import check_settings
from everynet.system.signals import interruptible
from everynet.system.wording import nearest, shown, unknown

if TYPE_CHECKING:
    from everynet.recipes.recipe import Recipe

VERBS = (
    *("list", "show", "run", "sweep", "resume", "runs", "draw", "evaluate", "predict"),
    *("sample", "chat", "data", "new", "doctor", "completion", "help"),
)
VERB_SYNONYMS = {
    **dict.fromkeys(("train", "fit", "start", "learn", "simulate", "attack"), "run"),
    **dict.fromkeys(("ls", "models", "recipes", "search"), "list"),
    **dict.fromkeys(("info", "describe", "summary", "man"), "show"),
    **dict.fromkeys(("continue", "restart"), "resume"),
    **dict.fromkeys(("history", "compare", "log", "logs", "results"), "runs"),
    **dict.fromkeys(("plot", "picture", "pictures", "visualise", "visualize"), "draw"),
    **dict.fromkeys(("test", "eval", "score", "judge"), "evaluate"),
    **dict.fromkeys(("infer", "inference", "ask", "classify", "translate"), "predict"),
    **dict.fromkeys(("talk", "converse"), "chat"),
    **dict.fromkeys(("generate", "make", "complete", "play"), "sample"),
    **dict.fromkeys(("datasets", "dataset", "download"), "data"),
    **dict.fromkeys(("create", "init", "template"), "new"),
    **dict.fromkeys(("grid", "tune"), "sweep"),
}


class UsageError(UserError):
    """A command line that cannot be understood."""


class Parser(argparse.ArgumentParser):
    """argparse whose errors are one line, and whose options cannot be shortened."""

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 -- handed on to argparse
        super().__init__(*args, **{"allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog.removeprefix('everynet ')}: {message}")


def import_verb(name: str) -> ModuleType:
    """The module of a verb."""
    return import_module(f"everynet.cli.{name}")


def build_parser(name: str) -> Parser:
    """The parser of a verb."""
    module = import_verb(name)
    parser = Parser(prog=f"everynet {name}", description=module.HELP)
    module.add_arguments(parser)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def usage() -> str:
    """What `everynet --help` prints."""
    verbs = table([(f"  {name}", import_verb(name).HELP) for name in VERBS])
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
    with interruptible(), printable_streams():
        code = _main(words)
    flush(sys.stdout)
    flush(sys.stderr)
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
    words = [word for word in words if word != "--debug"]
    check_working_folder()
    if not words or words[0] in ("-h", "--help"):
        print(usage())
        return 0
    name, *rest = words
    if name == "--version":
        print(f"everynet {everynet.__version__}")
        return 0
    if name.startswith("-"):
        raise UsageError(unknown("option", name, ("--help", "--version", "--debug")))
    check_verb(name, "everynet", rest)
    arguments = parse_words(build_parser(name), rest)
    if "run" in arguments:
        from everynet.recipes.run_names import run_folder

        arguments.run = str(run_folder(arguments.run))
    check_settings()
    code: int = import_verb(name).main(arguments)
    return code


def check_working_folder() -> None:
    """Refuse to begin in a folder that is gone, where libraries end the process by themselves."""
    try:
        os.getcwd()
    except OSError as error:
        raise UserError(
            f"the working folder must be there ({error.strerror}), because data and runs are found "
            "from it; it was deleted or renamed: change into another (cd) and try again"
        ) from error


def check_verb(name: str, before: str, after: Sequence[str] = ()) -> None:
    """Refuse what is no verb, with the command to write where it means one."""
    if verb := meant(name, VERBS, VERB_SYNONYMS) if name not in VERBS else "":
        from everynet.cli.hints import command_meant

        command = command_meant(name.lower(), verb, after) if after else f"{before} {verb}"
        raise UsageError(f"unknown verb {name!r}; write {shown(command)}")
    if name not in VERBS:
        raise UsageError(unknown("verb", name, VERBS))


def parse_words(parser: Parser, words: Sequence[str]) -> argparse.Namespace:
    """The arguments of a verb; options and settings may stand in any order."""
    options = {o: action for action in parser._actions for o in action.option_strings}
    rest = (argparse.PARSER, argparse.REMAINDER)
    nested = any(action.nargs in rest for action in parser._actions)
    parse = parser.parse_known_args if nested else parser.parse_known_intermixed_args
    arguments, left = parse(_join_values(options, words))
    for word in left:
        if not word.startswith("-"):
            parser.error(f"unexpected argument {word}")
        if setting := _setting_of_option(arguments, words, word):
            parser.error(f"{word} is no option; settings have no dashes: write {setting}")
        parser.error(f"unknown option {shown(word)!r}{nearest(word.partition('=')[0], options)}")
    return arguments


def _setting_of_option(arguments: argparse.Namespace, words: Sequence[str], option: str) -> str:
    """The setting that was written as an option, as it is to be written; empty where it is none."""
    if "settings" not in arguments:
        return ""
    from everynet.recipes.catalog import entries

    recipe, found = str(getattr(arguments, "name", "")), entries()[0]
    own = [entry for entry in found if recipe in (entry.name, "")]
    own = own or [entry for entry in found if entry.kind == "training"]
    word, equals, value = option.partition("=")
    name = meant(word.lstrip("-"), [*(name for entry in own for name in entry.settings), "epochs"])
    after = dict(pairwise(words)).get(option, "...")
    value = value if equals else "..." if after.startswith("-") else after
    return f"{name}={shown(value)}" if name else ""


def _join_values(options: dict[str, argparse.Action], words: Sequence[str]) -> Sequence[str]:
    """`--sort -date` as `--sort=-date`: a value may begin with a dash if no option is so called."""
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
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def speaks() -> bool:
    """Whether this process prints what a run reached: of those started together, one does."""
    return read_launch().rank == 0


def in_a_hurry(code: int) -> bool:
    """Whether others wait for the end of this process: after a signal, and where one was lost."""
    try:
        return code > 128 or read_launch().size > 1
    except UserError:
        return False


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
    """The recipe with the settings of the command line; `epochs` is turned into steps."""
    from everynet.runs.epochs import with_settings

    return with_settings(recipe, pairs(words), show=show and speaks())

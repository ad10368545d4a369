"""`everynet completion`: verbs, networks, settings and options at the press of a key.

The script of a shell calls `everynet completion words LINE`, which reads the zoo's files as text
and imports no torch.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from itertools import pairwise

from everynet.cli import VERBS, build_parser
from everynet.recipes.catalog import Entry, entries

HELP = "a script that completes words in bash, zsh or fish"

SCRIPTS = {
    "bash": """\
# everynet completion bash > ~/.local/share/bash-completion/completions/everynet
_everynet() {
    local IFS=$'\\n' current=${COMP_WORDS[COMP_CWORD]}
    [[ ${COMP_LINE:0:COMP_POINT} =~ =[^[:space:]]*$ ]] && return  # a value: files
    COMPREPLY=($(everynet completion words "${COMP_LINE:0:COMP_POINT}" 2>/dev/null))
    if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]]; then compopt -o nospace; fi
}
complete -o default -F _everynet everynet
""",
    "zsh": """\
#compdef everynet
# everynet completion zsh > a folder of $fpath, as _everynet
_everynet() {
    local -a found settings others
    found=("${(@f)$(everynet completion words "${(j: :)words[1,CURRENT]}" 2>/dev/null)}")
    settings=(${(M)found:#*=})
    others=(${found:#*=})
    compadd -S '' -a settings
    compadd -a others
    (( $#settings + $#others )) || _files
}
compdef _everynet everynet
""",
    "fish": """\
# everynet completion fish > ~/.config/fish/completions/everynet.fish
complete -c everynet -a '(everynet completion words (commandline -cp | string collect))'
""",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A shell."""
    parser.add_argument("shell", choices=(*SCRIPTS, "words"), metavar="bash|zsh|fish")
    parser.add_argument("line", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def main(arguments: argparse.Namespace) -> int:
    """Print its script, or the words that complete a line."""
    if arguments.shell == "words":
        print("\n".join(complete(" ".join(arguments.line))))
    else:
        print(SCRIPTS[arguments.shell], end="")
    return 0


def complete(line: str) -> list[str]:
    """What the last word of a command line may become; the line begins with `everynet`."""
    before = line.split()[1:]
    last = before.pop() if before and not line[-1:].isspace() else ""
    return [word for word in _next_words(before, last) if word.startswith(last)]


def _next_words(before: list[str], last: str) -> Iterable[str]:
    """All words that may follow those before."""
    if not before or before[0] not in VERBS:
        return () if before else (*VERBS, "--help", "--version", "--debug")
    actions = build_parser(before[0])._actions
    options = {option: action for action in actions for option in action.option_strings}
    valued = {option for option, action in options.items() if action.nargs != 0}
    if before[-1] in valued:
        return map(str, options[before[-1]].choices or ())
    if last.startswith("-"):
        return options
    plain = [w for b, w in pairwise(before) if w[:1] != "-" and b not in valued]
    return _arguments(before[0], plain)


def _arguments(verb: str, before: list[str]) -> Iterable[str]:
    """Words that may follow a verb and those before, options left out."""
    known: Iterable[str] = ()
    match verb, before:
        case (("run" | "show" | "sweep"), []):
            known = [entry.name for entry in entries()[0]]
        case (("run" | "show" | "sweep"), [name, *given]):
            known = [word for e in entries()[0] if e.name == name for word in _settings(e, given)]
        case "list", []:
            known = [*dict.fromkeys(entry.family for entry in entries()[0]), "data="]
        case "list", [data] if data.startswith("data="):
            known = ("target=", "text=", "kind=")
        case (("resume" | "draw" | "evaluate" | "predict" | "sample" | "chat"), []) | ("runs", _):
            from everynet.recipes.run_names import find_runs

            known = map(str, find_runs())
        case "data", []:
            from everynet.cli.data import ACTIONS

            known = ACTIONS
        case "data", ["get"]:
            from everynet.data.sets import everything

            known = [name for name, one in everything().items() if one.forms]
        case "help", []:
            known = VERBS
        case "completion", []:
            known = SCRIPTS
    return known


def _settings(entry: Entry, before: list[str]) -> Iterable[str]:
    """`name=` for every setting of a recipe that is not given yet."""
    given = {word.partition("=")[0] for word in before}
    epochs = ("epochs",) if entry.kind == "training" else ()
    return [f"{name}=" for name in (*entry.settings, *epochs) if name not in given]

"""`everynet completion`: verbs, networks, settings and options at the press of a key.

The script of a shell asks `everynet completion words LINE`, which answers from the text of the
zoo's files and imports no torch.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from everynet.cli import VERBS, parser_of
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
    """Print its script, or the words it asks for."""
    if arguments.shell == "words":
        print("\n".join(words(" ".join(arguments.line))))
    else:
        print(SCRIPTS[arguments.shell], end="")
    return 0


def words(line: str) -> list[str]:
    """What the last word of a command line may become; the line begins with `everynet`."""
    before = line.split()[1:]
    last = before.pop() if before and not line[-1:].isspace() else ""
    return [word for word in _known(before, last) if word.startswith(last)]


def _known(before: list[str], last: str) -> Iterable[str]:
    """All words that may follow those before."""
    if not before or before[0] not in VERBS:
        return () if before else (*VERBS, "--help", "--version", "--debug")
    options = {o: action for action in parser_of(before[0])._actions for o in action.option_strings}
    valued = {option for option, action in options.items() if action.nargs != 0}
    if before[-1] in valued:
        return map(str, options[before[-1]].choices or ())
    if last.startswith("-"):
        return options
    pairs = zip(before[1:], before, strict=False)  # each word with the one before it
    return _arguments(before[0], [w for w, b in pairs if w[:1] != "-" and b not in valued])


def _arguments(verb: str, before: list[str]) -> Iterable[str]:
    """Words that may follow a verb and those before, options left out."""
    known: Iterable[str] = ()
    match verb, before:
        case (("run" | "show" | "sweep"), []):
            known = [entry.name for entry in entries()[0]]
        case (("run" | "show" | "sweep"), [name, *given]):
            known = [word for e in entries()[0] if e.name == name for word in _settings(e, given)]
        case "list", []:
            known = dict.fromkeys(entry.family for entry in entries()[0])
        case (("resume" | "draw" | "evaluate" | "predict" | "sample"), []):
            known = _runs()
        case "runs", _:
            known = _runs()
        case "data", []:
            from everynet.cli.data import ACTIONS

            known = ACTIONS
        case "data", ["get"]:
            from everynet.data.sets import everything

            known = [name for name, known_set in everything().items() if known_set.forms]
        case "help", []:
            known = VERBS
        case "completion", []:
            known = SCRIPTS
    return known


def _runs() -> list[str]:
    from everynet.recipes.run_names import found

    return [str(folder) for folder in found()]


def _settings(entry: Entry, before: list[str]) -> Iterable[str]:
    """`name=` for every setting of a recipe that is not given yet."""
    given = {word.partition("=")[0] for word in before}
    epochs = ("epochs",) if entry.kind == "training" else ()
    return [f"{name}=" for name in (*entry.settings, *epochs) if name not in given]

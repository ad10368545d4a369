"""`everynet list`: the networks of the zoo, read from their files as text."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from everynet.cli import UsageError, pairs, table
from everynet.recipes.catalog import Entry, entries
from everynet.recipes.search import in_course_order, search, suited
from everynet.system.wording import nearest, shown

HELP = "the networks: name and what each is; by family, word, or data=PATH"
LEAST = 30  # columns for sentences, however narrow a terminal is
SETTINGS = ("data", "target", "text", "kind", "drop", "missing")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Words to search for, or data."""
    parser.add_argument(
        "words",
        metavar="WORD",
        nargs="*",
        help="a family, a part of a name, a word of what it is, or a row such as C15; several "
        "narrow. data=PATH (target=COLUMN kind=KIND): recipes that learn from these files",
    )
    parser.add_argument("--long", action="store_true", help="whole sentences, with the goals")


def main(arguments: argparse.Namespace) -> int:
    """List it."""
    given = pairs(word for word in arguments.words if "=" in word)
    words = [word for word in arguments.words if "=" not in word]
    for name in given:
        if name not in SETTINGS:
            raise UsageError(f"list has no setting {shown(name, 60)}{nearest(name, SETTINGS)}")
    if given and "data" not in given:
        raise UsageError(f"{next(iter(given))} needs data=PATH beside it, or a known name")
    for word in words:
        if os.sep in word and os.path.exists(word):
            raise UsageError(f"{shown(word)} is a path; write everynet list data={shown(word)}")
    found, faults = entries()
    chosen = search(in_course_order(found), words)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    if given:
        _print_suited(chosen, given, words, width)
    elif not width:
        print(format_table(chosen, long=arguments.long))
    else:
        lines = format_long if arguments.long else format_short
        print("\n".join(lines(chosen, width)))
    for fault in faults:
        print(f"everynet: left out {fault}", file=sys.stderr)
    return 0


def format_table(found: Iterable[Entry], *, long: bool) -> str:
    """One line for each, however long; the goal is its last cell where it is wanted."""
    rows = [("name", "family", "kind", "what it is", *(["goal"] if long else []))]
    for entry in found:
        goal = [entry.goal or "-"] if long else []
        rows.append((entry.name, entry.family, entry.kind, entry.idea, *goal))
    return table(rows)


def format_short(found: Sequence[Entry], width: int) -> Iterator[str]:
    """Families with their networks, a line each; `--long` has whole sentences."""
    longest = {entry.family: 0 for entry in found}
    for entry in found:
        longest[entry.family] = max(longest[entry.family], len(entry.name))
    family = ""
    for entry in found:
        if entry.family != family:
            yield ("" if not family else "\n") + entry.family
            family = entry.family
        yield cut(f"  {entry.name.ljust(longest[family])}  {entry.idea}", width)


def format_long(found: Sequence[Entry], width: int) -> Iterator[str]:
    """The same with kind and goal; sentences go on in the next line, and none is cut."""
    from textwrap import wrap

    longest = max((len(entry.name) for entry in found), default=0)
    aside = longest + 4 <= width - LEAST
    indent = longest + 4 if aside else 4
    family = ""
    for entry in found:
        if entry.family != family:
            yield ("" if not family else "\n") + entry.family
            family = entry.family
        goal = f"; goal: {entry.goal}" if entry.goal else ""
        text = f"{entry.idea} [{entry.kind}{goal}]"
        if not aside:
            yield f"  {entry.name}"
        first = f"  {entry.name.ljust(longest)}  " if aside else " " * indent
        wide = max(LEAST + indent, width)
        yield from wrap(
            text, wide, initial_indent=first, subsequent_indent=" " * indent, break_on_hyphens=False
        )


def cut(line: str, width: int) -> str:
    """A line that fits, cut at a word."""
    if len(line) <= width:
        return line
    return line[: width - 3].rpartition(" ")[0].rstrip(" ,;:.") + " ..."


# ---------------------------------------------------------------------------- data of one's own


def _print_suited(
    found: Sequence[Entry], given: Mapping[str, str], words: Sequence[str], width: int
) -> None:
    """The recipes that learn from the data, with the command to type."""
    from everynet.data.loading import recognise

    options = {name: value for name, value in given.items() if name != "data"}
    look = recognise(given["data"], **options)
    rows = [
        (_command(entry, kind, given), kind, (entry.variant and entry.about) or entry.summary)
        for entry, kind in suited(found, look.kinds, look.task, look.classes)
    ]
    what = f"{shown(given['data'])} looks like {' or '.join(look.kinds)} data"
    if not rows:
        about = f" that is about {shown(' '.join(words), 60)!r}" if words else ""
        raise UsageError(f"{what}, and no recipe{about} learns from it")
    if not width:
        print(table([("command", "data", "what it is"), *rows]))
        return
    print(what + (f", for {look.task}" if look.task else "") + "; the best come first:")
    longest = max(len(command) for command, _, _ in rows)
    for command, kind, idea in rows:
        as_kind = f" (as {kind})" if kind != rows[0][1] else ""
        if longest + 2 <= width - LEAST:
            print(cut(f"  {command.ljust(longest)}  {idea}{as_kind}", width))
        else:
            print(f"  {command}\n{cut(f'      {idea}{as_kind}', width)}")


def _command(entry: Entry, kind: str, given: Mapping[str, str]) -> str:
    """What to type: the settings that were given, and the target that a table needs."""
    settings = [f"{n}={value}" for n, value in given.items() if n in entry.settings]
    written = Path(given["data"]).suffix.lower() not in ("", ".npy", ".npz")
    names_one = bool(entry.task or entry.made_for)  # what describes rows alone needs none
    if kind == "table" and written and "target" not in given and names_one:
        settings.append("target=COLUMN")
    return shlex.join(["everynet", "run", entry.name, *settings])

"""`everynet list`: the networks of the zoo, read from their files as text."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterable, Iterator

from everynet.cli import UsageError, table
from everynet.recipes.catalog import Entry, entries
from everynet.system.wording import unknown

HELP = "the networks: name, family, kind, what each is, and its goal"
LEAST = 30  # columns for sentences, however narrow a terminal is


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A family."""
    parser.add_argument("family", metavar="FAMILY", nargs="?", help="only this family")


def main(arguments: argparse.Namespace) -> int:
    """List it."""
    found, faults = entries()
    families = dict.fromkeys(entry.family for entry in found)
    if arguments.family is not None and arguments.family not in families:
        raise UsageError(unknown("family", arguments.family, families))
    chosen = [entry for entry in found if arguments.family in (None, entry.family)]
    if sys.stdout.isatty():
        print("\n".join(format_for_terminal(chosen, shutil.get_terminal_size().columns)))
    else:
        print(format_table(chosen))
    for fault in faults:
        print(f"everynet: left out {fault}", file=sys.stderr)
    return 0


def format_table(found: Iterable[Entry]) -> str:
    """One line for each, however long."""
    rows = [("name", "family", "kind", "what it is", "goal")]
    for entry in found:
        what = entry.variant or entry.summary
        rows.append((entry.name, entry.family, entry.kind, what, entry.goal or "-"))
    return table(rows)


def format_for_terminal(found: list[Entry], width: int) -> Iterator[str]:
    """Families with their networks; sentences go on in the next line, and none is cut."""
    from textwrap import wrap

    longest = max((len(entry.name) for entry in found), default=0)
    aside = longest + 4 <= width - LEAST
    indent = longest + 4 if aside else 4
    family = ""
    for entry in found:
        if entry.family != family:
            yield ("" if not family else "\n") + entry.family
            family = entry.family
        first, *more = entry.goal.split(" and ")
        goal = f"; goal: {first}" + (f" and {len(more)} more" if more else "") if first else ""
        text = f"{entry.variant or entry.summary} [{entry.kind}{goal}]"
        if not aside:
            yield f"  {entry.name}"
        first = f"  {entry.name.ljust(longest)}  " if aside else " " * indent
        wide = max(LEAST + indent, width)
        yield from wrap(
            text, wide, initial_indent=first, subsequent_indent=" " * indent, break_on_hyphens=False
        )

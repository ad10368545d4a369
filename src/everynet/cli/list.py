"""`everynet list`: the networks of the zoo, read from their files as text."""

from __future__ import annotations

import argparse
import shutil
import sys

from everynet.catalog import entries
from everynet.cli import UsageError, nearest, table

HELP = "the networks: name, family, kind, what each is, and its goal"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A family."""
    parser.add_argument("family", metavar="FAMILY", nargs="?", help="only this family")


def main(arguments: argparse.Namespace) -> int:
    """List it."""
    found, faults = entries()
    families = {entry.family: None for entry in found}
    if arguments.family is not None and arguments.family not in families:
        raise UsageError(f"unknown family {arguments.family}{nearest(arguments.family, families)}")
    rows = [
        (entry.name, entry.family, entry.kind, entry.summary, entry.goal or "-")
        for entry in found
        if arguments.family in (None, entry.family)
    ]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None  # 80 if unknown
    for line in table([("name", "family", "kind", "what it is", "goal"), *rows]).splitlines():
        print(line[:width])
    for fault in faults:
        print(f"everynet: left out {fault}", file=sys.stderr)
    return 0

"""`everynet help`: what there is to say, or what a verb takes."""

from __future__ import annotations

import argparse

from everynet.cli import VERBS, UsageError, nearest, parser_of, usage
from everynet.recipes import synonyms

HELP = "this page, or that of a verb"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A verb."""
    parser.add_argument("verb", metavar="VERB", nargs="?", help="the verb to explain")


def main(arguments: argparse.Namespace) -> int:
    """Print it."""
    name = arguments.verb
    if name is None:
        print(usage())
        return 0
    if name not in VERBS:
        alike = synonyms.meant(name, VERBS, synonyms.VERBS)
        instead = f"; write everynet help {alike}" if alike else nearest(name, VERBS)
        raise UsageError(f"unknown verb {name}{instead}")
    print(parser_of(name).format_help(), end="")
    return 0

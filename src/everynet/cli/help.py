"""`everynet help`: all verbs, or the arguments of one."""

from __future__ import annotations

import argparse

from everynet.cli import build_parser, check_verb, usage

HELP = "this page, or that of a verb"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A verb."""
    parser.add_argument("verb", metavar="VERB", nargs="?", help="the verb to explain")


def main(arguments: argparse.Namespace) -> int:
    """Print the page."""
    if arguments.verb is None:
        print(usage())
        return 0
    check_verb(arguments.verb, "everynet help")
    print(build_parser(arguments.verb).format_help(), end="")
    return 0

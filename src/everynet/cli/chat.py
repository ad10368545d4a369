"""`everynet chat`: a conversation with a trained network, line by line."""

from __future__ import annotations

import argparse
import json
import sys

from everynet.cli import pairs
from everynet.cli.resume import add_run

HELP = "talk with a trained network: it answers line by line and keeps what was said"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A run and settings."""
    add_run(parser)
    parser.add_argument(
        "settings",
        metavar="key=value",
        nargs="*",
        help="settings of the network: temperature=, beam=, replies=FILE, length=, and seed=N; "
        "lines come from the keyboard or a pipe: /again asks for another answer, /forget begins "
        "anew, an empty line ends it",
    )
    parser.add_argument("--json", action="store_true", help="one object a turn")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda", "mps"), default="auto")
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16", "fp64"), default="fp32")


def main(arguments: argparse.Namespace) -> int:
    """Answer each line; Ctrl-C at a keyboard stops an answer, and between two the conversation."""
    from everynet.cli.predict import open_predictor
    from everynet.runs.chat import Chat, read_turns
    from everynet.runs.predict import open_standard_input

    chat = Chat(open_predictor(arguments), pairs(arguments.settings))
    lines = read_turns(open_standard_input())
    keyboard = sys.stdin.isatty() and sys.stdout.isatty() and not arguments.json
    while True:
        if keyboard:
            print("> ", end="", flush=True)
        line = next(lines, None)
        if line is None:
            return 0
        try:
            found = chat.answer(line)
        except KeyboardInterrupt:
            if not keyboard:
                raise
            print("everynet: the answer is stopped, and the line forgotten", file=sys.stderr)
            continue
        if arguments.json:
            print(json.dumps(found), flush=True)
        elif "note" in found:
            print(f"everynet: {found['note']}", file=sys.stderr)
        else:
            cut = f" [{found['cut']} words cut]" if "cut" in found else ""
            common = " [a common reply]" if found.get("common") else ""
            print(f"{found['answer']}{common}{cut}", flush=True)

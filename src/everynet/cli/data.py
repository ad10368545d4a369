"""`everynet data`: which sets there are and where, fetching a real one, checking one's own."""

from __future__ import annotations

import argparse
import sys
import time

from everynet.cli import UsageError, nearest, pairs, table

HELP = "the sets of data: list, get NAME, or check PATH [target=COLUMN]"
ACTIONS = ("list", "get", "check")

_UCI = "CC BY 4.0 (UCI); in scikit-learn"
_NONE = "generated: no licence needed"
BUILT_IN = {
    "digits": ("1,797 handwritten digits, grey images of 8x8", _UCI),
    "iris": ("150 flowers of 3 species, 4 measures", _UCI),
    "wine": ("178 wines of 3 growers, 13 measures", _UCI),
    "breast-cancer": ("569 tumours, malignant or benign, 30 measures", _UCI),
    "diabetes": (
        "442 patients, 10 measures; how far the illness is a year later",
        "none stated; cite Efron et al. (2004); in scikit-learn",
    ),
    "china": ("one photograph of 427x640", "CC BY 2.0, danielbuechele; in scikit-learn"),
    "flower": ("one photograph of 427x640", "CC BY 2.0, vultilion; in scikit-learn"),
    "moons": ("points in the plane: two half circles", _NONE),
    "spirals": ("points in the plane: two spirals", _NONE),
    "rings": ("points in the plane: a disc inside a ring", _NONE),
    "xor": ("points in the plane: four corners, opposite ones alike", _NONE),
    "blobs": ("points in the plane: three round clouds", _NONE),
    "strokes": ("synthetic digits drawn as strokes, grey images of 28x28; strokes:N for N", _NONE),
}
"""What each set is that needs no file, and its licence."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What may follow `everynet data`."""
    parser.add_argument("action", metavar="list|get|check", nargs="?", default="list")
    parser.add_argument("words", metavar="NAME or PATH [target=COLUMN]", nargs="*")


def main(arguments: argparse.Namespace) -> int:
    """List the sets, have one here, or say what is wrong with one's own."""
    action, words = arguments.action, arguments.words
    if action not in ACTIONS:
        raise UsageError(f"data has no action {action}{nearest(action, ACTIONS)}")
    if action == "list":
        if words:
            raise UsageError(f"data list takes nothing more, but was given {words[0]}")
        return _list()
    if not words:
        raise UsageError(f"data {action} needs a {'name' if action == 'get' else 'path'}")
    if action == "get":
        if len(words) > 1:
            raise UsageError(f"data get takes one name, but was given {' '.join(words)}")
        return _get(words[0])
    given = pairs(words[1:])
    for name in given:
        if name != "target":
            raise UsageError(f"data check has no setting {name}; it takes target=COLUMN")
    return _check(words[0], given.get("target", ""))


def _list() -> int:
    from everynet.data.sets import SETS
    from everynet.data.store import where

    rows = [("name", "where", "size", "what it is", "licence")]
    rows += [(name, "built in", "-", *facts) for name, facts in BUILT_IN.items()]
    rows += [
        (name, where(known), _bytes(known.size), known.about, known.licence)
        for name, known in SETS.items()
    ]
    print(table(rows))
    return 0


def _get(name: str) -> int:
    if name in BUILT_IN:
        print(f"{name} is built in: there is nothing to get")
        return 0
    from everynet.data.fetch import get

    live = _Live()
    try:
        paths = get(name, live)
    finally:
        live.close()
    size = _bytes(sum(path.stat().st_size for path in paths))
    count = f"{len(paths)} files" if len(paths) > 1 else paths[0].name
    folders = " and ".join(dict.fromkeys(str(path.parent) for path in paths))
    print(f"{name} is here and whole: {count}, {size}, in {folders}")
    return 0


def _check(path: str, target: str) -> int:
    from everynet.data.check import check

    report = check(path, target)
    print(report)
    return 0 if report.good else 2


def _bytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count < 1e7 else f"{count / 1e6:,.0f} MB"


class _Live:
    """Says how far a download is: a live line on a terminal, one line a file elsewhere."""

    def __init__(self) -> None:
        self.file = ""
        self.last = 0.0
        self.open = False

    def __call__(self, file: str, done: int, total: int) -> None:
        new, self.file = file != self.file, file
        if not sys.stderr.isatty():
            if new:
                print(f"fetching {file} ({_bytes(total)})" if total else file, file=sys.stderr)
            return
        now = time.monotonic()
        if new or done == total or now - self.last > 0.2:
            share = f"{done / total:4.0%} of {_bytes(total)}" if total else _bytes(done)
            sys.stderr.write(f"\r\x1b[K{file} {share}"[:120])
            sys.stderr.flush()
            self.last, self.open = now, True

    def close(self) -> None:
        """End the live line."""
        if self.open:
            sys.stderr.write("\n")
            self.open = False

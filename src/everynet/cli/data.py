"""`everynet data`: list the datasets, download one, or check files of one's own."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import closing

from everynet.cli import UsageError, pairs, table
from everynet.system.wording import nearest, printable

HELP = "datasets: list, get NAME, or check PATH [kind=KIND target=COLUMN ...]"
ACTIONS = ("list", "get", "check")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What may follow `everynet data`."""
    parser.add_argument("action", metavar="list|get|check", nargs="?", default="list")
    parser.add_argument("words", metavar="NAME or PATH [key=value ...]", nargs="*")
    parser.add_argument("--file", metavar="FILE.py", help="a file that makes its own kinds known")


def main(arguments: argparse.Namespace) -> int:
    """List the datasets, download one, or say what is wrong with files of one's own."""
    action, words = arguments.action, arguments.words
    if arguments.file:
        from everynet.recipes.catalog import import_file

        import_file(arguments.file)
    if action not in ACTIONS:
        raise UsageError(f"data has no action {action}{nearest(action, ACTIONS)}")
    if action == "list":
        if words:
            raise UsageError(f"data list takes nothing more, but was given {words[0]}")
        return _list()
    if not words:
        raise UsageError(f"data {action} needs a {'name' if action == 'get' else 'path'}")
    if action == "check":
        return _check(words[0], pairs(words[1:]))
    if len(words) > 1:
        raise UsageError(f"data get takes one name, but was given {' '.join(words)}")
    return _get(words[0])


def _list() -> int:
    from everynet.data.download.store import where
    from everynet.data.sets import everything
    from everynet.system.cache import pixels

    rows = [("name", "kind", "where", "size", "what it is", "licence")]
    for name, known in everything().items():
        place = ("built in", "-") if known.make else (where(known), _bytes(known.size))
        rows.append((name, known.kind, *place, known.about, known.licence))
    print(table(rows))
    if used := sum(path.lstat().st_size for path in pixels().glob("*")):
        print(f"{_bytes(used)} of decoded images are in {pixels()}; delete it to have the room")
    return 0


def _get(name: str) -> int:
    from everynet.data.download.fetch import get
    from everynet.data.sets import built_in

    if name in built_in():
        print(f"{name} is built in: there is nothing to get")
        return 0
    with closing(LiveLine()) as live:
        paths = get(name, live)
    size = _bytes(sum(path.stat().st_size for path in paths))
    count = f"{len(paths)} files" if len(paths) > 1 else paths[0].name
    folders = " and ".join(dict.fromkeys(str(path.parent) for path in paths))
    print(f"{name} is here and whole: {count}, {size}, in {folders}")
    return 0


def _check(path: str, given: dict[str, str]) -> int:
    from everynet.data import check

    report = check(path, **given)
    print(report)
    return 0 if report.good else 2


def _bytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count < 1e7 else f"{count / 1e6:,.0f} MB"


class LiveLine:
    """Shows how far a download is: a live line on a terminal, one line a file elsewhere."""

    def __init__(self) -> None:
        self.file, self.last, self.open = "", 0.0, False

    def __call__(self, file: str, done: int, total: int) -> None:
        new, self.file, now = file != self.file, file, time.monotonic()
        if not sys.stderr.isatty():
            if new:
                print(f"fetching {file} ({_bytes(total)})" if total else file, file=sys.stderr)
        elif new or done == total or now - self.last > 0.2:
            share = f"{done / total:4.0%} of {_bytes(total)}" if total else _bytes(done)
            sys.stderr.write("\r" + printable(f"{file} {share}")[:79].ljust(79))
            sys.stderr.flush()
            self.last, self.open = now, True

    def close(self) -> None:
        """End the live line."""
        sys.stderr.write("\n" * self.open)
        self.open = False
